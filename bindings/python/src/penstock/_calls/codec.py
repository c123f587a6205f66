"""The codec of a call in which an interceptor sees messages as objects. It has the serializers of the method; the
library calls them when a message passes between the two levels."""

from __future__ import annotations

import copy
import ctypes
import functools
import logging
import weakref
from contextvars import Context
from ctypes import byref, c_size_t, c_void_p, sizeof, string_at
from typing import Any, Callable, NamedTuple, Optional

from .. import _raw
from .._handles.arguments import Uncompressed, payload, sized
from .._handles.context import run
from .._handles.ctrl_c import escape, recover
from .._handles.errors import check, check_with
from .._handles.objects import forget, own, registry
from .._raw import constants as c

_logger = logging.getLogger("penstock")


class Boxed:
    """A message that is an object of the caller, on its way through a call; C knows it by its number in the
    registry. A message that the caller sends has the codec of its call; a message that a codec or a hop has made
    has no codec."""

    __slots__ = ("_codec", "thing")
    # Whether any object of this class has been made in this process. If not, other code need not look for one.
    ever = False

    def __init__(self, thing: Any, codec: Optional[Codec] = None) -> None:
        self.thing = thing
        self._codec = codec
        Boxed.ever = True

    def fill(self, message: c_void_p, codec: Optional[int] = None, flags: int = 0) -> None:
        """Makes a ``penstock_message *`` of the message, which the caller releases. ``codec``: a ``penstock_codec
        *`` to use instead of the message's own. ``flags``: see message.h."""
        if codec is None:
            assert self._codec is not None
            codec = self._codec.handle
        number = registry.add(self)
        try:
            check(_raw.penstock_message_new_object(codec, number, flags, byref(message)))
        finally:
            if message.value is None:
                registry.remove(number)


def fill(message: c_void_p, data: Any, codec: Optional[int] = None) -> int:
    """Makes a ``penstock_message *`` from ``data``, which the caller releases, also if this function raises. With
    ``codec``, a ``penstock_codec *``, ``data`` is an object for it; otherwise it is a `Boxed` or bytes. Returns the
    size in bytes; 0 for an object."""
    content = data.message if isinstance(data, Uncompressed) else data
    flags = c.MESSAGE_NO_COMPRESS if isinstance(data, Uncompressed) else 0
    length = 0
    if codec is not None:
        Boxed(content).fill(message, codec, flags)
    elif isinstance(content, Boxed):
        content.fill(message, flags=flags)
    else:
        content, length = sized(content)
        check(_raw.penstock_message_new(content, length, flags, byref(message)))
    return length


class _Serializers(NamedTuple):
    serializer: Optional[Callable[[Any], bytes]]
    deserializer: Optional[Callable[[bytes], Any]]
    # The call's context, which the call owns: a response that is kept keeps its codec, but not the context.
    context: weakref.ref[Context]

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs ``function`` in a copy of the call's context."""
        return run(self.context(), function, *arguments)


class Codec:
    """Owns a ``penstock_codec *`` that is made from the serializers of a method, for one call, in whose ``context``
    they run. ``name``: the name of their encoding; None: the default name, "proto"."""

    def __init__(
        self,
        serializer: Optional[Callable[[Any], bytes]],
        deserializer: Optional[Callable[[bytes], Any]],
        context: Context,
        name: Optional[str] = None,
    ) -> None:
        functions = _raw.penstock_codec_functions(sizeof(_raw.penstock_codec_functions))
        functions.user_data = registry.add(_Serializers(serializer, deserializer, weakref.ref(context)))
        functions.finalizer = forget
        functions.encode = _encode_trampoline
        functions.decode = _decode_trampoline
        functions.free = _free_trampoline
        functions.copy = _copy_trampoline
        functions.name = name.encode() if name else None
        handle, error = c_void_p(), c_void_p()
        check_with(_raw.penstock_codec_new(byref(functions), byref(handle), byref(error)), error)
        assert handle.value is not None
        self.handle: int = own(self, _raw.penstock_codec_release, handle.value)


def boxed(number: Optional[int]) -> Optional[Boxed]:
    """The `Boxed` with this number in the registry; None: no object has this number. The library passes the number as
    a ``void *``."""
    found = registry.get(number)
    return found if isinstance(found, Boxed) else None


def content(message: int) -> Any:
    """The content of a ``penstock_message *``: its bytes, or at the object level the caller's own object."""
    if Boxed.ever:
        item = boxed(_raw.penstock_message_object(message))
        if item is not None:
            return item.thing
    length = c_size_t()
    return string_at(_raw.penstock_message_bytes(message, byref(length)), length.value)


# ---- Functions that C calls. No exception may pass from them to C. ----


def _tell(number: int, error: BaseException, text: str, *words: str) -> None:
    """Logs an exception of a serializer or deserializer, which ends the call. An exception that is not an Exception
    (for example KeyboardInterrupt) is also raised in the Python code that waits on this thread."""
    try:
        if not isinstance(error, Exception):
            escape(error)
        serializers: Any = registry.get(number)
        serializers.run(functools.partial(_logger.error, text, *words, exc_info=error))
    except BaseException as another:
        # If this function raised, C would take the failure for success.
        escape(another)


def _encode(number: int, method: bytes, item: int, buffer: int) -> int:
    failed = 1
    try:
        serializers: Any = registry.get(number)
        given: Any = registry.get(item)
        serializer = serializers.serializer
        data = payload(given.thing if serializer is None else serializers.run(serializer, given.thing))
        return int(_raw.penstock_buffer_append(buffer, data, len(data)))
    except BaseException as error:
        _tell(number, error, "a request of %s can't be serialized", method.decode("utf-8", "replace"))
        return failed


def _decode(number: int, method: bytes, data: Optional[int], length: int, item: Any) -> int:
    failed = 1
    try:
        serializers: Any = registry.get(number)
        text = ctypes.string_at(data, length) if data else b""
        deserializer = serializers.deserializer
        item[0] = registry.add(Boxed(text if deserializer is None else serializers.run(deserializer, text)))
        return 0
    except BaseException as error:
        _tell(number, error, "a response of %s can't be deserialized", method.decode("utf-8", "replace"))
        return failed


def _free(_: int, item: Optional[int]) -> None:
    registry.remove(item)


def _copy(number: int, item: int) -> Optional[int]:
    failed = None
    try:
        serializers: Any = registry.get(number)
        given: Any = registry.get(item)
        return registry.add(Boxed(serializers.run(copy.deepcopy, given.thing)))
    except BaseException as error:
        _tell(number, error, "a request can't be copied")
        return failed


# If `_encode` or `_decode` raises, C takes that for success. So the recovery runs the function again.
recover(_encode, lambda given: _encode(**given))
recover(_decode, lambda given: _decode(**given))
recover(_copy, lambda given: None)
recover(_free, lambda given: _free(**given), lambda given: registry.remove(given["item"]))
_encode_trampoline = _raw.penstock_codec_encode(_encode)
_decode_trampoline = _raw.penstock_codec_decode(_decode)
_free_trampoline = _raw.penstock_codec_free(_free)
_copy_trampoline = _raw.penstock_codec_copy(_copy)
