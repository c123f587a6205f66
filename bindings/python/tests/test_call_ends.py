"""Every way in which calls end, and how the caller learns of it."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Iterator, List, Optional

import grpc
import pytest

import penstock
from conftest import await_hanging, json_bytes
from helpers import Only, on_thread, run
from penstock import Call, Channel, RpcError, StatusCode
from penstock._calls.blocking import ThreadLine
from test_calls import KINDS, Make


def test_with_call_tells_what_came(channel: Channel) -> None:
    wish = json.dumps({"initial": [["x-first", "1"]], "trailing": [["x-last", "2"]]}).encode()
    response, outcome = channel.unary_unary("/penstock.Probe/Unary").with_call(wish)
    assert json.loads(response)["metadata"] == []
    assert (outcome.code(), outcome.details(), outcome.is_active()) == (StatusCode.OK, "", False)
    assert outcome.initial_metadata().get("x-first") == "1"
    assert ("x-last", "2") in outcome.trailing_metadata()
    assert outcome.stats["received"]["messages"] == 1
    assert outcome.stats["duration_us"] > 0
    response, call = channel.stream_unary("/penstock.Echo/ClientStream").with_call([b"a", b"b"])
    assert (response, call.code()) == (b"ab", StatusCode.OK)


def test_a_message_with_a_nul_is_given_whole(channel: Channel) -> None:
    seen: List[str] = []

    def note(hop: penstock.Hop) -> None:
        seen.append(hop.status.message)
        hop.status.message += "!"

    channel.add_interceptor(Only(on_status=note))
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary")(json.dumps({"code": 5, "message": "a\x00b"}).encode())
    assert seen == ["a\x00b"]
    assert caught.value.details() == "a\x00b!"
    assert json.loads(caught.value.status_json)["message"] == "a\x00b!"


@pytest.mark.parametrize("code", list(StatusCode)[1:])
def test_every_code_is_raised(channel: Channel, code: StatusCode) -> None:
    wish = {"code": code.number, "message": f"said {code.name} — ganz klar", "trailing": [["x-why", "because"]]}
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary")(json.dumps(wish).encode())
    error = caught.value
    assert isinstance(error, grpc.RpcError)
    assert (error.code(), error.details()) == (code, wish["message"])
    assert error.code() == grpc.StatusCode[code.name]
    assert error.trailing_metadata().get("x-why") == "because"
    assert error.__cause__ is None
    view = json.loads(error.debug_error_string())
    assert (view["status"]["code"], view["status"]["name"]) == (code.number, code.name)
    assert view["stats"]["peer"]
    assert str(error) == f"{code.name}: {wish['message']}"


def test_a_stream_gives_its_messages_before_its_error(channel: Channel) -> None:
    wish = {"count": 3, "code": 10, "message": "enough"}
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)(wish)
    received: List[bytes] = []
    with pytest.raises(RpcError, match="ABORTED: enough"):
        received.extend(call)
    assert len(received) == 3
    assert (call.code(), call.details(), call.is_active()) == (StatusCode.ABORTED, "enough", False)
    with pytest.raises(RpcError, match="ABORTED: enough"):
        next(call)


def test_the_code_of_a_stream_without_messages(channel: Channel) -> None:
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 0, "code": 5, "message": "no"})
    assert (call.code(), call.details()) == (StatusCode.NOT_FOUND, "no")
    with pytest.raises(RpcError, match="NOT_FOUND: no"):
        next(call)
    assert channel.stream_stream("/penstock.Echo/Bidi")([]).code() == StatusCode.OK


def test_whoever_asks_for_the_code_waits_for_whoever_reads(channel: Channel) -> None:
    """While four threads wait for the code, the thread that iterates gets all messages in order."""
    wish = {"count": 2000, "code": 10, "message": "enough"}
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)(wish)
    asked: List[Any] = []
    asking = [on_thread(lambda: asked.append((call.code(), call.details()))) for _ in range(4)]
    received: List[bytes] = []
    with pytest.raises(RpcError, match="ABORTED: enough"):
        received.extend(call)
    for thread in asking:
        thread.join()
    assert received == [number.to_bytes(4, "big") for number in range(2000)]
    assert asked == [(StatusCode.ABORTED, "enough")] * 4


def grpcio_call(target: str, wish: Any, timeout: Optional[float]) -> Any:
    channel = grpc.insecure_channel(target)
    return channel.unary_stream("/penstock.Probe/Stream", json_bytes)(wish, timeout=timeout)


def our_call(target: str, wish: Any, timeout: Optional[float]) -> Any:
    channel = Channel(target, tls=False)
    return channel.unary_stream("/penstock.Probe/Stream", json_bytes)(wish, timeout=timeout)


@pytest.mark.parametrize("make", [our_call, grpcio_call], ids=["penstock", "grpcio"])
def test_a_wait_for_the_code_beside_unread_messages_ends_as_grpcio_s(server: str, make: Any) -> None:
    """While messages are unread the status can't come. So a wait for the code ends at the deadline, or when the call
    is cancelled, as in grpcio."""
    call = make(server, {"count": 5}, 0.3)
    assert call.code().name == "DEADLINE_EXCEEDED"
    assert not call.is_active()
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    call = make(server, {"count": 5}, None)
    next(call)
    asked: List[Any] = []
    asking = on_thread(lambda: asked.append(call.code()))
    assert call.cancel()
    asking.join()
    assert asked == [grpc.StatusCode.CANCELLED]
    assert call.details() == "Locally cancelled by application!"
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() == grpc.StatusCode.CANCELLED


ASKING = """
import resource
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
channel = penstock.Channel(target, tls=False)
stream = channel.unary_stream("/penstock.Probe/Stream")
list(stream(b'{"count": 20, "size": 1000000}'))
before = peak()
def stream_of(count, **options):
    return stream(b'{"count": %d, "size": 1000000}' % count, **options)
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("call = stream_of(2_000_000_000, timeout=2)\nprint(call.code().name)", "DEADLINE_EXCEEDED"),
        ("call = stream_of(2_000_000_000, timeout=2)\nprint(len(call.trailing_metadata()))", "0"),
        (
            "call = stream_of(300)\n"
            "asking = threading.Thread(target=lambda: print(call.code().name))\n"
            "asking.start()\n"
            "for message in call: threading.Event().wait(0.001)\n"
            "asking.join()",
            "OK",
        ),
    ],
)
def test_a_wait_for_the_code_takes_no_memory(server: str, text: str, says: str) -> None:
    # In a separate process, because memory freed by other tests would hide the growth of the process.
    printed = run(ASKING + text + "\nprint(peak() - before)", server).split()
    assert printed[0] == says
    # In kilobytes. Flow control lets a stream buffer 1 MiB and a connection 4 MiB. Without flow control the process
    # would grow by hundreds of MiB.
    assert int(printed[1]) < 16_000


