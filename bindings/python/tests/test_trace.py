"""Traces and snapshots: the events of a call, its holder, and an interceptor that hangs."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterator, List

import pytest

import penstock
from helpers import Only, eventually, on_thread, unary
from penstock import Channel, Hop, RpcError, StatusCode, Ticket, Verdict

UNARY = "/penstock.Echo/Unary"
BIDI = "/penstock.Echo/Bidi"


@pytest.fixture
def traced(server: str) -> Iterator[Channel]:
    with Channel(server, tls=False, options={"trace": True}) as channel:
        yield channel


class Auth(penstock.Interceptor):
    """Pauses each start until the test resolves its ticket."""

    def __init__(self) -> None:
        self.tickets: List[Ticket] = []
        self.reached = threading.Event()

    def on_start(self, hop: Hop) -> Verdict:
        self.tickets.append(hop.ticket())
        self.reached.set()
        return Verdict.PAUSE


def test_a_trace_has_what_happened_at_each_hop(traced: Channel) -> None:
    traced.add_interceptor(Only(on_start=lambda hop: None, on_receive=lambda hop: None), name="meter")
    _, outcome = traced.unary_unary(UNARY).with_call(b"s3cret")
    trace = outcome.trace
    assert trace["method"] == UNARY
    assert trace["ended"] is True
    assert trace["holder"] is None
    at_hop = [(event["event"], event.get("verdict")) for event in trace["events"] if event["hop"] == "meter"]
    assert ("start", "NEXT") in at_hop
    assert ("receive", "NEXT") in at_hop
    assert trace["events"][-1]["what"] == "ended"
    times = [event["us"] for event in trace["events"]]
    assert times[0] <= times[-1]
    assert "s3cret" not in str(trace)


def test_demand_and_sent_say_how_many(traced: Channel) -> None:
    traced.add_interceptor(Only(on_demand=lambda hop: None, on_send=lambda hop: None))
    call = traced.stream_stream(BIDI)(iter([b"a", b"b"]))
    assert list(call) == [b"a", b"b"]
    counted = [event for event in call.trace["events"] if "count" in event]
    # There may be one more demand than messages, because the last demand may be for a message that never comes.
    assert {(event["what"], event["count"]) for event in counted if event["event"] == "demand"} == {("caller", 1)}
    assert sum(event["count"] for event in counted if event["event"] == "sent") == 2
    assert all(event["what"] in ("caller", "transport") for event in counted)


def test_without_the_option_there_is_none(channel: Channel) -> None:
    _, outcome = channel.unary_unary(UNARY).with_call(b"x")
    assert outcome.trace == {}


def test_an_error_tells_who_ended_the_call(traced: Channel) -> None:
    def refuse(hop: Hop) -> None:
        hop.end(StatusCode.PERMISSION_DENIED, "no")

    traced.add_interceptor(Only(on_start=refuse), name="guard")
    with pytest.raises(RpcError) as raised:
        unary(traced)
    ended = [event for event in raised.value.trace["events"] if event["what"] == "ended_by_hop"]
    assert [(event["hop"], event["code"]) for event in ended] == [("guard", 7)]


def test_a_hop_sees_its_call_s_trace(traced: Channel) -> None:
    traces: List[Dict[str, Any]] = []
    traced.add_interceptor(Only(on_status=lambda hop: traces.append(hop.trace)), name="curious")
    unary(traced)
    assert traces[0]["holder"]["text"] == "in the callback of `curious` about status"
    assert any(event["event"] == "receive" for event in traces[0]["events"])


def paused(look: Callable[[], Dict[str, Any]], waiting: int) -> Dict[str, Any]:
    """A call as ``look()`` shows it once so many events wait behind the paused one; a busy loop needs time."""
    found: Dict[str, Any] = {}

    def stands() -> bool:
        found.update(look())
        return found["holder"] is not None and [at["waiting"] for at in found["outbound"]] == [waiting]

    eventually(stands)
    return found


def test_a_paused_call_names_who_holds_it(channel: Channel) -> None:
    auth = Auth()
    channel.add_interceptor(auth, name="auth")
    call = channel.stream_stream(BIDI)([b"1"])
    assert auth.reached.wait(30)
    # The message and the half-close wait behind start.
    assert paused(lambda: call.trace, 2)["holder"]["text"].startswith("paused in `auth` for ")
    view = paused(lambda: next(each for each in penstock.snapshot(60)["calls"] if each["id"] == call.call_id), 2)
    assert view["outbound"][0]["event"] == "start"
    assert view["holder"]["hop"] == "auth"
    auth.tickets[0].resume()
    assert list(call) == [b"1"]
    assert call.trace["ended"] is True


AT_HOP = {"hop", "index", "level", "attempt"}
EVENT = {"us", "what", "hop", "thread", "thread_id"}
MORE = {
    "callback": {"verdict"},
    "resolved": {"verdict"},
    "restarted": {"restarts"},
    "waiting": {"for"},
    "ended": {"code"},
}


def test_each_object_has_the_members_that_the_header_lists(traced: Channel) -> None:
    auth = Auth()

    class Again(penstock.Interceptor):
        replay_bytes = 100

        def on_status(self, hop: Hop) -> object:
            return Verdict.RESTART if hop.can_restart and len(auth.tickets) == 1 else None

    traced.add_interceptor(Again(), name="again")
    traced.add_interceptor(auth, name="auth")
    call = traced.stream_stream(BIDI)([])
    for attempt in (1, 2):
        assert auth.reached.wait(30)
        auth.reached.clear()
        # The half-close comes from another thread.
        trace = paused(lambda: call.trace, 1)
        assert set(trace) == {
            *("id", "method", "kind", "target", "ended", "holder", "age_ms", "deadline_ms", "attempts"),
            *("protocol", "http"),
            *("connection_silent_ms", "peer", "local", "outbound", "inbound", "events", "dropped"),
        }
        holder = trace["holder"]
        assert set(holder) == {"state", "hop", "text", "for_ms"}
        before, _, behind = holder["text"].partition("paused in `auth` for ")
        assert (before, behind.endswith(" ms")) == ("", True)
        assert int(behind[:-3].replace(",", "")) < 60_000
        (waiting,) = trace["outbound"]
        assert set(waiting) == AT_HOP | {"state", "event", "for_ms", "waiting"}
        place = (waiting["hop"], waiting["index"], waiting["level"], waiting["attempt"])
        assert place == ("auth", 1, "bytes", attempt)
        assert (waiting["state"], waiting["event"]) == ("paused", "start")
        # Both count from the pause, which is younger than the call.
        assert 0 <= holder["for_ms"] <= trace["age_ms"]
        assert 0 <= waiting["for_ms"] <= trace["age_ms"]
        auth.tickets[-1].resume()
    assert list(call) == []
    trace = call.trace
    for event in trace["events"]:
        kind = event["what"]
        assert set(event) >= EVENT | MORE.get(kind, set()) | (AT_HOP if event["hop"] else set()), event
        assert ("event" in event) == ("lane" in event), event
        if kind == "callback" and event["event"] != "destroy":
            assert event["took_us"] >= 0
        if kind == "transport" and event["event"] == "status":
            assert event["code"] == 0
    assert MORE.keys() <= {event["what"] for event in trace["events"]}
    started = [event for event in trace["events"] if (event["hop"], event.get("event")) == ("auth", "start")]
    assert [event["attempt"] for event in started if event["what"] == "callback"] == [1, 2]


def test_a_hung_interceptor_names_itself(server: str) -> None:
    entered, may_go = threading.Event(), threading.Event()

    def hang(hop: Hop) -> None:
        entered.set()
        may_go.wait(30)

    with penstock.Runtime() as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        channel.add_interceptor(Only(on_start=hang), name="stuck")
        thread = on_thread(lambda: unary(channel))
        assert entered.wait(30)
        view = runtime.snapshot(0.1)
        assert view["complete"] is False
        assert view["calls"] is None
        assert (view["running"]["interceptor"], view["running"]["event"]) == ("stuck", "start")
        # The snapshot has waited 100 ms for the callback.
        assert 100 <= view["running"]["for_ms"] < 60_000
        may_go.set()
        thread.join()
        view = runtime.snapshot(20)
        assert (view["complete"], view["running"], view["calls"]) == (True, None, [])
