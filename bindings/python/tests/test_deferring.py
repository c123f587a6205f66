"""Events that wait: for another thread, for a time, for other events."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, List, Optional

import pytest

import penstock
from helpers import EVENTS, Only, bidi, on_thread, unary
from penstock import Channel, EventKind, Hop, RpcError, StatusCode, Ticket, Verdict

# ---- Deferring ----


@pytest.mark.parametrize("event", EVENTS[:6])
def test_each_event_can_wait_for_another_thread(channel: Channel, event: str) -> None:
    resumed: List[int] = []
    threads: List[threading.Thread] = []

    def defer(hop: Hop) -> Verdict:
        ticket = hop.ticket()
        assert ticket.number == hop.ticket().number

        def go_on() -> None:
            resumed.append(hop.call_id)
            ticket.resume()

        threads.append(on_thread(go_on))
        return Verdict.PAUSE

    channel.add_interceptor(Only(**{event: defer}))
    assert unary(channel, b"data", timeout=30) == b"data"
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    for thread in threads:
        thread.join()
    assert len(set(resumed)) == 2


def test_a_ticket_may_be_resolved_before_the_callback_returns(channel: Channel) -> None:
    def start(hop: Hop) -> Verdict:
        hop.ticket().resume()
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"


def test_resume_after_a_time(channel: Channel) -> None:
    def start(hop: Hop) -> Verdict:
        hop.ticket().resume_after(0.05)
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", timeout=30)
    assert outcome.stats["duration_us"] >= 50_000


def test_a_verdict_after_a_time(channel: Channel) -> None:
    def send(hop: Hop) -> Optional[Verdict]:
        if hop.message != b"2":
            return None
        with pytest.raises(penstock.InvalidArgumentError):
            hop.ticket().resolve_after(Verdict.TAKE, 0)
        hop.ticket().resolve_after(Verdict.DROP, 0.05)
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_send=send))
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"1", b"2", b"3"], timeout=30)
    assert list(call) == [b"1", b"3"]
    assert call.stats["duration_us"] >= 50_000


def test_a_ticket_is_used_once(channel: Channel) -> None:
    tickets: List[Ticket] = []

    def start(hop: Hop) -> Verdict:
        tickets.append(hop.ticket())
        with pytest.raises(penstock.InvalidArgumentError):
            tickets[0].resolve(Verdict.DROP)
        tickets[0].resume()
        with pytest.raises((penstock.AlreadyError, penstock.GoneError)):
            tickets[0].resume()
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    unary(channel)
    for use in (tickets[0].resume, tickets[0].drop, tickets[0].event, lambda: tickets[0].end(1)):
        with pytest.raises((penstock.AlreadyError, penstock.GoneError)):
            use()


def test_a_ticket_ends_the_call(channel: Channel) -> None:
    def start(hop: Hop) -> Verdict:
        ticket = hop.ticket()
        on_thread(lambda: ticket.end(StatusCode.PERMISSION_DENIED, "no", [("e.com/a.B", b"1")], {"x-by": "ticket"}))
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    with pytest.raises(RpcError, match="PERMISSION_DENIED: no") as caught:
        unary(channel, timeout=30)
    assert caught.value.trailing_metadata().get("x-by") == "ticket"
    assert caught.value.find_detail("a.B") is not None


def test_a_ticket_drops_a_message(channel: Channel) -> None:
    def send(hop: Hop) -> Optional[Verdict]:
        if hop.message != b"2":
            return None
        on_thread(hop.ticket().drop)
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_send=send))
    assert bidi(channel, [b"1", b"2", b"3"]) == [b"1", b"3"]


def test_a_deferred_event_is_changed_on_another_thread(channel: Channel) -> None:
    def defer(change: Callable[[penstock.Event], None]) -> Callable[[Hop], Verdict]:
        def callback(hop: Hop) -> Verdict:
            ticket = hop.ticket()

            def go_on() -> None:
                event = ticket.event()
                change(event)
                ticket.resume()

            on_thread(go_on)
            return Verdict.PAUSE

        return callback

    def start(event: penstock.Event) -> None:
        assert event.kind is EventKind.START
        event.metadata["x-token"] = "fetched"

    def send(event: penstock.Event) -> None:
        assert event.message == b"{}"
        event.message = json.dumps({"code": 5, "message": "gone"}).encode()

    def status(event: penstock.Event) -> None:
        event.status.message = "gone, and told so"
        event.metadata["x-by"] = "event"

    channel.add_interceptor(Only(on_start=defer(start), on_send=defer(send), on_status=defer(status)))
    with pytest.raises(RpcError, match="NOT_FOUND: gone, and told so") as caught:
        channel.unary_unary("/penstock.Probe/Unary")(b"{}", timeout=30)
    assert caught.value.trailing_metadata().get("x-by") == "event"


@pytest.mark.parametrize(
    ("callback", "change"),
    [
        ("on_send", lambda event: setattr(event, "message", b"late")),
        ("on_start", lambda event: event.metadata.add("x-late", "1")),
        ("on_headers", lambda event: event.metadata.clear()),
        ("on_status", lambda event: setattr(event.status, "message", "late")),
        ("on_status", lambda event: event.status.trailers.add("x-late", "1")),
    ],
)
def test_an_event_is_not_changed_after_its_ticket_is_spent(
    channel: Channel, callback: str, change: Callable[[penstock.Event], None]
) -> None:
    refused: List[bool] = []

    def defer(hop: Hop) -> Verdict:
        ticket = hop.ticket()
        event = ticket.event()
        change(event)
        ticket.resume()
        try:
            change(event)
        except penstock.LibraryError:
            refused.append(True)
        return Verdict.PAUSE

    channel.add_interceptor(Only(**{callback: defer}))
    unary(channel)
    assert refused == [True]


def test_headers_are_held_until_the_first_message(channel: Channel) -> None:
    log: List[str] = []

    def headers(hop: Hop) -> Verdict:
        log.append("headers")
        return Verdict.HOLD

    channel.add_interceptor(Only(on_headers=headers, on_receive=lambda hop: log.append("receive")))
    channel.add_interceptor(Only(on_headers=lambda hop: log.append("above")), priority=1)
    assert unary(channel) == b"x"
    assert log == ["headers", "receive", "above"]


def test_messages_are_held_and_let_go_in_any_order_but_leave_in_theirs(channel: Channel) -> None:
    held: List[Ticket] = []

    def receive(hop: Hop) -> Optional[Verdict]:
        if len(held) < 2:
            held.append(hop.ticket())
            return Verdict.HOLD
        for ticket in reversed(held):
            ticket.resume()
        return None

    channel.add_interceptor(Only(on_receive=receive))
    assert bidi(channel, [b"1", b"2", b"3"]) == [b"1", b"2", b"3"]
    assert len(held) == 2


def test_what_is_held_is_bounded(channel: Channel) -> None:
    channel.add_interceptor(Only(on_receive=lambda hop: Verdict.HOLD), hold_bytes=1000)
    with pytest.raises(RpcError) as caught:
        bidi(channel, [bytes(400)] * 10)
    assert caught.value.code() == StatusCode.RESOURCE_EXHAUSTED


class Holds(penstock.Interceptor):
    hold_bytes = 1000

    def on_receive(self, hop: Hop) -> Verdict:
        return Verdict.HOLD


class HoldsByCompletions(penstock.CompletionInterceptor):
    hold_bytes = 1000

    def __init__(self) -> None:
        self.kept: List[penstock.Completion] = []

    def on_receive(self, message: bytes, done: penstock.Completion) -> None:
        done.hold()
        self.kept.append(done)


@pytest.mark.parametrize("make", [Holds, HoldsByCompletions])
def test_the_bound_may_be_an_attribute_of_the_interceptor(channel: Channel, make: Callable[[], Any]) -> None:
    channel.add_interceptor(make())
    with pytest.raises(RpcError) as caught:
        bidi(channel, [bytes(400)] * 10)
    assert caught.value.code() == StatusCode.RESOURCE_EXHAUSTED


def test_an_argument_goes_before_the_attribute(channel: Channel) -> None:
    """All messages of 4,000 bytes are held until the last has come."""
    held: List[penstock.Completion] = []

    class HoldsMore(HoldsByCompletions):
        def on_receive(self, message: bytes, done: penstock.Completion) -> None:
            done.hold()
            held.append(done)
            if len(held) == 10:
                for one in held:
                    one.next()

    channel.add_interceptor(HoldsMore(), hold_bytes=10_000)
    assert len(bidi(channel, [bytes(400)] * 10)) == 10


@pytest.mark.parametrize("event", EVENTS[:6])
@pytest.mark.parametrize("by_hop", [False, True])
def test_an_end_on_another_thread_is_final(channel: Channel, event: str, by_hop: bool) -> None:
    def deny(hop: Hop) -> None:
        ender = hop.retain() if by_hop else hop.ticket()
        thread = threading.Thread(target=ender.end, args=(StatusCode.PERMISSION_DENIED, "no"))
        thread.start()
        thread.join()

    channel.add_interceptor(Only(**{event: deny}))
    with pytest.raises(RpcError) as caught:
        unary(channel)
    assert (caught.value.code(), caught.value.details()) == (StatusCode.PERMISSION_DENIED, "no")


def test_a_message_that_is_delivered_before_start_goes_on_arrives(channel: Channel) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: hop.deliver_message(b"early")))
    assert bidi(channel, [b"1"]) == [b"early", b"1"]


def test_the_deadline_runs_while_a_call_waits(channel: Channel) -> None:
    tickets: List[Ticket] = []

    def start(hop: Hop) -> Verdict:
        tickets.append(hop.ticket())
        return Verdict.PAUSE

    cancelled: List[StatusCode] = []
    channel.add_interceptor(Only(on_start=start, on_cancel=lambda hop: cancelled.append(hop.status.code)))
    with pytest.raises(RpcError) as caught:
        unary(channel, timeout=0.1)
    assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED
    with pytest.raises(penstock.GoneError):
        tickets[0].resume()