def test_the_cause_is_kept_when_two_threads_wait(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the second thread came between the first one's wait and its reply."""

    def fail(hop: penstock.Hop) -> None:
        raise ZeroDivisionError

    channel.add_interceptor(Only(on_status=fail))
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
    status = ThreadLine.status

    def both(line: ThreadLine, timeout: Optional[float]) -> int:
        reply = status(line, timeout)
        monkeypatch.setattr(ThreadLine, "status", status)
        assert call.code() is StatusCode.INTERNAL
        return reply

    monkeypatch.setattr(ThreadLine, "status", both)
    with pytest.raises(RpcError) as caught:
        list(call)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_end_is_told_while_another_thread_reads_the_last_response() -> None:
    """As if the other thread forgot the requests between any two looks at them."""

    class Requests:
        failure = None

    looks = [Requests(), None]

    class Ending(Call):
        _requests = property(lambda self: looks.pop(0))  # type: ignore[assignment]

    call = Ending.__new__(Ending)
    call._failure, call._lent, call._code = None, None, StatusCode.OK
    call._reply = object()  # type: ignore[assignment]
    assert call._error() is None


def test_headers_come_before_the_first_message(channel: Channel) -> None:
    call = channel.stream_stream("/penstock.Probe/HangBidi")(iter([]))
    assert call.initial_metadata() is not None
    assert call.is_active()
    assert call.cancel() is True


def test_a_details_message_is_found_by_its_type_url(channel: Channel, stubs: str) -> None:
    import echo_pb2

    complaint = echo_pb2.Complaint(subject="soup", count=2).SerializeToString()
    url = "type.googleapis.com/penstock.Complaint"
    # The protobuf encoding, written by hand, of google.rpc.Status {code: 9, message: "no", details: [Any {type_url,
    # value}]}.
    any_bytes = b"\x0a" + bytes([len(url)]) + url.encode() + b"\x12" + bytes([len(complaint)]) + complaint
    status = b"\x08\x09\x12\x02no\x1a" + bytes([len(any_bytes)]) + any_bytes
    wish = {"code": 9, "message": "no", "trailing": [["grpc-status-details-bin", status.hex()]]}
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary")(json.dumps(wish).encode())
    detail = caught.value.find_detail(url)
    assert detail is not None
    assert detail == caught.value.find_detail("penstock.Complaint") == caught.value.status_details[0]
    assert detail.unpack(echo_pb2.Complaint) == echo_pb2.Complaint(subject="soup", count=2)
    assert caught.value.find_detail("penstock.Opaque") is None


@pytest.mark.parametrize("call", KINDS)
def test_a_refused_connection(call: Make) -> None:
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{bound.getsockname()[1]}"
        with penstock.Channel(target, tls=False) as channel, pytest.raises(RpcError) as caught:
            call(channel)
    assert caught.value.code() == StatusCode.UNAVAILABLE
    assert caught.value.initial_metadata() == ()


def test_a_deadline(channel: Channel) -> None:
    for timeout in (0.05, 0, -1):
        with pytest.raises(RpcError) as caught:
            channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=timeout)
        assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"", timeout=0.3)
    remaining = call.time_remaining()
    assert remaining is not None
    assert 0 <= remaining <= 0.3
    with pytest.raises(RpcError) as caught:
        list(call)
    assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED
    assert call.time_remaining() == 0
    with pytest.raises(ValueError, match="NaN"):
        channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=float("nan"))


