"""Messages that are fetched ahead of the reader, which may be on another thread than the one on which they come."""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any, Callable, List

import pytest

from penstock import _raw
from penstock._calls.ahead import Ahead
from penstock._calls.codec import Boxed


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

    # Python 3.12 tells of no instruction before some frame has asked for it.
    sys._getframe().f_trace_opcodes = True
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
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


@pytest.fixture
def demanded(monkeypatch: pytest.MonkeyPatch) -> List[int]:
    """The numbers of messages that were asked for."""
    found: List[int] = []
    monkeypatch.setattr(_raw, "penstock_call_demand", lambda call, count: found.append(count))
    return found


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(0, 32), (1, 32), (8192, 32), (8193, 31), (65_536, 4), (131_072, 2), (131_073, 1), (262_144, 1), (300_000, 1)],
)
def test_so_many_messages_are_asked_for(demanded: List[int], size: int, wanted: int) -> None:
    """As many as have room together, and one at least."""
    ahead = Ahead()
    assert not ahead.awaits
    ahead.ask(0)
    assert demanded == [1]
    assert ahead.awaits
    ahead.came(bytes(size), is_kept=True)
    assert not ahead.awaits
    assert list(ahead.unread) == [bytes(size)]
    ahead.unread.clear()
    ahead.ask(0)
    assert demanded == [1, wanted]
    # No more, before half of them has been read.
    left = wanted
    while left > wanted // 2 + 1:
        ahead.came(b"", is_kept=False)
        ahead.ask(0)
        left -= 1
    assert demanded == [1, wanted]
    ahead.came(b"", is_kept=False)
    ahead.ask(0)
    assert demanded == [1, wanted, max(wanted - wanted // 2, 1)]


def test_messages_that_come_together(demanded: List[int]) -> None:
    ahead = Ahead()
    ahead.ask(0)
    ahead.came(b"x", is_kept=True)
    ahead.ask(0)
    # One has not been read.
    assert demanded == [1, 31]
    ahead.came_together([b"a", bytes(131_072), b"c"])
    assert [len(data) for data in ahead.unread] == [1, 1, 131_072, 1]
    assert len(ahead._asked) == 28
    ahead.unread.clear()
    ahead.ask(0)
    assert demanded == [1, 31]
    ahead.came_together([b"d"] * 28)
    assert not ahead.awaits
    ahead.unread.clear()
    # The largest so far counts.
    ahead.ask(0)
    assert demanded == [1, 31, 2]


def test_an_object_counts_as_large(demanded: List[int]) -> None:
    """Its size is not known."""
    for together in (False, True):
        ahead = Ahead()
        ahead.ask(0)
        thing: Any = Boxed(5)
        if together:
            ahead.came_together([thing])
        else:
            ahead.came(thing, is_kept=True)
        ahead.unread.clear()
        ahead.ask(0)
    assert demanded == [1, 1] * 2


def test_a_message_that_nobody_wants() -> None:
    ahead = Ahead()
    ahead._asked.append(None)
    ahead.came(b"x", is_kept=False)
    assert not ahead.unread
    assert not ahead.awaits
