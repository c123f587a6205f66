"""The part that running calls of every style have in common: nothing here waits."""

from __future__ import annotations

import functools
import json
import time
from contextvars import Context
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, Optional

from .. import _raw
from .._handles.arguments import c_string
from .._handles.context import CallContext
from .._handles.errors import check
from .._handles.metadata import owned_text
from .._handles.objects import Uncopied, own
from .._handles.reply import Outcome, Reply, RpcError, RunningValues, reply_error
from .._handles.status import StatusCode
from .._raw import constants as c
from .ends import Ends
from .keywords import end_of
from .line import Line
from .messages import Deserializer
from .requests import Requests
from .steps import abandon


class RunningCall(Uncopied, Outcome):
    """A running call, which is cancelled when the object is dropped."""

    _reply: Optional[Reply] = None

    def __init__(
        self,
        line: Line,
        requests: Optional[Requests],
        deserializer: Deserializer,
        timeout: Optional[float],
        keeper: object,
        context: Context,
        lent: Optional[CallContext],
        ends: Ends,
    ) -> None:
        # The context in which the deserializer runs; None once all responses have been read.
        self._context: Optional[Context] = context
        self._lent = lent
        self._line = line
        self._call: int = own(self, _abandon_dropped, line.handle)
        line.handle = self._call
        self._requests = requests
        self._deserializer = deserializer
        self._until = end_of(timeout)
        self._keeper = keeper
        self._is_read = False
        self._ends = ends
        self._failure: Optional[RpcError] = None

    def __del__(self) -> None:
        # The finalizer of `_call`, which ends the call, runs after this.
        if self._lent is not None:
            self._lent.keep()

    def _forget(self) -> Optional[Context]:
        """Called when all responses have been taken, and `_reply` is set: forgets what only a running call needs.
        Returns the context for a response that is still to be deserialized."""
        self._error()
        lent, self._lent = self._lent, None
        if lent is not None:
            # The registry has it until the last callback has returned, and no longer.
            lent.keep()
        context, self._context, self._requests, self._is_read = self._context, None, None, True
        return context

    def _error(self) -> Optional[RpcError]:
        """The exception that tells how the call ended; None if it ended with OK. Must be called only once `_reply` is
        set."""
        # Another thread that reads the last response takes `_requests` away.
        requests = self._requests
        if self._failure is None and requests is not None:
            self._failure = requests.failure
        if self._failure is not None:
            return self._failure
        assert self._reply is not None
        return None if self._code is StatusCode.OK else reply_error(self._reply)

    # ---- grpc.Call ----

    def cancel(self, reason: str = "Locally cancelled by application!") -> bool:
        """Ends the call with CANCELLED and ``reason``; unread messages are discarded. Any thread may call it, while
        others wait for the call. False: the call had ended before."""
        text = c_string(reason, "a reason")
        active = self.is_active()
        self._line.cancel(text)
        return active

    def is_active(self) -> bool:
        """Whether the call has not ended yet. Does not wait."""
        if self._reply is not None or self._ends.is_over:
            return False
        reply = c_void_p()
        result = _raw.penstock_call_reply(self._call, byref(reply))
        if result == c.E_WOULD_BLOCK:
            return True
        check(result)
        _raw.penstock_reply_release(reply)
        return False

    def done(self) -> bool:
        """Whether the call has ended. Does not wait."""
        return not self.is_active()

    def running(self) -> bool:
        """Whether the call has not ended yet. Does not wait."""
        return self.is_active()

    def add_callback(self, callback: Callable[[], Any]) -> bool:
        """Calls ``callback`` when the call has ended, with any status, on a thread on which it may wait: those of
        a channel run one after the other. Returns False if the call has ended: then ``callback`` is never called."""
        if not self.is_active():
            return False
        self._ends.add(callback)
        return True

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Calls ``fn`` with this object when the call has ended, as `add_callback` does; at once, on this thread, if
        it has ended already. Until then the call is not cancelled when its object is dropped."""
        if not self.add_callback(functools.partial(fn, self)):
            fn(self)

    def time_remaining(self) -> Optional[float]:
        """The seconds until the deadline, at least 0; None without a deadline."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    @property
    def call_id(self) -> int:
        """The number of the call, unique within the process; `Hop.call_id` gives the same number."""
        return int(_raw.penstock_call_id(self._call))

    @property
    def values(self) -> RunningValues:
        """The values that the call's hops and its caller have shared so far; a value that is set here is shared with
        the hops. Does not wait."""
        return RunningValues(self._call, self)

    @property
    def trace(self) -> Dict[str, Any]:
        """The events at each hop (with the option ``trace`` of the channel or the call), and ``holder``, which says
        what the call waits for now. Does not wait for the end."""
        trace: Dict[str, Any] = json.loads(owned_text(_raw.penstock_call_trace_json, self._call))
        return trace

    def __repr__(self) -> str:
        return f"<penstock.Call {self.call_id}, {'running' if self._reply is None else self._code.name}>"


def _abandon_dropped(call: int) -> None:
    abandon(call, b"the call object was dropped")
