"""The ready-made hedging of unary calls."""

from __future__ import annotations

import json
from ctypes import byref
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional

from .. import _raw
from .._handles.metadata import owned_text
from .._handles.status import CodeLike, code_number
from ._base import Ready, ms, text_value

if TYPE_CHECKING:
    from .._channels.channel import Channel


class Hedging(Ready):
    """Sends a unary call again while it has no answer, and takes the first answer (gRFC A6, "Hedging Policy").

    ``max_attempts``: how often a call is sent at most, 2 to 5. ``delay``: how long an attempt may have no answer
    before the next one is sent; 0: all are sent at once. ``non_fatal_codes``: the codes after which the other
    attempts go on, and the next one is sent at once. ``max_tokens``, ``token_ratio``: a throttle, which there is if
    one of them is given: an attempt that fails takes a token, one that succeeds brings ``token_ratio`` of one back,
    and with half of the tokens or fewer only first attempts are sent. ``channel``: the attempts after the first go
    to this channel, which must be on the same runtime and loop, and not the channel of the calls.
    """

    def __init__(
        self,
        *,
        max_attempts: Optional[int] = None,
        delay: Optional[float] = None,
        non_fatal_codes: Optional[Iterable[CodeLike]] = None,
        max_tokens: Optional[int] = None,
        token_ratio: Optional[float] = None,
        channel: Optional[Channel] = None,
    ) -> None:
        throttle = {"max_tokens": max_tokens, "token_ratio": token_ratio}
        given = {key: value for key, value in throttle.items() if value is not None}
        self._other = channel
        super().__init__(
            max_attempts=max_attempts,
            delay_ms=ms(delay),
            non_fatal_codes=None if non_fatal_codes is None else [code_number(code) for code in non_fatal_codes],
            throttle=given or None,
        )

    def _make(self, options: bytes, table: Any) -> None:
        other = None if self._other is None else self._other._handle
        self._made_by(partial(_raw.penstock_ready_hedging, options, other), table)

    def stats(self) -> Dict[str, Any]:
        """The figures of all calls, in the form of penstock_hedging_stats_json (ready.h). Any thread."""
        read = partial(_raw.penstock_hedging_stats_json, byref(self._filled()))
        figures: Dict[str, Any] = json.loads(owned_text(read))
        return figures

    @staticmethod
    def of(call: object) -> Optional[Dict[str, int]]:
        """How a call was decided, which is given as a call, an `RpcError` or a hop: ``sent``, ``won`` (the number of
        the attempt that has decided it, from 1; 0: all have failed) and ``cancelled``. None: by no attempt."""
        text = text_value(call, "penstock.hedging")
        if text is None:
            return None
        decided: Dict[str, int] = json.loads(text)
        return decided
