"""grpcio's server for the tests, run as a separate program: it prints its ports, and ends when its standard input is
closed.

Its arguments are the folder of the generated stubs and the folder of the certificates (see conftest.py).

Beside the services of Tests/interop/proto it has penstock.Probe: a request is JSON that says how to answer, and the
answer of Probe/Unary is the server's view of the call.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import Any, Dict, Iterator, List

import grpc

RESERVED_BY_GRPC = ("user-agent",)


class Hanging:
    """Counts the calls that hang: each waits in `hang` until the client cancels it or its connection is lost.
    `await_count` waits until there are exactly ``count`` of them."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def hang(self, context: Any) -> None:
        ended = threading.Event()
        if not context.add_callback(ended.set):
            return
        self._change(1)
        ended.wait()
        self._change(-1)

    def _change(self, by: int) -> None:
        with self._changed:
            self._count += by
            self._changed.notify_all()

    def await_count(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._count == count, timeout=20)


hanging = Hanging()


def seen_metadata(context: Any) -> List[List[str]]:
    """The request's metadata as [name, value] in order, with values of "-bin" names in hex."""
    return [
        [key, value.hex() if isinstance(value, bytes) else value]
        for key, value in context.invocation_metadata()
        if key not in RESERVED_BY_GRPC
    ]


def as_metadata(pairs: List[List[str]]) -> tuple[tuple[str, Any], ...]:
    return tuple((key, bytes.fromhex(value) if key.endswith("-bin") else value) for key, value in pairs)


def probe_unary(request: bytes, context: Any) -> bytes:
    """Sends the headers, trailers and status that the request asks for; the message is the server's view of the
    call."""
    wanted: Dict[str, Any] = json.loads(request or b"{}")
    if "initial" in wanted:
        context.send_initial_metadata(as_metadata(wanted["initial"]))
    if "trailing" in wanted:
        context.set_trailing_metadata(as_metadata(wanted["trailing"]))
    code = wanted.get("code", 0)
    if code:
        context.set_code(next(known for known in grpc.StatusCode if known.value[0] == code))
        context.set_details(wanted.get("message", ""))
    left = context.time_remaining()
    view = {"metadata": seen_metadata(context), "peer": context.peer(), "time_remaining": left}
    return json.dumps(view).encode()


def probe_refuse(request: bytes, context: Any) -> None:
    context.send_initial_metadata((("seen", "1"),))
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")


def answer_authorized(context: Any, answer: bytes) -> bytes:
    """Refuses the call until it has the new token; if it asks for that, headers come before the error."""
    metadata = dict(context.invocation_metadata())
    if metadata.get("authorization") == "Bearer new":
        return answer
    if "x-begin" in metadata:
        context.send_initial_metadata((("refused", "1"),))
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
    raise AssertionError("abort returned")


def probe_rich(request: bytes, context: Any) -> None:
    """Refuses the call with details (google.rpc)."""
    from google.protobuf import any_pb2
    from google.rpc import error_details_pb2, status_pb2
    from grpc_status import rpc_status

    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason="BECAUSE", domain="example.org"))
    context.abort_with_status(rpc_status.to_status(status_pb2.Status(code=9, message="not so", details=[detail])))


def probe_authorized(request: bytes, context: Any) -> bytes:
    return answer_authorized(context, request)


def probe_authorized_stream(requests: Iterator[bytes], context: Any) -> bytes:
    return answer_authorized(context, b"".join(requests))


def probe_authorized_answers(request: bytes, context: Any) -> Iterator[bytes]:
    yield answer_authorized(context, request)
    yield request


def probe_hang(request: bytes, context: Any) -> bytes:
    hanging.hang(context)
    return b""


def probe_hang_stream(request: bytes, context: Any) -> Iterator[bytes]:
    yield b"first"
    hanging.hang(context)


