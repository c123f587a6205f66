"""Situations at the edges of calls on an event loop: tasks that are cancelled before they begin, objects
that are dropped on other threads, waits that are given up, and callbacks that raise."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any, AsyncIterator, List

import grpc.aio
import pytest

import penstock
import penstock.grpc.aio
from aio_helpers import LOOPS, each, eventually, hanging, opened, raises, run_on, turn
from penstock._handles.objects import registry

UNARY, CLIENT = "/penstock.Echo/Unary", "/penstock.Echo/ClientStream"
HANG, HANG_STREAM, STREAM = (f"/penstock.Probe/{name}" for name in ("Hang", "HangStream", "Stream"))


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Any:
    return lambda work: run_on(LOOPS[request.param], work)


def others(known: Any) -> Any:
    """The tasks that are not among ``known``."""
    return asyncio.all_tasks() - known


# ---- Tasks that are cancelled before their first step ----


def test_the_task_of_the_requests_is_cancelled_before_it_begins(run: Any, server: str) -> None:
    async def main() -> None:
        async with opened(server) as channel:
            known = asyncio.all_tasks()
            call = channel.stream_unary(CLIENT)(each(b"one", b"two"))
            for task in others(known):
                task.cancel()
            error = await raises(penstock.RpcError, asyncio.wait_for(call, 20))
            assert error.code() is penstock.StatusCode.CANCELLED

    run(main())


def test_the_task_of_a_callback_is_cancelled_before_it_begins(run: Any, server: str) -> None:
    class Wait(penstock.Interceptor):
        async def on_start(self, hop: penstock.Hop) -> None:
            await turn()

    async def main() -> None:
        async with opened(server, interceptors=[Wait()]) as channel:
            cancelled: List[Any] = []

            def made(loop: Any, work: Any, **options: Any) -> Any:
                task = asyncio.Task(work, loop=loop, **options)
                if work.__name__ == "_decide":
                    cancelled.append(task.cancel())
                return task

            asyncio.get_running_loop().set_task_factory(made)
            error = await raises(penstock.RpcError, asyncio.wait_for(channel.unary_unary(UNARY)(b""), 20))
            assert cancelled == [True]
            assert error.code() is penstock.StatusCode.INTERNAL
            assert isinstance(error.__cause__, asyncio.CancelledError)

    run(main())


# ---- Waits that are given up ----


def test_a_wait_for_the_end_that_is_given_up_leaves_nothing(run: Any, server: str) -> None:
    async def main() -> None:
        async with opened(server) as channel:
            call = channel.unary_unary(HANG)(b"")
            for wait in (call.code, call.initial_metadata, channel._group.ended):
                for _ in range(20):
                    await given_up(wait())
            assert call._running.readers == channel._group._waiting == []
            call.cancel()

    run(main())


async def given_up(work: Any) -> None:
    task = asyncio.ensure_future(work)
    await turn()
    task.cancel()
    await asyncio.wait([task])


def test_waits_for_a_state_that_are_given_up_leave_one_watch(run: Any, server: str) -> None:
    async def main() -> None:
        async with opened(server) as channel:
            await channel.unary_unary(UNARY)(b"")
            state = channel.connectivity
            before = len(registry)
            for _ in range(20):
                task = asyncio.ensure_future(channel.wait_connectivity(state))
                # The watch has been told the first state.
                await channel.unary_unary(UNARY)(b"")
                task.cancel()
                await asyncio.wait([task])
            assert len(registry) - before <= 1
            waits = [asyncio.ensure_future(channel.wait_connectivity(state)) for _ in range(3)]
            await turn()
            await channel.close()
            assert await asyncio.gather(*waits) == [penstock.Connectivity.SHUTDOWN] * 3
        assert len(registry) <= before

    run(main())


def test_a_close_that_is_given_up_can_be_called_again(run: Any, server: str) -> None:
    async def main() -> None:
        channel = penstock.grpc.aio.insecure_channel(server)
        call = channel.unary_unary(HANG)(b"")
        await hanging(channel, 1)
        known = asyncio.all_tasks()
        await given_up(channel.close(600))
        assert not others(known)
        assert not call.done()
        await channel.close()
        assert await call.code() is grpc.StatusCode.CANCELLED

    run(main())


# ---- Objects that are dropped on another thread ----


class Cycle:
    """Refers to itself, so that only the garbage collector drops what it has."""

    def __init__(self, held: object) -> None:
        self.itself = self
        self.held = held


def collect_elsewhere() -> None:
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()


@pytest.mark.parametrize("intercepted", [False, True])
def test_a_call_that_another_thread_collects_ends_on_its_loop(run: Any, server: str, intercepted: bool) -> None:
    class Pass(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return await continuation(details, request)

    async def main() -> None:
        given = [Pass()] if intercepted else []
        async with penstock.grpc.aio.insecure_channel(server, interceptors=given) as channel:
            threads: List[int] = []
            gc.disable()
            try:
                call = channel.unary_unary(HANG)(b"")
                call.add_done_callback(lambda _: threads.append(threading.get_ident()))
                Cycle(call)
                del call
                async with penstock.grpc.aio.insecure_channel(server) as probe:
                    await hanging(probe, 1)
                collect_elsewhere()
                await eventually(lambda: threads != [])
                assert threads == [threading.get_ident()]
            finally:
                gc.enable()

    run(main())


def test_a_collected_call_is_cancelled(run: Any, server: str) -> None:
    async def main() -> None:
        async with opened(server) as channel:
            gc.disable()
            try:
                Cycle(channel.unary_unary(HANG)(b""))
                await hanging(channel, 1)
                collect_elsewhere()
                await hanging(channel, 0)
            finally:
                gc.enable()

    run(main())


# ---- Callbacks ----


def test_a_callback_that_raises_keeps_nothing_from_the_others(run: Any, server: str) -> None:
    async def main() -> None:
        reported: List[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what["exception"]))
        async with penstock.grpc.aio.insecure_channel(server) as channel:
            told: List[int] = []

            def broken(call: Any) -> None:
                raise LookupError("broken")

            for end in (lambda call: call, lambda call: call.cancel()):
                call = channel.unary_unary(HANG if told else UNARY)(b"")
                call.add_done_callback(broken)
                call.add_done_callback(lambda _: told.append(1))
                end(call)
                await asyncio.wait([asyncio.ensure_future(call.code())])
                await turn()
            assert told == [1, 1]
            assert [type(error) for error in reported] == [LookupError] * 2

    run(main())


# ---- Interceptors that return something else ----


class Louder(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        call = await continuation(details, request)

        async def louder() -> AsyncIterator[bytes]:
            async for message in call:
                yield message.upper()

        return louder()


def test_a_stream_behind_another_iterator_is_the_call(run: Any, server: str) -> None:
    async def main(module: Any) -> Any:
        async with module.insecure_channel(server, interceptors=[Louder()]) as channel:
            told: List[int] = []
            call = channel.unary_stream(HANG_STREAM)(b"")
            call.add_done_callback(lambda _: told.append(1))
            iterator = call.__aiter__()
            first = await iterator.__anext__()
            before = call.done(), list(told)
            cancels = call.cancel()
            await eventually(lambda: told != [])
            return first, before, cancels, call.cancelled(), await call.code(), await call.details(), told

    assert run(main(grpc.aio)) == run(main(penstock.grpc.aio))


# ---- Errors ----


def broken(_: Any) -> Any:
    raise LookupError("broken")


def test_errors_of_serializers_are_of_the_class_that_programs_catch(run: Any, server: str) -> None:
    async def main() -> None:
        async with penstock.grpc.aio.insecure_channel(server) as channel:
            for work in (
                lambda: channel.unary_unary(UNARY, broken)(b""),
                lambda: channel.unary_unary(UNARY, None, broken)(b""),
                lambda: channel.unary_stream(STREAM, None, broken)(b'{"count": 1}').read(),
                lambda: channel.stream_unary(CLIENT, broken)().write(b""),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match=r"Exception (de)?serializing") as caught:
                    await work()
                assert caught.value.code() is grpc.StatusCode.INTERNAL
                assert isinstance(caught.value.__cause__, LookupError)

    run(main())
