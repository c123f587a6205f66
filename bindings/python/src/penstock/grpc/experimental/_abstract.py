"""The names of ``grpc.experimental`` where grpcio can't be imported."""

from __future__ import annotations

from .._server import server_function


class ChannelOptions:
    """The names of options of grpcio's Python layer."""

    SingleThreadedUnaryStream = "SingleThreadedUnaryStream"


class ExperimentalApiWarning(Warning):
    """grpcio's warning that a function is experimental. This package never gives it."""


class UsageError(Exception):
    """A function was called where it has no meaning."""


wrap_server_method_handler = server_function("experimental.wrap_server_method_handler")
