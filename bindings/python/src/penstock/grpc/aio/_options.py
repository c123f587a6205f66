"""Channel options by grpcio's names."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, Iterable, Optional, Tuple


def _limit(size: int) -> int:
    return 2**31 - 1 if size < 0 else size


def _same(value: Any) -> Any:
    return value


# grpcio's name, this library's option, and what becomes of the value.
_OPTIONS: Dict[str, Tuple[str, Callable[[Any], Any]]] = {
    "grpc.max_receive_message_length": ("max_receive_message_bytes", _limit),
    "grpc.max_send_message_length": ("max_send_message_bytes", _limit),
    "grpc.primary_user_agent": ("user_agent", _same),
    "grpc.default_authority": ("authority", _same),
    "grpc.service_config": ("service_config", _same),
    "grpc.keepalive_time_ms": ("keepalive_time_ms", _same),
    "grpc.keepalive_timeout_ms": ("keepalive_timeout_ms", _same),
    "grpc.keepalive_permit_without_calls": ("keepalive_without_calls", bool),
    "grpc.initial_reconnect_backoff_ms": ("initial_backoff_ms", _same),
    "grpc.max_reconnect_backoff_ms": ("max_backoff_ms", _same),
    "grpc.client_idle_timeout_ms": ("idle_timeout_ms", _same),
    "grpc.ssl_target_name_override": ("server_name", _same),
}


def channel_options(given: Optional[Iterable[Tuple[str, Any]]], compression: Any) -> Dict[str, Any]:
    """The library's options for grpcio's; ``server_name`` belongs to TLS. Warns of those without a counterpart."""
    options: Dict[str, Any] = {}
    for name, value in given or ():
        known = _OPTIONS.get(name)
        if known is None:
            text = f"the channel option {name!r} has no effect; see docs/options.md"
            warnings.warn(text, UserWarning, stacklevel=4)
        else:
            options[known[0]] = known[1](value)
    if compression is not None:
        options["compression"] = {"NoCompression": "identity", "Gzip": "gzip", "Deflate": "deflate"}[compression.name]
    return options
