"""Credentials of channels and of calls, made by functions with grpcio's names and signatures."""

from __future__ import annotations

import contextvars
import ipaddress
from typing import Any, Dict, NamedTuple, Optional, Tuple, Union

from ._names import (
    AuthMetadataContext,
    AuthMetadataPlugin,
    AuthMetadataPluginCallback,
    CallCredentials,
    ChannelCredentials,
    LocalConnectionType,
)


class Plugin(NamedTuple):
    """A plug-in that is asked for metadata at each call, in a copy of the context in which it was registered."""

    plugin: Any
    context: contextvars.Context


class ChannelSecrets(NamedTuple):
    """What a `ChannelCredentials` of this package holds."""

    # The option "tls" of the channel.
    tls: Union[bool, Dict[str, Any]]
    # Whether only a server on this machine may be connected to, and how.
    local: Optional[LocalConnectionType] = None
    plugins: Tuple[Plugin, ...] = ()

    @property
    def protects(self) -> bool:
        """Whether the credentials of a call may be sent on such a channel."""
        return self.tls is not False or self.local is not None


class CallSecrets(NamedTuple):
    """What a `CallCredentials` of this package holds."""

    plugins: Tuple[Plugin, ...]


class _AccessToken(AuthMetadataPlugin):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, context: AuthMetadataContext, callback: AuthMetadataPluginCallback) -> None:
        callback((("authorization", f"Bearer {self._token}"),), None)


def channel_secrets(credentials: ChannelCredentials) -> ChannelSecrets:
    """TypeError: the credentials are not of this package. AttributeError, as in grpcio: they are no credentials."""
    secrets = credentials._credentials
    if not isinstance(secrets, ChannelSecrets):
        raise TypeError(f"credentials of grpcio can't be read: make them by penstock.grpc, not {credentials!r}")
    return secrets


def call_secrets(credentials: Optional[CallCredentials]) -> Tuple[Plugin, ...]:
    """The plug-ins of a call's credentials. Errors are those of `channel_secrets`."""
    if credentials is None:
        return ()
    secrets = credentials._credentials
    if not isinstance(secrets, CallSecrets):
        raise TypeError(f"credentials of grpcio can't be read: make them by penstock.grpc, not {credentials!r}")
    return secrets.plugins


def ssl_channel_credentials(
    root_certificates: Optional[bytes] = None,
    private_key: Optional[bytes] = None,
    certificate_chain: Optional[bytes] = None,
) -> ChannelCredentials:
    """Credentials for TLS. Each argument is in PEM form; without ``root_certificates`` the roots of the system are
    trusted; key and chain are the client's own."""
    tls: Dict[str, Any] = {}
    if root_certificates is not None:
        tls["roots_pem"] = root_certificates
    if private_key is not None:
        tls["private_key_pem"] = private_key
    if certificate_chain is not None:
        tls["certificate_chain_pem"] = certificate_chain
    return ChannelCredentials(ChannelSecrets(tls or True))


def local_channel_credentials(
    local_connect_type: LocalConnectionType = LocalConnectionType.LOCAL_TCP,
) -> ChannelCredentials:
    """Credentials for a server on this machine, in cleartext."""
    return ChannelCredentials(ChannelSecrets(False, LocalConnectionType(local_connect_type)))


def metadata_call_credentials(metadata_plugin: AuthMetadataPlugin, name: Optional[str] = None) -> CallCredentials:
    """Credentials of a call, for which ``metadata_plugin(context, callback)`` is asked at each call, on a thread of
    its own: it may wait."""
    return CallCredentials(CallSecrets((Plugin(metadata_plugin, contextvars.copy_context()),)))


def access_token_call_credentials(access_token: str) -> CallCredentials:
    """Credentials of a call that send ``authorization: Bearer`` and the token."""
    return metadata_call_credentials(_AccessToken(access_token))


def composite_call_credentials(*call_credentials: CallCredentials) -> CallCredentials:
    """Credentials that add the metadata of each of ``call_credentials``."""
    return CallCredentials(CallSecrets(tuple(plugin for one in call_credentials for plugin in call_secrets(one))))


def composite_channel_credentials(
    channel_credentials: ChannelCredentials, *call_credentials: CallCredentials
) -> ChannelCredentials:
    """Credentials of a channel each of whose calls has ``call_credentials``."""
    secrets = channel_secrets(channel_credentials)
    plugins = tuple(plugin for one in call_credentials for plugin in call_secrets(one))
    return ChannelCredentials(secrets._replace(plugins=secrets.plugins + plugins))


def check_local(target: str, secrets: ChannelSecrets) -> None:
    """ValueError: the credentials are for a server on this machine, and the target is another."""
    kind = secrets.local
    if kind is None:
        return
    rest = target.rpartition("/")[2]
    is_socket = target.startswith(("unix:", "unix-abstract:"))
    if kind is LocalConnectionType.UDS:
        is_local = is_socket
    else:
        host = (rest or target).removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0].strip("[]")
        is_local = not is_socket and (host == "localhost" or _is_loopback(host))
    if not is_local:
        raise ValueError(f"local_channel_credentials({kind}) are not for the target {target!r}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unavailable(name: str, why: str) -> Any:
    """A function in the place of grpcio's function ``name``, which raises NotImplementedError."""

    def make(*arguments: Any, **keywords: Any) -> ChannelCredentials:
        raise NotImplementedError(f"{name} is not available in penstock.grpc: {why}")

    make.__name__ = name.rpartition(".")[2]
    make.__doc__ = f"Not available: {why}."
    return make


alts_channel_credentials = unavailable("alts_channel_credentials", "ALTS exists only within Google's cloud")
xds_channel_credentials = unavailable("xds_channel_credentials", "there is no xDS; use ssl_channel_credentials")
compute_engine_channel_credentials = unavailable(
    "compute_engine_channel_credentials", "use composite_channel_credentials with ssl_channel_credentials"
)
