"""Makes calls on an event loop with one of several packages, and prints a line of JSON as bench_client does. All but
connectrpc have the same names for this."""

import argparse
import asyncio
import importlib
import json
import os
import resource
import sys
import time

UNARY, BIDI = "/penstock.Echo/Unary", "/penstock.Echo/Bidi"


class Connect:
    """connectrpc's client, whose messages are bytes too, in the manner of the other packages' channels."""

    def __init__(self, target):
        import pyqwest
        from connectrpc.client import ConnectClient

        self._client = ConnectClient(
            f"http://{target}", codec=Bytes(), accept_compression=(), send_compression=None,
            http_client=pyqwest.Client(pyqwest.HTTPTransport(http_version=pyqwest.HTTPVersion.HTTP2)))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._client.close()

    @staticmethod
    def _method(path, kind):
        from connectrpc.method import IdempotencyLevel, MethodInfo

        service, name = path[1:].split("/")
        return MethodInfo(name=name, service_name=service, input=bytes, output=bytes,
                          idempotency_level=IdempotencyLevel.UNKNOWN, stream_type=kind)

    def unary_unary(self, path):
        from connectrpc.method import StreamType

        method = self._method(path, StreamType.UNARY)
        return lambda request: self._client.execute_unary(request=request, method=method)

    def unary_stream(self, path):
        from connectrpc.method import StreamType

        method = self._method(path, StreamType.SERVER_STREAM)
        return lambda request, metadata: self._client.execute_server_stream(
            request=request, method=method, headers=dict(metadata))


class Bytes:
    """A codec of connectrpc for messages that are bytes already."""

    def name(self):
        return "proto"

    def encode(self, message):
        return message

    def decode(self, data, message_class):
        return bytes(data)


def opened(package, target):
    if package == "connectrpc":
        return Connect(target)
    if package == "penstock.aio":
        return importlib.import_module(package).Channel(target, tls=False)
    return importlib.import_module(package).insecure_channel(target)


async def unary(channel, request, calls, in_flight):
    call = channel.unary_unary(UNARY)
    left = calls

    async def work():
        nonlocal left
        while left > 0:
            left -= 1
            if await call(request) != request:
                raise SystemExit("wrong reply")

    await asyncio.gather(*(work() for _ in range(in_flight)))


async def bidi(channel, request, calls, in_flight):
    """Streams, in each of which a message is sent when the echo of the one before has come."""
    method = channel.stream_stream(BIDI)

    async def work():
        stream = method()
        for _ in range(calls // in_flight):
            await stream.write(request)
            if await stream.read() != request:
                raise SystemExit("wrong message")
        await stream.done_writing()
        await stream.read()

    await asyncio.gather(*(work() for _ in range(in_flight)))


async def down(channel, request, calls, in_flight):
    """Streams of responses, at once."""
    method = channel.unary_stream("/penstock.Echo/ServerStream")

    async def work():
        count = calls // in_flight
        async for message in method(request, metadata=(("x-count", str(count)),)):
            count -= message == request
        if count:
            raise SystemExit("wrong messages")

    await asyncio.gather(*(work() for _ in range(in_flight)))


async def measure(arguments):
    run = {"unary": unary, "bidi": bidi, "down": down}[arguments.what]
    request = bytes(arguments.bytes)
    async with opened(arguments.package, arguments.target) as channel:
        await run(channel, request, arguments.calls // 10 + arguments.in_flight, arguments.in_flight)
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        await run(channel, request, arguments.calls, arguments.in_flight)
        took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"calls": arguments.calls, "seconds": took, "user": after.ru_utime - before.ru_utime,
                      "system": after.ru_stime - before.ru_stime}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--package", choices=("penstock.aio", "penstock.grpc.aio", "grpc.aio", "connectrpc"),
                        required=True)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--what", choices=("unary", "bidi", "down"), default="unary")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=64)
    arguments = parser.parse_args()
    if arguments.loop == "uvloop":
        import uvloop

        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(measure(arguments))
    finally:
        loop.close()
    if arguments.package == "connectrpc":
        # The threads of pyqwest may abort a process that ends in the usual way.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
