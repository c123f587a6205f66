"""Side calls in blocking style."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .. import _raw
from .._handles.objects import Objects
from .._handles.verdict import Kind
from .blocking import begin
from .caller import Caller
from .encoding import Codec
from .ends import Callbacks, callbacks
from .keywords import Interceptors
from .line import Line
from .options import CallOptions
from .wait import Waiters


class SideChannel(Caller):
    """Makes side calls, for a thread that may wait. It has the call methods of a channel, so stubs work on it. See
    `Hop.side_channel`.

    A call raises GoneError if the hop's call has ended, and WouldDeadlockError in a callback; use `Hop.unary` there.
    """

    def __init__(self, hop: Any, flags: int, codec: Optional[Codec]) -> None:
        self._encoding = codec
        self._hop = hop
        self._flags = flags
        self._own_waiters = Waiters()
        self._ended = callbacks()

    @property
    def _waiters(self) -> Waiters:
        return self._own_waiters

    @property
    def _callbacks(self) -> Callbacks:
        return self._ended

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

    def _start(self, method: bytes, kind: Kind, options: CallOptions) -> Line:
        start, hop = _raw.penstock_hop_start_side_call, self._hop._anywhere
        return begin(self._own_waiters, kind, start, hop, method, int(kind), self._flags, options.handle)
