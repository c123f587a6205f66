"""Several messages in one crossing into the library: each crossing costs as much as the rest of a small message."""

from __future__ import annotations

from ctypes import addressof, byref, c_char, c_size_t, c_void_p, string_at
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .. import _raw
from .._handles.arguments import Uncompressed
from .._raw import constants as c
from .messages import Data, Sent, taken
from .steps import sent, tried

# The most messages that cross at once, and the most bytes. A larger message crosses alone.
MOST, SIZE = 64, 65_536

# The results that say that the next message can't cross with others: it is too large, or an object.
ALONE = (c.E_TOO_LARGE, c.E_STATE)

_Lengths = c_size_t * MOST


class Room:
    """Memory for the messages that the library hands over at once."""

    __slots__ = ("_address", "_count", "_data", "_lengths", "arguments")

    def __init__(self) -> None:
        self._data = (c_char * SIZE)()
        self._address = addressof(self._data)
        self._lengths = _Lengths()
        self._count = c_size_t()
        # The arguments of ``penstock_call_receive_many`` after the call.
        self.arguments = (MOST, self._address, SIZE, self._lengths, byref(self._count))

    def taken(self) -> List[bytes]:
        """The messages that the library has written here, which are forgotten here."""
        count, self._count.value = self._count.value, 0
        if count <= 1:
            return [string_at(self._address, self._lengths[0])] if count else []
        lengths = self._lengths[:count]
        data = string_at(self._address, sum(lengths))
        found, at = [], 0
        for length in lengths:
            found.append(data[at : at + length])
            at += length
        return found


# The rooms that no thread uses. They are taken and given back by single steps of a list, so no lock is needed.
_rooms: List[Room] = []


def borrowed_room() -> Room:
    try:
        return _rooms.pop()
    except IndexError:
        return Room()


def give_back(room: Room) -> None:
    _rooms.append(room)


def take_waiting(call: int, came: Callable[[List[Data]], object]) -> bool:
    """Passes the messages that wait in a call in callback style to ``came``, also if a Ctrl-C comes meanwhile. False:
    there are none. Does not wait."""
    room = borrowed_room()
    try:
        result = _raw.penstock_call_receive_many(call, *room.arguments)
    finally:
        found = room.taken()
        give_back(room)
        if found:
            came([*found])
    if result not in ALONE:
        return bool(found)
    message = c_void_p()
    if _raw.penstock_call_receive(call, byref(message)) != c.OK:
        return False
    came([taken(message)])
    return True


def is_plain(batch: Sequence[Sent]) -> bool:
    """Whether several messages can cross at once: they are bytes, without a wish of their own."""
    return len(batch) > 1 and all(type(data) is bytes for data in batch)


def send_many(send: Callable[..., int], call: int, batch: Sequence[Any]) -> Tuple[int, int]:
    """Sends the messages by the C function ``send``, in one crossing. Returns the ``penstock_result`` and how many
    are sent; with a result other than OK, the message after these is the one that it is about."""
    done = c_size_t()
    lengths = (c_size_t * len(batch))(*map(len, batch))
    result = send(call, b"".join(batch), lengths, len(batch), byref(done))
    return result, done.value


def tried_all(call: int, batch: Sequence[Sent]) -> Optional[Sequence[Sent]]:
    """Sends messages as long as there is room, without waiting. Returns those that had no room; None: the call has
    ended. RpcError: one is over the limit."""
    while batch:
        if is_plain(batch):
            result, done = send_many(_raw.penstock_call_try_send_many, call, batch)
        else:
            result = tried(call, batch[0])[0]
            done = int(result == c.OK)
        batch = batch[done:]
        if result == c.E_WOULD_BLOCK:
            break
        if result != c.OK and not sent(result, size_of(batch[0])):
            return None
    return batch


def size_of(data: Sent) -> int:
    """The size of a message in bytes; 0 for an object."""
    content = data.message if isinstance(data, Uncompressed) else data
    return len(content) if isinstance(content, bytes) else 0
