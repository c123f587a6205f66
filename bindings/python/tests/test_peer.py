"""Calls to penstock-peer, the project's own server: TestService's interop cases, Greeter and Echo."""

from __future__ import annotations

import copy
import threading
from typing import Any, Iterator, List, Optional

import pytest

import penstock
from helpers import running_peer
from penstock import RpcError, StatusCode

SIZES = [31415, 9, 2653, 58979]


@pytest.fixture(scope="module")
def peer() -> Iterator[str]:
    with running_peer() as target:
        yield target


@pytest.fixture
def channel(peer: str) -> Iterator[penstock.Channel]:
    with penstock.Channel(peer, tls=False) as opened:
        yield opened


@pytest.fixture
def service(channel: penstock.Channel, stubs: str) -> Any:
    import testing_pb2_grpc

    return testing_pb2_grpc.TestServiceStub(channel)


def test_the_greeter(channel: penstock.Channel, stubs: str) -> None:
    import helloworld_pb2
    import helloworld_pb2_grpc

    stub = helloworld_pb2_grpc.GreeterStub(channel)
    request = helloworld_pb2.HelloRequest(name="peer")
    assert stub.SayHello(request).message == "Hello, peer!"
    assert all("peer" in reply.message for reply in stub.SayHelloStreamReply(request))
    names = iter([request, request])
    assert [reply.message for reply in stub.SayHelloBidiStream(names)] == ["Hello, peer!"] * 2


def test_echo_takes_any_bytes(channel: penstock.Channel) -> None:
    for data in (b"", b"\xff\x00", bytes(300_000)):
        assert channel.unary_unary("/penstock.Echo/Unary")(data) == data
        assert channel.stream_unary("/penstock.Echo/ClientStream")([data, data]) == data + data
        assert list(channel.stream_stream("/penstock.Echo/Bidi")(iter([data, b"1"]))) == [data, b"1"]
        several = channel.unary_stream("/penstock.Echo/ServerStream")(data, metadata={"x-repeat": "3"})
        assert list(several) == [data] * 3


def test_empty_unary(service: Any) -> None:
    import testing_pb2

    assert service.EmptyCall(testing_pb2.Empty()) == testing_pb2.Empty()


def test_large_unary(service: Any) -> None:
    import testing_pb2

    payload = testing_pb2.Payload(body=bytes(271828))
    reply = service.UnaryCall(testing_pb2.SimpleRequest(response_size=314159, payload=payload))
    assert reply.payload.body == bytes(314159)


def test_client_streaming(service: Any) -> None:
    import testing_pb2

    payloads = [testing_pb2.Payload(body=bytes(size)) for size in (27182, 8, 1828, 45904)]
    requests = (testing_pb2.StreamingInputCallRequest(payload=payload) for payload in payloads)
    assert service.StreamingInputCall(requests).aggregated_payload_size == 74922


def test_server_streaming(service: Any) -> None:
    import testing_pb2

    parameters = [testing_pb2.ResponseParameters(size=size) for size in SIZES]
    replies = service.StreamingOutputCall(testing_pb2.StreamingOutputCallRequest(response_parameters=parameters))
    assert [len(reply.payload.body) for reply in replies] == SIZES


@pytest.mark.parametrize("method", ["FullDuplexCall", "HalfDuplexCall"])
def test_streams_both_ways(service: Any, method: str) -> None:
    import testing_pb2

    def requests() -> Iterator[Any]:
        for size in SIZES:
            parameters = [testing_pb2.ResponseParameters(size=size)]
            yield testing_pb2.StreamingOutputCallRequest(response_parameters=parameters)

    assert [len(reply.payload.body) for reply in getattr(service, method)(requests())] == SIZES


def test_custom_metadata(service: Any) -> None:
    import testing_pb2

    metadata = [("x-grpc-test-echo-initial", "test_initial_metadata_value")]
    metadata_bin = ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")
    request = testing_pb2.SimpleRequest(response_size=314159)
    _, call = service.UnaryCall.with_call(request, metadata=[*metadata, metadata_bin])
    assert metadata[0] in call.initial_metadata()
    assert metadata_bin in call.trailing_metadata()


@pytest.mark.parametrize(
    "message", ["test status message", "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"]
)
def test_status_code_and_message(service: Any, message: str) -> None:
    import testing_pb2

    status = testing_pb2.EchoStatus(code=2, message=message)
    with pytest.raises(RpcError) as caught:
        service.UnaryCall(testing_pb2.SimpleRequest(response_status=status))
    assert (caught.value.code(), caught.value.details()) == (StatusCode.UNKNOWN, message)
    request = testing_pb2.StreamingOutputCallRequest(response_status=status)
    with pytest.raises(RpcError) as caught:
        list(service.FullDuplexCall(iter([request])))
    assert (caught.value.code(), caught.value.details()) == (StatusCode.UNKNOWN, message)


