"""Penstock: a gRPC client with interceptors that see and change everything that passes, in both directions.

    with penstock.Channel("localhost:50051", tls=False) as channel:
        class Auth(penstock.Interceptor):
            def on_start(self, hop):
                hop.metadata["authorization"] = "Bearer s3cret"
        token = channel.add_interceptor(Auth(), priority=100, methods="/helloworld.Greeter/*")
        print(GreeterStub(channel).SayHello(HelloRequest(name="you")))
        token.remove()

The library is loaded when it is first used; see `load`.
"""

from __future__ import annotations

from typing import Any

from . import ready
from ._arguments import Uncompressed
from ._c_interceptor import CInterceptor
from ._call import Call
from ._channel import Channel
from ._completion import Completion, CompletionInterceptor
from ._connection import ConnectionEvent, ConnectionEventKind
from ._encoding import Codec, JSONCodec, ProtobufJSONCodec
from ._errors import (
    AlreadyError,
    BusyError,
    ClosedError,
    Error,
    ForkedError,
    GoneError,
    InterceptorWarning,
    InvalidArgumentError,
    LibraryError,
    NotFoundError,
    StateError,
    TimedOutError,
    WouldBlockError,
    WouldDeadlockError,
)
from ._executor import Executor, SerialExecutor
from ._hop import Hop
from ._interceptor import Interceptor
from ._metadata import Metadata, Metadatum, ReceivedMetadata
from ._method import StreamStream, StreamUnary, UnaryStream, UnaryUnary
from ._picker import Endpoint, Pick
from ._raw.library import load
from ._registration import Registration
from ._reply import CompletedCall, RpcError
from ._reports import set_exception_hook
from ._resolver import Resolver
from ._runtime import Runtime, add_interceptor, default_runtime, snapshot
from ._side import SideChannel
from ._status import Detail, Status, StatusCode
from ._sync import InterceptedCall, InterceptedReply, SyncInterceptor
from ._ticket import Event, Ticket
from ._verdict import Connectivity, EventKind, Idempotency, Kind, Level, Verdict
from ._version import library_version

__all__ = [
    "AlreadyError",
    "BusyError",
    "CInterceptor",
    "Call",
    "Channel",
    "ClosedError",
    "Codec",
    "CompletedCall",
    "Completion",
    "CompletionInterceptor",
    "ConnectionEvent",
    "ConnectionEventKind",
    "Connectivity",
    "Detail",
    "Endpoint",
    "Error",
    "Event",
    "EventKind",
    "Executor",
    "ForkedError",
    "GoneError",
    "Hop",
    "Idempotency",
    "InterceptedCall",
    "InterceptedReply",
    "Interceptor",
    "InterceptorWarning",
    "InvalidArgumentError",
    "JSONCodec",
    "Kind",
    "Level",
    "LibraryError",
    "Metadata",
    "Metadatum",
    "NotFoundError",
    "Pick",
    "ProtobufJSONCodec",
    "ReceivedMetadata",
    "Registration",
    "Resolver",
    "RpcError",
    "Runtime",
    "SerialExecutor",
    "SideChannel",
    "StateError",
    "Status",
    "StatusCode",
    "StreamStream",
    "StreamUnary",
    "SyncInterceptor",
    "Ticket",
    "TimedOutError",
    "UnaryStream",
    "UnaryUnary",
    "Uncompressed",
    "Verdict",
    "WouldBlockError",
    "WouldDeadlockError",
    "add_interceptor",
    "default_runtime",
    "library_version",
    "load",
    "ready",
    "set_exception_hook",
    "snapshot",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._version import package_version

        return package_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
