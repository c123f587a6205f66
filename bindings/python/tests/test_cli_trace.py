"""The table of `penstock call --trace`, and tables as such: each word, and where it stands."""

from __future__ import annotations

import contextlib
import io
from typing import Any, Dict, List, Optional

import pytest

from penstock._cli import trace
from penstock._cli.output import Output, aligned


def event(what: str, hop: Optional[str] = None, index: int = 0, **rest: Any) -> Dict[str, Any]:
    return {"us": 1500, "what": what, "hop": hop, "index": index, **rest}


WORDS: List[Any] = [
    (event("waiting", **{"for": "name"}), "waits for the name's addresses"),
    (event("waiting", **{"for": "connection"}), "waits for a connection"),
    (event("waiting", **{"for": "slot"}), "waits for a free slot"),
    (event("waiting", **{"for": "endpoint"}), "waits for an endpoint"),
    (event("waiting", **{"for": None}), "goes on"),
    (event("waiting", **{"for": "something"}), "waits for something"),
    (event("callback", event="start", verdict="NEXT"), "start"),
    (event("callback", event="start"), "start"),
    (event("callback", event="send", verdict="PAUSE"), "message: PAUSE"),
    (event("callback", event="receive", verdict="TAKE"), "message: TAKE"),
    (event("callback", event="half_close"), "half-close"),
    (event("callback", event=None), ""),
    (event("resolved", event="start", verdict="NEXT"), "start: resolved, NEXT"),
    (event("resolved", event="start", code=7), "start: resolved, PERMISSION_DENIED"),
    (event("executor", event="headers"), "headers: to its executor"),
    (event("caller", event="demand", count=0), "demand 0"),
    (event("caller", event="cancel"), "cancel"),
    (event("transport", event="sent", count=3), "sent 3"),
    (event("transport", event="status", code=0), "status OK"),
    (event("transport", event="headers"), "headers"),
    (event("ended", code=0), "ended: OK"),
    (event("ended_locally", code=4), "ends the call: DEADLINE_EXCEEDED"),
    (event("ended_by_hop", code=7), "ends the call: PERMISSION_DENIED"),
    (event("restarted", restarts=2), "sent again, 2"),
    (event("retries", after_us=2500), "retries after 2.5 ms"),
    (event("not_restarted", why="it has begun"), "not sent again: it has begun"),
    (event("side_call", call=9), "starts side call 9"),
    (event("some_other_thing"), "some other thing"),
]


@pytest.mark.parametrize(("given", "words"), WORDS)
def test_the_words_for_an_event(given: Dict[str, Any], words: str) -> None:
    columns, (row,) = trace.table({"events": [given]})
    assert columns == [" ms", "", "caller", "server"]
    place = 2 if given["what"] in ("caller", "ended", "ended_locally") else 3
    assert row == ["1.500", "", *("" if at != place else words for at in (2, 3))]


def test_each_hop_has_a_column_in_the_order_of_the_hops() -> None:
    given = [
        event("caller", event="start", lane="outbound"),
        event("callback", "last", 3, event="start", lane="outbound"),
        event("callback", "first", 1, event="start", lane="outbound"),
        event("transport", event="start", lane="outbound"),
        event("transport", event="headers", lane="inbound"),
        # A hop whose name has changed keeps the one that it had first.
        event("callback", "renamed", 3, event="headers", lane="inbound"),
        event("ended_by_hop", "first", 1, code=1, lane=None),
        event("ended", code=1, lane="inbound"),
    ]
    columns, rows = trace.table({"events": given})
    assert columns == [" ms", "", "caller", "first", "last", "server"]
    assert [row[1:] for row in rows] == [
        ["->", "start", "", "", ""],
        ["->", "", "", "start", ""],
        ["->", "", "start", "", ""],
        ["->", "", "", "", "start"],
        ["<-", "", "", "", "headers"],
        ["<-", "", "", "headers", ""],
        ["", "", "ends the call: CANCELLED", "", ""],
        ["<-", "ended: CANCELLED", "", "", ""],
    ]


@pytest.mark.parametrize(("dropped", "last"), [(0, ""), (1, "1 earlier events are not shown\n")])
def test_a_trace_goes_to_the_standard_error(dropped: int, last: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    given = {"events": [event("caller", event="start", lane="outbound")], "dropped": dropped}
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        trace.show(given, Output())
    assert out.getvalue() == ""
    assert err.getvalue() == f"   ms      caller  server\n1.500  ->  start\n{last}"


def test_a_trace_without_events() -> None:
    assert trace.table({"events": None}) == ([" ms", "", "caller", "server"], [])


# ---- Tables ----


def test_columns_are_as_wide_as_their_longest_cell() -> None:
    assert aligned(["name", " n", "last"], [["a", "1", "x"], ["longer", "1000", ""]]) == [
        "name       n  last",
        "a          1  x",
        "longer  1000",
    ]
    assert aligned(["a", " b"], []) == ["a  b"]


def test_a_result_goes_to_the_standard_output() -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        output = Output()
        output.table(["one"], [["1"]])
        output.table(["two"], [["2"]], result=False)
        output.line("line")
        output.record(name="ü", number=1)
        output.message('{"name": "ü"}')
        output.note("note")
    assert out.getvalue() == 'one\n1\nline\n{"name": "ü", "number": 1}\n{"name": "ü"}\n'
    assert err.getvalue() == "two\n2\nnote\n"


class Screen(io.StringIO):
    """A stream that says that a person looks at it."""

    def isatty(self) -> bool:
        return True


def test_a_table_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "60")
    screen = Screen()
    with contextlib.redirect_stdout(screen):
        output = Output()
        assert output.is_terminal
        output.table(["name", " number"], [["[a]", "1"], ["longer", "1000"]])
        output.message(json_text := '{"a": "' + "long " * 20 + '"}')
    lines = [line.rstrip() for line in screen.getvalue().split("\n")]
    title, _, first, last = (line for line in lines[: lines.index(json_text)] if line)
    # Text in brackets is no markup, and a number ends where its title does.
    assert [line.split() for line in (title, first, last)] == [["name", "number"], ["[a]", "1"], ["longer", "1000"]]
    assert len(title) == len(first) == len(last)
    assert title.index("name") == first.index("[a]") == last.index("longer")
    # The edge of the screen breaks no message.
    assert json_text in lines
    assert Output(machine=True).machine
    assert not Output().machine


def test_a_long_cell_is_folded_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    with contextlib.redirect_stdout(screen):
        Output().table(["name"], [["0123456789" * 3]])
    assert "".join(line.strip() for line in screen.getvalue().split("\n") if "0" in line) == "0123456789" * 3
