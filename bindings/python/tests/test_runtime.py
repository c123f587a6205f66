"""Runtimes: which thread drives the loop, threads, and the end of the process."""

from __future__ import annotations

import resource
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, List

import pytest

import penstock
from helpers import run
from penstock import Channel, Hop, Interceptor, RpcError, Runtime, StatusCode


class Starts(Interceptor):
    def __init__(self) -> None:
        self.methods: List[str] = []

    def on_start(self, hop: Hop) -> None:
        self.methods.append(hop.method)


# ---- Interceptors of a runtime ----


def test_an_interceptor_for_every_channel(server: str) -> None:
    everywhere = Starts()
    token = penstock.add_interceptor(everywhere, priority=3, name="everywhere", methods="/penstock.Echo/*")
    try:
        first, second = (Channel(server, tls=False) for _ in range(2))
        with first as one, second as other, Channel(server, tls=False, runtime=Runtime()) as alone:
            for channel in (one, other, alone):
                channel.unary_unary("/penstock.Echo/Unary")(b"x")
            assert everywhere.methods == ["/penstock.Echo/Unary"] * 2
            own = one.add_interceptor(Starts(), priority=9, name="own")
            assert [entry["name"] for entry in one.interceptors] == ["own", "everywhere"]
            assert [entry["name"] for entry in penstock.default_runtime().interceptors] == ["everywhere"]
            token.priority = 10
            assert [entry["name"] for entry in one.interceptors] == ["everywhere", "own"]
            own.remove()
    finally:
        token.remove()
    assert penstock.default_runtime().interceptors == []


def test_a_runtime_of_one_s_own(server: str) -> None:
    with Runtime() as runtime:
        token = runtime.add_interceptor(Starts())
        with Channel(server, tls=False, runtime=runtime) as channel:
            assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
        assert len(runtime.interceptors) == 1
        token.remove()
        assert runtime.interceptors == []
    with pytest.raises(penstock.ClosedError):
        Channel(server, tls=False, runtime=runtime)
    runtime.shutdown()


def test_a_call_spins_before_it_sleeps(server: str) -> None:
    # The response comes within spin_us, so the thread does not sleep: it has few voluntary context switches.
    with Runtime(drive=False, spin_us=1000000) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        call = channel.unary_unary("/penstock.Echo/Unary")
        call(b"x")
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        for _ in range(200):
            assert call(b"x") == b"x"
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 50


@pytest.mark.parametrize("loops", [1, 2])
def test_threads_of_the_library_drive_if_callers_do_not(server: str, loops: int) -> None:
    seen: List[int] = []

    class Where(Interceptor):
        def on_start(self, hop: Hop) -> None:
            seen.append(threading.get_ident())

        def on_status(self, hop: Hop) -> None:
            seen.append(threading.get_ident())

    with Runtime(caller_drives=False, linger_us=0, loops=loops) as runtime:
        with Channel(server, tls=False, runtime=runtime, interceptors=[Where()]) as channel:
            for _ in range(20):
                assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
        with pytest.raises(penstock.StateError):
            runtime.fileno()
    assert len(seen) == 40
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("wrong", [-1, 10000001, 0.5, "1"])
def test_linger_us_is_checked(wrong: Any) -> None:
    with pytest.raises(penstock.InvalidArgumentError) as raised:
        Runtime(linger_us=wrong)
    assert raised.value.path == "$.linger_us"


@pytest.mark.parametrize("wrong", [-1, 1000001, 0.5, "1"])
def test_spin_us_is_checked(wrong: Any) -> None:
    with pytest.raises(penstock.InvalidArgumentError) as raised:
        Runtime(spin_us=wrong)
    assert raised.value.path == "$.spin_us"


def test_shutdown_ends_every_call(server: str) -> None:
    runtime = Runtime()
    channel = Channel(server, tls=False, runtime=runtime)
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    runtime.shutdown(timeout=30)
    with pytest.raises(RpcError, match="CANCELLED"):
        next(call)


