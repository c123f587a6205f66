"""The steps of a call that wait: the thread that waits drives the runtime's loop."""

from __future__ import annotations

import logging
import threading
from ctypes import byref, c_void_p
from typing import Callable, Optional

from .. import _raw
from .._handles.errors import check, check_with
from .._handles.objects import own
from .._handles.reply import RpcError
from .codec import fill
from .messages import Sent
from .options import CallOptions
from .requests import Requests
from .steps import check_size, sent
from .wait import Waiters

_logger = logging.getLogger("penstock")


def send(waiters: Waiters, call: int, data: Sent) -> bool:
    """Sends a message, and waits until there is room for it. Returns False if the call has ended. Raises RpcError if
    the message is over the limit."""
    if isinstance(data, bytes):
        return sent(waiters.wait(_raw.penstock_call_send, call, data, len(data)), len(data))
    message = c_void_p()
    try:
        length = fill(message, data)
        return sent(waiters.wait(_raw.penstock_call_send_message, call, message), length)
    finally:
        _raw.penstock_message_release(message)


def unary(waiters: Waiters, channel: int, method: bytes, options: CallOptions, data: bytes) -> int:
    """Makes a whole unary call in a single C function, and returns a ``penstock_reply *``, which the caller releases.

    Each C function gives up the GIL and takes it back. If many threads make calls, a thread has to wait for the GIL
    then, which takes two context switches."""
    reply, error = c_void_p(), c_void_p()
    try:
        result = waiters.once(
            _raw.penstock_channel_unary, channel, method, data, len(data), options.handle, byref(reply), byref(error)
        )
        check_size(result, len(data))
        check_with(result, error)
    except BaseException:
        _raw.penstock_reply_release(reply)
        _raw.penstock_error_release(error)
        raise
    assert reply.value is not None
    return reply.value


def finish(waiters: Waiters, call: int) -> int:
    """Waits for the call's end, and returns a ``penstock_reply *``, which the caller releases. Unread responses are
    discarded."""
    return ended(waiters, _raw.penstock_call_wait, call)


def ended(waiters: Waiters, wait: Callable[..., int], call: int) -> int:
    """Waits with the C function ``wait`` for the call's end, and returns a ``penstock_reply *``, which the caller
    releases."""
    reply = c_void_p()
    try:
        check(waiters.wait(wait, call, byref(reply)), "the call can't be waited for")
    except BaseException:
        _raw.penstock_reply_release(reply)
        raise
    assert reply.value is not None
    return reply.value


# ---- Requests ----


class _KeptCall:
    """A reference to a call, for the thread that sends its requests. The reference is released when this object is
    collected: so exactly once, even if a Ctrl-C makes it uncertain whether the thread has started."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, call: int) -> None:
        self.handle: int = own(self, _raw.penstock_call_release, _raw.penstock_call_retain(call))


def _send_all(waiters: Waiters, call: int, requests: Requests, first: Optional[Sent]) -> None:
    """Sends ``first`` and the remaining requests, waiting for room, and half-closes. If a request can't be read,
    serialized or sent, cancels the call instead."""
    try:
        if first is not None and not send(waiters, call, first):
            return
        if not all(send(waiters, call, data) for data in requests):
            return
    except RpcError as error:
        requests.failure = error
    requests.end(call)


def _send_on_thread(waiters: Waiters, call: int, requests: Requests, first: Optional[Sent]) -> None:
    """Runs `_send_all` on a daemon thread."""
    kept = _KeptCall(call)

    def run() -> None:
        try:
            _send_all(waiters, kept.handle, requests, first)
        except BaseException as error:
            # For example, the iterator has raised SystemExit, which `_send_all` does not handle. Only this code
            # ends the call then.
            requests.log(_logger.error, "the requests can't be sent", error)
            requests.fail(error)
            requests.end(kept.handle)

    threading.Thread(target=run, name="penstock requests", daemon=True).start()


def begin_sending(waiters: Waiters, call: int, requests: Requests) -> None:
    """Sends the requests of a list or tuple as long as there is room, and starts a thread for those that remain. All
    other iterables are read on that thread."""
    done, first = requests.send_ready(call) if requests.is_ready else (False, None)
    if not done:
        # The call may have ended already: then the promise matters no more.
        _raw.penstock_call_promise_half_close(call)
        _send_on_thread(waiters, call, requests, first)
