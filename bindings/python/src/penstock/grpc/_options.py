"""Channel options by grpcio's names, as options of penstock's channels."""

from __future__ import annotations

import json
import warnings
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Tuple, Union

from ._names import Compression, compression_name

Options = Dict[str, Any]
TLS = Union[bool, Mapping[str, Any]]
_LARGEST = 2**31 - 1


def _number(option: str, low: int = 0, high: int = _LARGEST) -> Callable[[Options, Any], None]:
    def set_option(options: Options, value: Any) -> None:
        options[option] = max(low, min(int(value), high))

    return set_option


def _size(option: str) -> Callable[[Options, Any], None]:
    """A limit of a size, which a negative value turns off."""

    def set_option(options: Options, value: Any) -> None:
        options[option] = _LARGEST if int(value) < 0 else min(int(value), _LARGEST)

    return set_option


def _keepalive(options: Options, value: Any) -> None:
    if 0 < int(value) < _LARGEST:
        options["keepalive_time_ms"] = max(1000, min(int(value), 86_400_000))


def _without_calls(options: Options, value: Any) -> None:
    options["keepalive_without_calls"] = bool(value)


def _retries(options: Options, value: Any) -> None:
    options["retries"] = bool(value)


def _asks_for_proxy(options: Options, value: Any) -> None:
    options["proxy"] = options.get("proxy", "environment") if value else None


def _proxy(options: Options, value: Any) -> None:
    # None: the other option has said that there is no proxy.
    if options.get("proxy", "") is not None:
        options["proxy"] = _text(value)


def _authority(options: Options, value: Any) -> None:
    options["authority"] = _text(value)


def _server_name(options: Options, value: Any) -> None:
    options.setdefault("authority", _text(value))
    options["server_name"] = _text(value)


def _session_cache(options: Options, value: Any) -> None:
    options["session_resumption"] = value is not None


def _user_agent(options: Options, value: Any) -> None:
    options["user_agent"] = " ".join(filter(None, (options.get("user_agent"), _text(value))))


def _service_config(options: Options, value: Any) -> None:
    options["service_config"] = {**options.get("service_config", {}), **json.loads(value)}


def _policy(options: Options, value: Any) -> None:
    options.setdefault("service_config", {}).setdefault("loadBalancingConfig", [{_text(value): {}}])


def _compression(options: Options, value: Any) -> None:
    options["compression"] = compression_name(value)


def _nothing(options: Options, value: Any) -> None: ...


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


_DAY = 86_400_000
_MEANINGS: Dict[str, Callable[[Options, Any], None]] = {
    "grpc.max_receive_message_length": _size("max_receive_message_bytes"),
    "grpc.max_send_message_length": _size("max_send_message_bytes"),
    "grpc.max_metadata_size": _number("max_header_list_bytes", 1024, 1_048_576),
    "grpc.absolute_max_metadata_size": _number("max_header_list_bytes", 1024, 1_048_576),
    "grpc.primary_user_agent": _user_agent,
    "grpc.secondary_user_agent": _user_agent,
    "grpc.default_authority": _authority,
    "grpc.ssl_target_name_override": _server_name,
    "grpc.ssl_session_cache": _session_cache,
    "grpc.keepalive_time_ms": _keepalive,
    "grpc.keepalive_timeout_ms": _number("keepalive_timeout_ms", 1, _DAY),
    "grpc.keepalive_permit_without_calls": _without_calls,
    "grpc.initial_reconnect_backoff_ms": _number("initial_backoff_ms", 1, _DAY),
    "grpc.max_reconnect_backoff_ms": _number("max_backoff_ms", 1, _DAY),
    "grpc.min_reconnect_backoff_ms": _number("connect_timeout_ms", 1, _DAY),
    "grpc.client_idle_timeout_ms": _number("idle_timeout_ms", 0, 30 * _DAY),
    "grpc.dns_min_time_between_resolutions_ms": _number("min_resolve_interval_ms", 0, _DAY),
    "grpc.http2.lookahead_bytes": _number("initial_stream_window_bytes", 65535),
    "grpc.service_config": _service_config,
    "grpc.enable_retries": _retries,
    "grpc.per_rpc_retry_buffer_size": _size("replay_bytes"),
    "grpc.enable_http_proxy": _asks_for_proxy,
    "grpc.http_proxy": _proxy,
    "grpc.lb_policy_name": _policy,
    "grpc.default_compression_algorithm": _compression,
    # The wishes of these hold here anyway: each channel has connections of its own, a stream needs no thread, a
    # connection is pinged as often as keepalive says, and no service config comes from DNS.
    "grpc.use_local_subchannel_pool": _nothing,
    "SingleThreadedUnaryStream": _nothing,
    "grpc.http2.max_pings_without_data": _nothing,
    "grpc.http2.min_time_between_pings_ms": _nothing,
    "grpc.http2.min_ping_interval_without_data_ms": _nothing,
    "grpc.service_config_disable_resolution": _nothing,
}
# The thing to use in place of an option that has no meaning here.
_INSTEAD: Dict[str, str] = {
    "grpc.http2.bdp_probe": "the option max_window_bytes of penstock.Channel",
    "grpc.http2.max_frame_size": "nothing: frames have HTTP/2's usual size",
    "grpc.http2.write_buffer_size": "send_buffer_bytes of a call in the C API",
    "grpc.max_connection_age_ms": "the option max_connection_age_ms of penstock.Channel; grpcio's is for servers",
    "grpc.max_connection_idle_ms": "grpc.client_idle_timeout_ms; this one is for servers",
    "grpc.enable_channelz": "penstock.snapshot()",
    "grpc.so_reuseport": "nothing: it is for servers",
}


# The options that belong into ``tls``.
_OF_TLS = ("server_name", "session_resumption")


def with_tls_options(tls: TLS, chosen: Options) -> TLS:
    """``tls`` with those of the ``chosen`` options that belong into it, which are taken out of them."""
    of_tls = {name: chosen.pop(name) for name in _OF_TLS if name in chosen}
    if tls is False or not of_tls:
        return tls
    return {**(tls if isinstance(tls, Mapping) else {}), **of_tls}


def channel_options(
    options: Optional[Iterable[Tuple[str, Any]]], compression: Optional[Compression], stacklevel: int = 4
) -> Options:
    """Penstock's options for grpcio's ``options``, pairs of a name and a value; see also `with_tls_options`. An
    option without a meaning here gives a RuntimeWarning, attributed to the caller that ``stacklevel`` counts.
    ValueError: not pairs."""
    chosen: Options = {}
    for name, value in options or ():
        known = _MEANINGS.get(name)
        if known is not None:
            known(chosen, value)
            continue
        instead = _INSTEAD.get(name)
        text = f"the channel option {name!r} has no effect with penstock"
        warnings.warn(
            f"{text}; {'see docs/options.md for those of penstock.Channel' if instead is None else f'use {instead}'}",
            RuntimeWarning,
            stacklevel=stacklevel,
        )
    if compression is not None:
        _compression(chosen, compression)
    return chosen
