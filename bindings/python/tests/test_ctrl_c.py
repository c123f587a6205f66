"""Ctrl-C while a thread waits in a call."""

from __future__ import annotations

import signal

import pytest

from conftest import await_hanging
from helpers import ended, program, run
from penstock import Channel

BLOCKED = {
    "unary": "channel.unary_unary('/penstock.Probe/Hang')(b'')",
    "stream": "list(channel.unary_stream('/penstock.Probe/HangStream')(b''))",
    "client stream": "channel.stream_unary('/penstock.Probe/HangBidi')(iter([b'']))",
    "headers": "channel.unary_stream('/penstock.Probe/Hang')(b'').initial_metadata()",
    "status": "channel.unary_stream('/penstock.Probe/Hang')(b'').code()",
}


@pytest.mark.parametrize("call", BLOCKED.values(), ids=BLOCKED.keys())
def test_ctrl_c_ends_a_blocking_call(server: str, channel: Channel, call: str) -> None:
    text = f"""
channel = penstock.Channel(target, tls=False)
try:
    {call}
except KeyboardInterrupt:
    channel.unary_unary("/penstock.Echo/Unary")(b"still works")
    print("interrupted")
"""
    with program(text, server) as process:
        await_hanging(channel, 1)
        process.send_signal(signal.SIGINT)
        printed, complaints = ended(process)
    assert (printed, complaints, process.returncode) == ("interrupted\n", "", 0)
    await_hanging(channel, 0)


def test_ctrl_c_ends_a_call_whose_loop_is_stuck_in_another_call_s_callback(server: str) -> None:
    text = """
is_stuck, goes_on = threading.Event(), threading.Event()
class Stuck(penstock.Interceptor):
    def on_start(self, hop):
        is_stuck.set()
        goes_on.wait()
class Pass(penstock.Interceptor):
    def on_status(self, hop): pass
stuck = penstock.Channel(target, tls=False, interceptors=[Stuck()])
channel = penstock.Channel(target, tls=False, interceptors=[Pass()])
thread = threading.Thread(target=lambda: stuck.unary_unary("/penstock.Echo/Unary")(b""))
thread.start()
is_stuck.wait()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    channel.unary_unary("/penstock.Probe/Hang")(b"")
except KeyboardInterrupt:
    print("interrupted")
goes_on.set()
thread.join()
print(channel.unary_unary("/penstock.Echo/Unary")(b"works").decode())
"""
    assert run(text, server) == "interrupted\nworks\n"


def test_a_signal_that_raises_nothing_does_not_end_a_call(server: str, channel: Channel) -> None:
    text = """
heard = []
signal.signal(signal.SIGUSR1, lambda *_: (heard.append(1), print("heard", flush=True)))
try:
    penstock.Channel(target, tls=False).unary_unary("/penstock.Probe/Hang")(b"")
except KeyboardInterrupt:
    print(len(heard))
"""
    with program(text, server) as process:
        assert process.stdout is not None
        await_hanging(channel, 1)
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "heard\n"
        process.send_signal(signal.SIGINT)
        printed, complaints = ended(process)
    assert (printed, complaints) == ("3\n", "")


def test_ctrl_c_ends_a_call_while_a_callback_holds_up_the_loop(server: str) -> None:
    """The callback runs on the thread that drives the loop, and does not return before the wait has ended."""
    text = """
import time
inside, leave = threading.Event(), threading.Event()
class Stays(penstock.Interceptor):
    def on_headers(self, hop):
        inside.set()
        left.append(leave.wait(20))
left = []
runtime = penstock.Runtime()
other = penstock.Channel(target, tls=False, interceptors=[Stays()], runtime=runtime)
channel = penstock.Channel(target, tls=False, runtime=runtime)
thread = threading.Thread(target=lambda: other.unary_unary("/penstock.Echo/Unary")(b"x"))
thread.start()
inside.wait(20)
before = len(runtime._waiters._inside)
def interrupt():
    while len(runtime._waiters._inside) == before: time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    channel.unary_unary("/penstock.Echo/Unary")(b"x")
except KeyboardInterrupt:
    print("interrupted", left)
leave.set()
thread.join()
print(channel.unary_unary("/penstock.Echo/Unary")(b"still works"))
"""
    assert run(text, server) == "interrupted []\nb'still works'\n"


def test_ctrl_c_in_a_callback_goes_to_the_waiting_code(server: str) -> None:
    text = """
class Interrupted(penstock.Interceptor):
    def on_headers(self, hop):
        assert threading.current_thread() is threading.main_thread()
        signal.raise_signal(signal.SIGINT)
penstock.set_exception_hook(lambda *_: None)
channel = penstock.Channel(target, tls=False, interceptors=[Interrupted()], runtime=penstock.Runtime(drive=False))
try:
    channel.unary_unary("/penstock.Echo/Unary")(b"x")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(text, server) == "interrupted\n"


def test_ctrl_c_just_before_a_callback_is_not_lost(server: str) -> None:
    """The signal's handler runs when a callback begins, before its first line: see `_ctrl_c.call`."""
    text = """
class Look(penstock.Interceptor):
    def on_receive(self, hop):
        pass
def requests():
    yield b"1"
    # If the kernel gives the signal to this thread, the main one sleeps on: the handler runs with its next callback.
    os.kill(os.getpid(), signal.SIGINT)
    yield b"2"
penstock.set_exception_hook(lambda *_: None)
channel = penstock.Channel(target, tls=False, interceptors=[Look()], runtime=penstock.Runtime(drive=False))
hook = sys.unraisablehook
for turn in range(20):
    try:
        print(list(channel.stream_stream("/penstock.Echo/Bidi")(requests())))
    except KeyboardInterrupt:
        pass
    assert sys.unraisablehook is hook
print("interrupted")
"""
    assert run(text, server) == "interrupted\n"
