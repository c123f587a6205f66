"""penstock.aio on trio, and on anyio over both of its back ends."""

from __future__ import annotations

import gc
import json
import os
import threading
import warnings
from contextvars import ContextVar
from typing import Any, AsyncIterator, Callable, List

import anyio
import anyio.lowlevel
import pytest
import trio

import penstock
from helpers import run as run_program
from penstock import Interceptor, RpcError, StatusCode, aio
from penstock._calls.carried import left
from penstock._handles.objects import registry
from test_leaks import soon

USER: ContextVar[str] = ContextVar("USER", default="nobody")


def opened(target: str, **options: Any) -> aio.Channel:
    return aio.Channel(target, tls=False, **options)


async def hanging(channel: Any, count: int) -> None:
    await channel.unary_unary("/penstock.Probe/AwaitHanging")(str(count).encode(), timeout=30)


async def settled(channel: Any, size: Callable[[], int]) -> None:
    """Makes round trips until ``size`` stays the same meanwhile."""
    echo = channel.unary_unary("/penstock.Echo/Unary")
    seen = -1
    while seen != size():
        seen = size()
        for _ in range(5):
            await echo(b"")


async def each(*items: bytes) -> AsyncIterator[bytes]:
    for item in items:
        await anyio.lowlevel.checkpoint()
        yield item


async def code_of(call: Any) -> Any:
    try:
        await call
    except RpcError as error:
        return error.code()
    return StatusCode.OK


async def within(work: Callable[..., Any], *arguments: Any) -> None:
    with anyio.fail_after(60):
        await work(*arguments)


def run(backend: str, work: Callable[..., Any], *arguments: Any) -> None:
    anyio.run(within, work, *arguments, backend=backend)


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_calls_side_by_side_without_a_thread(server: str, backend: str) -> None:
    before = threading.active_count()

    async def work() -> None:
        codes: List[StatusCode] = []
        async with opened(server) as channel:
            scope = penstock.CancelScope()
            hang = channel.unary_unary("/penstock.Probe/Hang")

            async def one() -> None:
                codes.append(await code_of(hang(b"", cancel_scope=scope)))

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(one)
                await hanging(channel, 3)
                assert threading.active_count() == before
                scope.cancel()
            assert codes == [StatusCode.CANCELLED] * 3

    run(backend, work)


def test_the_four_kinds(server: str, backend: str) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=30) == b"x"
            repeated = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", metadata=[("x-repeat", "100")])
            assert [message async for message in repeated] == [b"x"] * 100
            join = channel.stream_unary("/penstock.Echo/ClientStream")
            assert await join(each(b"1", b"2")) == b"12"
            assert await join([bytes(100_000)] * 20) == bytes(2_000_000)
            both = channel.stream_stream("/penstock.Echo/Bidi")
            assert [message async for message in both(each(b"1", b"2"))] == [b"1", b"2"]
            call = both()
            await call.write(b"3")
            assert await call.read() == b"3"
            assert await call.initial_metadata() is not None
            await call.done_writing()
            assert await call.read() is aio.EOF
            assert await call.code() is StatusCode.OK
            told: List[Any] = []
            done = anyio.Event()
            refused = channel.unary_unary("/penstock.Probe/Refuse")(b"")
            refused.add_done_callback(lambda call: (told.append(call), done.set()))
            assert await code_of(refused) is StatusCode.UNAUTHENTICATED
            await done.wait()
            assert told == [refused]
            late = channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=0.01)
            assert await code_of(late) is StatusCode.DEADLINE_EXCEEDED
            assert await channel.wait_connectivity(penstock.Connectivity.IDLE) is penstock.Connectivity.READY

    run(backend, work)


