"""The classes of grpc.aio's interface: grpcio's own where it can be imported, so that code which catches
``grpc.aio.AioRpcError`` finds what it expects, else those of `_abstract`."""

from __future__ import annotations

import importlib
from typing import Any, Iterable, Optional

from ..._handles.metadata import ReceivedMetadata
from ..._handles.reply import RpcError
from ..._handles.status import StatusCode
from .._names import code_of, source
from . import _abstract

theirs: Any = _abstract if source is None else importlib.import_module("grpc.aio")
EOF = theirs.EOF
AioRpcError = theirs.AioRpcError
UsageError = theirs.UsageError
Metadata = theirs.Metadata

LOCALLY_CANCELLED = "Locally cancelled by application!"


def text_of(name: Any) -> str:
    """A target or a method's name. As in grpcio, AttributeError for what is neither str nor bytes."""
    text: str = name.decode() if isinstance(name, bytes) else name.encode().decode()
    return text


def metadata_of(pairs: Iterable[Any]) -> Any:
    """``grpc.aio.Metadata`` with these pairs."""
    return Metadata(*((key, value) for key, value in pairs))


def error_of(error: RpcError, initial: Optional[ReceivedMetadata] = None) -> Any:
    """The ``grpc.aio.AioRpcError`` for ``error``, with the same cause."""
    made = AioRpcError(
        code_of(error.code().number),
        metadata_of(error.initial_metadata() if initial is None else initial),
        metadata_of(error.trailing_metadata()),
        details=error.details(),
        debug_error_string=error.debug_error_string(),
    )
    made.__cause__ = error.__cause__
    return made


CANCELLED = StatusCode.CANCELLED.number
