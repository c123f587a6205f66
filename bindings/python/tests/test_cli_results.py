"""The arithmetic of `penstock bench`: percentiles, histograms, rates, and the plots of its report."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

import penstock
from aio_helpers import eventually
from penstock._cli import bench, report
from penstock._cli.failure import CommandError
from penstock._cli.output import Output
from penstock._cli.results import Results


def results(latencies: List[float], seconds: float = 2.0, codes: Optional[List[str]] = None) -> Results:
    """Results of calls with these latencies in milliseconds, which end one after the other in equal steps."""
    made = Results()
    made.began = 100.0
    for at, latency in enumerate(latencies):
        ended = 100.0 + seconds * (at + 0.5) / len(latencies)
        made.add(ended - latency / 1000, ended, codes[at] if codes else "OK")
    made._ended = 100.0 + seconds
    return made


def near(value: Any) -> Any:
    return pytest.approx(value, rel=1e-6)


# ---- Results ----


def test_the_percentiles_of_few_calls() -> None:
    assert results([7.0]).percentiles() == near(
        {**dict.fromkeys(("least", "p50", "p75", "p90", "p95", "p99", "p99.9", "largest"), 7.0), "mean": 7.0}
    )
    assert results([4.0, 1.0, 3.0, 2.0]).percentiles() == near(
        {"least": 1, "p50": 2, "p75": 3, "p90": 4, "p95": 4, "p99": 4, "p99.9": 4, "largest": 4, "mean": 2.5}
    )
    many = results([float(latency) for latency in range(2000, 0, -1)]).percentiles()
    assert many == near(
        {"least": 1, "p50": 1000, "p75": 1500, "p90": 1800, "p95": 1900, "p99": 1980, "p99.9": 1998, "largest": 2000}
        | {"mean": 1000.5}
    )


def test_the_ranges_of_a_histogram_grow_by_one_factor() -> None:
    rows = results([1.0, 1.5, 2.0, 4096.0]).histogram()
    assert [(low, high) for low, high, _ in rows] == [near((2.0**at, 2.0 ** (at + 1))) for at in range(12)]
    assert [count for _, _, count in rows][2:] == [0] * 9 + [1]
    assert sum(count for _, _, count in rows[:2]) == 3


def test_a_histogram_of_calls_that_all_took_as_long() -> None:
    rows = results([5.0] * 3).histogram()
    assert [count for _, _, count in rows] == [3] + [0] * 11
    assert rows[0] == near((5.0, 5.005, 3))


def test_a_histogram_of_calls_that_took_no_time() -> None:
    """The ranges begin at a microsecond, and end at two at least."""
    rows = results([0.0, 0.0]).histogram()
    assert (rows[0][0], rows[-1][1]) == near((1e-3, 2e-3))
    assert [count for _, _, count in rows] == [2] + [0] * 11


def test_the_rate_over_time() -> None:
    # One part for ten calls, and 60 at most.
    for calls, parts in ((1, 1), (9, 1), (19, 1), (20, 2), (595, 59), (600, 60), (5000, 60)):
        rates = results([1.0] * calls, seconds=4.0).rates()
        assert len(rates) == parts
        assert [middle for middle, _ in rates] == near([4.0 * (at + 0.5) / parts for at in range(parts)])
        assert sum(rate * 4.0 / parts for _, rate in rates) == near(calls)
    assert results([1.0] * 20, seconds=4.0).rates() == [near((1.0, 5.0)), near((3.0, 5.0))]
    # A call that ends after the end belongs to the last part.
    late = results([1.0] * 20, seconds=4.0)
    late.ends[-1] = 9.0
    assert late.rates() == [near((1.0, 5.0)), near((3.0, 5.0))]


def test_counts_and_rates() -> None:
    found = results([1.0, 2.0, 3.0, 4.0], 2.0, ["OK", "OK", "INTERNAL", "OK"])
    assert (found.codes, found.elapsed, found.rate, found.all_ok) == ({"OK": 3, "INTERNAL": 1}, 2.0, 2.0, False)
    assert found.ends == near([0.25, 0.75, 1.25, 1.75])
    assert results([1.0]).all_ok
    assert not results([1.0], codes=["INTERNAL"]).all_ok
    assert not Results().all_ok
    still = results([1.0, 2.0], 0.0)
    assert (still.elapsed, still.rate) == (0.0, 0.0)


def test_the_time_runs_until_the_end() -> None:
    found = Results()
    before = time.monotonic()
    found.begin()
    assert before <= found.began <= time.monotonic()
    assert 0 <= found.elapsed <= time.monotonic() - before
    found.end()
    assert found.elapsed == found.elapsed


def test_the_view_of_results() -> None:
    view = results([1.0, 2.0], 2.0, ["OK", "ABORTED"]).view()
    assert list(view) == ["calls", "seconds", "rate", "codes", "messages", "latency_ms", "histogram"]
    assert (view["calls"], view["seconds"], view["rate"]) == (2, 2.0, 1.0)
    assert (view["codes"], view["messages"]) == ({"OK": 1, "ABORTED": 1}, {})
    assert view["latency_ms"]["p50"] == near(1.0)
    assert len(view["histogram"]) == 12
    assert view["histogram"][0] == near({"from_ms": 1.0, "to_ms": 2 ** (1 / 12), "calls": 1})


# ---- The report ----


def test_the_bars() -> None:
    assert report._bars([("1.00", 2.0), ("2.00", 4.0)]) == (
        '<svg viewBox="0 0 720 260" role="img">'
        '<line class="axis" x1="70" y1="220" x2="720" y2="220"/><line class="axis" x1="70" y1="10" x2="70" y2="220"/>'
        '<text x="64" y="16" text-anchor="end">4</text><text x="64" y="220" text-anchor="end">0</text>'
        '<rect class="mark" x="72.0" y="115.0" width="321.0" height="105.0"><title>2</title></rect>'
        '<text x="232.5" y="238" text-anchor="middle">1.00</text>'
        '<rect class="mark" x="397.0" y="10.0" width="321.0" height="210.0"><title>4</title></rect>'
        '<text x="557.5" y="238" text-anchor="middle">2.00</text></svg>'
    )
    # Without a call there is nothing to divide by.
    assert 'height="0.0"' in report._bars([("1.00", 0.0)])


def test_the_curve() -> None:
    drawn = report._curve([(0.0, 1.0), (50.0, 2.0), (100.0, 4.0)])
    assert drawn.endswith(
        '<polyline class="line" points="70.0,167.5 390.0,115.0 710.0,10.0"/>'
        '<text x="716" y="238" text-anchor="end">100</text></svg>'
    )
    assert '<text x="64" y="16" text-anchor="end">4</text>' in drawn
    assert 'points="70.0,220.0"' in report._curve([(0.0, 0.0)])


def test_the_page() -> None:
    found = results([float(latency) for latency in range(1, 102)], 2.0, ["OK"] * 100 + ["INTERNAL"])
    page = report.page("<a> & b", found)
    lines = page.split("\n")
    assert lines[0] == "<!DOCTYPE html>"
    assert "<title>&lt;a&gt; &amp; b</title>" in lines[1]
    assert lines[2].startswith("<style>body{font:")
    versions = f"penstock {penstock.__version__}, libpenstock {penstock.library_version()}"
    assert lines[3] == f"<h1>&lt;a&gt; &amp; b</h1><p>101 calls in 2.00 s, 50 calls per second; {versions}</p>"
    rows = "<tr><td>INTERNAL</td><td>1</td></tr><tr><td>OK</td><td>100</td></tr>"
    assert lines[4] == f"<table><tr><th>status</th><th>calls</th></tr>{rows}</table>"
    assert lines[5].startswith(
        "<table><tr><th>latency</th><th>ms</th></tr><tr><td>least</td><td>1.000</td></tr>"
        "<tr><td>p50</td><td>51.000</td></tr><tr><td>p75</td><td>76.000</td></tr>"
    )
    assert lines[6] == "<h2>Calls by latency (ms)</h2>"
    assert lines[7] == report._bars([(f"{low:.2f}", count) for low, _, count in found.histogram()])
    assert lines[8] == "<h2>Latency (ms) by percentile</h2>"
    assert lines[9] == report._curve([(part, 1.0 + part) for part in range(101)])
    assert lines[10] == "<h2>Calls per second over time (s)</h2>"
    assert lines[11] == report._curve(found.rates())
    assert lines[12:] == ["</body></html>", ""]


def test_the_curve_of_few_latencies_ends_at_the_largest() -> None:
    page = report.page("few", results([1.0, 2.0, 3.0]))
    steps = [1.0 + round(part * 2 / 100) for part in range(101)]
    assert report._curve(list(enumerate(steps))) in page


# ---- The load, and what is printed of it ----


class Untyped:
    """The description of a method, as far as a load asks for it."""

    def __init__(self, requests: bool = False, responses: bool = False) -> None:
        self.client_streaming, self.server_streaming = requests, responses


def load(found: Optional[Results] = None, **flags: Any) -> bench.Load:
    given: Dict[str, Any] = {"max_time": None, "requests": None, "duration": None, "rate": None, **flags}
    made = bench.Load(argparse.Namespace(**given), "/a.B/C", Untyped(), [b""], [])
    made.results = found or made.results
    return made


@pytest.mark.parametrize(
    ("flags", "calls", "seconds", "part"),
    [
        ({}, 250, 9.0, 0.25),
        ({"requests": 50}, 25, 9.0, 0.5),
        ({"duration": 8.0}, 3, 2.0, 0.25),
        # What is further on counts, and more than all is not possible.
        ({"duration": 8.0, "requests": 10}, 5, 2.0, 0.5),
        ({"duration": 8.0, "requests": 10}, 1, 4.0, 0.5),
        ({"duration": 8.0}, 3, 16.0, 1.0),
        ({"requests": 2}, 3, 1.0, 1.0),
    ],
)
def test_the_part_that_is_done(flags: Dict[str, Any], calls: int, seconds: float, part: float) -> None:
    assert load(results([1.0] * calls, seconds), **flags).progress() == near(part)


def test_the_bar_in_a_terminal() -> None:
    err = io.StringIO()
    bar = bench._Bar(load(results([1.0] * 250, 0.1)))
    shown = bar.run()
    with contextlib.redirect_stderr(err):

        async def once() -> None:
            showing = asyncio.ensure_future(shown)
            await eventually(lambda: err.getvalue() != "")
            showing.cancel()

        asyncio.run(once())
        assert err.getvalue() == f"\r[{'#' * 10}{'.' * 30}] 250 calls, 2,500/s "
        err.seek(0)
        err.truncate()
        bar.clear()
        assert err.getvalue() == f"\r{' ' * 78}\r"


def shown(found: Results, machine: bool = False, html: Optional[str] = None) -> str:
    out = io.StringIO()
    args = argparse.Namespace(html=html, method="/a.B/C", address="host:1", concurrency=3)
    with contextlib.redirect_stdout(out):
        bench._show(args, load(found), Output(machine))
    return out.getvalue()


def test_the_figures_that_are_printed() -> None:
    found = results([1.0] * 1500 + [4096.0] * 3, 0.5, ["OK"] * 1500 + ["ABORTED"] * 2 + ["INTERNAL"])
    found.said["ABORTED"] = "not now"
    assert shown(found).split("\n") == [
        "1,503 calls in 0.50 s: 3,006 calls/s",
        "  ABORTED 2, such as: not now",
        "  INTERNAL 1",
        "  OK 1,500",
        "latency        ms",
        "least       1.000",
        "p50         1.000",
        "p75         1.000",
        "p90         1.000",
        "p95         1.000",
        "p99         1.000",
        "p99.9    4096.000",
        "largest  4096.000",
        "mean        9.174",
        "",
        "                  ms  calls",
        f"      1.000 to 2.000  1,500  {'#' * 40}",
        *[f"{f'{2**at}.000 to {2 ** (at + 1)}.000':>20}      0" for at in range(1, 11)],
        "2048.000 to 4096.000      3",
        "",
    ]


def test_nothing_is_printed_of_no_calls(tmp_path: Path) -> None:
    assert shown(Results()) == ""
    assert shown(Results(), machine=True, html=str(tmp_path / "no.html")) == ""
    assert not (tmp_path / "no.html").exists()


def test_a_report_has_the_method_and_the_address(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert '"calls": 1' in shown(results([1.0]), machine=True, html=str(file))
    assert "<h1>a.B/C on host:1, 3 calls at the same time</h1>" in file.read_text(encoding="utf-8")
    with pytest.raises(CommandError, match=r"^--html .*/none/x\.html: No such file or directory$"):
        shown(results([1.0]), html=str(tmp_path / "none/x.html"))
