"""Executors: callbacks on a pool of the program, or on a thread of the library."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Set

import pytest

import penstock
from helpers import EVENTS, Only, bidi, on_thread, recorder, unary
from penstock import Channel, Executor, Hop, RpcError, SerialExecutor, StatusCode, _raw
from penstock._raw import constants as c

OUTBOUND = ("on_start", "on_send", "on_half_close", "on_sent")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4, "pool") as threads:
        yield threads


def placed(log: List[Any], destroyed: threading.Event, **executors: Executor) -> Only:
    """An interceptor with ``executors`` that logs each callback and the thread on which it runs, and sets
    ``destroyed`` in the last callback."""

    def note(event: str) -> Callable[[Hop], None]:
        return lambda hop: log.append((event, threading.current_thread()))

    def destroy(hop: Hop) -> None:
        note("destroy")(hop)
        destroyed.set()

    interceptor = Only(destroy=destroy, **{event: note(event) for event in (*EVENTS, "create")})
    for name, executor in executors.items():
        setattr(interceptor, name, executor)
    return interceptor


def test_callbacks_run_on_a_pool_in_order(channel: Channel, pool: ThreadPoolExecutor) -> None:
    inside: Dict[int, int] = {}
    seen: Dict[int, List[bytes]] = {}

    def receive(hop: Hop) -> None:
        assert threading.current_thread().name.startswith("pool")
        call = hop.call_id
        inside[call] = inside.get(call, 0) + 1
        assert inside[call] == 1
        seen.setdefault(call, []).append(hop.message)
        inside[call] -= 1

    interceptor = Only(on_receive=receive, on_send=lambda hop: None)
    interceptor.executor = Executor(pool.submit)
    channel.add_interceptor(interceptor)
    messages = [bytes([n]) for n in range(10)]
    callers = [on_thread(lambda: [bidi(channel, messages) for _ in range(5)]) for _ in range(8)]
    for caller in callers:
        caller.join()
    assert len(seen) == 40
    assert all(received == messages for received in seen.values())


def test_each_direction_has_its_executor(channel: Channel, pool: ThreadPoolExecutor) -> None:
    log: List[Any] = []
    destroyed = threading.Event()
    serial = SerialExecutor()
    executors = {"outbound_executor": Executor(pool.submit), "inbound_executor": serial}
    channel.add_interceptor(placed(log, destroyed, **executors))
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    assert destroyed.wait(30)
    assert log[-1][0] == "destroy"
    inbound: Set[threading.Thread] = set()
    for event, thread in log:
        on_pool = thread.name.startswith("pool")
        if event == "create":
            assert not on_pool
        else:
            assert on_pool == (event in OUTBOUND), event
            if not on_pool:
                inbound.add(thread)
    assert {event for event, _ in log} >= set(EVENTS[:6])


def test_chosen_for_one_call_in_create(channel: Channel, pool: ThreadPoolExecutor) -> None:
    names: List[str] = []
    executor = Executor(pool.submit)

    def create(hop: Hop) -> None:
        if hop.metadata.get("x-slow"):
            hop.set_executors(executor, None)

    def start(hop: Hop) -> None:
        names.append(threading.current_thread().name)
        with pytest.raises(penstock.StateError):
            hop.set_executors(None, None)

    channel.add_interceptor(Only(create=create, on_start=start))
    unary(channel)
    unary(channel, metadata=[("x-slow", "1")])
    assert [name.startswith("pool") for name in names] == [False, True]


def test_callbacks_on_an_executor_may_change_defer_and_share(channel: Channel, pool: ThreadPoolExecutor) -> None:
    def start(hop: Hop) -> penstock.Verdict:
        hop.metadata["x-mine"] = "1"
        hop.set_value("key", "value")
        ticket = hop.ticket()
        pool.submit(ticket.resume)
        return penstock.Verdict.PAUSE

    def receive(hop: Hop) -> None:
        hop.message = hop.message + b"!"
        assert hop.get_value("key") == "value"

    def status(hop: Hop) -> None:
        hop.metadata["x-added"] = "2"
        hop.status.message = "seen"

    interceptor = Only(on_start=start, on_receive=receive, on_status=status)
    interceptor.executor = Executor(pool.submit)
    channel.add_interceptor(interceptor)
    response, call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", timeout=30)
    assert response == b"x!"
    assert call.details() == "seen"
    assert ("x-added", "2") in call.trailing_metadata()
    assert call.values["key"] == "value"


def test_a_submit_that_raises_ends_the_call(channel: Channel) -> None:
    def full(job: object) -> None:
        raise RuntimeError("full")

    heard: List[Any] = []
    penstock.set_exception_hook(lambda *what: heard.append(what))
    try:
        interceptor = Only(on_start=lambda hop: None)
        interceptor.name = "busy"
        interceptor.executor = Executor(full)
        channel.add_interceptor(interceptor)
        with pytest.raises(RpcError) as caught:
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert caught.value.code() == StatusCode.INTERNAL
    assert caught.value.details() == "interceptor 'busy' lost its executor"
    assert isinstance(heard[0][2], RuntimeError)


def test_a_submit_that_runs_the_job_and_raises_has_taken_it(channel: Channel) -> None:
    def both(job: Callable[[], None]) -> None:
        job()
        job()
        raise RuntimeError("late")

    penstock.set_exception_hook(lambda *what: None)
    try:
        log: List[Any] = []
        interceptor = recorder(log)
        interceptor.executor = Executor(both)
        channel.add_interceptor(interceptor)
        assert unary(channel) == b"x"
        assert log.count("on_start") == log.count("on_status") == 1
    finally:
        penstock.set_exception_hook(None)


def test_an_exception_on_an_executor_reaches_the_caller(channel: Channel, pool: ThreadPoolExecutor) -> None:
    def receive(hop: Hop) -> None:
        raise ValueError("on the pool")

    penstock.set_exception_hook(lambda *what: None)
    try:
        interceptor = Only(on_receive=receive)
        interceptor.executor = Executor(pool.submit)
        channel.add_interceptor(interceptor)
        with pytest.raises(RpcError) as caught:
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert caught.value.code() == StatusCode.INTERNAL
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("cancels", [False, True])
def test_a_busy_executor_holds_nobody_up(channel: Channel, cancels: bool) -> None:
    go = threading.Event()
    inside = threading.Event()
    destroyed = threading.Event()
    log: List[str] = []

    def start(hop: Hop) -> None:
        inside.set()
        assert go.wait(30)
        log.append("on_start")

    def destroy(hop: Hop) -> None:
        log.append("destroy")
        destroyed.set()

    interceptor = Only(on_start=start, on_status=lambda hop: log.append("on_status"), destroy=destroy)
    interceptor.executor = SerialExecutor()
    channel.add_interceptor(interceptor)
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", timeout=None if cancels else 0.1)
    assert inside.wait(30)
    if cancels:
        call.cancel()
    assert call.code() == (StatusCode.CANCELLED if cancels else StatusCode.DEADLINE_EXCEEDED)
    assert log == []
    go.set()
    assert destroyed.wait(30)
    assert log == ["on_start", "on_status", "destroy"]


def test_a_wait_on_the_serial_thread_for_a_call_that_needs_it_is_refused(
    channel: Channel, pool: ThreadPoolExecutor
) -> None:
    def ask(hop: Hop) -> None:
        if hop.metadata.get("x-inner") is None:
            unary(channel, metadata=[("x-inner", "1")])

    interceptor = Only(on_start=ask)
    interceptor.executor = SerialExecutor()
    penstock.set_exception_hook(lambda *what: None)
    try:
        registration = channel.add_interceptor(interceptor)
        with pytest.raises(RpcError) as caught:
            unary(channel, timeout=30)
        assert isinstance(caught.value.__cause__, penstock.WouldDeadlockError)
        registration.remove()
        # An executor with a second thread can run the callbacks of the call for which the first thread waits.
        interceptor.executor = Executor(pool.submit)
        channel.add_interceptor(interceptor)
        assert unary(channel, timeout=30) == b"x"
    finally:
        penstock.set_exception_hook(None)


def test_wrong_executors_are_refused(channel: Channel) -> None:
    with pytest.raises(TypeError):
        Executor(7)  # type: ignore[arg-type]
    interceptor = Only(on_start=lambda hop: None)
    interceptor.executor = ThreadPoolExecutor(1)  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"penstock\.Executor"):
        channel.add_interceptor(interceptor)


def test_a_program_may_end_with_a_call_on_an_executor(server: str) -> None:
    program = f"""
