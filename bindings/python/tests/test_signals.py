"""Signals at bad moments. If a signal is pending when C calls a callback, Python runs the signal's handler before the
callback's first line; if the handler raises, the callback does not run at all."""

from __future__ import annotations

import pytest

from helpers import run

# A C interceptor whose callback is the C function `raise`: it raises SIGINT without running Python. The next Python
# function is the callback of the interceptor below, so the signal's handler runs before that callback's first line.
RAISING = """
import ctypes, functools
from penstock import _raw
told = []
penstock.set_exception_hook(lambda name, callback, error: told.append((callback, type(error).__name__)))
channel = penstock.Channel(target, tls=False, runtime=penstock.Runtime(drive=False))
interrupt = functools.partial(ctypes.CDLL(None)["raise"], int(signal.SIGINT))
number = ctypes.c_uint64()
table = _raw.penstock_interceptor(struct_size=ctypes.sizeof(_raw.penstock_interceptor), name=b"raising")
def raise_in(callback):
    setattr(table, callback, dict(table._fields_)[callback](interrupt))
    added = _raw.penstock_channel_add_interceptor(
        channel._handle, ctypes.byref(table), 1, ctypes.byref(number), None)
    assert added == 0
def interrupted_call():
    try:
        channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=20)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("event", ["create", "on_send"])
def test_a_callback_that_has_not_begun_has_failed(server: str, event: str) -> None:
    text = f"""
class Look(penstock.Interceptor):
    def create(self, hop): pass
    def on_start(self, hop): pass
    def on_send(self, hop): pass
channel.add_interceptor(Look(), name="look")
raise_in("{event}")
interrupted_call()
print(told, channel.interceptors[-1]["name"])
"""
    assert run(RAISING + text, server) == f"interrupted\n[('{event}', 'KeyboardInterrupt')] look\n"


@pytest.mark.parametrize("event", ["on_start", "on_send"])
def test_a_completion_of_what_has_not_begun_ends_the_call(server: str, event: str) -> None:
    text = f"""
class Look(penstock.CompletionInterceptor):
    def on_start(self, metadata, done): done.next()
    def on_send(self, message, done): done.next()
channel.add_interceptor(Look(), name="look")
raise_in("{event}")
interrupted_call()
"""
    assert run(RAISING + text, server) == "interrupted\n"


@pytest.mark.parametrize("event", ["on_send", "on_receive"])
def test_a_codec_that_has_not_begun_does_its_work_after_all(server: str, event: str) -> None:
    """A signal is pending when the library calls the serializer (on_send: an object becomes bytes below the object
    level) or the deserializer (on_receive). The recovery then runs that function, so the message is not lost."""
    text = f"""
class Look(penstock.Interceptor):
    level = penstock.Level.OBJECT
    def on_headers(self, hop): pass
channel.add_interceptor(Look(), name="look")
table.level = penstock.Level.{"OBJECT" if event == "on_send" else "BYTES"}
raise_in("{event}")
made = []
def serialize(text): made.append("out"); return text.encode()
def deserialize(data): made.append("in"); return data.decode()
try:
    channel.unary_unary("/penstock.Echo/Unary", serialize, deserialize)("x", timeout=20)
except KeyboardInterrupt:
    print("interrupted", made)
"""
    made = "['out']" if event == "on_send" else "['out', 'in']"
    assert run(RAISING + text, server) == f"interrupted {made}\n"


def test_an_interrupt_in_a_serializer_comes_out_of_the_call(server: str) -> None:
    text = """
import logging
logging.getLogger("penstock").setLevel(logging.CRITICAL)
class Look(penstock.Interceptor):
    level = penstock.Level.OBJECT
    def on_send(self, hop): pass
channel.add_interceptor(Look())
def serialize(text): raise KeyboardInterrupt
try:
    channel.unary_unary("/penstock.Echo/Unary", serialize)("x", timeout=20)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(RAISING + text, server) == "interrupted\n"


def test_an_interrupt_while_a_serializers_exception_is_logged_lets_nothing_through(server: str) -> None:
    """The server must not get an empty message in place of the request, nor the caller None for the response."""
    text = """
import logging
class Interrupted(logging.Handler):
    def emit(self, record): raise KeyboardInterrupt
logging.getLogger("penstock").addHandler(Interrupted())
class Look(penstock.Interceptor):
    level = penstock.Level.OBJECT
    def on_send(self, hop): pass
    def on_receive(self, hop): pass
    def on_status(self, hop): codes.append(hop.status.code.name)
channel.add_interceptor(Look())
codes = []
def broken(given): raise ValueError(given)
for serializers in (broken, None), (None, broken):
    try:
        print(channel.unary_unary("/penstock.Echo/Unary", *serializers)(b"x", timeout=20))
    except KeyboardInterrupt:
        print("interrupted", codes)
print(channel.unary_unary("/penstock.Echo/Unary")(b"y", timeout=20))
"""
    assert run(RAISING + text, server) == "interrupted ['INTERNAL']\ninterrupted ['INTERNAL', 'INTERNAL']\nb'y'\n"