def test_a_timeout_is_told_to_the_server(probe: Callable[..., Any]) -> None:
    assert 15 < probe(timeout=20)["time_remaining"] <= 20
    for none in (None, float("inf"), 1e12, 10**400):
        left = probe(timeout=none)["time_remaining"]
        assert left is None or left > 1e8


@pytest.mark.parametrize("timeout", [-float("inf"), -(10**400), -1, 0])
def test_a_timeout_that_has_passed(channel: Channel, timeout: Any) -> None:
    stream = channel.unary_stream("/penstock.Probe/HangStream")(b"", timeout=timeout)
    assert stream.time_remaining() == 0
    for call in (lambda: next(stream), lambda: channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=timeout)):
        with pytest.raises(RpcError) as caught:
            call()
        assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("timeout", [float("inf"), 10**400])
def test_a_timeout_without_end(channel: Channel, timeout: Any) -> None:
    stream = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", timeout=timeout)
    assert stream.time_remaining() is None
    assert list(stream) == [b"x"]


def test_cancel_reaches_the_server(channel: Channel) -> None:
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    await_hanging(channel, 1)
    assert call.cancel() is True
    with pytest.raises(RpcError) as caught:
        next(call)
    assert caught.value.code() == StatusCode.CANCELLED
    assert call.code() == StatusCode.CANCELLED
    assert call.cancel() is False
    await_hanging(channel, 0)


@pytest.mark.parametrize("on_own_thread", [True, False])
def test_cancel_discards_what_is_unread(channel: Channel, on_own_thread: bool) -> None:
    for read in range(1, 50):
        call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 1000})
        for _ in range(read):
            next(call)
        if on_own_thread:
            assert call.cancel() is True
        else:
            on_thread(call.cancel).join()
        with pytest.raises(RpcError) as caught:
            next(call)
        assert caught.value.code() == StatusCode.CANCELLED


def test_cancel_from_another_thread(channel: Channel) -> None:
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"

    def cancel_when_hanging() -> None:
        await_hanging(channel, 1)
        call.cancel()

    thread = threading.Thread(target=cancel_when_hanging)
    thread.start()
    with pytest.raises(RpcError) as caught:
        next(call)
    thread.join()
    assert caught.value.code() == StatusCode.CANCELLED


def test_dropping_a_call_cancels_it(channel: Channel) -> None:
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    await_hanging(channel, 1)
    del call
    await_hanging(channel, 0)


def test_closing_the_channel_ends_its_calls(server: str) -> None:
    channel = penstock.Channel(server, tls=False)
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    channel.close()
    channel.close()
    with pytest.raises(RpcError) as caught:
        next(call)
    assert caught.value.code() == StatusCode.CANCELLED
    for again in (channel.unary_unary("/penstock.Echo/Unary"), channel.unary_stream("/penstock.Echo/ServerStream")):
        with pytest.raises(penstock.ClosedError):
            again(b"")


def test_a_server_that_ends_early_ends_the_sending(channel: Channel) -> None:
    """The server answers while the request iterator waits. When the iterator goes on, its next request can't be sent,
    and no further request is read from it."""
    go_on = threading.Event()

    def requests() -> Iterator[bytes]:
        yield b"1"
        go_on.wait()
        while True:
            yield b"more"

    with pytest.raises(RpcError, match="FAILED_PRECONDITION: not now"):
        channel.stream_unary("/penstock.Probe/Early")(requests())
    go_on.set()
