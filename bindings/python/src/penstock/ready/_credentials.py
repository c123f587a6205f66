"""The interceptors that get tokens by themselves: they sign them, or ask a server of OAuth 2.0 for them."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

from .. import _raw
from ._base import Ready, ms

if TYPE_CHECKING:
    from .._channels.channel import Channel

File = Union[str, "os.PathLike[str]"]


def _path(file: Optional[File]) -> Optional[str]:
    return None if file is None else os.fspath(file)


def _plain(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class SignedToken(Ready):
    """Sends a JSON Web Token that the library signs, as `BearerToken` does: by RS256 or ES256, as the key demands.

    ``key_file``: the private key in PEM form; or ``service_account_file``: the JSON of a service account, which has
    the key. The file is read for each token. ``key_id``, ``issuer``, ``subject``, ``audience``, ``scope``: the
    members "kid", "iss", "sub", "aud" and "scope" of the token; with ``key_file`` the issuer has to be given, and in
    any case the audience or the scope. ``lifetime``: how long a token is valid, in seconds (default: 3600). The other
    arguments are those of `BearerToken`. A call that has no token ends with UNAVAILABLE, whose details name the file
    and the reason.
    """

    def __init__(
        self,
        *,
        key_file: Optional[File] = None,
        service_account_file: Optional[File] = None,
        key_id: Optional[str] = None,
        issuer: Optional[str] = None,
        subject: Optional[str] = None,
        audience: Optional[str] = None,
        scope: Optional[str] = None,
        lifetime: Optional[float] = None,
        header: Optional[str] = None,
        scheme: Optional[str] = None,
        refresh_early: Optional[float] = None,
        replay_bytes: Optional[int] = None,
        allow_cleartext: Optional[bool] = None,
    ) -> None:
        super().__init__(
            key_file=_path(key_file),
            service_account_file=_path(service_account_file),
            key_id=key_id,
            issuer=issuer,
            subject=subject,
            audience=audience,
            scope=scope,
            lifetime_ms=ms(lifetime),
            header=header,
            scheme=scheme,
            refresh_early_ms=ms(refresh_early),
            replay_bytes=replay_bytes,
            allow_cleartext=allow_cleartext,
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_jwt, table, options)


class OAuth2(Ready):
    """Sends a token that a server of OAuth 2.0 gives, as `BearerToken` does.

    ``server``: the channel to the token server, best with ``protocol="connect"``, with which servers may speak
    HTTP/1.1 or HTTP/2. ``token_path``: the path of its URL. ``grant``: "client_credentials", "refresh_token" or
    "jwt_bearer". ``client_authentication``: "basic", or "form": the client's name and secret are sent in the form.
    ``jwt``: how a token is signed here: a mapping with the options of `SignedToken` by the names that docs/options.md
    lists. It is what "jwt_bearer" exchanges; with the other grants it proves who the client is, in place of a secret.
    ``lifetime``: how long a token is used if the server does not say it, in seconds (default: 3600). The other
    arguments are those of `BearerToken`.

    A call that has no token ends with UNAVAILABLE, or with UNAUTHENTICATED if the server refuses the request; its
    details have the server's own words.
    """

    def __init__(
        self,
        server: Channel,
        *,
        grant: str,
        token_path: str,
        client_id: Optional[str] = None,
        client_secret: Optional[str] = None,
        client_authentication: Optional[str] = None,
        scope: Optional[str] = None,
        audience: Optional[str] = None,
        refresh_token: Optional[str] = None,
        jwt: Optional[Mapping[str, object]] = None,
        lifetime: Optional[float] = None,
        refresh_early: Optional[float] = None,
        refresh_timeout: Optional[float] = None,
        replay_bytes: Optional[int] = None,
        allow_cleartext: Optional[bool] = None,
    ) -> None:
        self._server = server
        super().__init__(
            grant=grant,
            token_path=token_path,
            client_id=client_id,
            client_secret=client_secret,
            client_authentication=client_authentication,
            scope=scope,
            audience=audience,
            refresh_token=refresh_token,
            jwt=None if jwt is None else {name: _plain(value) for name, value in jwt.items()},
            lifetime_ms=ms(lifetime),
            refresh_early_ms=ms(refresh_early),
            refresh_timeout_ms=ms(refresh_timeout),
            replay_bytes=replay_bytes,
            allow_cleartext=allow_cleartext,
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(partial(_raw.penstock_ready_oauth2, options, self._server._handle), table)
