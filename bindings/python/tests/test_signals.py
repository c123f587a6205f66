"""Signals at the worst moment: one that is pending when a callback begins, which then does not run at all."""

from __future__ import annotations

import pytest

from helpers import run

# An interceptor that C calls without Python: it raises SIGINT, and what Python runs next is the callback below it, or
# rather, before its first line, the handler.
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
    def on_request(self, message, done): done.next()
channel.add_interceptor(Look(), name="look")
raise_in("{event}")
interrupted_call()
"""
    assert run(RAISING + text, server) == "interrupted\n"


@pytest.mark.parametrize("event", ["on_send", "on_receive"])
def test_a_codec_that_has_not_begun_does_its_work_after_all(server: str, event: str) -> None:
    """Below the object level the message is made of an object, and above it an object of the message."""
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
