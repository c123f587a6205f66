"""The names of ``grpc.aio`` on this package's channels, for one changed line: ``from penstock.grpc import aio``.

Where grpcio can be imported, errors, `EOF`, metadata and all base classes are grpcio's own, for which channels and
calls of this package are registered. No call goes through grpcio.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from ._channel import insecure_channel, secure_channel
from ._interceptors import InterceptedUnaryUnaryCall
from ._theirs import theirs

AbortError = theirs.AbortError
AioRpcError = theirs.AioRpcError
BaseError = theirs.BaseError
Call = theirs.Call
Channel = theirs.Channel
ClientCallDetails = theirs.ClientCallDetails
ClientInterceptor = theirs.ClientInterceptor
EOF = theirs.EOF
InternalError = theirs.InternalError
Metadata = theirs.Metadata
RpcContext = theirs.RpcContext
Server = theirs.Server
ServerInterceptor = theirs.ServerInterceptor
ServicerContext = theirs.ServicerContext
StreamStreamCall = theirs.StreamStreamCall
StreamStreamClientInterceptor = theirs.StreamStreamClientInterceptor
StreamStreamMultiCallable = theirs.StreamStreamMultiCallable
StreamUnaryCall = theirs.StreamUnaryCall
StreamUnaryClientInterceptor = theirs.StreamUnaryClientInterceptor
StreamUnaryMultiCallable = theirs.StreamUnaryMultiCallable
UnaryStreamCall = theirs.UnaryStreamCall
UnaryStreamClientInterceptor = theirs.UnaryStreamClientInterceptor
UnaryStreamMultiCallable = theirs.UnaryStreamMultiCallable
UnaryUnaryCall = theirs.UnaryUnaryCall
UnaryUnaryClientInterceptor = theirs.UnaryUnaryClientInterceptor
UnaryUnaryMultiCallable = theirs.UnaryUnaryMultiCallable
UsageError = theirs.UsageError
init_grpc_aio = theirs.init_grpc_aio
server = theirs.server
shutdown_grpc_aio = theirs.shutdown_grpc_aio

ChannelArgumentType = Sequence[Tuple[str, Any]]

__all__ = [
    "EOF",
    "AbortError",
    "AioRpcError",
    "BaseError",
    "Call",
    "Channel",
    "ClientCallDetails",
    "ClientInterceptor",
    "InterceptedUnaryUnaryCall",
    "InternalError",
    "Metadata",
    "RpcContext",
    "Server",
    "ServerInterceptor",
    "ServicerContext",
    "StreamStreamCall",
    "StreamStreamClientInterceptor",
    "StreamStreamMultiCallable",
    "StreamUnaryCall",
    "StreamUnaryClientInterceptor",
    "StreamUnaryMultiCallable",
    "UnaryStreamCall",
    "UnaryStreamClientInterceptor",
    "UnaryStreamMultiCallable",
    "UnaryUnaryCall",
    "UnaryUnaryClientInterceptor",
    "UnaryUnaryMultiCallable",
    "UsageError",
    "init_grpc_aio",
    "insecure_channel",
    "secure_channel",
    "server",
    "shutdown_grpc_aio",
]
