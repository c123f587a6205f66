"""Checks of arguments for C, because ctypes would cut a string at a NUL and wrap a number around."""

from __future__ import annotations

import math
from typing import Any, Tuple, Union

from .._raw import constants as c
from .errors import InvalidArgumentError

_LONGEST = 2**63 - 1024  # the largest float below 2**63: the longest time in ms that fits an int64_t

Payload = Union[bytes, bytearray, memoryview]


class Uncompressed:
    """A request that is sent uncompressed, also in a call that compresses: ``stub.Put(Uncompressed(request))``, or
    as one of the requests of a stream, whose other requests are still compressed. It is for a message that has both
    a secret and text from others (the compressed length tells something about the secret), or for data that is
    compressed already. Interceptors see the request itself; if they replace it, the replacement is not compressed
    either. An interceptor may mark a message of its own, or the message that it sees:
    ``hop.message = Uncompressed(hop.message)``."""

    __slots__ = ("message",)

    def __init__(self, message: Any) -> None:
        self.message = message


def encoded_text(text: str, what: str) -> bytes:
    """``text`` as bytes for a C function that gets their number too."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}")
    return text.encode("utf-8", "surrogatepass")


def c_string(text: str, what: str) -> bytes:
    """``text`` as bytes for C; InvalidArgumentError if a NUL would cut it short."""
    encoded = encoded_text(text, what)
    if b"\0" in encoded:
        raise InvalidArgumentError(c.E_INVALID_ARGUMENT, f"{what} contains a NUL character")
    return encoded


def whole_number(number: int, what: str, low: int, high: int) -> int:
    """``number``, checked against the range of its C type: ctypes would wrap it around."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    if not low <= number <= high:
        raise InvalidArgumentError(c.E_INVALID_ARGUMENT, f"{what} must be from {low} to {high}, not {number}")
    return number


def payload(data: Payload) -> bytes:
    """The bytes of a message."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"a message must be bytes, not {type(data).__name__}")


def sized(data: Payload) -> Tuple[bytes, int]:
    """The bytes of a message, and their number."""
    message = payload(data)
    return message, len(message)


def milliseconds(seconds: float) -> int:
    """Seconds in milliseconds for C: rounded up, at least 0, at most `_LONGEST`. ValueError: NaN."""
    if seconds != seconds:
        raise ValueError("a time must not be NaN")
    return math.ceil(max(0, min(seconds * 1000, _LONGEST)))
