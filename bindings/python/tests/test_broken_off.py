"""Calls that end early on the client's side, by an exception, Ctrl-C or `cancel`: the server learns of the end, and
no message is lost or kept for ever."""

from __future__ import annotations

import gc
import os
import signal
import threading
from typing import Any, Callable, Dict, Iterator, List, Type

import pytest

from conftest import await_hanging, json_bytes
from helpers import Only, Peer, on_thread
from penstock import Call, Channel, Hop, RpcError, StatusCode, Ticket, Verdict, _raw
from penstock._calls import batch
from penstock._calls.keywords import CallKeywords
from penstock._calls.options import CallOptions, call_options, forget_kept_options

CANCEL = 8
KINDS = pytest.mark.parametrize("kind", ["ClientStream", "Bidi"])
REQUESTS = pytest.mark.parametrize("requests", [iter, list], ids=["iterator", "list"])


class Uploading:
    """Calls a method with a stream of requests at the peer, and ignores the responses."""

    def __init__(self, target: str, kind: str) -> None:
        self._channel = Channel(target, tls=False, options={"max_send_message_bytes": 8})
        self._kind = kind

    def __call__(self, requests: Any, serializer: Any = None) -> None:
        path = f"/penstock.Echo/{self._kind}"
        if self._kind == "Bidi":
            list(self._channel.stream_stream(path, serializer)(requests, timeout=30))
        else:
            self._channel.stream_unary(path, serializer)(requests, timeout=30)

    def has_begun(self) -> None:
        """Makes another call on the same connection, so that the upload has reached the peer when that call has
        ended. (A call that is cancelled too early never reaches a server.)"""
        self._channel.unary_unary("/penstock.Echo/Unary")(b"")


@pytest.fixture
def uploading(peer: Peer, kind: str) -> Uploading:
    return Uploading(peer.target, kind)


def assert_cut_off(peer: Peer) -> None:
    """Asserts that the server has seen a cancel. A half-close would make the cut-off request look complete."""
    seen = peer.saw()
    assert (seen["http2_error"], seen.get("status")) == (CANCEL, None)


@KINDS
@REQUESTS
def test_a_whole_upload_is_whole(peer: Peer, uploading: Uploading, requests: Callable[[Any], Any]) -> None:
    uploading(requests([b"1", b"2"]))
    assert (peer.saw()["messages_in"], peer.saw()["status"], peer.saw()["http2_error"]) == (2, 0, 0)


@KINDS
@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_iterator_that_fails_cuts_the_upload_off(
    peer: Peer, uploading: Uploading, error: Type[BaseException]
) -> None:
    def failing() -> Iterator[bytes]:
        yield b"1"
        uploading.has_begun()
        raise error("broken")

    with pytest.raises(RpcError, match="UNKNOWN: Exception iterating requests!") as caught:
        uploading(failing())
    assert isinstance(caught.value.__cause__, error)
    assert_cut_off(peer)


@KINDS
@REQUESTS
def test_a_serializer_that_fails_cuts_the_upload_off(
    peer: Peer, uploading: Uploading, requests: Callable[[Any], Any]
) -> None:
    def unwilling(request: bytes) -> bytes:
        if request == b"2":
            uploading.has_begun()
            raise ZeroDivisionError("broken")
        return request

    with pytest.raises(RpcError, match="INTERNAL: Exception serializing request!"):
        uploading(requests([b"1", b"2", b"3"]), unwilling)
    assert_cut_off(peer)


@KINDS
@REQUESTS
def test_a_message_over_the_limit_cuts_the_upload_off(
    peer: Peer, uploading: Uploading, requests: Callable[[Any], Any]
) -> None:
    def growing(request: bytes) -> bytes:
        if request == b"2":
            uploading.has_begun()
            return bytes(9)
        return request

    with pytest.raises(RpcError, match=r"RESOURCE_EXHAUSTED: .*\(9 bytes\)"):
        uploading(requests([b"1", b"2", b"3"]), growing)
    assert_cut_off(peer)


