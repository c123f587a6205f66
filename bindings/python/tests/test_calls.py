"""The four kinds of calls, with bytes and with generated stubs, and failures on the client's side."""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterator, List

import grpc
import pytest

import penstock
from helpers import Only, eventually
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


def test_compressed_both_ways(channel: Channel) -> None:
    data = b"compress me " * 10_000
    compressions: List[Any] = ["gzip", "deflate", "identity", *grpc.Compression]
    for compression in compressions:
        assert channel.unary_unary("/penstock.Echo/Unary")(data, compression=compression) == data
    with pytest.raises(ValueError, match="compression"):
        channel.unary_unary("/penstock.Echo/Unary")(data, compression="br")


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


def test_a_call_has_limits_and_an_authority_of_its_own(channel: Channel) -> None:
    seen: List[Any] = []
    tell = Only(on_start=lambda hop: seen.append((hop.authority, hop.max_send_message_bytes)))
    call = channel.unary_unary("/penstock.Echo/Unary")
    answer = call(b"12345", authority="shop.example:1", max_send_message_bytes=5, interceptors=[tell])
    assert (answer, seen) == (b"12345", [("shop.example:1", 5)])
    with pytest.raises(RpcError) as caught:
        call(b"123456", max_send_message_bytes=5)
    assert caught.value.code() == StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(penstock.InvalidArgumentError) as refused:
        call(b"x", authority="not an authority")
    assert refused.value.path == "$.authority"


def test_a_full_send_buffer_holds_the_requests_up(channel: Channel) -> None:
    taken: List[int] = []
    tickets: List[penstock.Ticket] = []

    def requests() -> Iterator[bytes]:
        for number in range(100):
            taken.append(number)
            yield b"x"

    def wait(hop: penstock.Hop) -> penstock.Verdict:
        tickets.append(hop.ticket())
        return penstock.Verdict.PAUSE

    gate = Only(on_start=wait)
    call = channel.stream_stream("/penstock.Echo/Bidi")(requests(), send_buffer_bytes=1, interceptors=[gate])
    eventually(lambda: len(taken) >= 2)  # one message always has room, and the next one waits
    for _ in range(3):
        channel.unary_unary("/penstock.Echo/Unary")(b"meanwhile")
    assert len(taken) == 2
    tickets[0].resume()
    assert len(list(call)) == 100


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
