"""Functions that C calls, and that an exception of a signal's handler stops before their first line: what the
recovery of each one does, and that the exception is kept for the code that waits."""

from __future__ import annotations

import pytest

from helpers import run

# `stopped` calls a trampoline as C does. The profile function is a C function that raises: so an exception comes
# where a pending signal's handler raises, at the beginning of the Python function, without a further frame.
STOPPED = """
import ctypes
from penstock import _ctrl_c, _executor, _picker, _raw, _resolver, _side, _trampolines, _watch
from penstock._objects import registry
told = []
recovered = []
penstock.Channel(target, tls=False)
def stopped(trampoline, *arguments):
    sys.unraisablehook = lambda unraisable: recovered.append(_ctrl_c._recovered(unraisable))
    sys.setprofile(len)
    trampoline(*arguments)
    sys.setprofile(None)
    sys.unraisablehook = sys.__unraisablehook__
"""
KINDS = {
    "a watch": (
        """
kept = {}
number = registry.add(_watch._Watch(lambda state: told.append(state.name)))
stopped(_watch._changed, number, 2)
""",
        ["READY"],
    ),
    "a resolver": (
        """
class Tells(penstock.Resolver):
    def resolve(self): told.append("resolve")
    def stop(self): told.append("stop")
number = registry.add(Tells())
stopped(_resolver._resolve, number)
stopped(_resolver._stop, number)
""",
        ["resolve", "stop"],
    ),
    "an executor": (
        """
job = _raw.c_types.penstock_job(told.append)
number = registry.add(lambda job: None)
stopped(_executor._take, job, 7, number)
""",
        [7],
    ),
    "a picker": (
        """
_raw.penstock_pick_fail = lambda handle, code, message: told.append((handle, code, message.decode()))
stopped(_picker._pick, 5, registry.add(_picker._Function(lambda pick: 0)))
""",
        [(5, 13, "the picker was interrupted")],
    ),
    "the reply of a side call": (
        """
stopped(_side._reply_trampoline, None, None, registry.add(lambda response, outcome: told.append(response)))
""",
        [None],
    ),
    "a connection event": (
        """
class Observer(penstock.Interceptor):
    def on_connection(self, event): told.append(event.kind.name)
registered = penstock._hop.Registered("observer", {"on_connection": Observer().on_connection}, None)
event = _raw.penstock_connection_event(ctypes.sizeof(_raw.penstock_connection_event), 5, b"a")
stopped(_trampolines.connection_trampoline, registry.add(registered), ctypes.pointer(event))
""",
        ["READY"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_that_has_not_begun_is_recovered(server: str, kind: str) -> None:
    text, told = KINDS[kind]
    ended = """
print(told, set(recovered))
try:
    _ctrl_c.raise_escaping()
except TypeError:
    print("the exception is kept")
"""
    assert run(STOPPED + text + ended, server) == f"{told} {{True}}\nthe exception is kept\n"


def test_other_unraisable_exceptions_are_told_as_before(server: str) -> None:
    """While the main thread waits in a call, exceptions that concern no callback reach the hook of the program."""
    text = """
class Breaks:
    def __del__(self): raise ValueError
class Look(penstock.Interceptor):
    def on_start(self, hop): Breaks()
def hook(unraisable): print("told", type(unraisable.exc_value).__name__)
sys.unraisablehook = hook
channel = penstock.Channel(target, tls=False, runtime=penstock.Runtime(drive=False), interceptors=[Look()])
print(channel.unary_unary("/penstock.Echo/Unary")(b"x"), sys.unraisablehook is hook)
"""
    assert run(text, server) == "told ValueError\nb'x' True\n"


def test_an_interrupt_in_the_reply_of_a_side_call_comes_out_of_the_call(server: str) -> None:
    text = """
import logging
logging.getLogger("penstock").setLevel(logging.CRITICAL + 1)
class Asks(penstock.Interceptor):
    def on_start(self, hop):
        ticket = hop.ticket()
        def reply(response, outcome):
            ticket.resume()
            raise KeyboardInterrupt
        hop.unary("/penstock.Echo/Unary", b"y", reply)
        return penstock.Verdict.PAUSE
channel = penstock.Channel(target, tls=False, runtime=penstock.Runtime(drive=False), interceptors=[Asks()])
try:
    channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=20)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(text, server) == "interrupted\n"
