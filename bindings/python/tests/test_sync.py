"""Synchronous interceptors: the parts of a call that the function sees and changes, the worker threads, and the end
of the call."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from typing import Any, Callable, Iterator, List, Optional

import pytest

import penstock
from helpers import Only, bidi, on_thread, unary
from penstock import (
    AlreadyError,
    Channel,
    GoneError,
    InterceptedCall,
    Kind,
    Level,
    RpcError,
    Runtime,
    StateError,
    Status,
    StatusCode,
    SyncInterceptor,
    Verdict,
)


class Function(SyncInterceptor):
    """A synchronous interceptor that runs ``function``, and records the thread of each run."""

    def __init__(self, function: Callable[[InterceptedCall], Any]) -> None:
        self.function = function
        self.threads: List[int] = []

    def intercept(self, call: InterceptedCall) -> None:
        self.threads.append(threading.get_ident())
        returned: None = self.function(call)
        return returned


@pytest.fixture
def lone(server: str) -> Iterator[Channel]:
    """A channel on a runtime with one worker."""
    with Runtime(max_workers=1) as runtime, Channel(server, tls=False, runtime=runtime) as opened:
        yield opened


# ---- The function sees and changes the parts of a call ----


def test_it_sees_and_changes_all_of_a_unary_call(channel: Channel, server: str) -> None:
    seen: List[Any] = []

    def function(call: InterceptedCall) -> None:
        assert call.kind is Kind.UNARY
        assert (call.method, call.target, call.attempt) == ("/nobody.Has/This", server, 1)
        assert call.call_id > 0
        assert call.authority == server
        call.authority = "example.com"
        call.method = "/penstock.Echo/Unary"
        assert call.deadline is None
        call.deadline = 30
        assert 20 < (call.deadline or 0) <= 30
        call.metadata["x-mine"] = "1"
        assert call.request == b"ping"
        call.request = b"pong"
        assert call.request == b"pong"
        reply = call.next()
        assert not reply.gone
        assert reply.status is not None
        assert reply.headers is not None
        seen.append((reply.message, reply.status.code, dict(call.metadata)["x-mine"]))
        assert call.request == b"pong"
        reply.message = b"changed"
        reply.headers["seen"] = "yes"
        reply.status.trailers["seen-too"] = "yes"

    channel.add_interceptor(Function(function))
    response, call = channel.unary_unary("/nobody.Has/This").with_call(b"ping")
    assert seen == [(b"pong", StatusCode.OK, "1")]
    assert response == b"changed"
    assert ("seen", "yes") in call.initial_metadata()
    assert ("seen-too", "yes") in call.trailing_metadata()


def test_an_error_becomes_a_success(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        reply = call.next()
        assert reply.status is not None
        assert reply.message is None
        assert reply.headers is None
        assert reply.status.code is StatusCode.UNIMPLEMENTED
        reply.status.code = StatusCode.OK
        reply.message = b"default"

    channel.add_interceptor(Function(function))
    assert channel.unary_unary("/nobody.Has/This")(b"x") == b"default"


def test_it_ends_a_call_before_and_after_next(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        if call.request == b"late":
            call.next()
        call.end(StatusCode.PERMISSION_DENIED, "not you", trailers={"why": "because"})
        with pytest.raises(AlreadyError):
            call.end(StatusCode.ABORTED)
        with pytest.raises(StateError if call.kind is Kind.UNARY else AlreadyError):
            call.next() if call.deadline is None else None

    def ended(data: bytes) -> None:
        with pytest.raises(RpcError) as caught:
            unary(channel, data)
        assert caught.value.code() == StatusCode.PERMISSION_DENIED
        assert ("why", "because") in caught.value.trailing_metadata()

    token = channel.add_interceptor(Function(function))
    ended(b"early")
    token.remove()

    def late(call: InterceptedCall) -> None:
        call.next()
        status = Status(StatusCode.PERMISSION_DENIED, "not you", trailers={"why": "because"})
        with pytest.raises(TypeError):
            call.end(status, "twice")
        call.end(status)

    channel.add_interceptor(Function(late))
    ended(b"late")


def test_it_answers_without_a_server() -> None:
    def function(call: InterceptedCall) -> None:
        if call.kind is Kind.UNARY:
            call.answer(b"stub", headers={"from": "stub"}, trailers={"end": "1"})
        else:
            call.answer(b"1", b"2", code=StatusCode.ABORTED, message="enough")
        with pytest.raises(AlreadyError):
            call.answer()

    with Channel("127.0.0.1:1", tls=False, interceptors=[Function(function)]) as channel:
        response, call = channel.unary_unary("/a.B/C").with_call(b"x")
        assert response == b"stub"
        assert ("from", "stub") in call.initial_metadata()
        assert ("end", "1") in call.trailing_metadata()
        stream = channel.unary_stream("/a.B/C")(b"x")
        assert [next(stream), next(stream)] == [b"1", b"2"]
        with pytest.raises(RpcError, match="enough"):
            next(stream)


def test_streams_through_the_first_response(channel: Channel) -> None:
    kinds: List[Any] = []

    def function(call: InterceptedCall) -> None:
        first = call.request
        reply = call.next()
        assert reply.status is None or call.kind is Kind.CLIENT_STREAM
        assert reply.headers is not None
        reply.headers["seen"] = "yes"
        kinds.append((call.kind, first, reply.message))

    channel.add_interceptor(Function(function))
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    stream = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
    assert ("seen", "yes") in stream.initial_metadata()
    assert len(list(stream)) > 0
    channel.stream_unary("/penstock.Echo/ClientStream")(iter([b"a", b"b"]))
    assert [kind for kind, _, _ in kinds] == [Kind.BIDI, Kind.SERVER_STREAM, Kind.CLIENT_STREAM]
    assert [first for _, first, _ in kinds] == [None, b"x", None]
    assert [message is not None for _, _, message in kinds] == [False, False, True]


def test_values_are_shared_with_callbacks_and_the_caller(channel: Channel) -> None:
    thing = object()
    got: List[object] = []

    def function(call: InterceptedCall) -> None:
        got.append(call.get_value("above"))
        call.set_value("mine", thing)
        got.append(call.get_value("mine"))
        call.next()

    above = Only(on_start=lambda hop: hop.set_value("above", thing))
    channel.add_interceptor(above, priority=1)
    channel.add_interceptor(Function(function))
    _, call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
    assert got == [thing, thing]
    assert call.values["mine"] is thing


def test_a_side_call_does_not_meet_it(lone: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        token = call.side_channel().unary_unary("/penstock.Echo/Unary")(b"token")
        call.metadata["authorization"] = token.decode()
        call.next()

    interceptor = Function(function)
    lone.add_interceptor(interceptor)
    _, call = lone.unary_unary("/penstock.Probe/Unary").with_call(b"{}")
    assert call.code() == StatusCode.OK
    assert len(interceptor.threads) == 1


def test_it_sees_the_caller_s_objects(channel: Channel) -> None:
    seen: List[Any] = []

    class Both(SyncInterceptor):
        level = Level.BOTH

        def intercept(self, call: InterceptedCall) -> None:
            seen.append((call.level, call.request))
            if call.level is Level.OBJECT:
                if call.request == ["answer"]:
                    call.answer(["stub"])
                    return
                call.request = [*call.request, "more"]
            else:
                with pytest.raises(TypeError):
                    call.request = ["an object"]
            reply = call.next()
            seen.append((call.level, reply.message))
            if call.level is Level.OBJECT:
                reply.message = [*reply.message, "in the end"]

    channel.add_interceptor(Both())
    call = channel.unary_unary("/penstock.Echo/Unary", lambda given: json.dumps(given).encode(), json.loads)
    assert call(["given"]) == ["given", "more", "in the end"]
    assert seen == [
        (Level.OBJECT, ["given"]),
        (Level.BYTES, b'["given", "more"]'),
        (Level.BYTES, b'["given", "more"]'),
        (Level.OBJECT, ["given", "more"]),
    ]
    assert call(["answer"]) == ["stub"]


# ---- Law 7 ----


@pytest.mark.parametrize("after", [False, True])
def test_an_exception_ends_the_call_and_reaches_the_caller(
    channel: Channel, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def function(call: InterceptedCall) -> None:
        if after:
            call.next()
        raise ZeroDivisionError("in the function")

    channel.add_interceptor(Function(function), name="breaker")
    with caplog.at_level(logging.ERROR, "penstock"), pytest.raises(RpcError) as caught:
        unary(channel)
    assert caught.value.code() == StatusCode.INTERNAL
    assert caught.value.details() == "interceptor 'breaker': intercept raised ZeroDivisionError"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "breaker" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("returned", [None, "x", 7, Verdict.TAKE])
def test_nonsense_ends_the_call(channel: Channel, returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    channel.add_interceptor(Function(lambda call: returned), name="breaker")
    with caplog.at_level(logging.CRITICAL, "penstock"), pytest.raises(RpcError, match="breaker") as caught:
        unary(channel)
    assert caught.value.code() == StatusCode.INTERNAL


def test_what_is_no_function_is_refused(channel: Channel) -> None:
    class Both(SyncInterceptor):
        def on_start(self, hop: object) -> None: ...

    class Async:
        async def intercept(self, call: InterceptedCall) -> None: ...

    class Number:
        intercept = 5

    for wrong in (Both(), Async(), Number()):
        with pytest.raises(TypeError):
            channel.add_interceptor(wrong)


# ---- Workers ----


@pytest.mark.parametrize("kind", ["unary", "stream"])
def test_a_nest_of_three_is_one_thread(channel: Channel, kind: str) -> None:
    """A unary call's own thread runs the functions; a stream's are run by one worker."""
    order: List[str] = []

    def layer(name: str) -> Function:
        def function(call: InterceptedCall) -> None:
            order.append(f"{name} in")
            call.next()
            order.append(f"{name} out")

        return Function(function)

    layers = [layer(name) for name in "abc"]
    for index, interceptor in enumerate(layers):
        channel.add_interceptor(interceptor, priority=-index)
    if kind == "unary":
        unary(channel)
    else:
        list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
    assert order == ["a in", "b in", "c in", "c out", "b out", "a out"]
    assert len({thread for interceptor in layers for thread in interceptor.threads}) == 1
    assert (layers[0].threads[0] == threading.get_ident()) == (kind == "unary")


def test_one_worker_serves_many_calls_that_meet_themselves(lone: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        if "inner" not in call.metadata:
            assert unary(lone, b"token", metadata={"inner": "1"}) == b"token"
            assert list(lone.stream_stream("/penstock.Echo/Bidi")([b"1"], metadata={"inner": "1"})) == [b"1"]
        call.next()

    interceptor = Function(function)
    lone.add_interceptor(interceptor)
    results: List[Any] = []
    threads = [on_thread(lambda: results.append(unary(lone, timeout=60))) for _ in range(50)]
    for thread in threads:
        thread.join()
    assert results == [b"x"] * 50
    assert len(interceptor.threads) == 150


def test_callbacks_and_no_waiting_thread_are_served_too(lone: Channel) -> None:
    """The function makes a call when its own call has ended. No thread of the program waits then, so the runtime's
    driver thread has to drive the loop."""
    done = threading.Event()

    def function(call: InterceptedCall) -> None:
        if "inner" not in call.metadata:
            call.answer(code=StatusCode.ABORTED)
            unary(lone, metadata={"inner": "1"})
            done.set()
        else:
            call.next()

    lone.add_interceptor(Function(function))
    with pytest.raises(RpcError):
        unary(lone)
    assert done.wait(20)


def test_a_deadline_ends_the_call_of_a_function_that_does_not_return(lone: Channel) -> None:
    go, ended = threading.Event(), threading.Event()
    seen: List[Any] = []

    def function(call: InterceptedCall) -> None:
        if "quick" in call.metadata:
            call.next()
            return
        go.wait(20)
        reply = call.next()
        assert reply.status is not None
        seen.append((reply.gone, reply.status.code, reply.message, reply.headers))
        with pytest.raises(StateError):
            reply.status.code = StatusCode.OK
        with pytest.raises(GoneError):
            reply.message = b"x"
        ended.set()

    interceptor = Function(function)
    lone.add_interceptor(interceptor)
    for _ in range(2):  # the only worker is in the first call, so the second is queued, and its function never runs
        with pytest.raises(RpcError) as caught:
            list(lone.unary_stream("/penstock.Echo/ServerStream")(b"x", timeout=0.1))
        assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED
    go.set()
    assert ended.wait(20)
    assert seen == [(True, StatusCode.DEADLINE_EXCEEDED, None, None)]
    assert unary(lone, metadata={"quick": "1"}) == b"x"
    assert len(interceptor.threads) == 2


def test_shutdown_waits_for_the_function(server: str) -> None:
    go, entered = threading.Event(), threading.Event()

    def function(call: InterceptedCall) -> None:
        entered.set()
        go.wait(20)
        call.next()

    runtime = Runtime(max_workers=2)
    channel = Channel(server, tls=False, runtime=runtime, interceptors=[Function(function)])
    failed: List[Optional[StatusCode]] = []

    def call() -> None:
        with pytest.raises(RpcError) as caught:
            unary(channel)
        failed.append(caught.value.code())

    thread = on_thread(call)
    assert entered.wait(20)
    with pytest.raises(penstock.TimedOutError):
        runtime.shutdown(0.05)
    assert failed == []
    go.set()
    thread.join()
    assert failed == [StatusCode.CANCELLED]
    runtime.shutdown(20)


def test_it_belongs_to_its_function_and_thread(channel: Channel) -> None:
    kept: List[InterceptedCall] = []
    errors: List[type] = []

    def function(call: InterceptedCall) -> None:
        def elsewhere() -> None:
            with pytest.raises(StateError) as caught:
                call.next()
            errors.append(type(caught.value))

        on_thread(elsewhere).join()
        kept.append(call)
        call.next()

    channel.add_interceptor(Function(function))
    unary(channel)
    for use in (lambda: kept[0].method, lambda: kept[0].next(), lambda: kept[0].metadata):
        with pytest.raises(StateError):
            use()
    assert errors == [StateError]


def test_max_workers_is_checked() -> None:
    for wrong in (0, 1025):
        with pytest.raises(penstock.LibraryError):
            Runtime(max_workers=wrong)


def test_a_process_ends_while_functions_wait(server: str) -> None:
    program = f"""
import threading, penstock
from penstock import Channel, SyncInterceptor
entered = threading.Semaphore(0)
class Stuck(SyncInterceptor):
    def intercept(self, call):
        entered.release()
        if call.request == b"next":
            call.next()
        threading.Event().wait()
channel = Channel({server!r}, tls=False, interceptors=[Stuck()])
for data in (b"next", b"wait"):
    call = channel.unary_unary("/penstock.Probe/Hang")
    threading.Thread(target=call, args=(data, 60), daemon=True).start()
    entered.acquire()
"""
    program = f"import penstock\npenstock.load({penstock.load()!r})\n{program}"
    arguments = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(arguments, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
