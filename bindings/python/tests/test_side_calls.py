"""Calls that hops make, and calls that hops send to another channel."""

from __future__ import annotations

import gc
import threading
from typing import Any, Callable, List, Optional, Type

import pytest

import penstock
from helpers import Only, bidi, eventually, on_thread, recorder, unary
from penstock import Channel, CompletedCall, Hop, Idempotency, RpcError, StatusCode, Verdict, _raw
from penstock._handles.objects import registry

UNARY = "/penstock.Echo/Unary"
BIDI = "/penstock.Echo/Bidi"


def test_a_token_is_fetched_below_the_hop(channel: Channel, probe: Callable[..., Any]) -> None:
    fetched: List[int] = []

    class Auth(penstock.Interceptor):
        def on_start(self, hop: Hop) -> Verdict:
            ticket = hop.ticket()
            start = ticket.event()

            def have_token(token: Optional[bytes], outcome: CompletedCall) -> None:
                assert outcome.code() is StatusCode.OK
                assert token is not None
                fetched.append(1)
                start.metadata["authorization"] = "Bearer " + token.decode()
                ticket.resume()

            hop.unary(UNARY, b"s3cret", have_token, metadata={"x-for": "token"})
            return Verdict.PAUSE

    above: List[str] = []
    below: List[str] = []
    channel.add_interceptor(recorder(above, events=("on_start",)), priority=2)
    channel.add_interceptor(Auth(), priority=1)
    channel.add_interceptor(recorder(below, events=("on_start",)), priority=0)
    assert ["authorization", "Bearer s3cret"] in probe(timeout=30)["metadata"]
    assert (len(fetched), len(above), len(below)) == (1, 1, 2)


def test_a_side_channel_waits_on_another_thread(channel: Channel) -> None:
    answers: List[object] = []
    threads: List[threading.Thread] = []

    def start(hop: Hop) -> Verdict:
        ticket, side = hop.ticket(), hop.side_channel()

        def work() -> None:
            answers.append(side.unary_unary(UNARY)(b"one", timeout=30))
            answers.append(list(side.stream_stream(BIDI)([b"two", b"three"])))
            answers.append(list(side.unary_stream("/penstock.Echo/ServerStream")(b"four")))
            answers.append(side.stream_unary("/penstock.Echo/ClientStream")([b"five", b"six"]))
            ticket.resume()

        threads.append(on_thread(work))
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel, timeout=60) == b"x"
    threads[0].join()
    assert answers == [b"one", [b"two", b"three"], [b"four"], b"fivesix"]


def test_a_side_channel_takes_the_keywords_of_a_channel(channel: Channel) -> None:
    seen: List[Any] = []
    traces: List[Any] = []

    def start(hop: Hop) -> Verdict:
        ticket, side = hop.ticket(), hop.side_channel()

        def work() -> None:
            _, outcome = side.unary_unary(UNARY).with_call(b"x", trace=2, idempotency=Idempotency.IDEMPOTENT)
            traces.append(outcome.trace)
            ticket.resume()

        threads.append(on_thread(work))
        return Verdict.PAUSE

    threads: List[threading.Thread] = []
    channel.add_interceptor(Only(on_start=start), priority=1)
    channel.add_interceptor(Only(on_start=lambda hop: seen.append(hop.idempotency)), priority=0)
    assert unary(channel, timeout=60) == b"x"
    threads[0].join()
    assert seen == [Idempotency.IDEMPOTENT, Idempotency.UNKNOWN]
    assert [len(trace["events"]) for trace in traces] == [2]


def test_a_side_channel_does_not_wait_in_a_callback(channel: Channel) -> None:
    raised: List[BaseException] = []

    def start(hop: Hop) -> None:
        try:
            hop.side_channel().unary_unary(UNARY)(b"x")
        except penstock.WouldDeadlockError as error:
            raised.append(error)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert len(raised) == 1


def test_from_the_top_meets_all(channel: Channel) -> None:
    log: List[str] = []
    done = threading.Event()

    def start(hop: Hop) -> None:
        log.append(hop.method)
        if hop.method == BIDI:
            hop.unary(UNARY, b"x", lambda response, outcome: done.set(), from_top=True, detached=True)

    channel.add_interceptor(Only(on_start=start))
    assert bidi(channel, [b"1"]) == [b"1"]
    assert done.wait(30)
    assert log == [BIDI, UNARY]


