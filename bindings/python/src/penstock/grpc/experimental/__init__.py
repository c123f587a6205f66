"""The names of ``grpc.experimental``: functions that make a channel for one call, as the class that grpcio-tools
generates for each service has them, and credentials for cleartext. Those without a meaning here say why."""

from __future__ import annotations

import importlib
from typing import Any, Dict, Iterable, Optional, Tuple

from .._channel import Channel, insecure_channel, secure_channel
from .._credentials import ChannelSecrets, ssl_channel_credentials, unavailable
from .._names import CallCredentials, ChannelCredentials, Compression, source
from . import _abstract

Options = Iterable[Tuple[str, Any]]

_theirs: Any = _abstract if source is None else importlib.import_module("grpc.experimental")
ChannelOptions = _theirs.ChannelOptions
ExperimentalApiWarning = _theirs.ExperimentalApiWarning
UsageError = _theirs.UsageError
wrap_server_method_handler = _theirs.wrap_server_method_handler

_WITH_A_SIGNER = "ssl_channel_credentials_with_custom_signer"
ssl_channel_credentials_with_custom_signer = unavailable(
    f"experimental.{_WITH_A_SIGNER}", "give the private key itself to ssl_channel_credentials"
)
# The types of that function's arguments.
_SIGNING = (
    "CustomPrivateKeySign",
    "PrivateKeySignCancel",
    "PrivateKeySignOnComplete",
    "PrivateKeySignatureAlgorithm",
)
_cleartext = ChannelCredentials(ChannelSecrets(False))

__all__ = (
    *("ChannelOptions", "ExperimentalApiWarning", "UsageError", "insecure_channel_credentials"),
    *("ssl_channel_credentials_with_custom_signer", "wrap_server_method_handler"),
    *("stream_stream", "stream_unary", "unary_stream", "unary_unary"),
)


def insecure_channel_credentials() -> ChannelCredentials:
    """Credentials with which `secure_channel` makes a channel in cleartext. They are the same object each time."""
    return _cleartext


def __getattr__(name: str) -> Any:
    # Packages import aio from here, too. It is imported only then, because it imports asyncio.
    if name == "aio":
        return importlib.import_module(f"{__name__}.aio")
    if name in _SIGNING:
        raise AttributeError(f"{name} is not available in penstock.grpc, since {_WITH_A_SIGNER} is not")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Without a lock: each step is one operation of the dictionary. A lock would be held while options are compared, and
# while channels are made and dropped.
_channels: Dict[Any, Channel] = {}
# How many channels are kept for later calls to the same targets.
_KEPT = 16


def _channel(
    target: str,
    options: Options,
    channel_credentials: Optional[ChannelCredentials],
    insecure: bool,
    compression: Optional[Compression],
) -> Channel:
    if insecure and channel_credentials is not None:
        raise ValueError("The insecure option is mutually exclusive with the channel_credentials option.")
    key = target, tuple(options), channel_credentials, insecure, compression
    channel = _channels.get(key)
    if channel is None:
        if insecure:
            channel = insecure_channel(target, key[1], compression)
        else:
            credentials = channel_credentials or ssl_channel_credentials()
            channel = secure_channel(target, credentials, key[1], compression)
        keys = list(_channels)
        for oldest in keys[: max(0, len(keys) - _KEPT + 1)]:
            # Calls that still run keep their channel.
            _channels.pop(oldest, None)
        channel = _channels.setdefault(key, channel)
    return channel


def unary_unary(
    request: Any,
    target: str,
    method: str,
    request_serializer: Any = None,
    response_deserializer: Any = None,
    options: Options = (),
    channel_credentials: Optional[ChannelCredentials] = None,
    insecure: bool = False,
    call_credentials: Optional[CallCredentials] = None,
    compression: Optional[Compression] = None,
    wait_for_ready: Optional[bool] = None,
    timeout: Optional[float] = 60.0,
    metadata: Any = None,
    _registered_method: Optional[bool] = False,
) -> Any:
    """Makes a call on a channel to ``target`` that is kept for later calls."""
    channel = _channel(target, options, channel_credentials, insecure, compression)
    call = channel.unary_unary(method, request_serializer, response_deserializer)
    return call(request, timeout, metadata, call_credentials, wait_for_ready)


def unary_stream(
    request: Any,
    target: str,
    method: str,
    request_serializer: Any = None,
    response_deserializer: Any = None,
    options: Options = (),
    channel_credentials: Optional[ChannelCredentials] = None,
    insecure: bool = False,
    call_credentials: Optional[CallCredentials] = None,
    compression: Optional[Compression] = None,
    wait_for_ready: Optional[bool] = None,
    timeout: Optional[float] = 60.0,
    metadata: Any = None,
    _registered_method: Optional[bool] = False,
) -> Any:
    """Makes a call on a channel to ``target`` that is kept for later calls."""
    channel = _channel(target, options, channel_credentials, insecure, compression)
    call = channel.unary_stream(method, request_serializer, response_deserializer)
    return call(request, timeout, metadata, call_credentials, wait_for_ready)


def stream_unary(
    request_iterator: Any,
    target: str,
    method: str,
    request_serializer: Any = None,
    response_deserializer: Any = None,
    options: Options = (),
    channel_credentials: Optional[ChannelCredentials] = None,
    insecure: bool = False,
    call_credentials: Optional[CallCredentials] = None,
    compression: Optional[Compression] = None,
    wait_for_ready: Optional[bool] = None,
    timeout: Optional[float] = 60.0,
    metadata: Any = None,
    _registered_method: Optional[bool] = False,
) -> Any:
    """Makes a call on a channel to ``target`` that is kept for later calls."""
    channel = _channel(target, options, channel_credentials, insecure, compression)
    call = channel.stream_unary(method, request_serializer, response_deserializer)
    return call(request_iterator, timeout, metadata, call_credentials, wait_for_ready)


def stream_stream(
    request_iterator: Any,
    target: str,
    method: str,
    request_serializer: Any = None,
    response_deserializer: Any = None,
    options: Options = (),
    channel_credentials: Optional[ChannelCredentials] = None,
    insecure: bool = False,
    call_credentials: Optional[CallCredentials] = None,
    compression: Optional[Compression] = None,
    wait_for_ready: Optional[bool] = None,
    timeout: Optional[float] = 60.0,
    metadata: Any = None,
    _registered_method: Optional[bool] = False,
) -> Any:
    """Makes a call on a channel to ``target`` that is kept for later calls."""
    channel = _channel(target, options, channel_credentials, insecure, compression)
    call = channel.stream_stream(method, request_serializer, response_deserializer)
    return call(request_iterator, timeout, metadata, call_credentials, wait_for_ready)