def test_shutdown_waits_for_callbacks_and_says_if_they_take_too_long(server: str) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Interceptor):
        def on_start(self, hop: Hop) -> None:
            entered.set()
            go_on.wait()

    runtime = Runtime()
    channel = Channel(server, tls=False, runtime=runtime, interceptors=[Slow()])

    def call() -> None:
        with pytest.raises(RpcError):
            channel.unary_unary("/penstock.Echo/Unary")(b"x")

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait()
    with pytest.raises(penstock.TimedOutError):
        runtime.shutdown(timeout=0.05)
    go_on.set()
    runtime.shutdown(timeout=30)
    thread.join()


# ---- Which thread drives the loop ----


def test_a_call_goes_on_while_nobody_waits(channel: Channel) -> None:
    """The driver thread runs the call's callbacks, and the call's deadline ends the call."""
    done = threading.Event()

    class End(Interceptor):
        def destroy(self, hop: Hop) -> None:
            done.set()

    channel.add_interceptor(End())
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"", timeout=0.2)
    assert done.wait(30)
    assert call.code() == StatusCode.DEADLINE_EXCEEDED
    assert not call.is_active()


def test_calls_on_many_threads_share_the_loop(channel: Channel) -> None:
    failures: List[BaseException] = []

    def work(number: int) -> None:
        try:
            echo = channel.unary_unary("/penstock.Echo/Unary")
            for turn in range(40):
                data = f"{number} {turn}".encode() * (turn + 1)
                assert echo(data) == data
            messages = [bytes([number])] * 20
            assert list(channel.stream_stream("/penstock.Echo/Bidi")(iter(messages))) == messages
        except BaseException as error:
            failures.append(error)

    class Upper(Interceptor):
        def on_receive(self, hop: Hop) -> None:
            hop.message = hop.message

    channel.add_interceptor(Upper())
    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("wrong", [0, 65, 0.5, "2"])
def test_loops_is_checked(wrong: Any) -> None:
    with pytest.raises(penstock.InvalidArgumentError) as raised:
        Runtime(loops=wrong)
    assert raised.value.path == "$.loops"


def test_several_loops_need_threads() -> None:
    with pytest.raises(penstock.InvalidArgumentError) as raised:
        Runtime(loops=2, drive=False)
    assert raised.value.path == "$.loops"
    with Runtime(loops=2) as runtime:
        with pytest.raises(penstock.StateError):
            runtime.fileno()
        with pytest.raises(penstock.StateError):
            runtime.poll()


def test_calls_on_several_loops(server: str) -> None:
    failures: List[BaseException] = []
    everywhere = Starts()
    with Runtime(loops=3) as runtime:
        runtime.add_interceptor(everywhere)
        channels = [Channel(server, tls=False, runtime=runtime) for _ in range(6)]

        def work(number: int) -> None:
            try:
                for turn in range(20):
                    channel = channels[(number + turn) % 6]
                    data = f"{number} {turn}".encode() * (turn + 1)
                    assert channel.unary_unary("/penstock.Echo/Unary")(data) == data
                messages = [bytes([number])] * 20
                assert list(channels[number % 6].stream_stream("/penstock.Echo/Bidi")(iter(messages))) == messages
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(everywhere.methods) == 8 * 21
        hanging = [channel.unary_stream("/penstock.Probe/HangStream")(b"") for channel in channels]
        for call in hanging:
            assert next(call) == b"first"
        view = runtime.snapshot()
        assert view["complete"]
        assert len(view["calls"]) == 6
    for call in hanging:
        assert call.code() == StatusCode.CANCELLED


def test_no_callback_waits_for_another_loop(server: str) -> None:
    found: List[str] = []

    class Waits(Interceptor):
        def on_start(self, hop: Hop) -> None:
            try:
                other.unary_unary("/penstock.Echo/Unary")(b"x")
            except penstock.WouldDeadlockError:
                found.append("would deadlock")
            try:
                hop.set_channel(other)
            except penstock.StateError as error:
                found.append(str(error))

    with Runtime(loops=2) as runtime:
        first, other = (Channel(server, tls=False, runtime=runtime) for _ in range(2))
        first.add_interceptor(Waits())
        assert first.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
    assert found[0] == "would deadlock"
    assert "another loop of the runtime" in found[1]


