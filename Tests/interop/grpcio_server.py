"""grpc.testing.TestService on grpcio, by gRPC's interop description, with additions that our cases need.

Prints JSON lines: first where it listens, then what it saw of each call that carries "x-report". Ends when standard
input ends; the line `stop` ends it gracefully (GOAWAY, calls in flight go on).

    grpcio_server.py [--listen ADDRESS] [--cert F --key F [--client-ca F]] [--max-concurrent-streams N] [--tap]

With --tap a frame tap (tap.py) stands in front of the server. It shows whether a request was compressed, which grpcio does
not report, so that the server can check expect_compressed.
"""

import argparse
import asyncio
import json
import sys
import time

import echo_pb2
import echo_pb2_grpc
import grpc
import helloworld_pb2
import helloworld_pb2_grpc
import opaque
import tap
import testing_pb2
import testing_pb2_grpc


def say(**what):
    print(json.dumps(what), flush=True)


def as_hex(value):
    return (value if isinstance(value, bytes) else value.encode("latin-1")).hex()


class Holds:
    """Calls that are held until another call releases them, and how many messages each has written."""

    def __init__(self):
        self.events = {}
        self.written = {}

    def event(self, key):
        return self.events.setdefault(key, asyncio.Event())


class Seen:
    """Reports a call: what came with it at its start, and how it ended."""

    open = 0
    most = 0

    def __init__(self, context, method):
        self.context = context
        self.metadata = [(name, value) for name, value in context.invocation_metadata()]
        self.key = self.value("x-report")
        self.method = method

    def value(self, name):
        return next((value for key, value in self.metadata if key == name), None)

    async def __aenter__(self):
        Seen.open += 1
        Seen.most = max(Seen.most, Seen.open)
        if self.key:
            say(seen=self.key, method=self.method, peer=self.context.peer(),
                metadata=[[name, as_hex(value)] for name, value in self.metadata],
                remaining=self.context.time_remaining(), open=Seen.open, most=Seen.most)
        # gRPC's interop description, "Echo metadata": these go back to the client.
        initial = [(name, value) for name, value in self.metadata
                   if name == "x-grpc-test-echo-initial" or name.startswith("x-headers")]
        trailing = [(name, value) for name, value in self.metadata
                    if name == "x-grpc-test-echo-trailing-bin" or name.startswith("x-trailers")]
        details = self.value("x-details-bin")
        if details is not None:
            trailing.append(("grpc-status-details-bin", details))
        if self.method == "CacheableUnaryCall":
            initial.append(("cache-control", "max-age=60, public"))
        self.context.set_trailing_metadata(tuple(trailing))
        self.trailing = trailing
        self.initial = initial
        return self

    async def __aexit__(self, kind, error, trace):
        Seen.open -= 1
        if self.key:
            # aio cancels a handler for a reset and for a deadline alike.
            say(ended=self.key, cancelled=kind is asyncio.CancelledError,
                error=kind.__name__ if kind else None, at=time.monotonic())

    async def send_headers(self):
        await self.context.send_initial_metadata(tuple(self.initial))

    async def echo_status(self, status):
        if status.code:
            await self.context.abort(status_code(status.code), status.message, tuple(self.trailing))


def status_code(number):
    return next(code for code in grpc.StatusCode if code.value[0] == number)


def zeros(size):
    return testing_pb2.Payload(body=bytes(size))


