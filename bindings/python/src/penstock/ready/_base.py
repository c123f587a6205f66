"""The base of the ready-made interceptors."""

from __future__ import annotations

import ctypes
import json
import weakref
from ctypes import byref, c_void_p
from typing import Any, Callable, Optional

from .. import _raw
from .._handles.arguments import c_string, milliseconds
from .._handles.errors import check, check_with
from .._handles.fork import process
from .._handles.objects import Keeper, Objects
from .._interceptors.interceptor import Native


def _drop(table: Any, made_by: int) -> None:
    if process() == made_by:
        table.finalizer(table.user_data)
    # The interceptor may live on, see `own`: it can't be registered any more.
    ctypes.memset(byref(table), 0, ctypes.sizeof(table))


class Ready(Keeper, Native):
    """Owns a table that is never registered itself; each registration gets a table that shares its state."""

    may_have_function = False
    # At the object level, too, it can do without a codec.
    needs_codec = False

    def __init__(self, **options: object) -> None:
        self._options = {key: value for key, value in options.items() if value is not None}
        self._kept: Objects = {}
        self._table: Any = None
        self._process = 0
        self._filled()

    def _filled(self) -> Any:
        """The table. A forked child in which the parent's handles do not work makes a new table, because the parent's
        threads may have been changing its state during the fork."""
        if self._process != process():
            table = _raw.penstock_interceptor(struct_size=ctypes.sizeof(_raw.penstock_interceptor))
            self._make(c_string(json.dumps(self._options), "options"), table)
            self._table, self._process = table, process()
            weakref.finalize(self, _drop, table, self._process).atexit = False
        return self._table

    def _make(self, options: bytes, table: Any) -> None:
        raise NotImplementedError

    def _made_by(self, function: Callable[..., int], table: Any, *arguments: Any) -> None:
        error = c_void_p()
        check_with(function(*arguments, byref(table), byref(error)), error)

    def _fill(self, table: _raw.penstock_interceptor) -> None:
        check(_raw.penstock_ready_share(byref(self._filled()), byref(table)))


def ms(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else milliseconds(seconds)


def text_value(ended: Any, key: str) -> Optional[str]:
    """The text that the library has set as the value ``key`` of a call, an error or a hop."""
    address = ended.get_value(key) if hasattr(ended, "get_value") else ended.values.get(key)
    return ctypes.string_at(address).decode() if isinstance(address, int) else None
