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

import sys
from typing import Any, Dict

from . import _interpreter, ready
from ._calls.call import Call
from ._calls.caller import StreamStream, StreamUnary, UnaryStream, UnaryUnary
from ._calls.cancel import CancelScope
from ._calls.encoding import Codec, JSONCodec, ProtobufJSONCodec
from ._calls.side_channel import SideChannel
from ._channels.channel import Channel
from ._channels.picker import Endpoint, Pick
from ._channels.resolver import Resolver
from ._channels.runtime import Runtime, add_interceptor, default_runtime, snapshot
from ._handles.arguments import Uncompressed
from ._handles.errors import (
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
from ._handles.metadata import Metadata, Metadatum, ReceivedMetadata
from ._handles.reply import CompletedCall, RpcError
from ._handles.reports import set_exception_hook
from ._handles.status import Detail, Status, StatusCode
from ._handles.verdict import Connectivity, EventKind, Idempotency, Kind, Level, Verdict
from ._handles.version import library_version, library_versions
from ._interceptors.c_interceptor import CInterceptor
from ._interceptors.completion import Completion, CompletionInterceptor
from ._interceptors.connection import ConnectionEvent, ConnectionEventKind, EventLevel
from ._interceptors.executor import Executor, SerialExecutor
from ._interceptors.hop import Hop
from ._interceptors.interceptor import Interceptor
from ._interceptors.registration import Registration
from ._interceptors.sync import InterceptedCall, InterceptedReply, SyncInterceptor
from ._interceptors.ticket import Event, Ticket
from ._raw.library import load

_interpreter.check()

__all__ = [
    "AlreadyError",
    "BusyError",
    "CInterceptor",
    "Call",
    "CancelScope",
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
    "EventLevel",
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
    "install_grpc_shim",
    "library_version",
    "library_versions",
    "load",
    "ready",
    "set_exception_hook",
    "snapshot",
]


def install_grpc_shim() -> None:
    """Puts `penstock.grpc` in the place of ``grpc``, for a program without grpcio: modules that grpcio-tools has
    generated, and packages that import grpc, then load, and make their calls through penstock. Where grpcio is
    installed, it is not imported any more. Does nothing the second time.

    RuntimeError: grpc has been imported already."""
    modules: Dict[str, Any] = sys.modules
    # Until the end of this function grpc can't be imported, so `penstock.grpc` does not look for grpcio.
    modules.setdefault("grpc", None)
    try:
        from .grpc._shim import install

        install()
    finally:
        if modules["grpc"] is None:
            del modules["grpc"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._handles.version import package_version

        return package_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
