"""Side calls: calls that a hop makes for its own call."""

from __future__ import annotations

import ctypes
import logging
from contextvars import Context
from ctypes import byref, c_void_p
from typing import Any, Callable, Optional, Tuple, Union

from .. import _raw
from .._handles.arguments import Payload, Uncompressed, c_string
from .._handles.context import run
from .._handles.ctrl_c import escape, recover
from .._handles.errors import check, check_with
from .._handles.objects import Objects, forget, registry
from .._handles.reply import CompletedCall, Reply
from .._handles.status import StatusCode
from .._handles.verdict import Kind
from .codec import fill
from .encoding import Codec
from .keywords import Interceptors
from .messages import body
from .method import Connected
from .options import CallOptions

_logger = logging.getLogger("penstock")

OnReply = Callable[[Optional[bytes], CompletedCall], object]
# PENSTOCK_SIDE_CALL_FROM_TOP, PENSTOCK_SIDE_CALL_DETACHED
_FROM_TOP, _DETACHED = 1, 2


def side_flags(from_top: bool, detached: bool) -> int:
    return (_FROM_TOP if from_top else 0) | (_DETACHED if detached else 0)


class BaseSideChannel(Connected):
    """The part that `SideChannel` has in each style of call."""

    def __init__(self, hop: Any, flags: int, codec: Optional[Codec]) -> None:
        self._encoding = codec
        self._hop = hop
        self._flags = flags

    @property
    def _calls_back(self) -> bool:
        return True

    @property
    def _keeps(self) -> Tuple[Objects, ...]:
        keeps: Tuple[Objects, ...] = self._hop._keeps
        return keeps

    @property
    def _sees_objects(self) -> bool:
        # A side call has a codec only if one of its own interceptors is at the object level. Without a codec all its
        # hops see bytes, those of the channel's interceptors at the object level included.
        return False

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        self._hop._register(options, interceptors)


def begin(hop: int, method: bytes, kind: int, flags: int, options: CallOptions, callbacks: Any) -> int:
    """Starts a side call. Returns a ``penstock_call *``, which the caller releases."""
    call, error = c_void_p(), c_void_p()
    begin = _raw.penstock_hop_start_side_call
    result = begin(hop, method, kind, flags, options.handle, callbacks, byref(call), byref(error))
    check_with(result, error)
    assert call.value is not None
    return call.value


class _Waiting:
    """The registry's object for a side call in callback style: the program's function, and the call's context."""

    __slots__ = ("context", "function")

    def __init__(self, function: OnReply, context: Context) -> None:
        self.function = function
        self.context = context


def _on_reply(call: int, reply: int, number: Optional[int]) -> None:
    context = None
    try:
        waiting: Any = registry.get(number)
        context = waiting.context
        ended = Reply(_raw.penstock_reply_retain(reply))
        response = body(reply) if ended.code is StatusCode.OK else None
        run(context, waiting.function, response, CompletedCall(ended))
    except BaseException as error:
        if not isinstance(error, Exception):
            escape(error)
        run(context, _logger.exception, "the on_reply of a side call raised")


recover(_on_reply, lambda given: _on_reply(**given))


# C may call this trampoline as long as the process lives, so the module keeps it.
_reply_trampoline = _raw.penstock_call_event(_on_reply)


def begin_unary(
    hop: int,
    method: str,
    request: Union[Payload, Uncompressed],
    on_reply: OnReply,
    flags: int,
    options: CallOptions,
    context: Context,
) -> None:
    """Starts a unary side call in callback style. C calls ``on_reply`` when the side call has ended."""
    name = c_string(method, "a method")
    message = c_void_p()
    try:
        fill(message, request)
        _send(_begin_with(hop, name, _Waiting(on_reply, context), flags, options), message)
    finally:
        _raw.penstock_message_release(message)


def _begin_with(hop: int, method: bytes, waiting: _Waiting, flags: int, options: CallOptions) -> int:
    table = _raw.penstock_call_callbacks(
        struct_size=ctypes.sizeof(_raw.penstock_call_callbacks),
        user_data=registry.add(waiting),
        finalizer=forget,
        on_reply=_reply_trampoline,
    )
    return begin(hop, method, Kind.UNARY, flags, options, byref(table))


def _send(call: int, message: c_void_p) -> None:
    """Sends the request, half-closes, and releases the call. Cancels the call if sending or half-closing fails."""
    try:
        check(_raw.penstock_call_try_send_message(call, message), "the request can't be sent")
        check(_raw.penstock_call_half_close(call))
    except BaseException:
        _raw.penstock_call_cancel(call, b"the request can't be sent")
        raise
    finally:
        _raw.penstock_call_release(call)