def test_a_cancel_scope_cancels_the_call(server: str, backend: str) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            unary = channel.unary_unary("/penstock.Probe/Hang")(b"")
            stream = channel.unary_stream("/penstock.Probe/HangStream")(b"")
            assert await stream.read() == b"first"
            full = channel.stream_stream("/penstock.Probe/HangBidi")()
            await hanging(channel, 3)

            async def fill() -> None:
                while True:
                    await full.write(bytes(100_000))

            async def answer() -> Any:
                return await unary

            for wait, call in ((answer, unary), (stream.read, stream), (fill, full)):
                with anyio.move_on_after(0.01) as scope:
                    await wait()
                assert scope.cancelled_caught
                assert await call.code() is StatusCode.CANCELLED
            await hanging(channel, 0)
            # A wait for something else leaves the call alone.
            call = channel.unary_unary("/penstock.Probe/Hang")(b"")
            for look in (call.code, call.trailing_metadata, call.initial_metadata):
                with anyio.move_on_after(0.01) as scope:
                    await look()
                assert scope.cancelled_caught
            assert not call.done()
            # The end of a task group.
            async with anyio.create_task_group() as group:
                group.start_soon(code_of, channel.unary_unary("/penstock.Probe/Hang")(b""))
                await hanging(channel, 2)
                group.cancel_scope.cancel()
            await hanging(channel, 1)
            call.cancel()
            await hanging(channel, 0)
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"on") == b"on"

    run(backend, work)


def test_back_pressure(server: str, backend: str) -> None:
    """Whoever does not read holds the server back, and whoever writes waits for room."""

    async def work() -> None:
        async with opened(server) as channel:
            wish = json.dumps({"count": 400, "size": 100_000}).encode()
            slow = channel.unary_stream("/penstock.Probe/Stream")(wish)
            await slow.read()
            await settled(channel, lambda: len(slow._running.unread))
            assert len(slow._running.unread) <= 32
            assert len([message async for message in slow]) == 399
            written: List[int] = []
            full = channel.stream_stream("/penstock.Probe/HangBidi")()

            async def fill() -> None:
                for number in range(10_000):
                    await full.write(bytes(100_000))
                    written.append(number)

            async with anyio.create_task_group() as group:
                group.start_soon(fill)
                await hanging(channel, 1)
                await settled(channel, lambda: len(written))
                group.cancel_scope.cancel()
            assert 0 < len(written) < 10_000
            assert await full.code() is StatusCode.CANCELLED
            # An iterator that never ends, when nobody wants its requests any more.
            stopped = anyio.Event()

            async def endless() -> AsyncIterator[bytes]:
                try:
                    while True:
                        yield bytes(100_000)
                        await anyio.lowlevel.checkpoint()
                finally:
                    stopped.set()

            early = channel.stream_unary("/penstock.Probe/Early")(endless())
            assert await code_of(early) is StatusCode.FAILED_PRECONDITION
            await stopped.wait()

    run(backend, work)


def test_async_interceptors(server: str, backend: str) -> None:
    ended: List[str] = []
    stops: List[anyio.Event] = []

    class Token(Interceptor):
        async def on_start(self, hop: Any) -> None:
            await anyio.lowlevel.checkpoint()
            side = hop.side_channel().unary_unary("/penstock.Echo/ServerStream")
            assert await side(b"y") == b"y"
            hop.metadata["x-user"] = USER.get()

        async def on_status(self, hop: Any) -> None:
            await anyio.lowlevel.checkpoint()
            ended.append(hop.status.code.name)

    class Slow(Interceptor):
        async def on_start(self, hop: Any) -> None:
            stopped = stops.pop()
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()

    class Fail(Interceptor):
        async def on_start(self, hop: Any) -> None:
            await anyio.lowlevel.checkpoint()
            raise ZeroDivisionError

    async def work() -> None:
        USER.set("me")
        told: List[Any] = []
        penstock.set_exception_hook(lambda *what: told.append(what[1]))
        async with opened(server) as channel:
            probe = channel.unary_unary("/penstock.Probe/Unary", None, json.loads)
            token = channel.add_interceptor(Token())
            assert ["x-user", "me"] in (await probe(b""))["metadata"]
            assert ended == ["OK"]
            token.remove()
            slow = channel.add_interceptor(Slow())
            first, second = anyio.Event(), anyio.Event()
            stops.extend((second, first))
            assert await code_of(probe(b"", timeout=0.01)) is StatusCode.DEADLINE_EXCEEDED
            with anyio.move_on_after(0.01):
                await probe(b"")
            await first.wait()
            await second.wait()
            slow.remove()
            channel.add_interceptor(Fail())
            with pytest.raises(RpcError) as caught:
                await probe(b"")
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
            assert told == ["on_start"]

    try:
        run(backend, work)
    finally:
        penstock.set_exception_hook(None)