# ---- What has been released is not released again ----

# `counted` replaces a C function that releases a handle: the new function also counts its calls in `released`, and
# calls `after` at its end.
COUNTING = """
import collections, ctypes
from penstock import _raw
from penstock._calls import batch
channel = penstock.Channel(target, tls=False)
channel.unary_unary("/penstock.Echo/Unary")(b"x")
released = collections.Counter()
def counted(name, after):
    function = getattr(_raw, name)
    def release(handle):
        address = handle.value if isinstance(handle, ctypes.c_void_p) else handle
        function(handle)
        if address:
            released[name] += 1
            after()
    setattr(_raw, name, release)
def interrupt_once():
    if released["penstock_message_release"] == 1:
        raise KeyboardInterrupt
"""


def test_an_interrupt_while_the_thread_of_requests_starts(server: str) -> None:
    """The interrupt comes when the thread that sends the requests has begun: that thread has its own reference to the
    call."""
    text = """
counted("penstock_call_release", lambda: None)
begin = threading.Thread.start
def start(thread):
    begin(thread)
    if thread.name == "penstock requests":
        threads.append(thread)
        raise KeyboardInterrupt
threading.Thread.start = start
threads = []
def requests():
    yield b"1"
    there.wait(20)
    yield b"2"
there = threading.Event()
try:
    channel.stream_unary("/penstock.Probe/HangBidi")(requests())
except KeyboardInterrupt:
    there.set()
threads[0].join(20)
threads.clear()
print(released["penstock_call_release"])
"""
    # The references of the thread and of the call object have been released, each once.
    assert run(COUNTING + text, server) == "2\n"


def test_an_interrupt_while_a_message_is_released(server: str) -> None:
    text = """
# Each message crosses alone.
batch.SIZE = 0
counted("penstock_message_release", interrupt_once)
stream = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", metadata={"x-repeat": "3"})
read = []
while True:
    try:
        read.extend(stream)
        break
    except KeyboardInterrupt:
        print("interrupted")
print(released["penstock_message_release"])
"""
    assert run(COUNTING + text, server) == "interrupted\n3\n"


# Makes the next call of a C function raise KeyboardInterrupt when the function has done its work.
INTERRUPTING = """
def interrupt(name):
    function = getattr(_raw, name)
    def work(*arguments):
        setattr(_raw, name, function)
        function(*arguments)
        raise KeyboardInterrupt
    setattr(_raw, name, work)
"""


@pytest.mark.parametrize(
    ("function", "call", "released", "times"),
    [
        ("penstock_channel_unary", "channel.unary_unary('/penstock.Echo/Unary')(b'x')", "penstock_reply_release", 1),
        ("penstock_channel_unary", "channel.unary_unary('no method')(b'x')", "penstock_error_release", 1),
        ("penstock_channel_unary", "watched.unary_unary('/penstock.Echo/Unary')(b'x')", "penstock_reply_release", 1),
        ("penstock_call_wait", "around.unary_unary('/penstock.Echo/Unary')(b'x')", "penstock_reply_release", 1),
        ("penstock_call_wait", "around.unary_unary('/penstock.Echo/Unary')(b'x')", "penstock_call_release", 1),
        ("penstock_call_wait_status", "channel.stream_unary('/penstock.Echo/Bidi')([])", "penstock_reply_release", 1),
    ],
)
def test_an_interrupt_when_a_handle_has_been_given(
    server: str, function: str, call: str, released: str, times: int
) -> None:
    text = f"""
import gc
class Pass(penstock.Interceptor):
    def on_status(self, hop): pass
class Around(penstock.SyncInterceptor):
    def intercept(self, call): call.next()
watched = penstock.Channel(target, tls=False, interceptors=[Pass()])
around = penstock.Channel(target, tls=False, interceptors=[Around()])
counted("{released}", lambda: None)
interrupt("{function}")
try:
    {call}
except KeyboardInterrupt:
    gc.collect()
    print(released["{released}"])
"""
    assert run(COUNTING + INTERRUPTING + text, server) == f"{times}\n"


