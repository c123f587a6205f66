"""Small line plots in SVG, written by hand: logarithmic axes, a few panels beside each other."""

import math

WIDTH, HEIGHT = 300, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 36
INK, GREY, LINE = "#222222", "#d8d8d8", "#0b6bb8"


def short(value):
    """A short form of a number: 1500 as 1.5k, 1048576 as 1M."""
    for size, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    for size, unit in ((1e6, "m"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


class Scale:
    """A logarithmic scale: the place of a value between `begin` and `end`, in pixels. The place of 0 is before that of the least
    positive value."""

    def __init__(self, values, begin, end, whole_decades):
        positive = [value for value in values if value > 0]
        low, high = math.log10(min(positive)), math.log10(max(positive))
        if whole_decades:
            low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
        self.low, self.high = low, max(high, low + 1e-3)
        self.begin, self.end = begin, end
        if len(positive) < len(values):
            self.zero = begin
            self.begin = begin + (end - begin) * 0.08

    def at(self, value):
        if value <= 0:
            return self.zero
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + (self.end - self.begin) * part


def text(x, y, words, anchor="middle", size=10):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def labels(values, scale, room):
    """The values that get a label: as many as possible, with `room` pixels or more between two of them."""
    chosen, last = [], None
    for value in values:
        x = scale.at(value)
        if last is None or x - last >= room:
            chosen.append(value)
            last = x
    return chosen


def panel(offset, title, axis, xs, points):
    """One panel of a plot. `points`: (least, median, most) for each value of `xs`."""
    across = Scale(xs, offset + LEFT, offset + WIDTH - RIGHT, False)
    up = Scale([value for point in points for value in point], HEIGHT - BOTTOM, TOP, True)
    parts = [text(offset + LEFT, 18, title, "start", 12),
             text(offset + (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, axis)]
    for decade in range(int(up.low), math.ceil(up.high) + 1):
        y = up.at(10.0 ** decade)
        parts.append(f'<path d="M{offset + LEFT} {y:.1f}H{offset + WIDTH - RIGHT}" stroke="{GREY}"/>')
        parts.append(text(offset + LEFT - 5, y + 3, short(10.0 ** decade), "end"))
    for value in labels(xs, across, 30):
        x = across.at(value)
        parts.append(f'<path d="M{x:.1f} {HEIGHT - BOTTOM}v4" stroke="{INK}"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 15, short(value)))
    line = " ".join(f"{across.at(x):.1f},{up.at(middle):.1f}" for x, (_, middle, _) in zip(xs, points, strict=True))
    parts.append(f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="1.5"/>')
    for x, (least, middle, most) in zip(xs, points, strict=True):
        at = across.at(x)
        parts.append(f'<path d="M{at:.1f} {up.at(least):.1f}V{up.at(most):.1f}" stroke="{LINE}"/>')
        parts.append(f'<circle cx="{at:.1f}" cy="{up.at(middle):.1f}" r="2.5" fill="{LINE}"/>')
    return parts


def write(path, axis, xs, panels):
    """Writes a plot with a panel for each (title, points) of `panels`."""
    width = WIDTH * len(panels)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" '
             f'height="{HEIGHT}" font-family="sans-serif" fill="{INK}">',
             f'<rect width="{width}" height="{HEIGHT}" fill="white"/>']
    for number, (title, points) in enumerate(panels):
        parts += panel(number * WIDTH, title, axis, xs, points)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
