"""Runs a Python fragment of a document: `fragment.py SOURCE TARGET`.

Registers the interceptors that the fragment defines, and makes a unary call and a stream: on an event loop, if one of
their callbacks is async. At least one callback of these interceptors has to run.
"""

import asyncio
import inspect
import sys
from pathlib import Path

import penstock
import penstock.aio

METHODS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")
ran = 0


def counted(method):
    def run(self, *arguments):
        global ran
        ran += 1
        return method(self, *arguments)

    async def run_async(self, *arguments):
        return await run(self, *arguments)

    return run_async if inspect.iscoroutinefunction(method) else run


def callbacks(names):
    """Each callback of the interceptors in `names`, as (class, name)."""
    kinds = [thing for thing in names.values() if isinstance(thing, type) and issubclass(thing, penstock.Interceptor)]
    return [(kind, name) for kind in kinds for name in METHODS if name in vars(kind)]


def register(channel, found):
    for kind, name in found:
        setattr(kind, name, counted(vars(kind)[name]))
    for kind in dict.fromkeys(kind for kind, _ in found):
        channel.add_interceptor(kind(), priority=1)


async def call_on_loop(target, found):
    async with penstock.aio.Channel(target, tls=False) as channel:
        register(channel, found)
        print(await channel.unary_unary("/penstock.Echo/Unary", str.encode, bytes.decode)("you"))
        async for answer in channel.stream_stream("/penstock.Echo/Bidi")([b"you"]):
            print(answer.decode())


def main():
    source, target = sys.argv[1:]
    with penstock.Channel(target, tls=False) as channel:
        names = {"penstock": penstock, "channel": channel}
        exec(compile(Path(source).read_text(encoding="utf-8"), source, "exec"), names)
        found = callbacks(names)
        if any(inspect.iscoroutinefunction(vars(kind)[name]) for kind, name in found):
            asyncio.run(call_on_loop(target, found))
        else:
            register(channel, found)
            print(channel.unary_unary("/penstock.Echo/Unary", str.encode, bytes.decode)("you"))
            for answer in channel.stream_stream("/penstock.Echo/Bidi")([b"you"]):
                print(answer.decode())
    if not ran:
        sys.exit("no callback of the fragment ran")


main()