import penstock, threading
penstock.load({penstock.load()!r})
class Waits(penstock.Interceptor):
    executor = penstock.SerialExecutor()
    def on_start(self, hop):
        started.set()
        return None
    def on_status(self, hop):
        pass
started = threading.Event()
channel = penstock.Channel({server!r}, tls=False)
channel.add_interceptor(Waits())
call = channel.stream_stream("/penstock.Echo/Bidi")(iter(lambda: threading.Event().wait(60), None))
assert started.wait(30)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("is_used_before", [True, False])
@pytest.mark.parametrize("make", [SerialExecutor, lambda: Executor(lambda job: job())])
def test_a_collected_executor_has_no_handle(server: str, make: Callable[[], Executor], is_used_before: bool) -> None:
    """Not even if its first use is in a destructor of the same collection: nothing would release the handle. An
    interceptor that names it is refused: its callbacks must not run elsewhere."""
    seen: List[Any] = []

    class Last:
        def __init__(self, channel: penstock.Channel) -> None:
            self.itself = self
            self.channel = channel
            self.executor = make()

        def __del__(self) -> None:
            try:
                seen.append(self.channel.add_interceptor(Interceptor(executor=self.executor)))
            except penstock.GoneError as error:
                seen.append(str(error))

    class Interceptor(penstock.Interceptor):
        def __init__(self, executor: Executor) -> None:
            self.executor = executor

        def on_start(self, hop: penstock.Hop) -> None: ...

    with penstock.Channel(server, tls=False) as channel:
        last = Last(channel)
        if is_used_before:
            assert last.executor._handle.value
        del last
        gc.collect()
        assert ["the executor has been collected" in str(each) for each in seen] == [True]


def test_an_executor_that_can_not_be_made_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any, number: int, finalizer: Callable[[int], None], handle: Any) -> int:
        finalizer(number)
        return c.E_NO_MEMORY

    monkeypatch.setattr(_raw, "penstock_executor_new", fail)
    with pytest.raises(penstock.LibraryError, match="the executor can't be made"):
        Executor(lambda job: job())._handle  # noqa: B018