def test_an_exit_in_a_callback_of_a_loop_s_thread(server: str) -> None:
    """No Python code waits on the loop's thread, so the exception only ends the call."""

    done = threading.Event()

    class Exits(Interceptor):
        def on_start(self, hop: Hop) -> None:
            raise SystemExit(3)

        def destroy(self, hop: Hop) -> None:
            done.set()

    reported: List[BaseException] = []
    penstock.set_exception_hook(lambda name, callback, error: reported.append(error))
    try:
        with Runtime(loops=2) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
            channel.add_interceptor(Exits())
            call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
            assert done.wait(30)
            assert call.code() == StatusCode.INTERNAL
    finally:
        penstock.set_exception_hook(None)
    assert [type(error) for error in reported] == [SystemExit]
    assert penstock._handles.ctrl_c._escaping == {}


def test_the_program_turns_the_loop(server: str) -> None:
    runtime = Runtime(drive=False)
    threads = threading.active_count()
    with Channel(server, tls=False, runtime=runtime) as channel:
        call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", metadata={"x-repeat": "0"})
        poll = select.poll()
        poll.register(runtime.fileno(), select.POLLIN)
        while call.is_active():
            poll.poll()
            runtime.poll()
        assert threading.active_count() == threads
        assert list(call) == []
        runtime.poll()
        runtime.poll(0.01)
        with pytest.raises(ValueError, match="NaN"):
            runtime.poll(float("nan"))
    runtime.shutdown()
    with pytest.raises(penstock.ClosedError):
        runtime.poll()


def test_a_poll_within_a_poll_is_busy(server: str) -> None:
    runtime = Runtime(drive=False)
    caught: List[Exception] = []

    class Again(Interceptor):
        def on_start(self, hop: Hop) -> None:
            try:
                runtime.poll()
            except penstock.BusyError as error:
                caught.append(error)

    with Channel(server, tls=False, runtime=runtime, interceptors=[Again()]) as channel:
        assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
    assert len(caught) == 1


# ---- The end ----


def test_a_runtime_s_thread_has_ended_when_it_is_shut_down(server: str) -> None:
    """`shutdown` waits for the end of the driver thread. Here a profile function delays the thread's end by 0.3 s."""
    text = """
import time
def hold_up(frame, event, argument):
    if event == "return" and frame.f_code.co_name == "_run": time.sleep(0.3)
threading.setprofile(hold_up)
runtime = penstock.Runtime()
with penstock.Channel(target, tls=False, runtime=runtime) as channel:
    channel.unary_unary("/penstock.Echo/Unary")(b"x")
assert "penstock" in [thread.name for thread in threading.enumerate()]
runtime.shutdown()
print([thread.name for thread in threading.enumerate()])
"""
    assert run(text, server) == "['MainThread']\n"


# ---- The end of the process ----


@pytest.mark.parametrize(
    "left",
    [
        "penstock.Channel(target, tls=False)",
        "channel.unary_stream('/penstock.Probe/HangStream')(b'')",
        "next(channel.unary_stream('/penstock.Probe/HangStream')(b''))",
        "channel.stream_stream('/penstock.Probe/HangBidi')(iter(lambda: b'', None))",
        "channel.stream_stream('/penstock.Probe/HangBidi')(forever())",
        "threading.Thread(target=hang, daemon=True).start()",
        "threading.Thread(target=leave).start(); channel.unary_unary('/penstock.Echo/Unary')(b'')",
    ],
)
def test_the_process_ends_whatever_is_left(server: str, left: str) -> None:
    text = f"""
class Everything(penstock.Interceptor):
    def create(self, hop): return hop.retain()
    def on_status(self, hop): pass
    def on_cancel(self, hop): pass
def forever():
    yield b''
    threading.Event().wait()
def leave(): pass
def hang():
    try:
        channel.unary_unary('/penstock.Probe/Hang')(b'')
    except penstock.RpcError:
        pass
penstock.add_interceptor(Everything())
channel = penstock.Channel(target, tls=False, interceptors=[Everything()])
kept = {left.split(";")[0]}
{";".join(left.split(";")[1:]).strip()}
print("last")
"""
    assert run(text, server) == "last\n"


