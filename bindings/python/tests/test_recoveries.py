"""Functions that C calls, and that an exception of a signal's handler stops before their first line: what the
recovery of each one does, and that the exception is kept for the code that waits."""

from __future__ import annotations

import pytest

from helpers import run

# `stopped` calls a trampoline as C does. The profile function is a C function that raises: so an exception comes
# where a pending signal's handler raises, at the beginning of the Python function, without a further frame.
# `given_to` gives the arguments with which the package calls a C function; a structure in place of its address.
STOPPED = """
import ctypes
from penstock._handles import ctrl_c as _ctrl_c
from penstock import _raw
told = []
recovered = []
channel = penstock.Channel(target, tls=False)
def stopped(trampoline, *arguments):
    sys.unraisablehook = lambda unraisable: recovered.append(_ctrl_c._recovered(unraisable))
    sys.setprofile(len)
    trampoline(*arguments)
    sys.setprofile(None)
    sys.unraisablehook = sys.__unraisablehook__
def given_to(name, work):
    function = getattr(_raw, name)
    given = []
    def taken(*arguments):
        given.extend(getattr(each, "_obj", each) for each in arguments)
        return function(*arguments)
    setattr(_raw, name, taken)
    work()
    setattr(_raw, name, function)
    return given
"""
KINDS = {
    "a watch": (
        """
watched = threading.Event()
def changed(state):
    told.append(state.name)
    watched.set()
_, function, number, _ = given_to("penstock_channel_watch_connectivity", lambda: channel.watch_connectivity(changed))
watched.wait(20)
stopped(function, number, 2)
""",
        ["IDLE", "READY"],
    ),
    "a compressor": (
        """
class Same(penstock.Compressor):
    name = "x-same"
    def compress(self, data): return data
    def decompress(self, data, limit): return data
def join(): kept.append(penstock.Channel(target, tls=False, compressors=[Same()]))
kept = []
table = given_to("penstock_compressor_new", join)[0]
_raw.penstock_compression_fail = lambda message, words: told.append(words.decode())
stopped(table.compress, table.user_data, None, 0, 1)
stopped(table.decompress, table.user_data, None, 0, 1)
""",
        ["it was interrupted", "it was interrupted"],
    ),
    "a resolver": (
        """
class Tells(penstock.Resolver):
    def resolve(self): told.append("resolve")
    def stop(self): told.append("stop")
def join(): kept.append(penstock.Channel("orders", tls=False, resolver=Tells()))
kept = []
table = given_to("penstock_channel_set_resolver", join)[1]
stopped(table.resolve, table.user_data)
stopped(table.stop, table.user_data)
""",
        ["resolve", "stop"],
    ),
    "an executor": (
        """
executor = penstock.Executor(lambda job: None)
submit, number = given_to("penstock_executor_new", lambda: executor._handle)[:2]
job = _raw.c_types.penstock_job(told.append)
stopped(submit, job, 7, number)
""",
        [7],
    ),
    "a picker": (
        """
_, picker, number, _ = given_to("penstock_channel_set_picker", lambda: channel.set_picker(lambda pick: 0))
_raw.penstock_pick_fail = lambda handle, code, message: told.append((handle, code, message.decode()))
stopped(picker, 5, number)
""",
        [(5, 13, "the picker was interrupted")],
    ),
    "the reply of a side call": (
        """
class Asks(penstock.Interceptor):
    def on_start(self, hop):
        hop.unary("/penstock.Echo/Unary", b"y", lambda response, outcome: told.append(response), detached=True)
channel = penstock.Channel(target, tls=False, runtime=penstock.Runtime(drive=False), interceptors=[Asks()])
# The function is called when the side call starts, as if that had ended without a reply.
start = _raw.penstock_hop_start_side_call
def take(*arguments):
    table = arguments[5]._obj
    stopped(table.on_reply, None, None, table.user_data)
    return start(*arguments)
_raw.penstock_hop_start_side_call = take
try:
    channel.unary_unary("/penstock.Echo/Unary")(b"x")
except TypeError as error:
    _ctrl_c.escape(error)
del told[1:]
""",
        [None],
    ),
    "a call in callback style": (
        """
from penstock._calls import ahead, carried, codec
class Call(carried.Carried):
    def news(self): told.append(list(self.unread))
    def room(self): told.append("room")
    def over(self, reply): told.append("over")
call = carried.calls[1 << 40] = Call(ahead.Ahead())
call.ahead._asked.append(None)
message = ctypes.c_void_p()
codec.fill(message, b"x")
for trampoline, given in (carried.MESSAGE, message), (carried.SENT, 1), (carried._REPLY, None):
    stopped(trampoline, None, given, 1 << 40)
_raw.penstock_message_release(message)
""",
        [[b"x"], "room", "over"],
    ),
    "a connection event": (
        """
class Observer(penstock.Interceptor):
    def on_connection(self, event): told.append(event.kind.name)
table = given_to("penstock_channel_add_interceptor", lambda: channel.add_interceptor(Observer()))[1]
event = _raw.penstock_connection_event(ctypes.sizeof(_raw.penstock_connection_event), 5, b"a")
stopped(table.on_connection, table.user_data, ctypes.pointer(event))
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