def test_a_side_call_has_interceptors_of_its_own(channel: Channel) -> None:
    log: List[Any] = []
    answers: List[Optional[bytes]] = []

    def own(name: str) -> Only:
        return Only(on_start=lambda hop: log.append((name, hop.method)))

    def start(hop: Hop) -> Verdict:
        ticket = hop.ticket()

        def reply(response: Optional[bytes], outcome: CompletedCall) -> None:
            answers.append(response)
            ticket.resume()

        # All of a side call's interceptors see it, even one whose priority is above that of the hop that makes the
        # call. They are given as an iterator, which can be read only once.
        hop.unary(UNARY, b"side", reply, interceptors=iter([(own("low"), -9), (own("high"), 99)]))
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start), priority=1)
    channel.add_interceptor(own("channel"), priority=0)
    assert bidi(channel, [b"1"]) == [b"1"]
    assert answers == [b"side"]
    assert log == [("high", UNARY), ("channel", UNARY), ("low", UNARY), ("channel", BIDI)]


def test_a_side_call_takes_the_keywords_of_a_method(channel: Channel) -> None:
    seen: List[Any] = []
    ends: List[CompletedCall] = []

    def start(hop: Hop) -> Verdict:
        ticket = hop.ticket()

        def reply(response: Optional[bytes], outcome: CompletedCall) -> None:
            ends.append(outcome)
            if len(ends) == 2:
                ticket.resume()

        hop.unary(
            UNARY, b"x", reply, wait_for_ready=True, compression="gzip", trace=2, idempotency=Idempotency.IDEMPOTENT
        )
        hop.unary(UNARY, b"x", reply, credentials="Bearer x")
        return Verdict.PAUSE

    def look(hop: Hop) -> None:
        seen.append((hop.wait_for_ready, hop.compression, hop.idempotency, hop.has_credentials))

    channel.add_interceptor(Only(on_start=start), priority=1)
    channel.add_interceptor(Only(on_start=look), priority=0)
    assert unary(channel) == b"x"
    assert seen == [
        (True, "gzip", Idempotency.IDEMPOTENT, False),
        (False, "identity", Idempotency.UNKNOWN, True),
        (False, "identity", Idempotency.UNKNOWN, False),
    ]
    # The second side call has credentials, which are sent over TLS only, and the channel has no TLS.
    codes = sorted(end.code().name for end in ends)
    assert codes == ["OK", "UNAUTHENTICATED"]
    lengths = {end.code().name: len(end.trace.get("events") or []) for end in ends}
    assert lengths == {"OK": 2, "UNAUTHENTICATED": 0}


def test_a_keyword_out_of_range_is_refused_before_a_side_call(channel: Channel) -> None:
    raised: List[BaseException] = []
    replies: List[object] = []

    def start(hop: Hop) -> None:
        def refused(error: Type[Exception], **wrong: Any) -> None:
            with pytest.raises(error) as caught:
                hop.unary(UNARY, b"x", lambda response, outcome: replies.append(response), **wrong)
            raised.append(caught.value)

        refused(ValueError, trace=-1)
        refused(TypeError, trace="all")
        refused(ValueError, compression="brotli")

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert len(raised) == 3
    assert replies == []


def test_an_interceptor_of_a_side_call_answers_it(channel: Channel) -> None:
    ends: List[Any] = []
    done = threading.Event()

    def refuse(hop: Hop) -> None:
        hop.end(StatusCode.PERMISSION_DENIED, "no")

    def reply(response: Optional[bytes], outcome: CompletedCall) -> None:
        ends.append((response, outcome.code()))
        done.set()

    channel.add_interceptor(
        Only(on_start=lambda hop: hop.unary(UNARY, b"x", reply, detached=True, interceptors=[Only(on_start=refuse)]))
    )
    assert unary(channel) == b"x"
    assert done.wait(30)
    assert ends == [(None, StatusCode.PERMISSION_DENIED)]


def test_a_priority_out_of_range_is_refused_before_a_side_call(channel: Channel) -> None:
    raised: List[BaseException] = []
    replies: List[object] = []

    def start(hop: Hop) -> None:
        with pytest.raises(ValueError, match="priority") as wrong:
            hop.unary(UNARY, b"x", lambda response, outcome: replies.append(response), interceptors=[(Only(), 2**31)])
        raised.append(wrong.value)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert len(raised) == 1
    assert replies == []


def test_side_calls_after_one_another_parse_their_options_once(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: List[bytes] = []
    new = _raw.penstock_call_options_new

    def counted(text: bytes, *arguments: Any) -> int:
        made.append(text)
        return int(new(text, *arguments))

    def ask(hop: Hop) -> Verdict:
        ticket = hop.ticket()
        hop.unary("/penstock.Echo/Unary", b"", lambda response, outcome: ticket.resume(), timeout=123)
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=ask))
    monkeypatch.setattr(_raw, "penstock_call_options_new", counted)
    for _ in range(3):
        assert unary(channel) == b"x"
    assert sum(b"123000" in text for text in made) == 1


