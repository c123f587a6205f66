"""Penstock: a gRPC client with interceptors that see and change everything that passes, in both directions.

    with penstock.Channel("localhost:50051", tls=False) as channel:
        class Auth(penstock.Interceptor):
            def on_start(self, hop):
                hop.metadata["authorization"] = "Bearer s3cret"
        token = channel.add_interceptor(Auth(), priority=100, methods="/helloworld.Greeter/*")
        print(GreeterStub(channel).SayHello(HelloRequest(name="you")))
        token.remove()

The library is loaded when it is first used (see `load`), and so are the modules of this package.
"""

from __future__ import annotations

import importlib
import sys

from . import _hooks, _interpreter

# Not imported from typing, which takes as long as all that is imported here. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from . import ready
    from ._calls.call import Call
    from ._calls.caller import StreamStream, StreamUnary, UnaryStream, UnaryUnary
    from ._calls.cancel import CancelScope
    from ._calls.encoding import Codec, JSONCodec, ProtobufJSONCodec
    from ._calls.side_channel import SideChannel
    from ._channels.channel import Channel
    from ._channels.compressor import Compressor
    from ._channels.connector import Connecting, Connector
    from ._channels.picker import Endpoint, Pick
    from ._channels.resolver import Resolver
    from ._channels.runtime import Runtime, add_interceptor, default_runtime, snapshot
    from ._channels.verifier import Verification
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

    __version__: str

_interpreter.check()
_hooks.register()

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
    "Compressor",
    "Connecting",
    "ConnectionEvent",
    "ConnectionEventKind",
    "Connectivity",
    "Connector",
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
    "Verification",
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

# The module of each name, which is imported when the name is first used: so importing the package takes little time.
# The names are also in `__all__` and above, where type checkers look.
_HOMES = {
    "AlreadyError": "._handles.errors",
    "BusyError": "._handles.errors",
    "CInterceptor": "._interceptors.c_interceptor",
    "Call": "._calls.call",
    "CancelScope": "._calls.cancel",
    "Channel": "._channels.channel",
    "ClosedError": "._handles.errors",
    "Codec": "._calls.encoding",
    "CompletedCall": "._handles.reply",
    "Completion": "._interceptors.completion",
    "CompletionInterceptor": "._interceptors.completion",
    "Compressor": "._channels.compressor",
    "ConnectionEvent": "._interceptors.connection",
    "ConnectionEventKind": "._interceptors.connection",
    "Connecting": "._channels.connector",
    "Connectivity": "._handles.verdict",
    "Connector": "._channels.connector",
    "Detail": "._handles.status",
    "Endpoint": "._channels.picker",
    "Error": "._handles.errors",
    "Event": "._interceptors.ticket",
    "EventKind": "._handles.verdict",
    "EventLevel": "._interceptors.connection",
    "Executor": "._interceptors.executor",
    "ForkedError": "._handles.errors",
    "GoneError": "._handles.errors",
    "Hop": "._interceptors.hop",
    "Idempotency": "._handles.verdict",
    "InterceptedCall": "._interceptors.sync",
    "InterceptedReply": "._interceptors.sync",
    "Interceptor": "._interceptors.interceptor",
    "InterceptorWarning": "._handles.errors",
    "InvalidArgumentError": "._handles.errors",
    "JSONCodec": "._calls.encoding",
    "Kind": "._handles.verdict",
    "Level": "._handles.verdict",
    "LibraryError": "._handles.errors",
    "Metadata": "._handles.metadata",
    "Metadatum": "._handles.metadata",
    "NotFoundError": "._handles.errors",
    "Pick": "._channels.picker",
    "ProtobufJSONCodec": "._calls.encoding",
    "ReceivedMetadata": "._handles.metadata",
    "Registration": "._interceptors.registration",
    "Resolver": "._channels.resolver",
    "RpcError": "._handles.reply",
    "Runtime": "._channels.runtime",
    "SerialExecutor": "._interceptors.executor",
    "SideChannel": "._calls.side_channel",
    "StateError": "._handles.errors",
    "Status": "._handles.status",
    "StatusCode": "._handles.status",
    "StreamStream": "._calls.caller",
    "StreamUnary": "._calls.caller",
    "SyncInterceptor": "._interceptors.sync",
    "Ticket": "._interceptors.ticket",
    "TimedOutError": "._handles.errors",
    "UnaryStream": "._calls.caller",
    "UnaryUnary": "._calls.caller",
    "Uncompressed": "._handles.arguments",
    "Verdict": "._handles.verdict",
    "Verification": "._channels.verifier",
    "WouldBlockError": "._handles.errors",
    "WouldDeadlockError": "._handles.errors",
    "add_interceptor": "._channels.runtime",
    "default_runtime": "._channels.runtime",
    "library_version": "._handles.version",
    "library_versions": "._handles.version",
    "load": "._raw.library",
    "ready": ".ready",
    "set_exception_hook": "._handles.reports",
    "snapshot": "._channels.runtime",
}


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


# Type checkers must not see it: they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Called for a name that is not here yet. Any thread: the modules of the package don't import each other in
        circles (tests/test_layers.py), so Python lets each thread wait until a module is imported as a whole."""
        if name == "__version__":
            from ._handles.version import package_version

            return package_version()
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(home, __name__)
        found = module if home == f".{name}" else getattr(module, name)
        globals()[name] = found
        return found

    def __dir__() -> List[str]:
        return sorted({*globals(), *__all__, "__version__"})
