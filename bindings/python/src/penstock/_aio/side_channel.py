"""Side calls on an event loop."""

from __future__ import annotations

from typing import Any, Optional

from .. import _raw
from .._calls.encoding import Codec
from .._calls.options import CallOptions
from .._calls.side import BaseSideChannel
from .caller import Caller
from .driver import Group
from .running import Running


class SideChannel(BaseSideChannel, Caller):
    """Makes side calls for an `async def` callback. It has the call methods of a channel, so stubs work on it. See
    `Hop.side_channel`. GoneError: the hop's call has ended."""

    def __init__(self, group: Group, hop: Any, flags: int, codec: Optional[Codec]) -> None:
        super().__init__(hop, flags, codec)
        self._group = group

    def _begin(self, running: Running, method: bytes, options: CallOptions) -> None:
        start, hop = _raw.penstock_hop_start_side_call, self._hop._anywhere
        running.begin(start, hop, method, running.kind, self._flags, options.handle)