def test_daemon_threads_end_without_a_word(server: str) -> None:
    """The end of the process ends the calls of daemon threads, which is no error of the program."""
    text = """
channel = penstock.Channel(target, tls=False)
def hang(): channel.unary_unary("/penstock.Probe/Hang")(b"")
def read(): list(channel.unary_stream("/penstock.Probe/HangStream")(b""))
def call_again_and_again():
    while True:
        try: hang()
        except penstock.RpcError: pass
for work in (hang, hang, read, read, call_again_and_again):
    threading.Thread(target=work, daemon=True).start()
channel.unary_unary("/penstock.Probe/AwaitHanging")(b"5")
print("last")
"""
    assert run(text, server) == "last\n"


def test_other_errors_of_daemon_threads_are_still_told(server: str) -> None:
    text = """
from penstock._channels import runtime as _runtime
def told(arguments): print("told", arguments.exc_type.__name__)
def fail(error): raise error
threading.excepthook = told
_runtime._at_exit()
for error in (ValueError("x"), penstock.ClosedError(13), penstock.GoneError(6)):
    thread = threading.Thread(target=fail, args=(error,))
    thread.start()
    thread.join()
"""
    assert run(text, server) == "told ValueError\ntold GoneError\n"


def test_a_runtime_is_driven_without_select_poll(server: str) -> None:
    """eventlet.monkey_patch() removes select.poll and select.epoll. Here no thread waits in a call, so only the
    runtime's own thread can make the connection, and later end."""
    text = """
import select
del select.poll, select.epoll
runtime = penstock.Runtime()
channel = penstock.Channel(target, tls=False, runtime=runtime)
ready = threading.Event()
channel.watch_connectivity(lambda state: state != penstock.Connectivity.READY or ready.set())
channel.connect()
assert ready.wait(30)
assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
runtime.shutdown()
print([thread.name for thread in threading.enumerate()])
"""
    assert run(text, server) == "['MainThread']\n"


def test_a_driver_that_is_no_thread_of_its_own_blocks_no_signals(server: str) -> None:
    """eventlet and gevent run a threading.Thread as part of the thread that starts it, which may be the main thread.
    Here the driver runs within `shutdown`, when it has been told to stop."""
    text = """
class Green(threading.Thread):
    def start(self): pass
    def join(self, seconds=None):
        self.run()
        self.run = lambda: None
threading.Thread = Green
runtime = penstock.Runtime()
channel = penstock.Channel(target, tls=False, runtime=runtime)
assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
runtime.shutdown()
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    assert run(text, server) == "set()\n"


def test_a_program_that_never_calls_ends(server: str) -> None:
    assert run("penstock.Runtime(); penstock.default_runtime(); print('last')", server) == "last\n"


OPEN = """
import os
for name in os.listdir("/proc/self/fd"):
    try: print(os.readlink(f"/proc/self/fd/{name}"))
    except OSError: pass
"""


def test_descriptors_are_not_inherited(server: str) -> None:
    with Channel(server, tls=False) as channel:
        channel.unary_unary("/penstock.Echo/Unary")(b"x")
        command = [sys.executable, "-c", OPEN]
        listed = subprocess.run(command, capture_output=True, text=True, close_fds=False, check=True).stdout
    assert not any(kind in listed for kind in ("socket:", "[eventpoll]", "[eventfd]", "[timerfd]"))


def test_the_driving_thread_blocks_every_signal_but_faults(server: str) -> None:
    with Channel(server, tls=False) as channel:
        channel.unary_unary("/penstock.Echo/Unary")(b"x")
        drivers = [thread.native_id for thread in threading.enumerate() if thread.name == "penstock"]
    assert drivers
    faults = {"SEGV", "BUS", "FPE", "ILL", "TRAP", "ABRT", "SYS"}
    for driver in drivers:
        status = Path(f"/proc/self/task/{driver}/status").read_text()
        blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk:")).split()[1], 16)
        for number in (each for each in signal.Signals if each < 32):
            name = number.name.removeprefix("SIG")
            assert bool(blocked >> (number - 1) & 1) == (name not in faults | {"KILL", "STOP"}), name
