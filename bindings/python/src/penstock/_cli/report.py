"""The report of `penstock bench`: one page of HTML, with its plots in it."""

from __future__ import annotations

import html
from typing import List, Sequence, Tuple

from .. import __version__, library_version
from .results import Results

_WIDTH, _HEIGHT, _LEFT, _BELOW = 720, 260, 70, 40
_STYLE = (
    "body{font:15px sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#1f2328;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:2px 14px 2px 0;text-align:right}td:first-child,th:first-child"
    "{text-align:left}svg text{font:12px sans-serif;fill:#59636e}.mark{fill:#0969da}.line{fill:none;stroke:#0969da;"
    "stroke-width:2}.axis{stroke:#d0d7de}"
)


def page(title: str, results: Results) -> str:
    """The whole page."""
    times = [(name, f"{value:.3f}") for name, value in results.percentiles().items()]
    statuses = [(name, f"{count:,}") for name, count in sorted(results.codes.items())]
    bars = [(f"{low:.2f}", float(count)) for low, _, count in results.histogram()]
    ordered = sorted(results.latencies)
    steps = [round(part * (len(ordered) - 1) / 100) for part in range(101)]
    curve = [(float(part), ordered[at]) for part, at in enumerate(steps)]
    summary = f"{len(ordered):,} calls in {results.elapsed:.2f} s, {results.rate:,.0f} calls per second"
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1><p>{summary}; penstock {__version__}, libpenstock {library_version()}</p>",
        _table(("status", "calls"), statuses),
        _table(("latency", "ms"), times),
        "<h2>Calls by latency (ms)</h2>",
        _bars(bars),
        "<h2>Latency (ms) by percentile</h2>",
        _curve(curve),
        "<h2>Calls per second over time (s)</h2>",
        _curve(results.rates()),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(titles: Tuple[str, str], rows: Sequence[Tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table><tr><th>{titles[0]}</th><th>{titles[1]}</th></tr>{cells}</table>"


def _svg(most: float, parts: List[str]) -> str:
    """A plot with its axes, whose vertical one ends at ``most``."""
    bottom = _HEIGHT - _BELOW
    axes = [
        f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH}" y2="{bottom}"/>',
        f'<line class="axis" x1="{_LEFT}" y1="10" x2="{_LEFT}" y2="{bottom}"/>',
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{most:,.4g}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
    ]
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(axes + parts)}</svg>'


def _bars(bars: Sequence[Tuple[str, float]]) -> str:
    most, bottom = max(value for _, value in bars) or 1.0, _HEIGHT - _BELOW
    width = (_WIDTH - _LEFT) / len(bars)
    parts = []
    for at, (name, value) in enumerate(bars):
        x, height = _LEFT + at * width, (bottom - 10) * value / most
        parts.append(
            f'<rect class="mark" x="{x + 2:.1f}" y="{bottom - height:.1f}" width="{width - 4:.1f}" '
            f'height="{height:.1f}">'
            f"<title>{value:,.0f}</title></rect>"
        )
        parts.append(f'<text x="{x + width / 2:.1f}" y="{bottom + 18}" text-anchor="middle">{name}</text>')
    return _svg(most, parts)


def _curve(points: Sequence[Tuple[float, float]]) -> str:
    most, bottom = max(value for _, value in points) or 1.0, _HEIGHT - _BELOW
    last = points[-1][0] or 1.0
    places = " ".join(
        f"{_LEFT + (_WIDTH - _LEFT - 10) * x / last:.1f},{bottom - (bottom - 10) * value / most:.1f}"
        for x, value in points
    )
    end = f'<text x="{_WIDTH - 4}" y="{bottom + 18}" text-anchor="end">{last:,.4g}</text>'
    return _svg(most, [f'<polyline class="line" points="{places}"/>', end])
