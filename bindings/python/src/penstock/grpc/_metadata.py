"""Metadata as grpcio takes and gives it."""

from __future__ import annotations

import re
from typing import Any, List, Tuple, Union

from .._handles.metadata import Metadatum, ReceivedMetadata

Pairs = List[Tuple[str, Union[str, bytes]]]

_NAME = re.compile(rb"[a-z0-9_.-]+\Z")
_TEXT = re.compile(rb"[ -~]*\Z")
# grpcio takes these names, and never sends them, or sends what an HTTP/2 server must refuse (RFC 9113 section 8.2.2).
# Here they are left out, as are all names that begin with "grpc-", which belong to the protocol.
_LEFT_OUT = frozenset(
    (
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"user-agent",
    )
)


class InvalidMetadata(Exception):  # noqa: N818
    """The metadata of a call has a name or a value that is not allowed. grpcio makes such a call, which ends with
    INTERNAL at once."""


def outgoing(metadata: Any) -> Pairs:
    """The pairs to send for ``metadata``, an iterable of pairs or None.

    TypeError, ValueError: it is something else, or a name or a value has a wrong type. `InvalidMetadata`: a name or
    a value has characters that are not allowed."""
    pairs: Pairs = []
    if metadata is None:
        return pairs
    is_valid = True
    for key, value in metadata:
        name = _encoded(key)
        if name.endswith(b"-bin"):
            if not isinstance(value, bytes):
                raise TypeError(f'Binary metadata key="{name.decode()}" expected bytes, got {type(value)}')
            data = value
        else:
            data = _encoded("" if value is None else value)
            is_valid = is_valid and _TEXT.match(data) is not None
        is_valid = is_valid and _NAME.match(name) is not None
        if is_valid and name not in _LEFT_OUT and not name.startswith(b"grpc-"):
            text = name.decode()
            # Blanks at the ends of a text may be lost on the way (gRPC over HTTP2, "Custom-Metadata").
            pairs.append((text, data if name.endswith(b"-bin") else data.decode().strip(" ")))
    if not is_valid:
        raise InvalidMetadata
    return pairs


def _encoded(text: Any) -> bytes:
    if isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    raise TypeError(f"Expected str, not {type(text)}")


def incoming(metadata: ReceivedMetadata) -> Tuple[Metadatum, ...]:
    """Metadata of a server, as a tuple of pairs that does not refer to its call."""
    return tuple(metadata)
