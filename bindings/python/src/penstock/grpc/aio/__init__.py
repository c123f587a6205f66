"""The names of ``grpc.aio`` on this package's channels, for one changed line: ``from penstock.grpc import aio``.

Errors, `EOF`, metadata and interceptors' base classes are grpcio's own. No call goes through grpcio.
"""

from __future__ import annotations

from ._calls import Call, StreamStreamCall, StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall
from ._channel import (
    Channel,
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
    insecure_channel,
    secure_channel,
)
from ._interceptors import InterceptedUnaryUnaryCall
from ._theirs import EOF, AioRpcError, Metadata, UsageError, theirs

ClientCallDetails = theirs.ClientCallDetails
ClientInterceptor = theirs.ClientInterceptor
StreamStreamClientInterceptor = theirs.StreamStreamClientInterceptor
StreamUnaryClientInterceptor = theirs.StreamUnaryClientInterceptor
UnaryStreamClientInterceptor = theirs.UnaryStreamClientInterceptor
UnaryUnaryClientInterceptor = theirs.UnaryUnaryClientInterceptor

__all__ = [
    "EOF",
    "AioRpcError",
    "Call",
    "Channel",
    "ClientCallDetails",
    "ClientInterceptor",
    "InterceptedUnaryUnaryCall",
    "Metadata",
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
    "insecure_channel",
    "secure_channel",
]
