"""The trace of a call as a table: a row for each event, a column for each place that it comes to."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .. import StatusCode
from .output import Output

# The words for events that differ from those of the trace.
_WORDS = {"send": "message", "receive": "message", "half_close": "half-close"}
_ARROWS = {"outbound": "->", "inbound": "<-"}
_WAITS = {
    "name": "waits for the name's addresses",
    "connection": "waits for a connection",
    "slot": "waits for a free slot",
    "endpoint": "waits for an endpoint",
    None: "goes on",
}


def show(trace: Dict[str, Any], output: Output) -> None:
    """Prints the table."""
    columns, rows = table(trace)
    output.table(columns, rows, result=False)
    if trace["dropped"]:
        output.note(f"{trace['dropped']} earlier events are not shown")


def table(trace: Dict[str, Any]) -> Tuple[List[str], List[List[str]]]:
    """The titles of the columns, and the rows."""
    events: List[Dict[str, Any]] = trace["events"] or []
    hops: Dict[int, str] = {}
    for event in events:
        if event["hop"] is not None:
            hops.setdefault(event["index"], event["hop"])
    order = sorted(hops)
    columns = [" ms", "", "caller", *(hops[key] for key in order), "server"]
    rows = []
    for event in events:
        row = [f"{event['us'] / 1000:.3f}", _ARROWS.get(event.get("lane") or "", ""), *([""] * (len(order) + 2))]
        row[2 + _place(event, order)] = _words(event)
        rows.append(row)
    return columns, rows


def _place(event: Dict[str, Any], order: List[int]) -> int:
    """The column of an event, from that of the caller on."""
    if event["hop"] is not None:
        return 1 + order.index(event["index"])
    return 0 if event["what"] in ("caller", "ended", "ended_locally") else 1 + len(order)


def _words(event: Dict[str, Any]) -> str:
    what, name = event["what"], event.get("event") or ""
    words = str(_WORDS.get(name, name))
    if what == "waiting":
        return str(_WAITS.get(event["for"], f"waits for {event['for']}"))
    if what == "callback":
        verdict = event.get("verdict", "NEXT")
        return words if verdict == "NEXT" else f"{words}: {verdict}"
    if what == "resolved":
        return f"{words}: resolved, {event['verdict'] if 'verdict' in event else _code(event)}"
    if what == "executor":
        return f"{words}: to its executor"
    if what in ("caller", "transport"):
        if "count" in event:
            return f"{words} {event['count']}"
        return f"{words} {_code(event)}" if "code" in event else words
    if what in ("ended", "ended_locally", "ended_by_hop"):
        return f"{'ended' if what == 'ended' else 'ends the call'}: {_code(event)}"
    if what == "restarted":
        return f"sent again, {event['restarts']}"
    if what == "retries":
        return f"retries after {event['after_us'] / 1000:g} ms"
    if what == "not_restarted":
        return f"not sent again: {event['why']}"
    if what == "side_call":
        return f"starts side call {event['call']}"
    return str(what).replace("_", " ")


def _code(event: Dict[str, Any]) -> str:
    return StatusCode(event["code"]).name
