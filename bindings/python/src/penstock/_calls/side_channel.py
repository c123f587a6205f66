"""Side calls in blocking style."""

from __future__ import annotations

from typing import Any, Optional

from .. import _raw
from .._handles.verdict import Kind
from .blocking import begin
from .caller import Caller
from .encoding import Codec
from .ends import Callbacks, callbacks
from .line import Line
from .options import CallOptions
from .side import BaseSideChannel
from .wait import Waiters


class SideChannel(BaseSideChannel, Caller):
    """Makes side calls, for a thread that may wait. It has the call methods of a channel, so stubs work on it. See
    `Hop.side_channel`.

    A call raises GoneError if the hop's call has ended, and WouldDeadlockError in a callback; use `Hop.unary` there.
    """

    def __init__(self, hop: Any, flags: int, codec: Optional[Codec]) -> None:
        super().__init__(hop, flags, codec)
        self._own_waiters = Waiters()
        self._ended = callbacks()

    @property
    def _waiters(self) -> Waiters:
        return self._own_waiters

    @property
    def _callbacks(self) -> Callbacks:
        return self._ended

    def _start(self, method: bytes, kind: Kind, options: CallOptions) -> Line:
        start, hop = _raw.penstock_hop_start_side_call, self._hop._anywhere
        return begin(self._own_waiters, kind, start, hop, method, int(kind), self._flags, options.handle)
