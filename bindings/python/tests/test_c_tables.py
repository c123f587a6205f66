"""The tables of C for interceptors: what a channel knows of each kind, and the sizes and fields of a table from
elsewhere."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, List, Tuple

import pytest

import penstock
from helpers import Only, unary
from penstock import Channel, Hop, Kind, Level, _raw, ready


class Synchronous(penstock.SyncInterceptor):
    def intercept(self, call: Any) -> None:
        call.next()


class Objects(penstock.Interceptor):
    level = Level.OBJECT

    def on_start(self, hop: Hop) -> None: ...


class Both(Objects):
    level = Level.BOTH


def of_c(**fields: Any) -> penstock.CInterceptor:
    table = _raw.penstock_interceptor(struct_size=ctypes.sizeof(_raw.penstock_interceptor), name=b"of C")
    for name, value in fields.items():
        setattr(table, name, value)
    return penstock.CInterceptor(table)


# The interceptor, and whether it may have a function, callbacks of Python, and objects for messages.
KNOWN: List[Tuple[Any, Tuple[bool, bool, bool]]] = [
    (lambda: Only(on_start=lambda hop: None), (False, True, False)),
    (Objects, (False, True, True)),
    (Both, (False, True, True)),
    (Synchronous, (True, True, False)),
    (penstock.CompletionInterceptor, (False, True, False)),
    (ready.TraceContext, (False, False, False)),
    (ready.Telemetry, (False, False, False)),
    (of_c, (True, False, False)),
    (lambda: of_c(level=Level.OBJECT), (True, False, True)),
]


@pytest.mark.parametrize(("make", "known"), KNOWN)
def test_what_a_channel_knows_of_its_interceptors(channel: Channel, make: Any, known: Any) -> None:
    assert (channel._has_functions, channel._has_callbacks, channel._has_object_level) == (False, False, False)
    channel.add_interceptor(make())
    assert (channel._has_functions, channel._has_callbacks, channel._has_object_level) == known
    assert unary(channel) == b"x"


# ---- Tables of C ----


def sized(size: int, rest: bytes = b"") -> Any:
    """The address of a table of ``size`` bytes, and what keeps it."""
    known = ctypes.sizeof(_raw.penstock_interceptor)
    memory = ctypes.create_string_buffer(2048)
    ctypes.memmove(memory, size.to_bytes(8, sys.byteorder), 8)
    ctypes.memmove(ctypes.addressof(memory) + known, rest, len(rest))
    return ctypes.addressof(memory), memory


def test_sizes_of_a_table() -> None:
    known = ctypes.sizeof(_raw.penstock_interceptor)
    for size in (152, 153, known - 1, known, known + 1, 1024):
        address, _memory = sized(size)
        assert penstock.CInterceptor(address)._table.struct_size == known
    for size in (0, 8, 151):
        address, _memory = sized(size)
        with pytest.raises(penstock.InvalidArgumentError) as caught:
            penstock.CInterceptor(address)
        assert caught.value.message == f"the table's struct_size is {size}: make it with PENSTOCK_INTERCEPTOR_INIT"
    for size, rest in ((1025, b""), (known + 1, b"x"), (known + 8, bytes(7) + b"x")):
        address, _memory = sized(size, rest)
        with pytest.raises(penstock.LibraryError) as unknown:
            penstock.CInterceptor(address)
        assert unknown.value.name == "PENSTOCK_E_UNSUPPORTED"
        assert unknown.value.message == "the table has fields that this library does not know"
    # What lies behind the table is not its own.
    address, _memory = sized(known, b"x")
    penstock.CInterceptor(address)


@pytest.mark.parametrize("wrong", ["table", b"table"])
def test_a_text_is_no_table(wrong: Any) -> None:
    said = r"^a table must be an address, a ctypes pointer or a structure, not a text$"
    with pytest.raises(TypeError, match=said):
        penstock.CInterceptor(wrong)


def test_what_is_no_table() -> None:
    with pytest.raises(TypeError, match=r"^a table must be an address, a ctypes pointer or a structure, not float$"):
        penstock.CInterceptor(1.5)
    for null in (0, None, ctypes.c_void_p()):
        with pytest.raises(penstock.InvalidArgumentError) as caught:
            penstock.CInterceptor(null)
        assert caught.value.message == "the table is NULL"


def test_attributes_of_a_table(channel: Channel) -> None:
    made = of_c(level=Level.BOTH, per_attempt=1, user_data=5, hold_bytes=7)
    assert (made.name, made.level, made.per_attempt, made._table.user_data) == ("of C", Level.BOTH, True, 5)
    table = _raw.penstock_interceptor(struct_size=ctypes.sizeof(_raw.penstock_interceptor))
    for data in (6, ctypes.c_void_p(6)):
        other = penstock.CInterceptor(table, data)
        assert (other.name, other._table.user_data, other.per_attempt) == ("", 6, False)
    # A table without a finalizer may be registered any number of times.
    channel.add_interceptor(made)
    channel.add_interceptor(made, name="again", methods="/a/b", kinds=Kind.BIDI)
    assert sorted(one["name"] for one in channel.interceptors) == ["again", "of C"]