def test_an_interrupt_when_a_message_has_come(server: str) -> None:
    """The message is not lost: the next iteration gives it."""
    text = """
batch.MOST = 1
stream = channel.unary_stream("/penstock.Probe/Stream")(b'{"count": 3}')
read = []
for turn in range(2):
    interrupt("penstock_call_receive_many")
    try:
        read.extend(stream)
    except KeyboardInterrupt:
        print("interrupted")
read.extend(stream)
print([int.from_bytes(message, "big") for message in read])
"""
    assert run(COUNTING + INTERRUPTING + text, server) == "interrupted\ninterrupted\n[0, 1, 2]\n"


def test_an_interrupted_upload_is_cancelled(server: str) -> None:
    text = """
class Look(penstock.Interceptor):
    def on_status(self, hop):
        if hop.status.code is penstock.StatusCode.CANCELLED: cancelled.set()
cancelled = threading.Event()
def wait(*_):
    raise KeyboardInterrupt
_raw.penstock_call_wait_status = wait
upload = channel.stream_unary("/penstock.Probe/HangBidi")
try:
    upload([b"x"], interceptors=[Look()])
except KeyboardInterrupt as error:
    # The traceback keeps the call object, so only the interrupt can have cancelled the call.
    kept = error
    print(cancelled.wait(20))
"""
    assert run(COUNTING + text, server) == "True\n"


def test_what_only_asks_for_a_reply_releases_it(server: str) -> None:
    text = """
call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
counted("penstock_reply_release", lambda: None)
call.cancel()
asked = released["penstock_reply_release"]
# As long as Python has not been told of the end, it asks C.
call._ends = type(call._ends)(call._ends._callbacks)
while call.is_active(): pass
print(released["penstock_reply_release"] - asked)
"""
    assert run(COUNTING + text, server) == "1\n"


def test_an_interrupt_when_a_callback_has_failed(server: str) -> None:
    """The interrupt comes while the callback's exception is reported. The handle of the completion is released when
    the `Completion` is collected, and not before."""
    text = """
import gc
counted("penstock_hop_release", lambda: None)
class Kept(penstock.CompletionInterceptor):
    def on_send(self, message, done):
        kept.append(done)
        raise ValueError
def interrupt(*_):
    raise KeyboardInterrupt
kept = []
sys.modules["penstock._interceptors.completion"].report = interrupt
channel.close()
channel = penstock.Channel(target, tls=False, interceptors=[Kept()], runtime=penstock.Runtime(drive=False))
try:
    channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=20)
except KeyboardInterrupt:
    print("interrupted", released["penstock_hop_release"])
kept.clear()
channel.close()
# The exception has the frames of the callback, and those the completion.
gc.collect()
print(released["penstock_hop_release"])
"""
    assert run(COUNTING + text, server) == "interrupted 0\n1\n"


def test_interrupts_at_any_moment(server: str) -> None:
    """A timer interrupts each call at a random moment. Nothing is released twice, and the channel can still be
    used."""
    text = """
import random
class Look(penstock.Interceptor):
    def on_receive(self, hop): hop.message = hop.message
class Complete(penstock.CompletionInterceptor):
    def on_send(self, message, done): done.next()
    def on_status(self, status, done): done.next()
def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
def attempt(call):
    global armed
    armed = True
    try:
        signal.setitimer(signal.ITIMER_REAL, random.choice((5e-5, 2e-4, 1e-3, 4e-3)) * random.random() + 1e-6)
        call()
    finally:
        armed = False
penstock.set_exception_hook(lambda *_: None)
# A KeyboardInterrupt may come out of a finalizer, too.
sys.unraisablehook = lambda *_: None
armed = False
signal.signal(signal.SIGALRM, interrupt)
random.seed(1)
interrupted = 0
for interceptors in ([], [Look()], [Complete()]) * 2:
    channel = penstock.Channel(target, tls=False, interceptors=interceptors)
    requests = [b"1", b"2"]
    for turn in range(120):
        calls = (
            lambda: channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=5),
            lambda: list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x", timeout=5)),
            lambda: channel.stream_unary("/penstock.Echo/ClientStream")(iter(requests), timeout=5),
            lambda: list(channel.stream_stream("/penstock.Echo/Bidi")(requests, timeout=5)),
        )
        try:
            attempt(calls[turn % 4])
        except KeyboardInterrupt:
            interrupted += 1
        except (penstock.RpcError, RuntimeError, IndexError):
            pass
    assert channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=20) == b"x"
    channel.close()
print(interrupted > 100)
"""
    assert run(text, server) == "True\n"
