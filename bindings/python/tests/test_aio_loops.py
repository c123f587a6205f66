"""Event loops: closed early, several in threads, and that nothing is left of their calls."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from typing import Any, Callable, List

import pytest

import penstock
from aio_helpers import LOOPS, each, hanging, opened, raises, run_on
from helpers import on_thread, program
from helpers import run as run_program
from penstock import RpcError, StatusCode, aio
from penstock._aio.driver import driver_of
from penstock._calls.carried import left
from penstock._handles.objects import registry
from test_leaks import soon


@pytest.fixture(params=sorted(LOOPS))
def make(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def test_a_loop_closed_with_calls_running_warns_and_ends_them(
    server: str, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    assert soon(lambda: len(registry) + left() == 0)
    loop = make()
    calls: List[aio.Call] = []

    async def begin() -> None:
        channel = opened(server)
        calls.append(channel.unary_stream("/penstock.Probe/HangStream")(b""))
        calls.append(channel.unary_unary("/penstock.Probe/Hang")(b""))
        await hanging(channel, 2)

    loop.run_until_complete(begin())
    with pytest.warns(ResourceWarning, match=r"closed while 2 calls were running: /penstock.Probe/Hang, /penstock"):
        loop.close()
    assert [call.done() for call in calls] == [True, True]
    assert all(call.cancelled() for call in calls)
    calls.clear()
    assert soon(lambda: len(registry) + left() == 0)

    async def again() -> None:
        async with opened(server) as channel:
            await hanging(channel, 0)

    run_on(make, again())


def test_a_channel_of_a_closed_loop_says_so(server: str, make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def begin() -> aio.Channel:
        return opened(server)

    channel = run_on(make, begin())
    with pytest.raises(penstock.ClosedError):
        channel.unary_unary("/penstock.Echo/Unary")(b"x")


def test_a_call_cancelled_with_its_task_does_not_warn(
    server: str, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def work() -> None:
        channel = opened(server)

        async def wait() -> None:
            await channel.unary_unary("/penstock.Probe/Hang")(b"")

        task = asyncio.create_task(wait())
        await hanging(channel, 1)
        assert not task.done()

    run_on(make, work())


def test_a_channel_needs_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        aio.Channel("localhost:1", tls=False)


def test_several_loops_in_several_threads(server: str, make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    before = threading.active_count()
    done: List[bool] = []

    async def work() -> None:
        async with opened(server) as channel:
            echo = channel.unary_unary("/penstock.Echo/Unary")
            for _ in range(20):
                replies = await asyncio.gather(*(echo(b"%d" % number) for number in range(10)))
                assert replies == [b"%d" % number for number in range(10)]
            both = channel.stream_stream("/penstock.Echo/Bidi")(each(b"1", b"2"))
            assert [message async for message in both] == [b"1", b"2"]
            # The loops' threads, and no others.
            assert threading.active_count() <= before + 4 + 1
            done.append(True)

    threads = [on_thread(lambda: run_on(make, work())) for _ in range(4)]
    for thread in threads:
        thread.join(60)
    assert done == [True] * 4


def test_close_waits_for_the_end_of_calls_and_grace_lets_them_go_on(
    server: str, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def work() -> None:
        channel = opened(server)
        hangs = channel.unary_unary("/penstock.Probe/Hang")(b"")
        await hanging(channel, 1)
        await channel.close()
        assert hangs.done()
        assert (await raises(RpcError, hangs)).code() is StatusCode.CANCELLED
        with pytest.raises(penstock.ClosedError):
            channel.unary_unary("/penstock.Echo/Unary")(b"x")
        await channel.close()
        graceful = opened(server)
        bidi = graceful.stream_stream("/penstock.Echo/Bidi")()
        await bidi.write(b"1")
        closing = asyncio.create_task(graceful.close(30))
        assert await bidi.read() == b"1"
        assert not closing.done()
        await bidi.done_writing()
        assert await bidi.read() is aio.EOF
        await closing
        assert await bidi.code() is StatusCode.OK
        assert graceful.connectivity is penstock.Connectivity.SHUTDOWN
        late = opened(server)
        hangs = late.unary_unary("/penstock.Probe/Hang")(b"")
        await hanging(late, 1)
        await late.close(0.02)
        assert await hangs.code() is StatusCode.CANCELLED

    run_on(make, work())


def test_connectivity(server: str, make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            state = channel.connectivity
            assert state is penstock.Connectivity.IDLE
            channel.connect()
            while state is not penstock.Connectivity.READY:
                state = await channel.wait_connectivity(state)
            await raises(asyncio.TimeoutError, asyncio.wait_for(channel.wait_connectivity(state), 0.01))

    run_on(make, work())


def test_nothing_is_left_of_calls(server: str, make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    assert soon(lambda: len(registry) + left() == 0)
    kept: List[Any] = []

    async def calls(channel: aio.Channel) -> None:
        echo = channel.unary_unary("/penstock.Echo/Unary")
        assert await echo(b"x", metadata={"a": "b"}, timeout=20) == b"x"
        both = channel.stream_stream("/penstock.Echo/Bidi")(each(b"1", b"2"))
        assert [message async for message in both] == [b"1", b"2"]
        await raises(RpcError, channel.unary_unary("/penstock.Probe/Refuse")(b""))
        await raises(RpcError, channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=0.01))
        cancelled = channel.unary_stream("/penstock.Probe/HangStream")(b"")
        await cancelled.read()
        cancelled.cancel()
        kept.extend(weakref.ref(call) for call in (both, cancelled))
        channel.unary_unary("/penstock.Echo/Unary")(b"dropped")

    async def work() -> None:
        async with opened(server) as channel:
            kept.append(weakref.ref(channel))
            await calls(channel)
        kept.append(weakref.ref(driver_of(asyncio.get_running_loop())))
        gc.collect()
        assert len(registry) + left() == 0

    run_on(make, work())
    count = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run_on(make, work())
    gc.collect()
    assert [reference() for reference in kept] == [None] * len(kept)
    assert len(registry) + left() == 0
    assert len(os.listdir("/proc/self/fd")) == count


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_that_ends_with_calls_running(server: str, loop: str) -> None:
    """asyncio.run cancels what waits; a call that no task waits for gives a warning. Nothing hangs."""
    text = f"""
