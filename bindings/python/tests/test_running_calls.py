"""Calls that go on while the program does something else: `future`, `write`, and functions that run at the end."""

from __future__ import annotations

import gc
import os
import threading
import traceback
import weakref
from typing import Any, Callable, List

import pytest

import penstock
from conftest import await_hanging, json_bytes
from helpers import Only, eventually, on_thread
from penstock import Call, Channel, Hop, RpcError, StatusCode

REFUSAL = {"code": 9, "message": "not like this", "trailing": [["x-why", "because"]]}


def hanging(channel: Channel, **keywords: Any) -> Call:
    call: Call = channel.unary_unary("/penstock.Probe/Hang").future(b"", **keywords)
    return call


def test_the_response_of_a_future(channel: Channel) -> None:
    call = channel.unary_unary("/penstock.Echo/Unary", None, lambda data: [data]).future(b"x", timeout=20)
    response = call.result()
    assert response == [b"x"]
    assert call.result(timeout=0) is response
    assert (call.done(), call.running(), call.cancelled(), call.exception(), call.traceback()) == (
        *(True, False, False),
        *(None, None),
    )
    assert (call.code(), call.cancel()) == (StatusCode.OK, False)
    many = [channel.unary_unary("/penstock.Echo/Unary").future(b"%d" % n) for n in range(50)]
    assert [one.result(timeout=30) for one in many] == [b"%d" % n for n in range(50)]


def test_the_failure_of_a_future(channel: Channel) -> None:
    call = channel.unary_unary("/penstock.Probe/Unary", json_bytes).future(REFUSAL)
    with pytest.raises(RpcError, match="not like this") as caught:
        call.result(timeout=30)
    assert caught.value.code() is call.code() is StatusCode.FAILED_PRECONDITION
    assert ("x-why", "because") in call.trailing_metadata()
    assert isinstance(call.exception(), RpcError)


def test_a_deserializer_that_raises_fails_the_future(channel: Channel) -> None:
    def broken(data: bytes) -> Any:
        raise ZeroDivisionError

    call = channel.unary_unary("/penstock.Echo/Unary", None, broken).future(b"x")
    error = call.exception(timeout=30)
    assert isinstance(error, RpcError)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert call.exception() is error
    assert call.code() is StatusCode.INTERNAL


def test_a_wait_with_a_limit(channel: Channel) -> None:
    call = hanging(channel)
    with pytest.raises(penstock.TimedOutError, match=r"within 0\.01 s"):
        call.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        call.exception(timeout=0)
    assert not call.done()
    assert call.cancel("enough")
    error = call.exception(timeout=30)
    assert error is not None
    assert (error.code(), error.details(), call.cancelled()) == (StatusCode.CANCELLED, "enough", True)


def test_another_thread_cancels_a_call_that_waits_for_its_response(channel: Channel) -> None:
    call = hanging(channel)
    await_hanging(channel, 1)
    raised: List[RpcError] = []
    waiting = on_thread(lambda: raised.append(call.exception()))  # type: ignore[arg-type]
    assert call.cancel("by another thread")
    waiting.join()
    assert raised[0].details() == "by another thread"
    await_hanging(channel, 0)


def test_functions_run_at_the_end_in_their_order(channel: Channel) -> None:
    call = hanging(channel)
    told: List[Any] = []
    over = threading.Event()
    assert call.add_callback(lambda: told.append("first"))
    call.add_done_callback(lambda one: told.append((one is call, one.done())))
    assert call.add_callback(over.set)
    assert told == []
    call.cancel()
    assert over.wait(30)
    assert told == ["first", (True, True)]
    # It has ended: one is called at once, the other never.
    call.add_done_callback(lambda one: told.append(threading.current_thread().name))
    assert told[2] == threading.current_thread().name
    assert call.add_callback(lambda: told.append("never")) is False


def test_a_function_may_wait_and_make_calls(channel: Channel) -> None:
    answers: List[bytes] = []
    over = threading.Event()

    def ended(call: Call) -> None:
        answers.append(channel.unary_unary("/penstock.Echo/Unary")(call.result() + b"!", timeout=30))
        over.set()

    channel.unary_unary("/penstock.Echo/Unary").future(b"x").add_done_callback(ended)
    assert over.wait(30)
    assert answers == [b"x!"]


