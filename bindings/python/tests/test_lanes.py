"""The two lanes of a hop, to the server and to the caller: injecting, refusing, changing a status, holding one event
until another comes."""

from __future__ import annotations

import itertools
import threading
from typing import Any, List, Optional

import pytest

from helpers import Only, bidi, unary
from penstock import Channel, Hop, Interceptor, RpcError, StateError, Status, StatusCode, Ticket, Verdict


def test_messages_are_injected_at_each_point(channel: Channel) -> None:
    refused: List[str] = []

    class Inject(Interceptor):
        def create(self, hop: Hop) -> List[bytes]:
            return [b"0"]

        def _too_early_or_late(self, hop: Hop) -> None:
            with pytest.raises(StateError):
                hop.send_message(b"x")
            refused.append(hop.event.name)

        on_start = on_status = _too_early_or_late

        def on_send(self, hop: Hop) -> None:
            hop.send_message(hop.state.pop() if hop.state else b"+")

        def on_half_close(self, hop: Hop) -> None:
            hop.send_message(b"y")
            hop.send_message(b"z")

        def on_receive(self, hop: Hop) -> Optional[Verdict]:
            return Verdict.DROP if hop.message == b"z" else None

    channel.add_interceptor(Inject())
    assert bidi(channel, [b"a", b"b"]) == [b"0", b"a", b"+", b"b", b"y"]
    assert refused == ["START", "STATUS"]


def test_everything_is_dropped_and_replaced(channel: Channel) -> None:
    channel.add_interceptor(
        Only(on_send=lambda hop: Verdict.DROP, on_half_close=lambda hop: hop.send_message(b"instead"))
    )
    assert unary(channel) == b"instead"
    assert bidi(channel, [b"a", b"b"]) == [b"instead"]


@pytest.mark.parametrize("event", ["on_start", "on_send", "on_half_close", "on_headers", "on_status"])
def test_a_call_is_refused_with_details_and_trailers(channel: Channel, event: str) -> None:
    status = Status(9, "not today", [("t/acme.X", b"\x00\x01")], {"x-why": "because"})
    channel.add_interceptor(Only(**{event: lambda hop: hop.end(status)}))
    with pytest.raises(RpcError, match="FAILED_PRECONDITION: not today") as caught:
        unary(channel)
    assert [detail.value for detail in caught.value.status_details] == [b"\x00\x01"]
    assert caught.value.trailing_metadata().get("x-why") == "because"


def test_success_becomes_an_error(channel: Channel) -> None:
    def fail(hop: Hop) -> None:
        assert hop.status.code is StatusCode.OK
        hop.status.code = StatusCode.DATA_LOSS
        hop.status.message = "that answer is wrong"
        hop.status.add_detail(("t/acme.Why", b"w"))

    channel.add_interceptor(Only(on_status=fail))
    with pytest.raises(RpcError, match="DATA_LOSS: that answer is wrong") as caught:
        unary(channel)
    assert caught.value.find_detail("acme.Why") is not None
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"a"])
    assert next(call) == b"a"
    with pytest.raises(RpcError, match="DATA_LOSS"):
        next(call)


def test_an_error_becomes_a_success_with_a_message(channel: Channel) -> None:
    def rescue(hop: Hop) -> None:
        assert hop.status.code is StatusCode.UNIMPLEMENTED
        hop.deliver_message(b"from elsewhere")
        hop.status.code = StatusCode.OK
        hop.status.message = ""

    channel.add_interceptor(Only(on_status=rescue))
    assert channel.unary_unary("/no.such/Method")(b"x") == b"from elsewhere"
    assert channel.stream_unary("/no.such/Method")(iter([b"x"])) == b"from elsewhere"


def log_events(log: List[str], name: str, held: str = "") -> Only:
    def see(event: str) -> Any:
        def callback(hop: Hop) -> Optional[Verdict]:
            log.append(f"{name}:{event}")
            return Verdict.HOLD if event in held.split() else None

        return callback

    lanes = ("start", "send", "half_close", "headers", "receive", "status")
    return Only(**{f"on_{event}": see(event) for event in lanes})


@pytest.mark.parametrize(
    ("held", "released_by", "expected"),
    [
        ("headers", "hold:receive", ["above:headers", "above:receive"]),
        ("headers receive", "hold:status", ["above:headers", "above:receive", "above:status"]),
        ("start", "hold:send", ["below:start", "below:send"]),
        ("start send", "hold:half_close", ["below:start", "below:send", "below:half_close"]),
    ],
)
def test_what_is_held_waits_for_a_later_event(
    channel: Channel, held: str, released_by: str, expected: List[str]
) -> None:
    log: List[str] = []
    channel.add_interceptor(log_events(log, "above"), priority=3)
    channel.add_interceptor(log_events(log, "hold", held), priority=2)
    channel.add_interceptor(log_events(log, "below"), priority=1)
    assert unary(channel) == b"x"
    place = log.index(released_by)
    side = expected[0].split(":")[0]
    assert [event for event in log if event.startswith(side) and event in expected] == expected
    assert not {event for event in log[:place] if event in expected}


def test_headers_are_held_until_a_status_without_a_message(channel: Channel) -> None:
    log: List[str] = []
    channel.add_interceptor(log_events(log, "above"), priority=3)
    channel.add_interceptor(log_events(log, "hold", "headers"), priority=2)
    channel.add_interceptor(Only(on_receive=lambda hop: Verdict.DROP), priority=1)
    assert bidi(channel, [b"a"]) == []
    inbound = [event for event in log if event.split(":")[1] in ("headers", "receive", "status")]
    assert inbound == ["hold:headers", "hold:status", "above:headers", "above:status"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_both_lanes_are_open_at_once_and_leave_in_order(channel: Channel, order: List[int]) -> None:
    """Two sent and two received messages are held with tickets. In whatever order the tickets are resolved, the
    messages of each lane leave in the order in which they came."""
    tickets: List[Optional[Ticket]] = [None] * 4
    all_held = threading.Semaphore(0)

    class Both(Interceptor):
        sent = received = 0

        def _hold(self, hop: Hop, place: int) -> Verdict:
            tickets[place] = hop.ticket()
            all_held.release()
            return Verdict.HOLD

        def on_send(self, hop: Hop) -> Optional[Verdict]:
            self.sent += 1
            return self._hold(hop, self.sent - 3) if self.sent > 2 else None

        def on_receive(self, hop: Hop) -> Optional[Verdict]:
            self.received += 1
            return self._hold(hop, self.received + 1) if self.received <= 2 else None

    channel.add_interceptor(Both())

    def resolve() -> None:
        for _ in range(4):
            assert all_held.acquire(timeout=20)
        for place in order:
            ticket = tickets[place]
            assert ticket is not None
            if place == 0:
                ticket.event().message = b"C"
            ticket.resume()

    thread = threading.Thread(target=resolve)
    thread.start()
    assert bidi(channel, [b"a", b"b", b"c", b"d"]) == [b"a", b"b", b"C", b"d"]
    thread.join()
