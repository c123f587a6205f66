"""Members of the calls and replies that synchronous interceptors see, where they may be used and where not; and waits
for a channel's state."""

from __future__ import annotations

import threading
from typing import Any, Callable, List

import pytest

import penstock
from helpers import Only, on_thread, unary
from penstock import Channel, Connectivity, GoneError, Hop, InterceptedCall, RpcError, StateError, StatusCode
from penstock._handles.verdict import Connectivity as State

ECHO = "/penstock.Echo/"
HERE = "allowed only in the interceptor's function, on its thread"


class Sync(penstock.SyncInterceptor):
    """Runs ``function`` for each call."""

    def __init__(self, function: Callable[[InterceptedCall], Any]) -> None:
        self.function = function

    def intercept(self, call: InterceptedCall) -> None:
        self.function(call)


USES: List[Callable[[Any], Any]] = [
    lambda call: call.next(),
    lambda call: call.answer(),
    lambda call: call.hop,
    lambda call: call.metadata,
    lambda call: call.request,
    lambda call: setattr(call, "request", b""),
    lambda call: call.method,
    lambda call: call.end(StatusCode.ABORTED),
    lambda call: call.request_metadata,
]


def refusals(call: Any) -> List[str]:
    said = []
    for use in USES:
        with pytest.raises(StateError) as caught:
            use(call)
        said.append(caught.value.message)
    return said


def test_a_call_is_of_use_in_its_function_only(channel: Channel) -> None:
    kept: List[Any] = []
    said: List[List[str]] = []

    def look(call: InterceptedCall) -> None:
        kept.append(call)
        on_thread(lambda: said.append(refusals(call))).join()
        call.next()

    channel.add_interceptor(Sync(look))
    assert unary(channel) == b"x"
    said.append(refusals(kept[0]))
    assert said == [[HERE] * len(USES)] * 2


def test_a_reply_is_of_use_in_its_function_only(channel: Channel) -> None:
    kept: List[Any] = []
    channel.add_interceptor(Sync(lambda call: kept.append(call.next())))
    assert unary(channel) == b"x"
    for use in (lambda: kept[0].headers, lambda: kept[0].message, lambda: kept[0].status):
        with pytest.raises(StateError) as caught:
            use()
        assert caught.value.message == HERE
    assert kept[0].gone is False


def test_members_of_a_unary_call(channel: Channel) -> None:
    seen: List[Any] = []

    def look(call: InterceptedCall) -> None:
        assert call.hop is call.hop
        seen.append((call.method, call.request))
        call.request = b"changed"
        call.metadata["a"] = "1"
        seen.append((call.request, call.metadata["a"]))
        reply = call.next()
        assert reply.headers is not None
        assert reply.status is not None
        seen.append((reply.message, reply.status.code, reply.gone))
        reply.message = b"mine"
        reply.headers["b"] = "2"
        reply.status.trailers["c"] = "3"

    channel.add_interceptor(Sync(look))
    response, outcome = channel.unary_unary(f"{ECHO}Unary").with_call(b"x")
    assert response == b"mine"
    assert outcome.initial_metadata().get("b") == "2"
    assert outcome.trailing_metadata().get("c") == "3"
    assert seen == [(f"{ECHO}Unary", b"x"), (b"changed", "1"), (b"changed", StatusCode.OK, False)]


def test_members_of_a_stream(channel: Channel) -> None:
    seen: List[Any] = []

    def look(call: InterceptedCall) -> None:
        seen.append(call.request)
        reply = call.next()
        seen.append((reply.headers is not None, reply.message, reply.status, reply.gone))

    channel.add_interceptor(Sync(look))
    assert list(channel.stream_stream(f"{ECHO}Bidi")([b"a", b"b"])) == [b"a", b"b"]
    assert seen == [None, (True, None, None, False)]
    # A response without headers has its status at once.
    refused = channel.unary_stream("/penstock.Probe/None")
    with pytest.raises(RpcError):
        list(refused(b"x"))
    assert seen[3][0] is False
    assert seen[3][2] is not None


def test_an_answer_in_the_place_of_a_server(channel: Channel) -> None:
    def look(call: InterceptedCall) -> None:
        call.answer(b"mine", headers={"a": "1"}, trailers={"b": "2"}, message="fine")
        with pytest.raises(StateError):
            call.next()

    channel.add_interceptor(Sync(look))
    response, outcome = channel.unary_unary(f"{ECHO}Unary").with_call(b"x")
    assert response == b"mine"
    assert outcome.initial_metadata().get("a") == "1"
    assert outcome.trailing_metadata().get("b") == "2"


def test_an_answer_that_is_a_failure(channel: Channel) -> None:
    def look(call: InterceptedCall) -> None:
        call.answer(code=StatusCode.ABORTED, message="no", details=[("a/b.C", b"d")])

    channel.add_interceptor(Sync(look))
    with pytest.raises(RpcError) as caught:
        unary(channel)
    assert (caught.value.code(), caught.value.details()) == (StatusCode.ABORTED, "no")
    assert caught.value.find_detail("b.C") is not None
    assert caught.value.initial_metadata() == ()


