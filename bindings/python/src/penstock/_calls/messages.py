"""Messages on their way between the caller and a call: serialized, deserialized, or the caller's own objects."""

from __future__ import annotations

import ctypes
from contextvars import Context, copy_context
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Callable, Optional, Union

from .. import _raw
from .._handles.arguments import Uncompressed, payload
from .._handles.reply import local_error
from .._handles.status import StatusCode
from .codec import Boxed, Codec, boxed

Serializer = Optional[Callable[[Any], bytes]]
Deserializer = Optional[Callable[[bytes], Any]]
# A message: bytes, or with a codec the caller's own object.
Data = Union[bytes, Boxed]
# A message to be sent; an Uncompressed has a message that is not to be compressed.
Sent = Union[Data, Uncompressed]


def serialize(
    serializer: Serializer, request: Any, codec: Optional[Codec] = None, context: Optional[Context] = None
) -> Sent:
    """The message to send for ``request``: its bytes, or, with ``codec``, the request as an object. The serializer
    runs in a copy of ``context``; None: of the present context. Raises RpcError INTERNAL, as grpcio does, if the
    serializer raises."""
    if isinstance(request, Uncompressed):
        return Uncompressed(serialize(serializer, request.message, codec, context))
    if codec is not None:
        return Boxed(request, codec)
    try:
        return payload(request if serializer is None else _copied(context).run(serializer, request))
    except Exception as error:
        raise local_error(StatusCode.INTERNAL, "Exception serializing request!", error) from error


def deserialize(deserializer: Deserializer, data: Data, context: Optional[Context] = None) -> Any:
    """The response for the caller: the object in ``data``, if a codec has made one, else the deserializer's result
    for the bytes. The deserializer runs in a copy of ``context``; None: of the present context. Raises RpcError
    INTERNAL, as grpcio does, if the deserializer raises."""
    if isinstance(data, Boxed):
        return data.thing
    if deserializer is None:
        return data
    try:
        # Each response comes by here: so no further function.
        return (copy_context() if context is None else context.copy()).run(deserializer, data)
    except Exception as error:
        raise local_error(StatusCode.INTERNAL, "Exception deserializing response!", error) from error


def _copied(context: Optional[Context]) -> Context:
    return copy_context() if context is None else context.copy()


def body(reply: int) -> Data:
    """The response message in a ``penstock_reply *``; ``b""`` if there is none."""
    item = boxed(_raw.penstock_message_object(_raw.penstock_reply_response_message(reply))) if Boxed.ever else None
    if item is not None:
        return item
    length = c_size_t()
    data = _raw.penstock_reply_bytes(reply, byref(length))
    return ctypes.string_at(data, length.value) if data else b""


def taken(message: c_void_p) -> Data:
    """The bytes or the object of a ``penstock_message *``, which is released; ``message`` is null afterwards."""
    data: Data
    try:
        item = boxed(_raw.penstock_message_object(message)) if Boxed.ever else None
        if item is None:
            length = c_size_t()
            data = ctypes.string_at(_raw.penstock_message_bytes(message, byref(length)), length.value)
        else:
            data = item
    finally:
        # The handle is set to null first, so that a Ctrl-C during the release does not lead to a second release.
        handle, message.value = message.value, None
        _raw.penstock_message_release(handle)
    return data
