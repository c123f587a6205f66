"""Makes bench_client's measurements with grpcio. It has the same options and prints the same line of JSON.

Many calls at once use grpc.aio (`--style asyncio`), or blocking calls on threads (`--threads`). Streams use the synchronous
stubs.
"""

import argparse
import asyncio
import itertools
import json
import pathlib
import queue
import resource
import threading
import time

import grpc

UNARY = "/penstock.Echo/Unary"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def unary_one(arguments, request, calls):
    """Makes one call after the other by the synchronous stub, which is grpcio's fastest way. Gives the seconds of each."""
    call, taken = arguments.channel.unary_unary(UNARY), []
    for _ in range(calls):
        started = time.perf_counter()
        if call(request) != request:
            raise SystemExit("wrong reply")
        taken.append(time.perf_counter() - started)
    return taken


def pingpong(arguments, request, calls):
    """Sends each message when the echo of the one before has come. Gives the seconds of each."""
    messages, taken = queue.SimpleQueue(), []
    replies = arguments.channel.stream_stream("/penstock.Echo/Bidi")(iter(messages.get, None))
    for _ in range(calls):
        started = time.perf_counter()
        messages.put(request)
        if next(replies) != request:
            raise SystemExit("wrong message")
        taken.append(time.perf_counter() - started)
    messages.put(None)
    if next(replies, None) is not None:
        raise SystemExit("wrong count")
    return taken


async def unary_asyncio(arguments, request, calls):
    call = arguments.channel.unary_unary(UNARY)
    left = calls

    async def worker():
        nonlocal left
        while left > 0:
            left -= 1
            if await call(request) != request:
                raise SystemExit("wrong reply")

    await asyncio.gather(*(worker() for _ in range(arguments.in_flight)))


def unary_threads(arguments, request, calls):
    """Makes blocking calls on several threads. Gives no times; sets the slowest thread's calls divided by the mean."""
    call, made = arguments.channel.unary_unary(UNARY), [0] * arguments.threads
    numbers, wrong = itertools.count(), threading.Event()
    ready = threading.Barrier(arguments.threads)

    def work(number):
        try:
            ready.wait()
            while next(numbers) < calls:
                if call(request) != request:
                    raise SystemExit("wrong reply")
                made[number] += 1
        except BaseException:
            wrong.set()
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(arguments.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong.is_set():
        raise SystemExit("wrong reply")
    arguments.slowest = min(made) * arguments.threads / calls


def up(arguments, request, calls):
    call = arguments.channel.stream_unary("/penstock.Echo/ClientStream")
    reply = call((request for _ in range(calls)), metadata=(("x-mode", "count"),))
    if reply != str(calls).encode():
        raise SystemExit("wrong reply")


def down(arguments, request, calls):
    call = arguments.channel.unary_stream("/penstock.Echo/ServerStream")
    count = 0
    for reply in call(request, metadata=(("x-repeat", str(calls)),)):
        if reply != request:
            raise SystemExit("wrong message")
        count += 1
    if count != calls:
        raise SystemExit("wrong count")


def duplex(arguments, request, calls):
    """Sends and receives messages at once. grpcio reads the requests on a thread of its own, as far ahead as flow control
    allows."""
    count = 0
    for reply in arguments.channel.stream_stream("/penstock.Echo/Bidi")(request for _ in range(calls)):
        if reply != request:
            raise SystemExit("wrong message")
        count += 1
    if count != calls:
        raise SystemExit("wrong count")


def tell(arguments, started, before, taken=None):
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    taken = sorted(taken or [0])
    print(json.dumps({"calls": arguments.calls, "seconds": took, "user": after.ru_utime - before.ru_utime,
                      "system": after.ru_stime - before.ru_stime, "switches": after.ru_nvcsw - before.ru_nvcsw,
                      "max_rss_kb": after.ru_maxrss, "p50_us": taken[len(taken) // 2] * 1e6,
                      "p99_us": taken[int((len(taken) - 1) * 0.99)] * 1e6, "slowest": arguments.slowest}))


def channel(arguments, package):
    """Makes a channel of `package`, which is grpc or grpc.aio."""
    if not arguments.tls:
        return package.insecure_channel(arguments.target, options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(pathlib.Path(arguments.tls).read_bytes())
    return package.secure_channel(arguments.target, credentials, [*OPTIONS, ("grpc.ssl_target_name_override", "localhost")])


def measure(arguments, request):
    run = {"up": up, "down": down, "pingpong": pingpong, "duplex": duplex}.get(
        arguments.what, unary_threads if arguments.threads > 1 else unary_one)
    with channel(arguments, grpc) as arguments.channel:
        run(arguments, request, arguments.calls // 10 + 1)
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        taken = run(arguments, request, arguments.calls)
        tell(arguments, started, before, taken)


async def measure_asyncio(arguments, request):
    async with channel(arguments, grpc.aio) as arguments.channel:
        await unary_asyncio(arguments, request, arguments.calls // 10 + 1)
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        await unary_asyncio(arguments, request, arguments.calls)
        tell(arguments, started, before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--what", choices=("unary", "pingpong", "up", "down", "duplex"), default="unary")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tls", help="the roots, a PEM file; the server's name is taken to be localhost")
    parser.add_argument("--window", type=int, help="to begin with, of a stream; grpcio then follows what it measures")
    parser.add_argument("--style", choices=("blocking", "asyncio"))
    arguments = parser.parse_args()
    arguments.slowest = 1
    if arguments.window:
        OPTIONS.append(("grpc.http2.lookahead_bytes", arguments.window))
    request = bytes(i * 131 & 255 for i in range(arguments.bytes))
    if arguments.what == "unary" and (arguments.style == "asyncio" or (not arguments.style and arguments.in_flight > 1)):
        asyncio.run(measure_asyncio(arguments, request))
    else:
        measure(arguments, request)


if __name__ == "__main__":
    main()
