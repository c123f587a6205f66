"""Compressors: compressions of messages that the program makes itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import copy_context
from ctypes import byref, c_void_p, sizeof, string_at
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

from .. import _raw
from .._handles.arguments import c_string, payload
from .._handles.context import Scoped, run
from .._handles.ctrl_c import escape, recover
from .._handles.errors import check, check_with
from .._handles.objects import Objects, forget, registry
from .._handles.reports import report, tell


class Compressor(ABC):
    """The base of a compression of messages beside ``"gzip"``, ``"deflate"`` and ``"zstd"``, for
    ``Channel(compressors=[...])``::

        class Bz2(penstock.Compressor):
            name = "x-bz2"

            def compress(self, data):
                return bz2.compress(data)

            def decompress(self, data, limit):
                stream = bz2.BZ2Decompressor()
                message = stream.decompress(data, limit + 1)
                if len(message) <= limit and not stream.eof:
                    raise ValueError("the data is cut off")
                return message

    The methods run on the thread that drives the channel's runtime, in a copy of the context in which the channel was
    made; no other call of the runtime goes on meanwhile, so they must not wait. An exception ends the call with
    INTERNAL, and its text is part of the status."""

    #: The name in header fields, and of the option and the keyword ``compression``: lower-case letters, digits,
    #: ``-``, ``_`` and ``.``. A class or an object sets it.
    name: str

    @abstractmethod
    def compress(self, data: bytes) -> Union[bytes, bytearray, memoryview]:
        """Compresses a whole message of at least one byte."""

    @abstractmethod
    def decompress(self, data: bytes, limit: int) -> Union[bytes, bytearray, memoryview]:
        """Decompresses a whole message of at least one byte, from a server. ``limit``: the most bytes that the result
        may have. If it would have more, so that little data takes much memory and time, this method stops and returns
        the first ``limit + 1`` bytes: the call ends with RESOURCE_EXHAUSTED then."""


class _Functions(Scoped):
    def __init__(self, compressor: Compressor, kept: Objects) -> None:
        super().__init__(copy_context(), kept)
        self.compressor = compressor


class Compressors:
    """The ``penstock_compressor *`` of each of ``compressors``, which ``kept`` keeps, until `release`. They are made
    before the channel, so that its options may name them."""

    def __init__(self, compressors: Iterable[Compressor], kept: Objects) -> None:
        self._handles: List[int] = []
        try:
            for one in compressors:
                self._handles.append(_new(one, kept))
        except BaseException:
            self.release()
            raise

    def __len__(self) -> int:
        return len(self._handles)

    def join(self, channel: int) -> None:
        for handle in self._handles:
            check(_raw.penstock_channel_add_compressor(channel, handle))

    def release(self) -> None:
        while self._handles:
            _raw.penstock_compressor_release(self._handles.pop())


def _new(compressor: Compressor, kept: Objects) -> int:
    if not isinstance(compressor, Compressor):
        raise TypeError(f"a Compressor, not {compressor!r}")
    functions = _raw.penstock_compressor_functions(sizeof(_raw.penstock_compressor_functions))
    functions.name = c_string(compressor.name, "the name of a compressor")
    functions.user_data = registry.add(_Functions(compressor, kept))
    functions.finalizer = forget
    functions.compress = _compress_trampoline
    functions.decompress = _decompress_trampoline
    handle, error = c_void_p(), c_void_p()
    check_with(_raw.penstock_compressor_new(byref(functions), byref(handle), byref(error)), error)
    assert handle.value is not None
    return handle.value


# ---- Functions that C calls. No exception may pass from them to C. ----


def _fail(message: int, text: str) -> None:
    words = text.replace("\0", "").encode("utf-8", "replace").decode()
    _raw.penstock_compression_fail(message, c_string(words, "a message"))


def _work(number: int, message: int, name: str, work: Callable[[Compressor], Any]) -> int:
    """Appends the result of ``work`` to the message."""
    try:
        functions = registry.get(number)
        if not isinstance(functions, _Functions):
            return 1
        try:
            data = payload(run(functions.context, work, functions.compressor))
            return int(_raw.penstock_compression_append(message, data, len(data)))
        except BaseException as error:
            _fail(message, f"it raised {type(error).__name__}")
            _fail(message, f"it raised {type(error).__name__}: {error}")
            run(functions.context, report, "compressor", name, error)
    except BaseException as error:
        _fail(message, f"it raised {type(error).__name__}")
        tell("compressor", name, error)
    return 1


def _given(data: Optional[int], length: int) -> bytes:
    return string_at(data, length) if data else b""


def _compress(number: int, data: Optional[int], length: int, message: int) -> int:
    failed = 1
    try:
        return _work(number, message, "compress", lambda one: one.compress(_given(data, length)))
    except BaseException as error:
        escape(error)
        return failed


def _decompress(number: int, data: Optional[int], length: int, message: int) -> int:
    failed = 1
    try:
        room = _raw.penstock_compression_room
        return _work(number, message, "decompress", lambda one: one.decompress(_given(data, length), room(message)))
    except BaseException as error:
        escape(error)
        return failed


def _interrupted(given: Dict[str, Any]) -> None:
    _raw.penstock_compression_fail(given["message"], b"it was interrupted")


# If one of them raises, C takes that for success. So the recovery lets the message fail.
recover(_compress, _interrupted, _interrupted)
recover(_decompress, _interrupted, _interrupted)
_compress_trampoline = _raw.penstock_compressor_function(_compress)
_decompress_trampoline = _raw.penstock_compressor_function(_decompress)
