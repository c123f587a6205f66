"""`penstock bench` and `penstock doctor`, against grpcio's server with reflection."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import xml.etree.ElementTree
from pathlib import Path
from typing import Any, Dict

import pytest

from cli_helpers import GREETER, HELLO, PROTOS, cli, printed, refused, started
from penstock._cli.results import Results

YOU = ("-d", '{"name": "you"}')


@pytest.fixture
def plain(servers: Dict[str, str]) -> str:
    return servers["command_plain"]


# ---- bench ----


def test_what_it_says(plain: str) -> None:
    out = printed("bench", "--plaintext", "-c", "4", "-n", "50", *YOU, plain, HELLO)
    assert re.match(r"50 calls in [\d.]+ s: [\d,]+ calls/s\n  OK 50\nlatency +ms\nleast ", out)
    names = [line.split()[0] for line in out.splitlines()[3:12]]
    assert names == ["least", "p50", "p75", "p90", "p95", "p99", "p99.9", "largest", "mean"]
    counted = re.findall(r"[\d.]+ to [\d.]+ +(\d+)", out)
    assert sum(map(int, counted)) == 50


@pytest.mark.parametrize(
    ("method", "request_text"),
    [
        (HELLO, '{"name": "a"}'),
        (f"{GREETER}/SayHelloStreamReply", '{"name": "a"}'),
        (f"{GREETER}/SayHelloBidiStream", '{"name": "a"}\n{"name": "b"}'),
        ("grpc.testing.TestService/StreamingInputCall", "{}{}{}"),
    ],
)
def test_each_kind_of_call(plain: str, method: str, request_text: str) -> None:
    (view,) = cli("bench", "--json", "--plaintext", "-c", "3", "-n", "20", "-d", request_text, plain, method).records
    assert view["calls"] == 20
    assert view["codes"] == {"OK": 20}
    times = view["latency_ms"]
    assert 0 < times["least"] <= times["p50"] <= times["p99"] <= times["largest"]
    assert sum(row["calls"] for row in view["histogram"]) == 20


def test_so_long_and_so_many_a_second(plain: str) -> None:
    flags = ("bench", "--json", "--plaintext", "-duration", "0.3", "-rate", "100")
    (view,) = cli(*flags, plain, HELLO).records
    # 30, and never more; on a slow machine fewer.
    assert 1 <= view["calls"] <= 30


def test_calls_that_fail(plain: str) -> None:
    flags = ("bench", "--plaintext", "-n", "10", "-d", '{"name": "nobody"}', plain, HELLO)
    ran = cli(*flags)
    assert (ran.code, ran.err) == (3, "")
    assert "  FAILED_PRECONDITION 10, such as: not so\n" in ran.out
    ran = cli(*flags, "--json")
    assert (ran.code, ran.records[0]["messages"]) == (3, {"FAILED_PRECONDITION": "not so"})


def test_the_report(plain: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    printed("bench", "--plaintext", "-n", "50", "--html", str(file), *YOU, plain, HELLO)
    text = file.read_text()
    assert f"<h1>{HELLO} on {plain}, 10 calls at the same time</h1>" in text
    plots = re.findall(r"<svg.*?</svg>", text)
    assert len(plots) == 3
    for plot in plots:
        drawn = xml.etree.ElementTree.fromstring(plot)
        right, bottom = map(float, drawn.attrib["viewBox"].split()[2:])
        bars = [[float(bar.attrib[name]) for name in ("x", "width", "y", "height")] for bar in drawn.iter("rect")]
        assert all(x > 0 and x + width <= right and y > 0 and y + height < bottom for x, width, y, height in bars)
        # The bars stand beside each other, and fill the plot to its right edge.
        assert all(before[0] + before[1] < after[0] for before, after in zip(bars, bars[1:]))
        assert not bars or right - 10 < bars[-1][0] + bars[-1][1]
        for line in drawn.iter("polyline"):
            for point in line.attrib["points"].split():
                x, y = map(float, point.split(","))
                assert 0 < x < right
                assert 0 < y < bottom
    assert "http" not in text.replace("https://", "http://").replace(plain, "")
    assert "No such file" in refused(1, "bench", "--plaintext", "-n", "1", "--html", "no/x.html", plain, HELLO)


def test_over_tls_and_in_another_protocol(servers: Dict[str, str], certificates: Path, peer: Any) -> None:
    roots = ("--cacert", str(certificates / "ca.pem"))
    assert "  OK 10\n" in printed("bench", *roots, "-n", "10", servers["command_tls"], HELLO)
    flags = ("bench", "--plaintext", "--protocol", "connect", "-n", "10", *PROTOS)
    assert "  OK 10\n" in printed(*flags, peer.target, HELLO)


def test_flags_that_are_wrong(plain: str) -> None:
    call = ("bench", "--plaintext", *PROTOS, plain)
    assert "whole number above 0" in refused(2, *call, HELLO, "-c", "0")
    assert "takes one request, and -d has 2" in refused(2, *call, HELLO, "-d", "{}{}")
    assert "has no method 'No'" in refused(1, *call, f"{GREETER}/No")


def test_ctrl_c_shows_what_was_measured(plain: str) -> None:
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    screen, inner = os.openpty()
    with started("bench", "--plaintext", "-duration", "600", plain, HELLO, **{**pipes, "stderr": inner}) as process:
        os.close(inner)
        seen = ""
        # The bar is on the terminal, and calls have ended.
        while not re.search(r"\[#*\.+\] [1-9]\d* calls", seen):
            seen += os.read(screen, 4096).decode()
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        assert process.wait(60) == 130
    os.close(screen)
    assert "calls/s\n  OK " in out
    assert "p99" in out


def test_percentiles_and_histogram() -> None:
    results = Results()
    results.begin()
    for latency in range(1, 101):
        results.add(0, latency / 1000, "OK")
    found = results.percentiles()
    assert {name: round(value) for name, value in found.items() if name != "mean"} == {
        "least": 1,
        "p50": 50,
        "p75": 75,
        "p90": 90,
        "p95": 95,
        "p99": 99,
        "p99.9": 100,
        "largest": 100,
    }
    rows = results.histogram()
    assert sum(count for _, _, count in rows) == 100
    assert all(high == pytest.approx(low) for (_, high, _), (low, _, _) in zip(rows, rows[1:]))


# ---- doctor ----


def test_what_is_installed() -> None:
    out = printed("doctor")
    for name in ("penstock ", "libpenstock ", "Python ", "roots of TLS ", "protobuf ", "rich ", "protoc "):
        assert f"\n{name}" in out
    assert set(cli("doctor", "--json").records[0]["installed"]) > {"penstock", "libpenstock", "protobuf"}


def test_a_connection_step_by_step(plain: str) -> None:
    out = printed("doctor", "--plaintext", plain)
    steps = [f"looks up the addresses of {plain}", f"connects to {plain}", f"{plain} takes calls: grpc over HTTP/2"]
    places = [out.index(step) for step in steps]
    assert places == sorted(places)
    assert "\nThe channel is READY.\n" in out
    assert re.search(r"\nhealth +SERVING\ngrpc.reflection.v1 +answers\ngrpc.reflection.v1alpha +not there\n", out)


def test_a_connection_with_tls(servers: Dict[str, str], certificates: Path) -> None:
    flags = ("doctor", "--json", "--cacert", str(certificates / "ca.pem"), servers["command_tls"])
    (view,) = cli(*flags).records
    assert [step["event"] for step in view["steps"]] == ["RESOLVING", "RESOLVED", "CONNECTING", "SECURED", "READY"]
    assert view["steps"][3]["tls_version"] == "TLSv1.3"
    assert view["server"]["certificate"].startswith("SHA-256 ")
    assert (view["state"], view["advice"]) == ("READY", None)


def test_connections_that_fail(servers: Dict[str, str]) -> None:
    ran = cli("doctor", "--plaintext", "127.0.0.1:1")
    assert (ran.code, ran.err) == (3, "")
    assert "127.0.0.1:1 can't be used: Connection refused; the next attempt begins after " in ran.out
    assert "\nThe channel is TRANSIENT_FAILURE.\n" in ran.out
    ran = cli("doctor", servers["command_plain"])
    assert (ran.code, ran.err) == (3, "")
    assert "The channel is TRANSIENT_FAILURE; for a server without TLS: --plaintext.\n" in ran.out