def test_it_ends_with_its_call_unless_detached(channel: Channel) -> None:
    ends: List[str] = []
    ended = {False: threading.Event(), True: threading.Event()}

    def start(hop: Hop) -> None:
        for detached, event in ended.items():

            def reply(response: object, outcome: CompletedCall, event: threading.Event = event) -> None:
                ends.append(outcome.code().name)
                event.set()

            hop.unary("/penstock.Probe/Hang", b"x", reply, timeout=1 if detached else None, detached=detached)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert ended[False].wait(30)
    assert ended[True].wait(30)
    assert ends == ["CANCELLED", "DEADLINE_EXCEEDED"]


def test_it_inherits_the_deadline(channel: Channel) -> None:
    left: List[Optional[float]] = []
    done = threading.Event()

    def start(hop: Hop) -> None:
        hop.unary(UNARY, b"x", lambda response, outcome: None)
        hop.unary(UNARY, b"x", lambda response, outcome: done.set(), detached=True)

    channel.add_interceptor(Only(on_start=start), priority=1)
    channel.add_interceptor(Only(on_start=lambda hop: left.append(hop.deadline)), priority=0)
    unary(channel, timeout=600)
    assert done.wait(30)
    assert sorted(seconds is None for seconds in left) == [False, False, True]
    assert all(seconds is None or seconds <= 600 for seconds in left)


def test_after_the_call_there_is_none(channel: Channel) -> None:
    hops: List[Hop] = []
    channel.add_interceptor(Only(on_start=lambda hop: hops.append(hop.retain()) and None))
    unary(channel)
    with pytest.raises(penstock.GoneError):
        hops[0].unary(UNARY, b"x", lambda response, outcome: None)
    with pytest.raises(penstock.GoneError):
        hops[0].side_channel().unary_unary(UNARY)(b"x")
    hops.clear()


def test_an_exception_in_on_reply_is_logged(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def reply(response: object, outcome: CompletedCall) -> None:
        done.set()
        raise ValueError("oops")

    channel.add_interceptor(Only(on_start=lambda hop: hop.unary(UNARY, b"x", reply, detached=True)))
    unary(channel)
    assert done.wait(30)
    unary(channel)
    assert "oops" in caplog.text


# ---- Redirect ----


def test_a_hop_sends_the_call_to_another_channel(channel: Channel) -> None:
    seen: List[str] = []

    def start(hop: Hop) -> None:
        hop.set_channel(channel)
        seen.append(hop.target)
        seen.append(hop.authority)

    with Channel("unix:/nonexistent/socket") as nowhere:
        with pytest.raises(RpcError) as failed:
            unary(nowhere)
        assert failed.value.code() is StatusCode.UNAVAILABLE
        nowhere.add_interceptor(Only(on_start=start))
        assert unary(nowhere, b"data") == b"data"
        assert bidi(nowhere, [b"1", b"2"]) == [b"1", b"2"]
    assert seen[:2] == [channel.target, channel.target]


def test_a_redirect_needs_an_open_channel_of_the_same_runtime(channel: Channel) -> None:
    closed = Channel(channel.target, tls=False)
    closed.close()
    raised: List[str] = []

    with penstock.Runtime() as runtime:
        foreign = Channel(channel.target, tls=False, runtime=runtime)

        def start(hop: Hop) -> None:
            for other in (closed, foreign):
                try:
                    hop.set_channel(other)
                except penstock.LibraryError as error:
                    raised.append(type(error).__name__)

        channel.add_interceptor(Only(on_start=start))
        assert unary(channel) == b"x"
    assert raised == ["ClosedError", "InvalidArgumentError"]


def test_a_redirect_elsewhere_is_refused(channel: Channel) -> None:
    raised: List[BaseException] = []

    def status(hop: Hop) -> None:
        try:
            hop.set_channel(channel)
        except penstock.StateError as error:
            raised.append(error)

    channel.add_interceptor(Only(on_status=status))
    assert unary(channel) == b"x"
    assert len(raised) == 1


def test_a_side_call_that_can_not_send_its_request_ends(server: str) -> None:
    """Its function is let go, though the side call is detached and the method hangs."""
    failed: List[Any] = []

    def start(hop: Hop) -> None:
        try:
            hop.unary("/penstock.Probe/Hang", bytes(101), lambda *_: None, detached=True)
        except penstock.LibraryError as error:
            failed.append(error.name)

    with Channel(server, tls=False, options={"max_send_message_bytes": 100}) as channel:
        token = channel.add_interceptor(Only(on_start=start))
        # The options of the first side call are kept for later ones.
        assert unary(channel) == b"x"
        objects = len(registry)
        assert unary(channel) == b"x"
        token.remove()
        assert failed == ["PENSTOCK_E_TOO_LARGE"] * 2
        eventually(lambda: gc.collect() >= 0 and len(registry) <= objects)
