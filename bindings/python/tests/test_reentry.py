"""A signal handler or a destructor runs in the middle of anything, also of the package's own functions. If it uses
the package there, nothing waits for ever and nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import warnings
from types import FrameType
from typing import Any, Callable, List

import grpc
import pytest

import penstock
import penstock.grpc
from penstock._aio import driver
from penstock._calls import ends
from penstock._channels import runtime as runtimes
from penstock._handles.objects import registry
from penstock.grpc import _connectivity, _interceptors, experimental
from test_leaks import soon

UNARY = "/penstock.Echo/Unary"


def at_each_line(module: Any, make: Callable[[], Callable[[], object]]) -> int:
    """For each line of ``module`` that the function which ``make()`` returns runs: makes one, runs it on another
    thread, and before this line runs it in the middle of itself. Returns how many lines these were."""
    for number in itertools.count():
        if not reaches(number, module, make()):
            return number
    raise AssertionError


def reaches(number: int, module: Any, work: Callable[[], object]) -> bool:
    left = number
    errors: List[BaseException] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left -= 1
            if left == -1:
                attempt()
        return trace

    def attempt() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def run() -> None:
        sys.settrace(trace)
        attempt()
        sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), f"it waits for itself at line {number}"
    assert errors == []
    return left < 0


def test_callbacks_of_calls() -> None:
    told = threading.Semaphore(0)

    def make() -> Callable[[], object]:
        callbacks = ends.ThreadCallbacks()

        def add() -> None:
            callbacks.expect()
            callbacks.add(told.release)

        return add

    lines = at_each_line(ends, make)
    assert lines > 8
    for _ in range(2 * lines + 1):
        assert told.acquire(timeout=20)
    assert soon(lambda: "penstock callbacks" not in [thread.name for thread in threading.enumerate()])


def test_the_driver_of_a_runtime(server: str) -> None:
    before = threading.active_count()
    runtimes_made: List[penstock.Runtime] = []

    def make() -> Callable[[], object]:
        runtimes_made.append(penstock.Runtime())
        return runtimes_made[-1]._used

    assert at_each_line(runtimes, make) > 8
    assert threading.active_count() == before + len(runtimes_made)
    for runtime in runtimes_made:
        with runtime, penstock.Channel(server, tls=False, runtime=runtime) as channel:
            assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"


def test_the_runtime_of_channels_that_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Callable[[], object]:
        monkeypatch.setattr(runtimes, "_default", None)
        taken.clear()
        return lambda: taken.append(runtimes.default_runtime())

    taken: List[penstock.Runtime] = []
    for number in itertools.count():
        reached = reaches(number, runtimes, make())
        assert len(set(map(id, taken))) == 1
        taken[0].shutdown()
        if not reached:
            break
    assert number > 8


def test_the_drivers_of_event_loops(server: str) -> None:
    loops: List[asyncio.AbstractEventLoop] = []

    def make() -> Callable[[], object]:
        loops.append(asyncio.new_event_loop())
        return lambda: driver.driver_of(loops[-1])

    assert at_each_line(driver, make) > 8
    for loop in loops:
        loop.close()


class Pass(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details, request)


def test_interceptors_on_a_live_channel(server: str) -> None:
    with penstock.grpc.insecure_channel(server) as channel:

        def change() -> None:
            added = channel.add_interceptor(Pass())
            added.priority = 3
            added.remove()

        assert at_each_line(_interceptors, lambda: change) > 5
        assert channel._added.all == []
        lines = at_each_line(_interceptors, lambda: lambda: channel.add_interceptor(Pass()))
        assert len(channel._added.all) == 2 * lines + 1
        assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"


def test_subscriptions(server: str) -> None:
    with penstock.grpc.insecure_channel(server) as channel:
        told = threading.Semaphore(0)

        def subscribe() -> None:
            channel.subscribe(lambda state: told.release())

        lines = at_each_line(_connectivity, lambda: subscribe)
        assert lines > 8
        for _ in range(2 * lines + 1):
            assert told.acquire(timeout=20)


def test_subscriptions_that_end_leave_one_watch(server: str) -> None:
    with penstock.grpc.insecure_channel(server) as channel:
        assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        before = len(registry)
        for _ in range(20):
            states: List[Any] = []
            told = threading.Event()

            def see(state: Any, states: List[Any] = states, told: threading.Event = told) -> None:
                states.append(state)
                told.set()

            channel.subscribe(see)
            assert told.wait(20)
            channel.unsubscribe(see)
            assert states == [grpc.ChannelConnectivity.READY]
        assert len(registry) <= before + 1


def test_channels_that_are_kept_for_single_calls(server: str) -> None:
    def call() -> None:
        assert experimental.unary_unary(b"x", server, UNARY, insecure=True) == b"x"

    def make() -> Callable[[], object]:
        experimental._channels.clear()
        return call

    assert at_each_line(experimental, make) > 5
    assert len(experimental._channels) == 1


def test_options_that_make_calls_when_they_are_compared(server: str) -> None:
    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            experimental.unary_unary(b"x", server, UNARY, insecure=True)
            return str(self) == other

        def __hash__(self) -> int:
            return 1

    def call() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            experimental.unary_unary(b"x", server, UNARY, insecure=True, options=((Name("x"), 1),))

    assert not reaches(2**31, experimental, lambda: [call(), call()])


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, LookupError])
def test_a_plugin_that_ends_its_thread(server: str, kind: type[BaseException]) -> None:
    class Broken(grpc.AuthMetadataPlugin):
        def __call__(self, context: Any, callback: Any) -> None:
            raise kind("broken")

    ours = penstock.grpc
    with ours.secure_channel(server, ours.local_channel_credentials()) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(UNARY)(b"x", timeout=20, credentials=ours.metadata_call_credentials(Broken()))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert isinstance(caught.value.__cause__, kind)
