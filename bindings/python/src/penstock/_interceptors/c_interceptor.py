"""Interceptors from other shared libraries."""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_void_p
from typing import Any, Optional, Union

from .. import _raw
from .._handles.errors import AlreadyError, InvalidArgumentError, library_error
from .._handles.fork import process
from .._handles.verdict import Level
from .._raw import constants as c
from .interceptor import Native

# The sizes of the smallest and of the largest table that the library reads (docs/abi.md).
_FIRST_SIZE = 152
_LARGEST = 1024


class CInterceptor(Native):
    """The ``penstock_interceptor`` of another shared library, whose callbacks are C functions. Add it like any other
    interceptor:

        library = ctypes.CDLL("libcounting.so")
        library.counting_interceptor.restype = ctypes.c_void_p
        channel.add_interceptor(penstock.CInterceptor(library.counting_interceptor()))

    ``table``: the address of the table (int), or a ctypes object: a pointer, a structure or a `ctypes.c_void_p`. The
    table is copied here; its strings are copied, and its executors retained, when it is registered. ``user_data``:
    the user data for its callbacks, instead of the table's.

    The table's name, methods, kinds, limits, level and executors hold unless `Channel.add_interceptor` is given
    others. Each registration passes the user data to the library, which finally calls the table's finalizer with it,
    even if the registration fails. So a table with a finalizer can be registered only once (after that
    AlreadyError); a table without one, any number of times.

    InvalidArgumentError: the table is NULL, or its struct_size is too small. LibraryError PENSTOCK_E_UNSUPPORTED: the
    table uses fields that this library does not know.
    """

    def __init__(self, table: Any, user_data: Union[int, c_void_p, None] = None) -> None:
        self._table = _copied(_address(table))
        # The table is kept, because its callbacks may be Python functions that only the table keeps.
        self._given = table
        if user_data is not None:
            self._table.user_data = user_data
        self._process: Optional[int] = None
        self.name = (self._table.name or b"").decode("utf-8", "replace")
        self.level = Level(self._table.level)
        self.per_attempt = bool(self._table.per_attempt)

    def _fill(self, table: _raw.penstock_interceptor) -> None:
        if self._table.finalizer:
            # A forked child in which the parent's handles do not work has its own copy of the user data and no
            # registration, so it may register the table too.
            if self._process == process():
                raise AlreadyError(c.E_ALREADY, "the table has a finalizer, so it can be registered only once")
            self._process = process()
        ctypes.pointer(table)[0] = self._table


def _address(table: Any) -> int:
    if isinstance(table, (str, bytes)):
        raise TypeError("a table must be an address, a ctypes pointer or a structure, not a text")
    if isinstance(table, ctypes.Structure):
        return ctypes.addressof(table)
    try:
        address = ctypes.cast(table, c_void_p).value
    except ctypes.ArgumentError:
        raise TypeError(
            f"a table must be an address, a ctypes pointer or a structure, not {type(table).__name__}"
        ) from None
    if not address:
        raise InvalidArgumentError(c.E_INVALID_ARGUMENT, "the table is NULL")
    return address


def _copied(address: int) -> _raw.penstock_interceptor:
    known = ctypes.sizeof(_raw.penstock_interceptor)
    size = c_size_t.from_address(address).value
    if size < _FIRST_SIZE:
        raise InvalidArgumentError(
            c.E_INVALID_ARGUMENT, f"the table's struct_size is {size}: make it with PENSTOCK_INTERCEPTOR_INIT"
        )
    # A table that is larger than that of any version is not read: the memory behind it may not exist.
    if size > _LARGEST or any(ctypes.string_at(address + known, max(0, size - known))):
        raise library_error(c.E_UNSUPPORTED, "the table has fields that this library does not know")
    table = _raw.penstock_interceptor.from_buffer_copy(
        ctypes.string_at(address, min(size, known)).ljust(known, b"\0")
    )
    table.struct_size = known
    return table
