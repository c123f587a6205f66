"""RESTART: the request that an interceptor has recorded is sent again."""

from __future__ import annotations

import threading
from typing import Iterator, List, Tuple

import pytest

from helpers import Only, bidi, on_thread, unary
from penstock import (
    AlreadyError,
    Channel,
    Event,
    GoneError,
    Hop,
    Idempotency,
    Interceptor,
    InvalidArgumentError,
    Level,
    LibraryError,
    NotFoundError,
    RpcError,
    StateError,
    StatusCode,
    Ticket,
    Uncompressed,
    Verdict,
)


class Failing(Interceptor):
    """Ends the first ``times`` attempts with UNAUTHENTICATED, and records the tokens and events of all attempts."""

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self.tokens: List[object] = []
        self.attempts: List[int] = []

    def on_start(self, hop: Hop) -> None:
        self.tokens.append(hop.metadata.get("authorization"))
        self.attempts.append(hop.attempt)

    def on_half_close(self, hop: Hop) -> None:
        if hop.attempt <= self.times:
            hop.end(StatusCode.UNAUTHENTICATED, "who are you")


class Refresh(Interceptor):
    replay_bytes = 1000

    def on_status(self, hop: Hop) -> object:
        if hop.status.code is not StatusCode.UNAUTHENTICATED or not hop.can_restart:
            return None
        hop.request_metadata["authorization"] = "new"
        return Verdict.RESTART


def test_a_request_is_sent_again_with_new_metadata(channel: Channel) -> None:
    failing = Failing()
    channel.add_interceptor(Refresh(), priority=2)
    channel.add_interceptor(failing, priority=1)
    assert unary(channel, b"abc") == b"abc"
    assert failing.tokens == [None, "new"]
    assert failing.attempts == [1, 2]


def test_a_stream_is_sent_again(channel: Channel) -> None:
    channel.add_interceptor(Refresh(), priority=2)
    channel.add_interceptor(Only(on_headers=lambda hop: Verdict.HOLD), priority=2)
    failing = Failing()
    channel.add_interceptor(failing, priority=1)

    call = channel.stream_unary("/penstock.Echo/ClientStream")
    assert call(iter([b"a", b"b", b"c"])) is not None
    assert failing.attempts == [1, 2]


def test_the_messages_that_are_sent_again_are_changed(channel: Channel) -> None:
    class Change(Interceptor):
        replay_bytes = 10

        def on_send(self, hop: Hop) -> None:
            with pytest.raises(StateError, match="allowed in on_status only"):
                assert hop.request_messages

        def on_status(self, hop: Hop) -> object:
            if hop.status.code is not StatusCode.UNAUTHENTICATED:
                return None
            assert hop.request_messages == [b"a", b"b", b"c"]
            hop.set_request_message(1, b"B")
            hop.set_request_message(2, Uncompressed(b""))
            with pytest.raises(NotFoundError):
                hop.set_request_message(3, b"d")
            with pytest.raises(LibraryError, match="TOO_LARGE"):
                hop.set_request_message(0, b"more than ten")
            with pytest.raises(InvalidArgumentError):
                hop.set_request_message(-1, b"")
            assert hop.request_messages == [b"a", b"B", b""]
            return Verdict.RESTART

    channel.add_interceptor(Change(), priority=2)
    channel.add_interceptor(Failing(), priority=1)
    assert channel.stream_unary("/penstock.Echo/ClientStream")(iter([b"a", b"b", b"c"]), timeout=30) == b"aB"


def test_objects_that_are_sent_again_are_changed(channel: Channel) -> None:
    class Change(Interceptor):
        level = Level.OBJECT
        replay_bytes = 1000

        def on_status(self, hop: Hop) -> object:
            if hop.status.code is not StatusCode.UNAUTHENTICATED:
                return None
            assert hop.request_messages == [["a"]]
            hop.set_request_message(0, ["b", "c"])
            return Verdict.RESTART

    channel.add_interceptor(Change(), priority=2)
    channel.add_interceptor(Failing(), priority=1)
    echo = channel.unary_unary(
        "/penstock.Echo/Unary",
        request_serializer=lambda words: ",".join(words).encode(),
        response_deserializer=bytes.decode,
    )
    assert echo(["a"], timeout=30) == "b,c"


def test_max_restarts(channel: Channel) -> None:
    class Stubborn(Refresh):
        max_restarts = 3

    failing = Failing(times=10)
    channel.add_interceptor(Stubborn(), priority=2)
    channel.add_interceptor(failing, priority=1)
    with pytest.raises(RpcError) as raised:
        unary(channel)
    assert raised.value.code() is StatusCode.UNAUTHENTICATED
    assert failing.attempts == [1, 2, 3, 4]


def test_a_request_over_the_limit_is_not_sent_again(channel: Channel) -> None:
    failing = Failing()
    channel.add_interceptor(Refresh(), priority=2)
    channel.add_interceptor(failing, priority=1)
    with pytest.raises(RpcError):
        unary(channel, b"x" * 1001)
    assert failing.attempts == [1]


def test_nothing_is_sent_again_once_a_message_has_gone_up(channel: Channel) -> None:
    answers: List[bool] = []

    class Always(Interceptor):
        replay_bytes = 1000

        def on_status(self, hop: Hop) -> Verdict:
            answers.append(hop.can_restart)
            return Verdict.RESTART

    channel.add_interceptor(Always())
    assert bidi(channel, [b"a", b"b"]) == [b"a", b"b"]
    assert answers == [False]