import asyncio, warnings
import penstock.aio
run = asyncio.run
if {loop!r} == "uvloop":
    import uvloop
    run = uvloop.run
warnings.simplefilter("always", ResourceWarning)
warnings.showwarning = lambda message, kind, *rest: print(kind.__name__, message)
kept = []
async def wait(channel):
    await channel.unary_unary("/penstock.Probe/Hang")(b"")
async def main():
    channel = penstock.aio.Channel(target, tls=False)
    kept.append(asyncio.create_task(wait(channel)))
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    kept.append(call)
    print(await call.read())
run(main())
print(kept[0].cancelled(), kept[1].done(), kept[1].cancelled())
"""
    warning = "ResourceWarning the event loop was closed while 1 calls were running: /penstock.Probe/HangStream"
    assert run_program(text, server) == f"b'first'\n{warning}\nTrue True True\n"


def test_ctrl_c_ends_a_wait_and_leaves_the_channel_usable(server: str) -> None:
    text = """
import asyncio
import penstock.aio
async def main():
    async with penstock.aio.Channel(target, tls=False) as channel:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        try:
            await channel.unary_unary("/penstock.Probe/Hang")(b"")
        except asyncio.CancelledError:
            print("cancelled")
            print(await channel.unary_unary("/penstock.Echo/Unary")(b"on"))
            raise
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    with program(text, server) as process:
        printed, complaints = process.communicate(timeout=60)
    assert complaints == ""
    assert "interrupted" in printed.split()


LEFT_RUNNING = """
import asyncio
import penstock.aio

made = threading.Event()

async def main():
    channel = penstock.aio.Channel(target, tls=False)
    while True:
        await channel.unary_unary("/penstock.Echo/Unary")(b"")
        made.set()

threading.Thread(target=lambda: asyncio.run(main(), debug=False), daemon=True).start()
assert made.wait(20)
print("ends")
"""


def test_a_loop_that_still_runs_at_the_end_of_the_process(server: str) -> None:
    assert run_program(LEFT_RUNNING, server) == "ends\n"
