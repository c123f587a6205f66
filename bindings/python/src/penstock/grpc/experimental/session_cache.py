"""grpcio's caches of TLS sessions, for the channel option ``grpc.ssl_session_cache``."""

from __future__ import annotations


class SSLSessionCache:
    """A wish to resume TLS sessions. Each channel keeps those of its own servers."""


def ssl_session_cache_lru(capacity: int) -> SSLSessionCache:
    """A value of ``grpc.ssl_session_cache``, with which a channel resumes TLS sessions. ``capacity`` has no effect: a
    channel keeps a few sessions for each of its servers."""
    return SSLSessionCache()
