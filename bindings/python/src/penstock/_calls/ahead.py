"""Messages that are fetched ahead of the reader, in callback style."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Deque, List

from .. import _raw
from .messages import Data

# How many messages are asked for ahead of the program, and how many bytes they may have together. One message may
# always come.
_MESSAGES = 32
_BYTES = 262_144


class Ahead:
    """The messages of one call that have come and that the program has not read. The reader may be on another thread
    than the one on which they come: each step is one operation of a list, so no lock is needed."""

    __slots__ = ("_asked", "_largest", "unread")

    def __init__(self) -> None:
        self.unread: Deque[Data] = deque()
        # An item for each message that has been asked for and has not come. A number would lose a step when two
        # threads change it at once, and then nobody would ask any more.
        self._asked: List[None] = []
        # The size of the largest message so far.
        self._largest = 0

    def came(self, data: Data, is_kept: bool) -> None:
        """Called with each message. ``is_kept``: the program wants it."""
        # The size of an object is not known.
        self._largest = max(self._largest, len(data) if isinstance(data, bytes) else _BYTES, 1)
        if is_kept:
            self.unread.append(data)
        self._asked.pop()

    def came_together(self, batch: List[Data]) -> None:
        """As `came`, with several messages that the program wants."""
        self._largest = max(self._largest, *(len(data) if isinstance(data, bytes) else _BYTES for data in batch), 1)
        self.unread.extend(batch)
        del self._asked[-len(batch) :]

    @property
    def awaits(self) -> bool:
        """Whether messages have been asked for and have not come."""
        return bool(self._asked)

    def ask(self, call: int) -> None:
        """Asks for messages of ``call``, so that the server is not held back as long as the program keeps up with it.
        Asks for fewer if they are large."""
        wanted = min(_MESSAGES, _BYTES // self._largest) if self._largest else 1
        has = len(self._asked) + len(self.unread)
        # Asks for several at once, because each demand crosses into the library.
        if has == 0 or has <= wanted // 2:
            more = max(wanted - has, 1)
            self._asked.extend(itertools.repeat(None, more))
            _raw.penstock_call_demand(call, more)
