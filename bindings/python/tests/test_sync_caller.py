"""Synchronous interceptors of unary calls: their functions run on the thread that makes the call."""

from __future__ import annotations

import signal
import threading
from typing import Any, Callable, List

import pytest

from conftest import await_hanging
from helpers import Only, ended, on_thread, program, run, unary
from penstock import Channel, InterceptedCall, RpcError, StatusCode, SyncInterceptor


class Function(SyncInterceptor):
    def __init__(self, function: Callable[[InterceptedCall], Any]) -> None:
        self.function = function

    def intercept(self, call: InterceptedCall) -> None:
        self.function(call)


def test_thread_locals_are_the_caller_s(channel: Channel) -> None:
    own = threading.local()

    def function(call: InterceptedCall) -> None:
        call.metadata["user"] = own.user
        seen.append((own.user, call.next().gone))

    channel.add_interceptor(Function(function))
    seen: List[Any] = []

    def user(name: str) -> None:
        own.user = name
        assert unary(channel) == b"x"

    for thread in [on_thread(lambda name=name: user(name)) for name in ("ann", "bob")]:
        thread.join()
    assert sorted(seen) == [("ann", False), ("bob", False)]


def test_sixteen_functions_run_at_once(channel: Channel) -> None:
    """Each waits for all the others: they are not limited by the number of workers, and none drives the loop."""
    meeting = threading.Barrier(16, timeout=20)

    def function(call: InterceptedCall) -> None:
        meeting.wait()
        call.next()

    channel.add_interceptor(Function(function))
    answers: List[bytes] = []
    threads = [on_thread(lambda: answers.append(unary(channel))) for _ in range(16)]
    for thread in threads:
        thread.join()
    assert answers == [b"x"] * 16


def test_a_deadline_passes_while_a_function_runs(channel: Channel) -> None:
    """Another thread drives the loop meanwhile. The call returns after its function has."""
    over = threading.Event()
    seen: List[Any] = []

    def function(call: InterceptedCall) -> None:
        seen.append(over.wait(20))
        reply = call.next()
        assert reply.status is not None
        seen.append((reply.gone, reply.status.code))

    channel.add_interceptor(Only(on_status=lambda hop: over.set()), priority=1)
    channel.add_interceptor(Function(function))
    with pytest.raises(RpcError) as caught:
        unary(channel, timeout=0.1)
    assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
    assert seen == [True, (True, StatusCode.DEADLINE_EXCEEDED)]


def test_a_call_of_its_own_meets_itself(channel: Channel) -> None:
    threads: List[int] = []

    def function(call: InterceptedCall) -> None:
        threads.append(threading.get_ident())
        if "inner" not in call.metadata:
            assert unary(channel, b"token", metadata={"inner": "1"}) == b"token"
        call.next()

    channel.add_interceptor(Function(function))
    for _ in range(50):
        assert unary(channel) == b"x"
    assert threads == [threading.get_ident()] * 100


# ---- Exceptions that are meant for the caller ----

INTERCEPTOR = """
import time
log = []
class Waits(penstock.SyncInterceptor):
    def intercept(self, call):
        try:
            {within}
        except BaseException as error:
            log.append(type(error).__name__)
            raise
class Above(penstock.SyncInterceptor):
    def intercept(self, call):
        try:
            call.next()
        except BaseException as error:
            log.append(type(error).__name__)
            raise
channel = penstock.Channel(target, tls=False)
tokens = [channel.add_interceptor(Waits()), channel.add_interceptor(Above(), priority=1)]
try:
    channel.unary_unary("/penstock.Probe/Hang")(b"")
except BaseException as error:
    log.append(type(error).__name__)
for token in tokens: token.remove()
channel.unary_unary("/penstock.Echo/Unary")(b"still works")
print(log)
"""


def test_ctrl_c_in_a_function_reaches_the_caller(server: str) -> None:
    # Many short sleeps: a signal that comes just before a sleep does not end it, in any program. Python 3.14 looks
    # for signals less often, so that the one of this test mostly came before a single long sleep.
    within = 'print("inside", flush=True); any(time.sleep(0.01) for _ in range(6000))'
    with program(INTERCEPTOR.format(within=within), server) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGINT)
        printed, complaints = ended(process)
    assert (printed, complaints) == ("['KeyboardInterrupt', 'KeyboardInterrupt', 'KeyboardInterrupt']\n", "")


def test_ctrl_c_ends_a_function_s_next(server: str, channel: Channel) -> None:
    with program(INTERCEPTOR.format(within="call.next()"), server) as process:
        await_hanging(channel, 1)
        process.send_signal(signal.SIGINT)
        printed, complaints = ended(process)
    assert (printed, complaints) == ("['KeyboardInterrupt', 'KeyboardInterrupt', 'KeyboardInterrupt']\n", "")
    await_hanging(channel, 0)


def test_system_exit_reaches_the_caller(server: str) -> None:
    assert run(INTERCEPTOR.format(within="sys.exit(3)"), server) == "['SystemExit', 'SystemExit', 'SystemExit']\n"


def test_a_child_of_a_function_has_none_of_its_calls(server: str) -> None:
    text = """
class Forks(penstock.SyncInterceptor):
    def intercept(self, call):
        child = os.fork()
        if child == 0:
            with penstock.Channel(target, tls=False) as other:
                os._exit(0 if other.unary_unary("/penstock.Echo/Unary")(b"x") == b"x" else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        call.next()
channel = penstock.Channel(target, tls=False)
token = channel.add_interceptor(Forks())
print(channel.unary_unary("/penstock.Echo/Unary")(b"x"))
"""
    assert run(text, server) == "0\nb'x'\n"