def test_a_function_that_raises_is_logged(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()

    def broken() -> None:
        raise ZeroDivisionError("in a callback")

    call = hanging(channel)
    call.add_callback(broken)
    call.add_callback(over.set)
    call.cancel()
    assert over.wait(30)
    assert "in a callback" in caplog.text


@pytest.mark.parametrize("reads", [True, False])
def test_a_stream_tells_of_its_end(channel: Channel, reads: bool) -> None:
    over = threading.Event()
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 3})
    assert call.add_callback(over.set) or call.done()
    if reads:
        assert len(list(call)) == 3
        assert over.wait(30) or call.done()
        assert call.result() is None
    else:
        call.cancel()
        eventually(call.done)


def test_a_call_with_a_function_goes_on_without_its_object(channel: Channel) -> None:
    codes: List[StatusCode] = []
    over = threading.Event()
    call = channel.unary_unary("/penstock.Echo/Unary").future(b"x")
    call.add_done_callback(lambda one: (codes.append(one.code()), over.set()))
    gone = weakref.ref(call)
    del call
    assert over.wait(30)
    assert codes == [StatusCode.OK]
    eventually(lambda: gc.collect() >= 0 and gone() is None)


def test_a_dropped_future_is_cancelled(channel: Channel) -> None:
    call = hanging(channel)
    await_hanging(channel, 1)
    del call
    await_hanging(channel, 0)


def test_requests_that_are_written(channel: Channel) -> None:
    call = channel.stream_stream("/penstock.Echo/Bidi")(timeout=30)
    for message in (b"a", b"b"):
        assert call.write(message)
        assert next(call) == message
    call.done_writing()
    call.done_writing()
    assert list(call) == []
    assert call.write(b"late") is False
    upload = channel.stream_unary("/penstock.Echo/ClientStream", lambda text: text.encode()).future()
    assert all(upload.write(text) for text in ("a", "b"))
    upload.done_writing()
    assert upload.result(timeout=30) == b"ab"


def test_a_request_that_cannot_be_written(channel: Channel) -> None:
    def serialize(text: str) -> bytes:
        return text.encode("ascii")

    call = channel.stream_unary("/penstock.Echo/ClientStream", serialize).future(max_send_message_bytes=3)
    with pytest.raises(RpcError, match="Exception serializing request!") as caught:
        call.write("é")
    assert isinstance(caught.value.__cause__, UnicodeEncodeError)
    with pytest.raises(RpcError, match="larger than the limit"):
        call.write("four")
    assert call.write("ok")
    call.done_writing()
    with pytest.raises(penstock.StateError):
        call.write("no")
    assert call.result() == b"ok"


def test_limits_of_one_call(channel: Channel) -> None:
    echo = channel.unary_unary("/penstock.Echo/Unary")
    with pytest.raises(RpcError) as caught:
        echo(b"xxxx", max_send_message_bytes=3)
    assert caught.value.code() is StatusCode.RESOURCE_EXHAUSTED
    seen: List[Any] = []
    channel.add_interceptor(Only(on_start=lambda hop: seen.append(hop.authority)))
    assert echo(b"xxxx", authority="orders.example", send_buffer_bytes=1) == b"xxxx"
    assert seen == ["orders.example"]


def test_an_interceptor_s_exception_reaches_the_future(channel: Channel) -> None:
    def broken(hop: Hop) -> None:
        raise ZeroDivisionError("in on_receive")

    channel.add_interceptor(Only(on_receive=broken), name="broken")
    error = channel.unary_unary("/penstock.Echo/Unary").future(b"x").exception(timeout=30)
    assert error is not None
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "in on_receive" in "".join(traceback.format_exception(None, error, error.__traceback__))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_functions_run_in_a_forked_child(server: str) -> None:
    def told(made: Callable[[], Call]) -> bool:
        over = threading.Event()
        call = made()
        call.add_done_callback(lambda one: over.set())
        call.cancel()
        return over.wait(30)

    with Channel(server, tls=False) as channel:
        assert told(lambda: hanging(channel))
        child = os.fork()
        if child == 0:
            result = 1
            try:
                with Channel(server, tls=False) as own:
                    result = 0 if told(lambda: hanging(own)) else 2
            finally:
                os._exit(result)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert told(lambda: hanging(channel))


@pytest.mark.parametrize("kind", [LookupError, SystemExit, KeyboardInterrupt])
def test_a_callback_that_raises_keeps_nothing_from_later_ones(channel: Channel, kind: type[BaseException]) -> None:
    told = threading.Event()

    def broken(call: Call) -> None:
        raise kind("broken")

    for callback in (broken, lambda call: told.set()):
        call = hanging(channel)
        call.add_done_callback(callback)
        call.cancel()
    assert told.wait(20)