def test_a_call_that_is_sent_again(channel: Channel) -> None:
    seen: List[Any] = []

    class Again(Sync):
        replay_bytes = 1000

    def look(call: InterceptedCall) -> None:
        first = call.next()
        seen.append((first.status is not None and first.status.code, call.request))
        call.method = f"{ECHO}Unary"
        call.request = b"again"
        second = call.next()
        seen.append(second.message)
        with pytest.raises(StateError) as caught:
            first.message  # noqa: B018
        seen.append(caught.value.message)
        seen.append(first.status is not None and first.status.code)

    channel.add_interceptor(Again(look))
    assert channel.unary_unary("/penstock.Probe/Refuse")(b"x") == b"again"
    assert seen == [
        (StatusCode.UNAUTHENTICATED, b"x"),
        b"again",
        "next has been called again, so this message is gone",
        StatusCode.UNAUTHENTICATED,
    ]


def test_a_reply_of_a_call_that_was_ended_elsewhere(channel: Channel) -> None:
    seen: List[Any] = []

    def look(call: InterceptedCall) -> None:
        hop = call.hop
        thread = on_thread(lambda: hop.end(StatusCode.ABORTED, "elsewhere"))
        reply = call.next()
        thread.join()
        seen.append((reply.gone, reply.message))
        if reply.gone:
            with pytest.raises(GoneError) as caught:
                reply.message = b"mine"
            seen.append(caught.value.message)

    channel.add_interceptor(Sync(look))
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Hang")(b"x", timeout=60)
    assert (caught.value.code(), caught.value.details()) == (StatusCode.ABORTED, "elsewhere")
    assert seen == [(True, None), "the call has ended"]


def test_an_exception_of_the_function(channel: Channel) -> None:
    def look(call: InterceptedCall) -> None:
        raise LookupError("no")

    penstock.set_exception_hook(lambda *_: None)
    try:
        channel.add_interceptor(Sync(look), name="mine")
        with pytest.raises(RpcError) as caught:
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert caught.value.code() is StatusCode.INTERNAL
    assert caught.value.details() == "interceptor 'mine': intercept raised LookupError"
    assert isinstance(caught.value.__cause__, LookupError)


# ---- Waits for a channel's state ----


@pytest.mark.parametrize("name", ["wait_connectivity", "_seen_connectivity"])
def test_a_wait_for_another_state(server: str, name: str) -> None:
    """On a thread, and as greenlets wait."""
    with Channel(server, tls=False) as channel:
        wait: Callable[..., State] = getattr(channel, name)
        for timeout in (0, 0.01, -1):
            with pytest.raises(penstock.TimedOutError) as late:
                wait(Connectivity.IDLE, timeout)
            assert late.value.message == "the channel's state is still IDLE"
        assert wait(Connectivity.READY, 0) is Connectivity.IDLE
        assert wait(Connectivity.READY, None) is Connectivity.IDLE
        channel.connect()
        state = wait(Connectivity.IDLE, 60)
        while state is not Connectivity.READY:
            state = wait(state, None)
        assert unary(channel) == b"x"
    with pytest.raises(penstock.ClosedError):
        wait(Connectivity.SHUTDOWN, 5)
    assert wait(Connectivity.READY, 5) is Connectivity.SHUTDOWN


def test_the_gates_of_a_channel_are_made_once(server: str) -> None:
    with Channel(server, tls=False) as channel:
        gates = channel._state_gates()
        assert channel._state_gates() is gates
    closed = Channel(server, tls=False)
    closed.close()
    # Nobody waits there.
    assert len(closed._state_gates()) == 0


def test_two_threads_wait_for_a_state(server: str) -> None:
    found: List[State] = []
    with Channel(server, tls=False) as channel:
        threads = [
            on_thread(lambda: found.append(channel._seen_connectivity(Connectivity.IDLE, 60))),
            on_thread(lambda: found.append(channel.wait_connectivity(Connectivity.IDLE, 60))),
        ]
        channel.connect()
        for thread in threads:
            thread.join()
    assert len(found) == 2
    assert Connectivity.IDLE not in found


def test_closing_a_channel(server: str) -> None:
    channel = Channel(server, tls=False)
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    channel.close_gracefully(600)
    channel.close_gracefully()
    with pytest.raises(penstock.ClosedError):
        unary(channel)
    assert call.is_active()
    channel.close()
    channel.close()
    assert call.code() is StatusCode.CANCELLED
    assert channel.connectivity is Connectivity.SHUTDOWN
    channel.close_gracefully(0)


def test_interceptors_are_let_go_with_the_channel(server: str) -> None:
    made = Channel(server, tls=False)
    registration = made.add_interceptor(Only(on_start=lambda hop: None))
    assert made._registered == {registration.id}
    made.close()
    assert made._registered == set()
    assert registration.wait_removed(60)
    removed = Channel(server, tls=False)
    registration = removed.add_interceptor(Only(on_start=lambda hop: None))
    registration.remove()
    assert removed._registered == set()
    removed.close()


def test_a_hop_outside_of_its_callback(channel: Channel) -> None:
    kept: List[Hop] = []
    told = threading.Event()

    def keep(hop: Hop) -> None:
        kept.append(hop)
        told.set()

    channel.add_interceptor(Only(on_headers=keep))
    assert unary(channel) == b"x"
    assert told.wait(60)
    for use in (lambda: kept[0].metadata, lambda: kept[0].status, lambda: kept[0].ticket(), lambda: kept[0].message):
        with pytest.raises(StateError):
            use()