def test_close(server: str, backend: str) -> None:
    async def work() -> None:
        channel = opened(server)
        hangs = channel.unary_unary("/penstock.Probe/Hang")(b"")
        await hanging(channel, 1)
        await channel.close()
        assert hangs.cancelled()
        with pytest.raises(penstock.ClosedError):
            channel.unary_unary("/penstock.Echo/Unary")(b"x")
        # With a cancelled scope around it, too.
        other = opened(server)
        hangs = other.unary_unary("/penstock.Probe/Hang")(b"")
        with anyio.move_on_after(0.01):
            async with other:
                await hangs
        assert await hangs.code() is StatusCode.CANCELLED
        assert other.connectivity is penstock.Connectivity.SHUTDOWN

    run(backend, work)


def test_the_end_of_a_run_ends_its_calls(server: str) -> None:
    kept: List[aio.Call] = []

    async def work() -> None:
        channel = opened(server)
        kept.append(channel.unary_stream("/penstock.Probe/HangStream")(b""))
        assert await kept[0].read() == b"first"

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trio.run(work)
        gc.collect()
    assert ["calls were running" in str(warning.message) for warning in caught] == [True]
    assert kept[0].cancelled()
    channel = kept[0]._keeper
    with pytest.raises(penstock.ClosedError):
        channel.unary_unary("/penstock.Echo/Unary")(b"x")  # type: ignore[attr-defined]
    kept.clear()


def test_nothing_is_left(server: str) -> None:
    assert soon(lambda: len(registry) + left() == 0)

    async def work() -> None:
        async with opened(server) as channel:
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
            both = channel.stream_stream("/penstock.Echo/Bidi")(each(b"1", b"2"))
            assert [message async for message in both] == [b"1", b"2"]
            with trio.move_on_after(0.01):
                await channel.unary_unary("/penstock.Probe/Hang")(b"")
            channel.unary_stream("/penstock.Probe/HangStream")(b"")

    trio.run(work)
    gc.collect()
    count = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        trio.run(work)
    gc.collect()
    assert soon(lambda: len(registry) + left() == 0)
    assert len(os.listdir("/proc/self/fd")) == count


def test_ctrl_c_cancels_the_call(server: str) -> None:
    text = """
import trio, penstock.aio
signal.signal(signal.SIGINT, signal.default_int_handler)
def interrupt():
    with penstock.Channel(target, tls=False) as channel:
        channel.unary_unary("/penstock.Probe/AwaitHanging")(b"1", timeout=30)
    os.kill(os.getpid(), signal.SIGINT)
async def main():
    async with penstock.aio.Channel(target, tls=False) as channel:
        call = channel.unary_unary("/penstock.Probe/Hang")(b"")
        # The run starts the thread when this task waits.
        trio.lowlevel.current_trio_token().run_sync_soon(threading.Thread(target=interrupt, daemon=True).start)
        try: await call
        except KeyboardInterrupt: print(await call.code())
        print(await channel.unary_unary("/penstock.Echo/Unary")(b"on"))
trio.run(main)
"""
    assert run_program(text, server) == "StatusCode.CANCELLED\nb'on'\n"


def test_a_channel_needs_a_run() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        opened("localhost:1")


def test_runs_in_several_threads(server: str) -> None:
    done: List[bool] = []

    async def work() -> None:
        async with opened(server) as channel:
            echo = channel.unary_unary("/penstock.Echo/Unary")
            for number in range(20):
                assert await echo(b"%d" % number) == b"%d" % number
        done.append(True)

    threads = [threading.Thread(target=trio.run, args=(work,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == [True] * 4