def test_unimplemented(channel: penstock.Channel, service: Any) -> None:
    import testing_pb2
    import testing_pb2_grpc

    nowhere = testing_pb2_grpc.UnimplementedServiceStub(channel)
    for stub in (service, nowhere):
        with pytest.raises(RpcError) as caught:
            stub.UnimplementedCall(testing_pb2.Empty())
        assert caught.value.code() == StatusCode.UNIMPLEMENTED


def test_cancel_after_begin_and_after_the_first_response(service: Any) -> None:
    import testing_pb2

    parameters = [testing_pb2.ResponseParameters(size=31415)]
    request = testing_pb2.StreamingOutputCallRequest(response_parameters=parameters)

    for reads in (0, 1):
        more = threading.Event()

        def requests(more: threading.Event = more) -> Iterator[Any]:
            yield request
            more.wait()

        call = service.FullDuplexCall(requests())
        for _ in range(reads):
            assert len(next(call).payload.body) == 31415
        call.cancel()
        assert call.code() == StatusCode.CANCELLED
        more.set()


def test_timeout_on_sleeping_server(service: Any) -> None:
    import testing_pb2

    parameters = [testing_pb2.ResponseParameters(size=1, interval_us=30_000_000)]
    request = testing_pb2.StreamingOutputCallRequest(response_parameters=parameters)
    with pytest.raises(RpcError) as caught:
        list(service.FullDuplexCall(iter([request]), timeout=0.001))
    assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED


def test_compression_both_ways(service: Any) -> None:
    import testing_pb2

    yes = testing_pb2.BoolValue(value=True)
    payload = testing_pb2.Payload(body=bytes(271828))
    request = testing_pb2.SimpleRequest(
        expect_compressed=yes, response_compressed=yes, response_size=314159, payload=payload
    )
    reply, call = service.UnaryCall.with_call(request, compression="gzip")
    assert reply.payload.body == bytes(314159)
    assert call.stats["received"]["wire_bytes"] < 100_000
    assert call.stats["sent"]["wire_bytes"] < 100_000


# ---- Uncompressed: the peer refuses a message whose compressed flag differs from what "expect_compressed" says ----


class Watch(penstock.Interceptor):
    """Keeps the sent messages that it sees at ``level``; with ``replaces`` it replaces each by a copy."""

    def __init__(self, level: penstock.Level, replaces: bool = False) -> None:
        self.level = level
        self.replaces = replaces
        self.seen: List[Any] = []

    def on_send(self, hop: penstock.Hop) -> None:
        self.seen.append(hop.message)
        if self.replaces:
            hop.message = copy.copy(hop.message)


@pytest.mark.parametrize("level", [None, penstock.Level.OBJECT, penstock.Level.BYTES])
def test_one_request_is_not_compressed(
    service: Any, channel: penstock.Channel, level: Optional[penstock.Level]
) -> None:
    import testing_pb2

    watch = Watch(level or penstock.Level.BYTES, replaces=True)
    if level is not None:
        channel.add_interceptor(watch)

    def request(expected: bool) -> Any:
        payload = testing_pb2.Payload(body=bytes(1000))
        flag = testing_pb2.BoolValue(value=expected)
        return testing_pb2.SimpleRequest(payload=payload, expect_compressed=flag)

    service.UnaryCall(request(True), compression="gzip")
    service.UnaryCall(penstock.Uncompressed(request(False)), compression="gzip")
    service.UnaryCall(penstock.Uncompressed(request(False)))
    with pytest.raises(RpcError) as caught:
        service.UnaryCall(penstock.Uncompressed(request(True)), compression="gzip")
    assert caught.value.code() is StatusCode.INVALID_ARGUMENT
    assert len(watch.seen) == (0 if level is None else 4)
    assert not any(isinstance(message, penstock.Uncompressed) for message in watch.seen)


@pytest.mark.parametrize("level", [None, penstock.Level.OBJECT, penstock.Level.BYTES])
@pytest.mark.parametrize("kind", [list, iter])
def test_some_requests_of_a_stream_are_not_compressed(
    service: Any, channel: penstock.Channel, level: Optional[penstock.Level], kind: Any
) -> None:
    import testing_pb2

    if level is not None:
        channel.add_interceptor(Watch(level))
    requests = []
    for number in range(20):
        request = testing_pb2.StreamingInputCallRequest(
            payload=testing_pb2.Payload(body=bytes(1000)),
            expect_compressed=testing_pb2.BoolValue(value=number % 3 > 0),
        )
        requests.append(request if number % 3 else penstock.Uncompressed(request))
    assert service.StreamingInputCall(kind(requests), compression="gzip").aggregated_payload_size == 20_000


def test_what_is_too_large_or_no_message_is_told(peer: str) -> None:
    channel = penstock.Channel(peer, tls=False, options={"max_send_message_bytes": 10})
    echo = channel.unary_unary("/penstock.Echo/Unary")
    with pytest.raises(RpcError, match="11 bytes") as caught:
        echo(penstock.Uncompressed(bytes(11)))
    assert caught.value.code() is StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(RpcError, match="Exception serializing request"):
        echo(penstock.Uncompressed("text"))


