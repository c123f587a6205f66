"""grpcio's names, signatures and behaviours on penstock's channels and calls: one changed import moves a program.

    import penstock.grpc as grpc

    with grpc.insecure_channel("localhost:50051") as channel:
        print(GreeterStub(channel).SayHello(HelloRequest(name="you")))

Where grpcio can be imported, classes and enumerations are grpcio's own, so that its channels, calls, errors and codes
and those of this module are of the same types; no call goes through grpcio. `penstock.install_grpc_shim` puts this
module in the place of ``grpc`` where grpcio is not installed. docs/python.md lists the differences.
"""

from __future__ import annotations

from typing import Any

from . import _names, _server
from . import experimental as experimental
from ._channel import insecure_channel, secure_channel
from ._connectivity import channel_ready_future
from ._credentials import (
    access_token_call_credentials,
    alts_channel_credentials,
    composite_call_credentials,
    composite_channel_credentials,
    compute_engine_channel_credentials,
    local_channel_credentials,
    metadata_call_credentials,
    ssl_channel_credentials,
    xds_channel_credentials,
)
from ._interceptors import intercept_channel
from ._names import *  # noqa: F403

# grpcio's version whose interface this is. Generated modules compare it with that of their generator.
__version__ = "1.85.1"

_functions = (
    access_token_call_credentials,
    alts_channel_credentials,
    channel_ready_future,
    composite_call_credentials,
    composite_channel_credentials,
    compute_engine_channel_credentials,
    insecure_channel,
    intercept_channel,
    local_channel_credentials,
    metadata_call_credentials,
    secure_channel,
    ssl_channel_credentials,
    xds_channel_credentials,
)
__all__ = [*_names.__all__, *(function.__name__ for function in _functions)]


def __getattr__(name: str) -> Any:
    """The names of servers: grpcio's own where it can be imported."""
    if name in _server.NAMES:
        return getattr(_names.source, name) if _names.source is not None else _server.NAMES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
