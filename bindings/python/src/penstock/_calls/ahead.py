"""Messages that are fetched ahead of the reader, in callback style."""

from __future__ import annotations

from collections import deque
from typing import Deque

from .. import _raw
from .messages import Data

# How many messages are asked for ahead of the program, and how many bytes they may have together. One message may
# always come.
_MESSAGES = 32
_BYTES = 262_144


class Ahead:
    """The messages of one call that have come and that the program has not read."""

    __slots__ = ("_asked", "_largest", "unread")

    def __init__(self) -> None:
        self.unread: Deque[Data] = deque()
        # How many messages have been asked for and have not come, and the size of the largest message so far.
        self._asked = 0
        self._largest = 0

    def came(self, data: Data) -> None:
        """Called with each message. It is not in `unread` yet."""
        self._asked -= 1
        # The size of an object is not known.
        self._largest = max(self._largest, len(data) if isinstance(data, bytes) else _BYTES, 1)

    def ask(self, call: int) -> None:
        """Asks for messages of ``call``, so that the server is not held back as long as the program keeps up with it.
        Asks for fewer if they are large."""
        wanted = min(_MESSAGES, _BYTES // self._largest) if self._largest else 1
        has = self._asked + len(self.unread)
        # Asks for several at once, because each demand crosses into the library.
        if has == 0 or has <= wanted // 2:
            self._asked += max(wanted - has, 1)
            _raw.penstock_call_demand(call, max(wanted - has, 1))
