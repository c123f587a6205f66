"""The names of grpcio that are about servers, of which penstock has none. Generated modules and packages name these
classes when they are imported, also where only their clients are used."""

from __future__ import annotations

from typing import Any, Dict

from . import _abstract


class Server:
    """grpcio's class of a server."""


class ServicerContext(_abstract.RpcContext):
    """grpcio's class of a call, as its server sees it."""


class RpcMethodHandler:
    """grpcio's class of a method's handler."""


class HandlerCallDetails:
    """grpcio's class of a call that a server is about to handle."""


class GenericRpcHandler:
    """grpcio's class of a handler of several methods."""


class ServiceRpcHandler(GenericRpcHandler):
    """grpcio's class of a handler of a service."""


class ServerInterceptor:
    """grpcio's class of a server's interceptor."""


class ServerCredentials:
    """grpcio's class of a server's credentials."""


class ServerCertificateConfiguration:
    """grpcio's class of a server's certificates."""


def server_function(name: str) -> Any:
    """A function in the place of ``grpc.`` and ``name``, which raises NotImplementedError."""

    def make(*arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError(f"grpc.{name} needs grpcio: penstock has no server")

    make.__name__ = name
    return make


NAMES: Dict[str, Any] = {
    **{
        made.__name__: made
        for made in (
            *(Server, ServicerContext, RpcMethodHandler, HandlerCallDetails, GenericRpcHandler),
            *(ServiceRpcHandler, ServerInterceptor, ServerCredentials, ServerCertificateConfiguration),
        )
    },
    **{
        name: server_function(name)
        for name in (
            "alts_server_credentials",
            "dynamic_ssl_server_credentials",
            "insecure_server_credentials",
            "local_server_credentials",
            "method_handlers_generic_handler",
            "protos",
            "protos_and_services",
            "server",
            "services",
            "ssl_server_certificate_configuration",
            "ssl_server_credentials",
            "stream_stream_rpc_method_handler",
            "stream_unary_rpc_method_handler",
            "unary_stream_rpc_method_handler",
            "unary_unary_rpc_method_handler",
            "xds_server_credentials",
        )
    },
}
