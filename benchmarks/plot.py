"""The plot of a run: bars of this library's ratios to the others, drawn as SVG."""

import html
import math

from aims import ratio
from table import servers

COLOURS = {"h2load": "#4e79a7", "grpc++": "#f28e2b", "grpcio": "#59a14f", "grpc-swift-2": "#b07aa1", "nghttp2": "#4e79a7"}
WIDTH, LABEL, BAR, GAP, TOP = 860, 300, 14, 12, 80
LEAST, MOST = 0.25, 32.0  # the ends of the logarithmic scale


def place(value):
    part = math.log(min(max(value, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return LABEL + part * (WIDTH - LABEL - 70)


def bars(row):
    """The ratios of this library to the other clients in a row, by client; 2 means twice as good. Empty if the row
    has no figures of this library."""
    own = next((name for name in ("penstock", "penstock, callbacks") if name in row["clients"]), None)
    found = []
    for name in COLOURS:
        if own and name in row["clients"]:
            value = ratio(row["clients"][own], row["clients"][name])
            if value:
                found.append((name, value if row["better"] == "more" else 1 / value))
    return found


def svg(result):
    parts, at = [], TOP

    def words(x, y, text, size=12, **more):
        extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{extra}>{html.escape(text)}</text>')

    words(10, 24, "penstock beside others: ratio of the rates (of less is better: inverted)", 16, font_weight="bold")
    words(10, 44, "; ".join(f"{key} {result['about'][key]}" for key in ("date", "cpu", "cores", "kernel")))
    for number, (name, colour) in enumerate((name, COLOURS[name]) for name in list(COLOURS)[:4]):
        parts.append(f'<rect x="{LABEL + number * 120}" y="54" width="12" height="12" fill="{colour}"/>')
        words(LABEL + number * 120 + 17, 64, f"to {name}")
    for server in servers(result):
        words(10, at + 12, f"Server: {server}", 13, font_weight="bold")
        at += 26
        for row in (row for row in result["rows"] if row["server"] == server):
            found = bars(row)
            if not found:
                continue
            words(LABEL - 8, at + len(found) * BAR / 2 + 4, row["metric"] + (" ~" if row["noisy"] else ""), text_anchor="end")
            for name, value in found:
                start, end = sorted((place(1), place(value)))
                parts.append(f'<rect x="{start:.1f}" y="{at}" width="{max(end - start, 1):.1f}" height="{BAR - 2}" '
                             f'fill="{COLOURS[name]}"/>')
                words(end + 4, at + BAR - 4, f"{value:.2f}", 11)
                at += BAR
            at += GAP
    grid = []
    for power in range(-2, 6):
        x = place(2.0**power)
        grid.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{at}" stroke="{"#333" if power == 0 else "#ddd"}"/>')
        words(x, at + 14, f"{2.0**power:g}", 11, text_anchor="middle")
    words(10, at + 34, "~ the machine was noisy there: (max - min) / median of some client is over 15 %.", 11)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {at + 44}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(grid + parts) + "\n</svg>\n")
