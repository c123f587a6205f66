"""The four kinds of calls, with bytes and with generated stubs, and every way in which they end."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Iterator, List, Optional

import grpc
import pytest

import penstock
from conftest import await_hanging, json_bytes
from helpers import Only, on_thread, run
from penstock import Channel, RpcError, StatusCode

Make = Callable[[Channel], Any]
KINDS: List[Any] = [
    pytest.param(lambda c: c.unary_unary("/penstock.Echo/Unary")(b"x"), id="unary"),
    pytest.param(lambda c: list(c.unary_stream("/penstock.Echo/ServerStream")(b"x")), id="server stream"),
    pytest.param(lambda c: c.stream_unary("/penstock.Echo/ClientStream")([b"x"]), id="client stream"),
    pytest.param(lambda c: list(c.stream_stream("/penstock.Echo/Bidi")([b"x"])), id="bidi"),
]


# ---- Stubs that grpcio-tools generates, unchanged ----


def test_the_greeter_stub(channel: Channel, stubs: str) -> None:
    import helloworld_pb2
    import helloworld_pb2_grpc

    stub = helloworld_pb2_grpc.GreeterStub(channel)
    request = helloworld_pb2.HelloRequest(name="you")
    assert stub.SayHello(request).message == "Hello, you!"
    assert stub.SayHello(request, timeout=20, metadata=(("a", "b"),), compression=grpc.Compression.Gzip).message
    replies = stub.SayHelloStreamReply(request, timeout=20)
    assert [reply.message for reply in replies] == ["Hello, you!", "Servus, you!", "Salut, you!"]
    names = (helloworld_pb2.HelloRequest(name=name) for name in ("a", "b"))
    assert [reply.message for reply in stub.SayHelloBidiStream(names)] == ["Hello, a!", "Hello, b!"]


def test_the_test_service_stub(channel: Channel, stubs: str) -> None:
    import testing_pb2
    import testing_pb2_grpc

    stub = testing_pb2_grpc.TestServiceStub(channel)
    assert stub.EmptyCall(testing_pb2.Empty()) == testing_pb2.Empty()
    assert len(stub.UnaryCall(testing_pb2.SimpleRequest(response_size=314159)).payload.body) == 314159
    sizes = [27182, 8, 1828, 45904]
    payloads = [testing_pb2.Payload(body=bytes(size)) for size in sizes]
    requests = (testing_pb2.StreamingInputCallRequest(payload=payload) for payload in payloads)
    assert stub.StreamingInputCall(requests).aggregated_payload_size == sum(sizes)
    parameters = [testing_pb2.ResponseParameters(size=size) for size in sizes]
    request = testing_pb2.StreamingOutputCallRequest(response_parameters=parameters)
    assert [len(reply.payload.body) for reply in stub.StreamingOutputCall(request)] == sizes
    several = (testing_pb2.StreamingOutputCallRequest(response_parameters=[one]) for one in parameters)
    assert [len(reply.payload.body) for reply in stub.FullDuplexCall(several)] == sizes
    with pytest.raises(grpc.RpcError) as caught:
        stub.UnimplementedCall(testing_pb2.Empty())
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    status = testing_pb2.EchoStatus(code=2, message="test status message")
    with pytest.raises(RpcError, match="UNKNOWN: test status message"):
        stub.UnaryCall(testing_pb2.SimpleRequest(response_status=status))


# ---- Messages ----


def test_without_serializers_messages_are_bytes(channel: Channel) -> None:
    for data in (b"", b"\x00", bytes(range(256)), bytes(1_000_000)):
        assert channel.unary_unary("/penstock.Echo/Unary")(data) == data
    assert channel.unary_unary("/penstock.Echo/Unary")(bytearray(b"ab")) == b"ab"
    assert channel.unary_unary("/penstock.Echo/Unary")(memoryview(b"ab")) == b"ab"


def test_streams_keep_order_and_boundaries(channel: Channel) -> None:
    messages = [bytes([number % 256]) * (number % 500) for number in range(300)]
    assert list(channel.stream_stream("/penstock.Echo/Bidi")(iter(messages))) == messages
    assert list(channel.stream_stream("/penstock.Echo/Bidi")(messages)) == messages
    assert channel.stream_unary("/penstock.Echo/ClientStream")(iter(messages)) == b"".join(messages)
    assert channel.stream_unary("/penstock.Echo/ClientStream")(messages) == b"".join(messages)
    repeated = channel.unary_stream("/penstock.Echo/ServerStream")(b"abc", metadata={"x-repeat": "50"})
    assert list(repeated) == [b"abc"] * 50


def test_more_than_the_window_goes_through_both_ways(channel: Channel) -> None:
    messages = [bytes([number]) * 1_000_000 for number in range(8)]
    assert list(channel.stream_stream("/penstock.Echo/Bidi")(messages)) == messages
    assert channel.stream_unary("/penstock.Echo/ClientStream")(iter([bytes(1_000_000)] * 3)) == bytes(3_000_000)


def test_empty_streams(channel: Channel) -> None:
    empties: List[Any] = [[], (), iter(())]
    for empty in empties:
        assert channel.stream_unary("/penstock.Echo/ClientStream")(empty) == b""
    assert list(channel.stream_stream("/penstock.Echo/Bidi")([])) == []
    assert list(channel.unary_stream("/penstock.Echo/ServerStream")(b"", metadata={"x-repeat": "0"})) == []


def test_a_conversation(channel: Channel) -> None:
    """The request iterator gives each request only when the response to the one before has come. So each request must
    be sent when it is read, without a look at the next one."""
    turn = threading.Semaphore(1)

    def requests() -> Iterator[bytes]:
        for number in range(20):
            turn.acquire()
            yield str(number).encode()

    answers = []
    for answer in channel.stream_stream("/penstock.Echo/Bidi")(requests()):
        answers.append(int(answer))
        turn.release()
    assert answers == list(range(20))


def test_gzip_both_ways(channel: Channel) -> None:
    data = b"compress me " * 10_000
    compressions: List[Any] = ["gzip", grpc.Compression.Gzip, "identity", grpc.Compression.NoCompression]
    for compression in compressions:
        assert channel.unary_unary("/penstock.Echo/Unary")(data, compression=compression) == data
    with pytest.raises(ValueError, match="compression"):
        channel.unary_unary("/penstock.Echo/Unary")(data, compression=grpc.Compression.Deflate)


# ---- How calls end ----


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


# ---- Failures on the client's side ----


def broken(_: Any) -> Any:
    raise ZeroDivisionError("broken")


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.unary_unary("/penstock.Echo/Unary", broken)(b""),
        lambda c: c.unary_stream("/penstock.Echo/ServerStream", broken)(b""),
        lambda c: c.stream_unary("/penstock.Echo/ClientStream", broken)([b""]),
        lambda c: c.stream_unary("/penstock.Echo/ClientStream", broken)(iter([b""])),
        lambda c: list(c.stream_stream("/penstock.Echo/Bidi", broken)(iter([b""]))),
        lambda c: c.unary_unary("/penstock.Echo/Unary", None, broken)(b""),
        lambda c: list(c.unary_stream("/penstock.Echo/ServerStream", None, broken)(b"")),
        lambda c: c.stream_unary("/penstock.Echo/ClientStream", None, broken)([b""]),
    ],
)
def test_a_codec_that_raises(channel: Channel, call: Make) -> None:
    with pytest.raises(RpcError, match=r"INTERNAL: Exception .*serializing") as caught:
        call(channel)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_request_iterator_that_raises(channel: Channel) -> None:
    def requests() -> Iterator[bytes]:
        yield b"1"
        raise ZeroDivisionError("broken")

    for call in (
        lambda: channel.stream_unary("/penstock.Echo/ClientStream")(requests()),
        lambda: list(channel.stream_stream("/penstock.Echo/Bidi")(requests())),
    ):
        with pytest.raises(RpcError, match="UNKNOWN: Exception iterating requests!") as caught:
            call()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_messages_that_are_not_bytes_are_refused(channel: Channel) -> None:
    wrong: List[Any] = ["text", 5, None]
    for message in wrong:
        with pytest.raises(RpcError, match="INTERNAL") as caught:
            channel.unary_unary("/penstock.Echo/Unary")(message)
        assert isinstance(caught.value.__cause__, TypeError)


def test_a_message_over_the_limits(server: str) -> None:
    limits = {"max_send_message_bytes": 100, "max_receive_message_bytes": 50}
    nothing = Only(on_start=lambda hop: None)
    with penstock.Channel(server, tls=False, options=limits) as channel:
        assert channel.unary_unary("/penstock.Echo/Unary")(bytes(50)) == bytes(50)
        for size in (51, 101):
            for call in (
                lambda data: channel.unary_unary("/penstock.Echo/Unary")(data),
                lambda data: list(channel.unary_stream("/penstock.Echo/ServerStream")(data)),
                lambda data: channel.stream_unary("/penstock.Echo/ClientStream")([data]),
                lambda data: list(channel.stream_stream("/penstock.Echo/Bidi")(iter([data]))),
                lambda data: channel.unary_unary("/penstock.Echo/Unary")(penstock.Uncompressed(data)),
                lambda data: channel.unary_unary("/penstock.Echo/Unary")(data, interceptors=[nothing]),
            ):
                with pytest.raises(RpcError) as caught:
                    call(bytes(size))
                assert caught.value.code() == StatusCode.RESOURCE_EXHAUSTED
                if size > 100:
                    text = "the message to be sent is larger than the limit (101 bytes)"
                    assert caught.value.details() == text


def test_wrong_options_are_refused_by_name(server: str) -> None:
    with pytest.raises(penstock.InvalidArgumentError) as caught:
        penstock.Channel(server, tls=False, options={"max_receive_mesage_bytes": 1})
    assert caught.value.path is not None
    assert "max_receive_mesage_bytes" in caught.value.path
    for options in ({"connect_timeout_ms": "1"}, {"tie_order": "random"}):
        with pytest.raises(penstock.InvalidArgumentError):
            penstock.Channel(server, tls=False, options=options)
    for target in ("", "127.0.0.1:99999", "ipv4:not-an-address:1", "cut\0short:1"):
        with pytest.raises(penstock.InvalidArgumentError):
            penstock.Channel(target, tls=False)
    with penstock.Channel(server, tls=False) as channel:
        with pytest.raises(penstock.InvalidArgumentError):
            channel.unary_unary("not a method")(b"")
        with pytest.raises(ValueError, match="credentials must be"):
            channel.unary_unary("/penstock.Echo/Unary")(b"", credentials=object())
        with pytest.raises(NotImplementedError):
            channel.unary_unary("/penstock.Echo/Unary").future(b"")
