"""Makes calls on an event loop with one of three packages, which have the same names for this, and prints a line of JSON as
bench_client does."""

import argparse
import asyncio
import importlib
import json
import resource
import sys
import time

UNARY, BIDI = "/penstock.Echo/Unary", "/penstock.Echo/Bidi"


def opened(package, target):
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


async def measure(arguments):
    run = {"unary": unary, "bidi": bidi}[arguments.what]
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
    parser.add_argument("--package", choices=("penstock.aio", "penstock.grpc.aio", "grpc.aio"), required=True)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--what", choices=("unary", "bidi"), default="unary")
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


if __name__ == "__main__":
    sys.exit(main())
