"""Messages that are fetched ahead of the reader, which may be on another thread than the one on which they come."""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any, Callable, List

import pytest

from penstock import _raw
from penstock._calls.ahead import Ahead


def interrupted(function: Callable[..., Any], at: int, other: Callable[[], object], *arguments: Any) -> bool:
    """Calls ``function``, and before its instruction ``at`` ``other``, as a thread might. False: it has fewer."""
    left = at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not function.__code__:  # type: ignore[attr-defined]
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == -1:
                other()
        return trace

    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(None)
    return left < 0


def test_a_message_comes_while_the_reader_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it comes, the reader still asks once all messages have come: otherwise it would wait for good."""
    demanded: List[int] = []
    monkeypatch.setattr(_raw, "penstock_call_demand", lambda call, count: demanded.append(count))
    at = 0
    while True:
        demanded.clear()
        ahead = Ahead()
        ahead.ask(0)
        ahead.came(b"small", is_kept=True)
        ahead.unread.clear()
        # Two are asked for, of which one comes in the midst of the next demand.
        ahead._largest = 131_072
        ahead.ask(0)
        ahead._largest = 1
        comes = functools.partial(ahead.came, b"small", is_kept=False)
        if not interrupted(Ahead.ask, at, comes, ahead, 0):
            break
        for _ in range(sum(demanded) - 3):
            comes()
        ahead.came(bytes(262_144), is_kept=False)
        before = len(demanded)
        ahead.ask(0)
        assert len(demanded) > before, at
        at += 1
    assert at > 10