# Interceptors that send an `Uncompressed`, each in a different way.


class MarksMessage(penstock.Interceptor):
    def on_send(self, hop: penstock.Hop) -> None:
        hop.message = penstock.Uncompressed(hop.message)


class MarksLater(penstock.Interceptor):
    def on_send(self, hop: penstock.Hop) -> penstock.Verdict:
        ticket = hop.ticket()
        event = ticket.event()
        event.message = penstock.Uncompressed(event.message)
        ticket.resume()
        return penstock.Verdict.PAUSE


class SendsItsOwn(penstock.Interceptor):
    def on_send(self, hop: penstock.Hop) -> penstock.Verdict:
        hop.send_message(penstock.Uncompressed(hop.message))
        return penstock.Verdict.DROP


class MarksByCompletion(penstock.CompletionInterceptor):
    def on_send(self, message: Any, done: penstock.Completion) -> None:
        done.next(penstock.Uncompressed(message))


class MarksRequest(penstock.SyncInterceptor):
    def intercept(self, call: penstock.InterceptedCall) -> None:
        if call.kind is penstock.Kind.UNARY:
            call.request = penstock.Uncompressed(call.request)
        call.next()


def with_flag(kind: str, expected: bool) -> Any:
    import testing_pb2

    payload = testing_pb2.Payload(body=bytes(1000))
    return getattr(testing_pb2, kind)(payload=payload, expect_compressed=testing_pb2.BoolValue(value=expected))


@pytest.mark.parametrize("level", [penstock.Level.OBJECT, penstock.Level.BYTES])
@pytest.mark.parametrize("marks", [MarksMessage, MarksLater, SendsItsOwn, MarksByCompletion, MarksRequest])
def test_an_interceptor_marks_what_is_not_compressed(
    service: Any, channel: penstock.Channel, marks: Any, level: penstock.Level
) -> None:
    interceptor = marks()
    interceptor.level = level
    registration = channel.add_interceptor(interceptor)
    if marks is not SendsItsOwn:
        service.UnaryCall(with_flag("SimpleRequest", False), compression="gzip")
    if marks is not MarksRequest:
        requests = [with_flag("StreamingInputCallRequest", False)] * 3
        assert service.StreamingInputCall(requests, compression="gzip").aggregated_payload_size == 3000
    registration.remove()
    service.UnaryCall(with_flag("SimpleRequest", True), compression="gzip")


def test_the_request_of_a_side_call_is_not_compressed(service: Any, channel: penstock.Channel) -> None:
    codes: List[StatusCode] = []
    done = threading.Semaphore(0)

    def told(response: Optional[bytes], outcome: penstock.CompletedCall) -> None:
        codes.append(outcome.code())
        done.release()

    class Asks(penstock.Interceptor):
        def on_start(self, hop: penstock.Hop) -> None:
            for expected in (False, True):
                request = penstock.Uncompressed(with_flag("SimpleRequest", expected).SerializeToString())
                hop.unary("/grpc.testing.TestService/UnaryCall", request, told, detached=True, compression="gzip")

    channel.add_interceptor(Asks())
    service.UnaryCall(with_flag("SimpleRequest", True), compression="gzip")
    assert done.acquire(timeout=30)
    assert done.acquire(timeout=30)
    assert sorted(codes, key=lambda code: code.name) == [StatusCode.INVALID_ARGUMENT, StatusCode.OK]


def test_an_answer_may_be_marked(channel: penstock.Channel) -> None:
    class Answers(penstock.Interceptor):
        def on_half_close(self, hop: penstock.Hop) -> None:
            hop.deliver_message(penstock.Uncompressed(b"answer"))
            hop.deliver_status(StatusCode.OK)

        def on_start(self, hop: penstock.Hop) -> penstock.Verdict:
            return penstock.Verdict.TAKE

    class AnswersAtOnce(penstock.SyncInterceptor):
        def intercept(self, call: penstock.InterceptedCall) -> None:
            call.answer(penstock.Uncompressed(b"answer"))

    echo = channel.unary_unary("/penstock.Echo/Unary")
    for answers in (Answers(), AnswersAtOnce()):
        registration = channel.add_interceptor(answers)
        assert echo(b"question", compression="gzip") == b"answer"
        registration.remove()


def test_what_is_no_message_is_not_marked(channel: penstock.Channel) -> None:
    errors: List[TypeError] = []

    class Wrong(penstock.Interceptor):
        def on_send(self, hop: penstock.Hop) -> None:
            def set_message() -> None:
                hop.message = penstock.Uncompressed("text")

            for wrong in (set_message, lambda: hop.send_message(penstock.Uncompressed(None))):
                with pytest.raises(TypeError, match="a message must be bytes") as caught:
                    wrong()
                errors.append(caught.value)

    channel.add_interceptor(Wrong())
    assert channel.unary_unary("/penstock.Echo/Unary")(b"hello") == b"hello"
    assert len(errors) == 2