def test_a_deserializer_that_fails_cancels_the_call(channel: Channel) -> None:
    def broken(_: bytes) -> Any:
        raise ZeroDivisionError("broken")

    call = channel.unary_stream("/penstock.Probe/HangStream", None, broken)(b"")
    with pytest.raises(RpcError, match="INTERNAL: Exception deserializing response!"):
        next(call)
    # The call has ended at the server. The call object can still be used.
    await_hanging(channel, 0)
    assert (call.code(), call.details()) == (StatusCode.INTERNAL, "Exception deserializing response!")
    with pytest.raises(RpcError, match="INTERNAL: Exception deserializing response!"):
        next(call)
    assert not call.is_active()


@pytest.mark.parametrize("way", [{"MOST": 1}, {"SIZE": 0}], ids=["together", "alone"])
def test_a_message_in_hand_at_ctrl_c_comes_next(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, way: Dict[str, int]
) -> None:
    """Ctrl-C comes after the library has returned a message and before the iterator returns it: the next iteration
    gives that message."""
    function = "penstock_call_receive_many" if "MOST" in way else "penstock_call_receive"
    real = getattr(_raw, function)
    monkeypatch.setattr(batch, "_rooms", [])
    for name, value in way.items():
        monkeypatch.setattr(batch, name, value)
    armed: List[int] = []

    def receive(*arguments: Any) -> Any:
        result = real(*arguments)
        if armed:
            armed.pop()
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(_raw, function, receive)
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 3})
    for number in range(3):
        armed.append(1)
        with pytest.raises(KeyboardInterrupt):
            next(call)
        if number == 2:
            # The status has come, although the last message has not been read.
            assert call.code() == StatusCode.OK
        assert next(call) == number.to_bytes(4, "big")
    assert list(call) == []


def ended_with_a_message_unread(channel: Channel) -> Call:
    """Gives a call that has ended with OK and has one unread message. A hop pauses the message while the caller waits
    for it; Ctrl-C ends that wait; then the message goes on, and the status follows it."""
    paused = threading.Event()
    tickets: List[Ticket] = []

    def pause(hop: Hop) -> Verdict:
        tickets.append(hop.ticket())
        paused.set()
        return Verdict.PAUSE

    def interrupt() -> None:
        paused.wait()
        # When this call has ended, the driving thread has left the callback `pause`.
        channel.unary_unary("/penstock.Echo/Unary")(b"")
        os.kill(os.getpid(), signal.SIGINT)

    channel.add_interceptor(Only(on_receive=pause), methods="/penstock.Probe/Stream")
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 1})
    interrupting = on_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(call)
    interrupting.join()
    tickets[0].resume()
    assert call.code() == StatusCode.OK
    return call


def test_a_message_that_comes_after_ctrl_c_is_not_lost(channel: Channel) -> None:
    assert list(ended_with_a_message_unread(channel)) == [bytes(4)]


def test_cancel_after_the_end_discards_messages_and_leaves_the_status(channel: Channel) -> None:
    call = ended_with_a_message_unread(channel)
    assert call.cancel() is False
    assert list(call) == []
    assert call.code() == StatusCode.OK


def test_cancel_discards_a_message_in_hand_at_ctrl_c(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _raw.penstock_call_receive_many

    def receive(*arguments: Any) -> Any:
        monkeypatch.undo()
        result = real(*arguments)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(_raw, "penstock_call_receive_many", receive)
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    with pytest.raises(KeyboardInterrupt):
        next(call)
    assert call.cancel() is True
    with pytest.raises(RpcError, match="CANCELLED"):
        next(call)


def test_options_that_differ_each_time_are_not_kept() -> None:
    """Timeouts that are computed from a clock differ from call to call: so no more than 64 parsed options are
    kept."""

    def alive() -> int:
        gc.collect()
        return sum(type(thing) is CallOptions for thing in gc.get_objects())

    forget_kept_options()
    before = alive()
    for milliseconds in range(1000):
        made = call_options(CallKeywords(timeout=1 + milliseconds / 1000))
    assert call_options(CallKeywords(timeout=1.999)) is made
    assert alive() - before <= 65