def test_the_status_waits_for_a_refresh_on_another_thread(channel: Channel) -> None:
    class Slow(Interceptor):
        replay_bytes = 1000

        # The response may come before the half-close has passed. So it is held until the status is there: if it went
        # up to the caller, RESTART would not be possible.
        def on_headers(self, hop: Hop) -> Verdict:
            return Verdict.HOLD

        def on_receive(self, hop: Hop) -> Verdict:
            return Verdict.HOLD

        def on_status(self, hop: Hop) -> object:
            if not hop.can_restart:
                return None
            ticket = hop.ticket()
            threading.Thread(target=lambda: ticket.resolve(Verdict.RESTART)).start()
            return Verdict.PAUSE

    failing = Failing()
    channel.add_interceptor(Slow(), priority=2)
    channel.add_interceptor(failing, priority=1)

    def requests() -> Iterator[bytes]:
        yield b"abc"

    # The server answers after the half-close. An earlier response would go up to the caller, and then RESTART would
    # not be possible.
    assert channel.stream_unary("/penstock.Echo/ClientStream")(requests()) is not None
    assert failing.attempts == [1, 2]


def test_a_token_that_comes_while_the_status_waits_is_sent(channel: Channel) -> None:
    kept: List[Event] = []

    class Slow(Interceptor):
        replay_bytes = 1000

        def on_status(self, hop: Hop) -> object:
            if not hop.can_restart or hop.status.code is StatusCode.OK:
                return None
            ticket = hop.ticket()
            on_thread(lambda: self.refresh(ticket))
            return Verdict.PAUSE

        def refresh(self, ticket: Ticket) -> None:
            kept.append(ticket.event())
            assert kept[0].request_metadata.get("authorization") is None
            kept[0].request_metadata["authorization"] = "new"
            ticket.resolve(Verdict.RESTART)

    failing = Failing()
    channel.add_interceptor(Slow(), priority=2)
    channel.add_interceptor(failing, priority=1)
    assert unary(channel, b"abc", timeout=30) == b"abc"
    assert failing.tokens == [None, "new"]
    with pytest.raises((StateError, GoneError)):
        _ = kept[0].request_metadata


def test_the_whole_request_of_a_status_that_waits_is_changed(channel: Channel) -> None:
    kept: List[Event] = []
    shown: List[object] = []

    class Slow(Interceptor):
        replay_bytes = 1000

        def on_status(self, hop: Hop) -> object:
            if not hop.can_restart or hop.status.code is StatusCode.OK:
                return None
            ticket = hop.ticket()
            on_thread(lambda: self.change(ticket))
            return Verdict.PAUSE

        def change(self, ticket: Ticket) -> None:
            event = ticket.event()
            kept.append(event)
            shown.extend((event.method, event.authority, event.user_agent, event.content_subtype, event.compression))
            shown.append(10 < (event.deadline or 0) <= 30)
            shown.append((event.idempotency, event.wait_for_ready, event.has_credentials))
            shown.append((event.max_receive_message_bytes > 0, event.max_send_message_bytes > 0))
            event.method = "/penstock.Echo/Unary"
            event.authority, event.user_agent = "example.com", "again"
            event.deadline = 60
            event.compression, event.idempotency = "gzip", Idempotency.IDEMPOTENT
            event.max_receive_message_bytes = event.max_send_message_bytes = 1000
            ticket.resolve(Verdict.RESTART)

    def below(hop: Hop) -> None:
        seen.append((hop.method, hop.authority, hop.user_agent.split()[:1], 30 < (hop.deadline or 0) <= 60))
        seen.append((hop.compression, hop.idempotency, hop.max_receive_message_bytes, hop.max_send_message_bytes))

    seen: List[Tuple[object, ...]] = []
    channel.add_interceptor(Slow(), priority=2)
    channel.add_interceptor(Only(on_start=below), priority=1)
    assert channel.unary_unary("/nobody.Has/This")(b"abc", timeout=30) == b"abc"
    assert shown[0] == "/nobody.Has/This"
    assert shown[1:] == [seen[0][1], "", "", "identity", True, (Idempotency.UNKNOWN, False, False), (True, True)]
    assert seen[2:] == [
        ("/penstock.Echo/Unary", "example.com", ["again"], True),
        ("gzip", Idempotency.IDEMPOTENT, 1000, 1000),
    ]
    for use in (lambda: kept[0].method, lambda: setattr(kept[0], "deadline", 1), lambda: kept[0].authority):
        with pytest.raises((AlreadyError, GoneError)):
            use()


def test_a_start_that_waits_shows_its_request_but_for_changes(channel: Channel) -> None:
    shown: List[object] = []

    def start(hop: Hop) -> Verdict:
        ticket = hop.ticket()

        def look() -> None:
            event = ticket.event()
            shown.append((event.method, event.metadata["x-mine"]))
            with pytest.raises(StateError, match="only its metadata can be changed outside of the callback"):
                event.method = "/a/b"
            shown.append("refused")
            ticket.resume()

        on_thread(look)
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel, timeout=30, metadata={"x-mine": "1"}) == b"x"
    assert shown == [("/penstock.Echo/Unary", "1"), "refused"]


def test_a_call_begins_again_after_a_time(channel: Channel) -> None:
    class Retry(Interceptor):
        replay_bytes = 1000
        max_restarts = 3

        def on_status(self, hop: Hop) -> object:
            if not hop.can_restart or hop.status.code is StatusCode.OK:
                return None
            hop.ticket().resolve_after(Verdict.RESTART, 0.02)
            return Verdict.PAUSE

    failing = Failing(times=3)
    channel.add_interceptor(Retry(), priority=2)
    channel.add_interceptor(failing, priority=1)
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"abc", timeout=30)
    assert failing.attempts == [1, 2, 3, 4]
    assert outcome.stats["duration_us"] >= 60_000