class TestService(testing_pb2_grpc.TestServiceServicer):
    def __init__(self, holds, watch):
        self.holds = holds
        self.watch = watch

    async def check_compressed(self, request, flags, context):
        if flags is None or not request.HasField("expect_compressed"):
            return
        if await flags.next() != request.expect_compressed.value:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is not compressed as it says")

    def flags(self):
        return self.watch.newest() if self.watch else None

    async def EmptyCall(self, request, context):
        async with Seen(context, "EmptyCall") as seen:
            await seen.send_headers()
            if seen.value("x-release"):
                self.holds.event(seen.value("x-release")).set()
            if seen.value("x-count"):
                written = self.holds.written.get(seen.value("x-count"), 0)
                context.set_trailing_metadata((*seen.trailing, ("x-written", str(written))))
            return testing_pb2.Empty()

    @staticmethod
    def compress(context):
        """Lets the answer be compressed, by the compression that the client names in `x-compress`, else by gzip."""
        wanted = dict(context.invocation_metadata()).get("x-compress")
        context.set_compression(grpc.Compression.Deflate if wanted == "deflate" else grpc.Compression.Gzip)

    async def answer(self, method, request, context):
        flags = self.flags()
        async with Seen(context, method) as seen:
            await self.check_compressed(request, flags, context)
            if request.HasField("response_compressed") and request.response_compressed.value:
                self.compress(context)
            await seen.send_headers()
            await seen.echo_status(request.response_status)
            if seen.value("x-hold"):
                await self.holds.event(seen.value("x-hold")).wait()
            return testing_pb2.SimpleResponse(payload=zeros(request.response_size))

    async def UnaryCall(self, request, context):
        return await self.answer("UnaryCall", request, context)

    async def CacheableUnaryCall(self, request, context):
        return await self.answer("CacheableUnaryCall", request, context)

    async def write_all(self, request, context, seen):
        for parameters in request.response_parameters:
            if parameters.interval_us:
                await asyncio.sleep(parameters.interval_us / 1e6)
            if parameters.HasField("compressed") and not parameters.compressed.value:
                context.disable_next_message_compression()
            await context.write(testing_pb2.StreamingOutputCallResponse(payload=zeros(parameters.size)))
            key = seen.value("x-counted")
            if key:
                self.holds.written[key] = self.holds.written.get(key, 0) + 1

    async def StreamingOutputCall(self, request, context):
        async with Seen(context, "StreamingOutputCall") as seen:
            if any(parameters.compressed.value for parameters in request.response_parameters):
                self.compress(context)
            await seen.send_headers()
            await seen.echo_status(request.response_status)
            await self.write_all(request, context, seen)

    async def StreamingInputCall(self, requests, context):
        flags = self.flags()
        async with Seen(context, "StreamingInputCall") as seen:
            await seen.send_headers()
            total = 0
            async for request in requests:
                await self.check_compressed(request, flags, context)
                total += len(request.payload.body)
            return testing_pb2.StreamingInputCallResponse(aggregated_payload_size=total)

    async def FullDuplexCall(self, requests, context):
        async with Seen(context, "FullDuplexCall") as seen:
            await seen.send_headers()
            if seen.value("x-hold"):
                await self.holds.event(seen.value("x-hold")).wait()
            async for request in requests:
                await seen.echo_status(request.response_status)
                await self.write_all(request, context, seen)
                if seen.value("x-hold-after"):
                    await self.holds.event(seen.value("x-hold-after")).wait()

    async def HalfDuplexCall(self, requests, context):
        async with Seen(context, "HalfDuplexCall") as seen:
            await seen.send_headers()
            for request in [request async for request in requests]:
                await self.write_all(request, context, seen)


class Greeter(helloworld_pb2_grpc.GreeterServicer):
    async def SayHello(self, request, context):
        return helloworld_pb2.HelloReply(message=f"Hello, {request.name}!")


class Opaque(opaque.Echo, grpc.GenericRpcHandler):
    """The service penstock.Echo, with messages that are bytes, without protobuf."""

    def value(self, context, name):
        return next((value for key, value in context.invocation_metadata() if key == name), None)

    def service(self, details):
        return {
            "/penstock.Echo/Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "/penstock.Echo/ServerStream": grpc.unary_stream_rpc_method_handler(self.server_stream),
            "/penstock.Echo/ClientStream": grpc.stream_unary_rpc_method_handler(self.client_stream),
            "/penstock.Echo/Bidi": grpc.stream_stream_rpc_method_handler(self.bidi),
        }.get(details.method)


assert echo_pb2.Opaque and echo_pb2_grpc.EchoServicer  # The generated code loads.


def credentials(arguments):
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    pairs = [(read(arguments.key), read(arguments.cert))]
    if not arguments.client_ca:
        return grpc.ssl_server_credentials(pairs)
    return grpc.ssl_server_credentials(pairs, read(arguments.client_ca), require_client_auth=True)


async def serve(arguments):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
               ("grpc.so_reuseport", 0),
               # Python accepts calls slowly. Without these limits grpcio cancels some of the waiting calls if
               # there are more than 1,000.
               ("grpc.server.max_pending_requests", 100000), ("grpc.server.max_pending_requests_hard_limit", 200000)]
    if arguments.max_concurrent_streams:
        options.append(("grpc.max_concurrent_streams", arguments.max_concurrent_streams))
    server = grpc.aio.server(options=options)
    watch = tap.Watch() if arguments.tap else None
    testing_pb2_grpc.add_TestServiceServicer_to_server(TestService(Holds(), watch), server)
    helloworld_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)
    server.add_generic_rpc_handlers((Opaque(),))
    address = arguments.listen
    port = (server.add_secure_port(address, credentials(arguments)) if arguments.cert
            else server.add_insecure_port(address))
    await server.start()
    if not address.startswith("unix:"):
        address = f"{address.rsplit(':', 1)[0]}:{port}"
    if watch:
        address = await watch.listen(address)
    say(address=address)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line.strip() == b"stop":
            say(stopping=True)
            await server.stop(30)
            say(stopped=True)
    await server.stop(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--client-ca")
    parser.add_argument("--max-concurrent-streams", type=int)
    parser.add_argument("--tap", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