def probe_hang_bidi(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    context.send_initial_metadata(())
    hanging.hang(context)
    yield b""


def probe_await_hanging(request: bytes, context: Any) -> bytes:
    if not hanging.await_count(int(request)):
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the number of hanging calls did not come")
    return b""


def probe_early(requests: Iterator[bytes], context: Any) -> bytes:
    context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
    context.set_details("not now")
    return b""


def probe_stream(request: bytes, context: Any) -> Iterator[bytes]:
    """Sends "count" messages, each a number of 4 bytes and "size" zero bytes, then the status of "code" and
    "message"."""
    wanted = json.loads(request)
    for index in range(wanted["count"]):
        yield index.to_bytes(4, "big") + bytes(wanted.get("size", 0))
    code = wanted.get("code", 0)
    if code:
        context.set_code(next(known for known in grpc.StatusCode if known.value[0] == code))
        context.set_details(wanted.get("message", ""))


def echo_unary(requests: Iterator[bytes], context: Any) -> bytes:
    """Answers a unary call after its half-close. So it is registered as a handler of a request stream: a unary
    handler of grpcio answers as soon as it has the message, and its status may come while a hop still has the
    half-close."""
    return b"".join(requests)


def echo_server_stream(request: bytes, context: Any) -> Iterator[bytes]:
    metadata = dict(context.invocation_metadata())
    for _ in range(int(metadata.get("x-repeat", "1"))):
        yield request


def echo_client_stream(requests: Iterator[bytes], context: Any) -> bytes:
    return b"".join(requests)


def echo_bidi(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    yield from requests


HANDLERS = {
    "penstock.Probe": {
        "Unary": grpc.unary_unary_rpc_method_handler(probe_unary),
        "Refuse": grpc.unary_unary_rpc_method_handler(probe_refuse),
        "Rich": grpc.unary_unary_rpc_method_handler(probe_rich),
        "Authorized": grpc.unary_unary_rpc_method_handler(probe_authorized),
        "AuthorizedStream": grpc.stream_unary_rpc_method_handler(probe_authorized_stream),
        "AuthorizedAnswers": grpc.unary_stream_rpc_method_handler(probe_authorized_answers),
        "Hang": grpc.unary_unary_rpc_method_handler(probe_hang),
        "HangStream": grpc.unary_stream_rpc_method_handler(probe_hang_stream),
        "HangBidi": grpc.stream_stream_rpc_method_handler(probe_hang_bidi),
        "AwaitHanging": grpc.unary_unary_rpc_method_handler(probe_await_hanging),
        "Early": grpc.stream_unary_rpc_method_handler(probe_early),
        "Stream": grpc.unary_stream_rpc_method_handler(probe_stream),
    },
    "penstock.Echo": {
        "Unary": grpc.stream_unary_rpc_method_handler(echo_unary),
        "ServerStream": grpc.unary_stream_rpc_method_handler(echo_server_stream),
        "ClientStream": grpc.stream_unary_rpc_method_handler(echo_client_stream),
        "Bidi": grpc.stream_stream_rpc_method_handler(echo_bidi),
    },
}


def add_services(server: Any) -> None:
    import helloworld_pb2
    import helloworld_pb2_grpc
    import testing_pb2
    import testing_pb2_grpc

    class Greeter(helloworld_pb2_grpc.GreeterServicer):
        def SayHello(self, request: Any, context: Any) -> Any:  # noqa: N802
            if request.name == "nobody":
                probe_rich(b"", context)
            return helloworld_pb2.HelloReply(message=f"Hello, {request.name}!")

        def SayHelloStreamReply(self, request: Any, context: Any) -> Any:  # noqa: N802
            for greeting in ("Hello", "Servus", "Salut"):
                yield helloworld_pb2.HelloReply(message=f"{greeting}, {request.name}!")

        def SayHelloBidiStream(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
            for request in request_iterator:
                yield helloworld_pb2.HelloReply(message=f"Hello, {request.name}!")

    class Test(testing_pb2_grpc.TestServiceServicer):
        def EmptyCall(self, request: Any, context: Any) -> Any:  # noqa: N802
            return testing_pb2.Empty()

        def UnaryCall(self, request: Any, context: Any) -> Any:  # noqa: N802
            if request.response_status.code:
                context.set_code(request.response_status.code)
                context.set_details(request.response_status.message)
            return testing_pb2.SimpleResponse(payload=testing_pb2.Payload(body=bytes(request.response_size)))

        def StreamingInputCall(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
            total = sum(len(request.payload.body) for request in request_iterator)
            return testing_pb2.StreamingInputCallResponse(aggregated_payload_size=total)

        def StreamingOutputCall(self, request: Any, context: Any) -> Any:  # noqa: N802
            for parameters in request.response_parameters:
                yield _output(parameters.size)

        def FullDuplexCall(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
            for request in request_iterator:
                for parameters in request.response_parameters:
                    yield _output(parameters.size)

    def _output(size: int) -> Any:
        return testing_pb2.StreamingOutputCallResponse(payload=testing_pb2.Payload(body=bytes(size)))

    helloworld_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)
    testing_pb2_grpc.add_TestServiceServicer_to_server(Test(), server)
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in HANDLERS.items())
    )


def add_services_of_packages(server: Any) -> None:
    """Health and the reflection that grpcio has, v1alpha, on a server of their own: others test a server without
    them."""
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection

    healthy = health.HealthServicer()
    healthy.set("helloworld.Greeter", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection(("helloworld.Greeter", reflection.SERVICE_NAME), server)


def add_services_of_the_command(server: Any) -> None:
    """Health and reflection as newer servers have them: v1, whose messages are those of v1alpha."""
    import echo_pb2  # noqa: F401
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    healthy = health.HealthServicer()
    healthy.set("helloworld.Greeter", health_pb2.HealthCheckResponse.SERVING)
    healthy.set("penstock.Echo", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    names = ("helloworld.Greeter", "grpc.testing.TestService", "penstock.Echo", "grpc.reflection.v1.ServerReflection")
    answers = reflection.ReflectionServicer(names)
    info = grpc.stream_stream_rpc_method_handler(
        answers.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler(names[-1], {"ServerReflectionInfo": info})
    server.add_generic_rpc_handlers((handler,))


def add_ports(server: Any, folder: Path) -> Dict[str, int]:
    """Adds a port for cleartext, one for TLS, and one for TLS that asks for the client's certificate. Returns the
    ports."""
    pair = ((folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes())
    tls = grpc.ssl_server_credentials([pair])
    mtls = grpc.ssl_server_credentials([pair], (folder / "ca.pem").read_bytes(), require_client_auth=True)
    return {
        "plain": server.add_insecure_port("127.0.0.1:0"),
        "tls": server.add_secure_port("127.0.0.1:0", tls),
        "mtls": server.add_secure_port("127.0.0.1:0", mtls),
    }


def main(stubs: str, certificates: str) -> None:
    sys.path.insert(0, stubs)
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server, full, newer = (grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=options) for _ in range(3))
    for one in (server, full, newer):
        add_services(one)
    add_services_of_packages(full)
    add_services_of_the_command(newer)
    folder = Path(certificates)
    ports = {**add_ports(server, folder), "packages": full.add_insecure_port("127.0.0.1:0")}
    ports.update((f"command_{name}", port) for name, port in add_ports(newer, folder).items())
    for one in (server, full, newer):
        one.start()
    print(json.dumps(ports), flush=True)
    sys.stdin.read()
    for one in (server, full, newer):
        one.stop(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
