"""The steps of one call that never wait, and the meaning of their results. Any style of call takes them."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, Callable, Tuple

from .. import _raw
from .._handles.errors import check
from .._handles.reply import local_error
from .._handles.status import StatusCode
from .._raw import constants as c
from .codec import fill
from .messages import Sent


def tried(call: int, data: Sent) -> Tuple[int, int]:
    """Sends a message if there is room, without waiting. Returns the ``penstock_result`` and the size of the message
    in bytes."""
    if isinstance(data, bytes):
        return int(_raw.penstock_call_try_send(call, data, len(data))), len(data)
    message = c_void_p()
    try:
        length = fill(message, data)
        return int(_raw.penstock_call_try_send_message(call, message)), length
    finally:
        _raw.penstock_message_release(message)


def sent(result: int, length: int) -> bool:
    """The meaning of a result of sending a message of ``length`` bytes: False, the call has ended. Raises RpcError if
    the message is over the limit."""
    if result == c.E_GONE:
        return False
    check_size(result, length)
    check(result, "the message can't be sent")
    return True


def send_only(call: int, data: Sent) -> bool:
    """Sends the only request of a call, for which there is always room. False: the call has ended. RpcError: the
    message is over the limit."""
    return sent(*tried(call, data))


def check_size(result: int, length: int) -> None:
    if result == c.E_TOO_LARGE:
        text = f"the message to be sent is larger than the limit ({length} bytes)"
        raise local_error(StatusCode.RESOURCE_EXHAUSTED, text)


def replied(function: Callable[..., int], *arguments: Any) -> int:
    """Asks for the end of a call by ``function(*arguments, &reply)``. Returns a ``penstock_reply *``, which the
    caller releases."""
    reply = c_void_p()
    try:
        check(function(*arguments, byref(reply)), "the call can't be waited for")
    except BaseException:
        _raw.penstock_reply_release(reply)
        raise
    assert reply.value is not None
    return reply.value


def half_close(call: int) -> None:
    """Half-closes the call. Does nothing if the call has ended or is half-closed already."""
    result = _raw.penstock_call_half_close(call)
    if result not in (c.E_GONE, c.E_ALREADY):
        check(result)


def abandon(call: int, reason: bytes) -> None:
    """Cancels a call that no thread waits for any more, and releases it."""
    _raw.penstock_call_cancel(call, reason)
    _raw.penstock_call_release(call)
