"""Side calls on an event loop."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .. import _raw
from .._calls.encoding import Codec
from .._calls.keywords import Interceptors
from .._calls.options import CallOptions
from .._handles.objects import Objects
from .caller import Caller
from .driver import Group
from .running import Running


class SideChannel(Caller):
    """Makes side calls for an `async def` callback. It has the call methods of a channel, so stubs work on it. See
    `Hop.side_channel`. GoneError: the hop's call has ended."""

    def __init__(self, group: Group, hop: Any, flags: int, codec: Optional[Codec]) -> None:
        self._encoding = codec
        self._group = group
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
        # See `_calls.side_channel.SideChannel`.
        return False

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        self._hop._register(options, interceptors)

    def _begin(self, running: Running, method: bytes, options: CallOptions) -> None:
        start, hop = _raw.penstock_hop_start_side_call, self._hop._anywhere
        running.begin(start, hop, method, running.kind, self._flags, options.handle)
