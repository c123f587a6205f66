"""`Call.result` and its like with a limit: whoever drives the loop, and in callbacks."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List

import pytest

import penstock
from conftest import await_hanging
from helpers import Only, on_thread, run
from penstock import Channel, Hop, RpcError, Runtime, StatusCode, SyncInterceptor

RUNTIMES: Dict[str, Dict[str, Any]] = {
    "the program": {"drive": False},
    "a thread of Python": {},
    "threads of the library": {"loops": 2},
    "the library alone": {"caller_drives": False},
}


@pytest.mark.parametrize("driver", RUNTIMES)
def test_a_wait_with_a_limit_drives_the_loop(server: str, driver: str) -> None:
    with Runtime(**RUNTIMES[driver]) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        echo = channel.unary_unary("/penstock.Echo/Unary")
        assert echo.future(b"x").result(60) == b"x"
        assert echo.future(b"x").exception(60) is None
        assert channel.unary_unary("/penstock.Echo/None").future(b"").traceback(60) is None
        many = [echo.future(b"%d" % number) for number in range(20)]
        assert [call.result(60) for call in reversed(many)] == [b"%d" % number for number in reversed(range(20))]
        hangs = channel.unary_unary("/penstock.Probe/Hang").future(b"")
        with pytest.raises(penstock.TimedOutError, match=r"within 0\.01 s"):
            hangs.result(0.01)
        for timeout in (0, -1):
            with pytest.raises(penstock.TimedOutError, match=f"within {timeout} s"):
                hangs.exception(timeout)
        with pytest.raises(ValueError, match="NaN"):
            hangs.result(float("nan"))
        await_hanging(channel, 1)
        assert hangs.cancel("enough")
        assert hangs.exception(float("inf")).details() == "enough"  # type: ignore[union-attr]
        ended = hangs.exception(0)
        assert isinstance(ended, RpcError)


@pytest.mark.parametrize("driver", RUNTIMES)
def test_several_threads_wait_for_one_call(server: str, driver: str) -> None:
    """The one that drives gives up; another goes on."""
    with Runtime(**RUNTIMES[driver]) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        call = channel.unary_unary("/penstock.Probe/Hang").future(b"")
        details: List[str] = []
        waiting = [
            on_thread(lambda limit=limit: details.append(call.exception(limit).details()))  # type: ignore[misc]
            for limit in (None, 60, 120)
        ]
        for _ in range(3):
            with pytest.raises(penstock.TimedOutError):
                call.result(0.005)
        await_hanging(channel, 1)
        call.cancel("enough")
        for thread in waiting:
            thread.join()
        assert details == ["enough"] * 3


@pytest.mark.parametrize("driver", RUNTIMES)
def test_a_callback_can_t_wait_for_another_call(server: str, driver: str) -> None:
    seen: List[str] = []

    def tried(name: str, wait: Callable[[], Any]) -> None:
        try:
            seen.append(f"{name} {wait()}")
        except penstock.LibraryError as error:
            seen.append(f"{name} {type(error).__name__}")

    def on_start(hop: Hop) -> None:
        tried("result", hangs.result)
        tried("result", lambda: hangs.result(60))
        tried("exception", lambda: hangs.exception(60))
        tried("traceback", lambda: hangs.traceback(60))
        tried("code", hangs.code)
        tried("no wait", lambda: hangs.result(0))
        tried("ended", lambda: over.result(60))
        tried("ended", over.result)

    with Runtime(**RUNTIMES[driver]) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        hangs = channel.unary_unary("/penstock.Probe/Hang").future(b"")
        over = channel.unary_unary("/penstock.Echo/Unary").future(b"x")
        over.result(60)
        on_one_loop = channel.unary_unary("/penstock.Echo/Unary")
        assert on_one_loop(b"y", interceptors=[Only(on_start=on_start)]) == b"y"
        assert hangs.is_active()
    refused = ("result", "result", "exception", "traceback", "code")
    expected = [*(f"{name} WouldDeadlockError" for name in refused), "no wait TimedOutError"]
    assert seen == [*expected, "ended b'x'", "ended b'x'"]


@pytest.mark.parametrize("driver", RUNTIMES)
def test_places_that_may_wait(server: str, driver: str) -> None:
    """The function of a synchronous interceptor, one that is called at the end, an iterator of requests."""
    answers: List[Any] = []
    over = threading.Event()

    class Asks(SyncInterceptor):
        def intercept(self, call: Any) -> None:
            answers.append(echo.future(b"sync").result(60))
            call.next()

    def ended(call: Any) -> None:
        answers.append(echo.future(call.result(60) + b" end").result(60))
        over.set()

    with Runtime(**RUNTIMES[driver]) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        echo = channel.unary_unary("/penstock.Echo/Unary")
        assert echo(b"x", interceptors=[Asks()]) == b"x"
        asked = echo.future(b"an", interceptors=[Asks()])
        assert asked.result(60) == b"an"
        asked.add_done_callback(ended)
        assert over.wait(60)
        requests = (echo.future(b"%d" % number).result(60) for number in range(3))
        assert list(channel.stream_stream("/penstock.Echo/Bidi")(requests)) == [b"0", b"1", b"2"]
    assert answers == [b"sync", b"sync", b"an end"]


def test_ctrl_c_ends_a_wait_with_a_limit(server: str) -> None:
    text = """
channel = penstock.Channel(target, tls=False, runtime=penstock.Runtime(drive=False))
hangs = channel.unary_unary("/penstock.Probe/Hang").future(b"")
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    hangs.result(60)
except KeyboardInterrupt:
    print(hangs.is_active(), hangs.cancel(), hangs.exception(60).code())
print(channel.unary_unary("/penstock.Echo/Unary").future(b"on").result(60))
"""
    assert run(text, server) == "True True StatusCode.CANCELLED\nb'on'\n"


def test_a_signal_handler_that_returns_does_not_prolong_the_wait(server: str) -> None:
    text = """
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
channel = penstock.Channel(target, tls=False, runtime=penstock.Runtime(drive=False))
hangs = channel.unary_unary("/penstock.Probe/Hang").future(b"")
try:
    hangs.result(0.05)
except penstock.TimedOutError:
    print(len(handled) > 0)
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    assert run(text, server) == "True\n"


def test_the_code_of_a_call_that_a_wait_has_left(server: str) -> None:
    with Runtime(drive=False) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        call = channel.unary_unary("/penstock.Probe/Hang").future(b"", timeout=0.05)
        with pytest.raises(penstock.TimedOutError):
            call.result(0.001)
        error = call.exception(60)
        assert error is not None
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
