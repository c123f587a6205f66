"""The ready-made credentials: tokens that the library signs, and those of a server of OAuth 2.0."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import subprocess
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any, Dict, Iterator, List

import grpc
import pytest

import penstock
from helpers import eventually, seen, unary
from penstock import Channel, InvalidArgumentError, RpcError, StatusCode, ready
from token_server import TokenServer, opened, running_http2_server, running_token_server, token

KEYS = {
    "RS256": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "ES256": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "short": ["RSA", "-pkeyopt", "rsa_keygen_bits:1024"],
    "other curve": ["EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
}


def key(folder: Path, kind: str) -> Path:
    file = folder / f"{kind}.pem"
    command = ["openssl", "genpkey", "-algorithm", *KEYS[kind], "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return file


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with running_token_server() as made:
        yield made


@pytest.fixture
def plain(servers: Dict[str, str]) -> Iterator[Channel]:
    with Channel(servers["plain"], tls=False) as channel:
        yield channel


@contextlib.contextmanager
def to(server: TokenServer, **options: object) -> Iterator[Channel]:
    with Channel(server.target, tls=False, options={"protocol": "connect", **options}) as channel:
        yield channel


class Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes no token at all."""

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        )


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Refusing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def sent(channel: Channel) -> List[str]:
    call = channel.unary_unary("/penstock.Probe/Unary", lambda view: json.dumps(view).encode(), json.loads)
    return seen(call({}), "authorization")


def client(channel: Channel, **options: Any) -> ready.OAuth2:
    given = {"client_id": "me", "client_secret": "s&cret", "allow_cleartext": True, **options}
    return ready.OAuth2(channel, grant="client_credentials", token_path="/oauth2/token", **given)


# ---- Tokens that the library signs ----


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_signed_token(plain: Channel, tmp_path: Path, algorithm: str) -> None:
    file = key(tmp_path, algorithm)
    before = int(time.time())
    plain.add_interceptor(
        ready.SignedToken(
            key_file=file,
            key_id="key-1",
            issuer="me",
            subject='"you"',
            audience="https://server/",
            scope="a b",
            lifetime=600,
            allow_cleartext=True,
        )
    )
    [value] = sent(plain)
    assert sent(plain) == [value]
    header, claims = opened(value.removeprefix("Bearer "), file)
    assert header == {"alg": algorithm, "typ": "JWT", "kid": "key-1"}
    assert before <= claims["iat"] <= time.time()
    assert claims == {
        "iss": "me",
        "sub": '"you"',
        "aud": "https://server/",
        "scope": "a b",
        "iat": claims["iat"],
        "exp": claims["iat"] + 600,
    }


def account(folder: Path, key_file: Path) -> Path:
    file = folder / "account.json"
    text = {
        "type": "service_account",
        "project_id": "none",
        "private_key_id": "key-2",
        "private_key": key_file.read_text(),
        "client_email": "me@project",
        "token_uri": "https://tokens/oauth2/token",
    }
    file.write_text(json.dumps(text))
    return file


def test_a_service_account_signs_for_itself(plain: Channel, tmp_path: Path) -> None:
    file = key(tmp_path, "RS256")
    both = {"service_account_file": account(tmp_path, file), "audience": "https://server/"}
    plain.add_interceptor(ready.SignedToken(allow_cleartext=True, **both))
    header, claims = opened(sent(plain)[0].removeprefix("Bearer "), file)
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "key-2"}
    assert claims.pop("exp") - claims.pop("iat") == 3600
    assert claims == {"iss": "me@project", "sub": "me@project", "aud": "https://server/"}


def test_a_replaced_key_is_used_when_the_token_has_expired(plain: Channel, tmp_path: Path) -> None:
    file = key(tmp_path, "ES256")
    plain.add_interceptor(ready.SignedToken(key_file=file, issuer="me", scope="x", lifetime=1, allow_cleartext=True))
    [first] = sent(plain)
    opened(first.removeprefix("Bearer "), file)
    key(tmp_path, "ES256")
    eventually(lambda: sent(plain) != [first])

    def is_of_the_new_key() -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            opened(sent(plain)[0].removeprefix("Bearer "), file)
            return True
        return False

    eventually(is_of_the_new_key)


@pytest.mark.parametrize("kind", ["short", "other curve"])
def test_a_key_that_signs_no_tokens(plain: Channel, tmp_path: Path, kind: str) -> None:
    file = key(tmp_path, kind)
    plain.add_interceptor(ready.SignedToken(key_file=file, issuer="me", scope="x", allow_cleartext=True))
    with pytest.raises(RpcError, match="neither for RSA, of at least 2048 bits, nor for the curve P-256") as raised:
        unary(plain)
    assert raised.value.code() == StatusCode.UNAVAILABLE


def test_a_signed_token_goes_over_tls_only(plain: Channel, tmp_path: Path) -> None:
    plain.add_interceptor(ready.SignedToken(key_file=key(tmp_path, "ES256"), issuer="me", scope="x"))
    with pytest.raises(RpcError, match="a bearer token is sent over TLS only") as raised:
        unary(plain)
    assert raised.value.code() == StatusCode.UNAUTHENTICATED


# ---- Tokens of a server ----


def test_one_request_serves_many_calls(plain: Channel, server: TokenServer) -> None:
    with to(server) as tokens:
        plain.add_interceptor(client(tokens, scope="read write", audience="https://server/"))
        futures = [plain.unary_unary("/penstock.Echo/Unary").future(b"x") for _ in range(20)]
        assert [future.result() for future in futures] == [b"x"] * 20
        assert sent(plain) == ["Bearer token-1"]
    assert server.paths == ["/oauth2/token"]
    assert server.forms == [
        {"grant_type": "client_credentials", "scope": "read write", "audience": "https://server/"}
    ]
    assert server.headers[0]["authorization"] == "Basic bWU6cyUyNmNyZXQ="  # me:s%26cret


def test_a_token_is_renewed_while_calls_use_it(plain: Channel, server: TokenServer) -> None:
    server.answers = [token("token-1", expires_in=2), token("token-2")]
    with to(server) as tokens:
        plain.add_interceptor(client(tokens, refresh_early=60))
        values: List[str] = []

        def has_changed() -> bool:
            values.extend(sent(plain))
            return values[-1] == "Bearer token-2"

        eventually(has_changed)
    assert set(values[:-1]) == {"Bearer token-1"}
    assert len(server.forms) == 2


def test_over_tls_with_the_channel_s_trust(servers: Dict[str, str], certificates: Path) -> None:
    trust = {"roots_file": str(certificates / "ca.pem")}
    with running_token_server(certificates) as server, Channel(servers["tls"], tls=trust) as channel:
        options = {"client_id": "me", "grant": "client_credentials", "token_path": "/token"}
        connect = {"protocol": "connect"}
        with Channel(server.target, tls=trust, options=connect) as tokens:
            added = channel.add_interceptor(ready.OAuth2(tokens, **options))
            assert sent(channel) == ["Bearer token-1"]
            added.remove()
        with Channel(server.target, options=connect) as tokens:
            channel.add_interceptor(ready.OAuth2(tokens, **options))
            with pytest.raises(RpcError, match=r"no token from the token server: .*certificate") as raised:
                unary(channel)
    assert raised.value.code() == StatusCode.UNAVAILABLE
    assert server.forms == [{"grant_type": "client_credentials", "client_id": "me"}]


def test_interceptors_of_the_token_channel_see_nothing(plain: Channel, server: TokenServer) -> None:
    with to(server) as tokens:
        seen_starts: List[str] = []

        class Curious(penstock.Interceptor):
            def on_start(self, hop: penstock.Hop) -> None:
                seen_starts.append(hop.method)

        tokens.add_interceptor(Curious())
        both = client(tokens)
        plain.add_interceptor(both)
        tokens.add_interceptor(both)
        assert sent(plain) == ["Bearer token-1"]
    assert seen_starts == []


def test_a_refresh_token_that_the_server_replaces(plain: Channel, server: TokenServer) -> None:
    server.answers = [token("token-1", expires_in=0, refresh_token="second"), token("token-2", expires_in=0)]
    with to(server) as tokens:
        plain.add_interceptor(
            ready.OAuth2(
                tokens,
                grant="refresh_token",
                token_path="/token",
                refresh_token="first",
                client_id="me",
                client_secret="secret",
                client_authentication="form",
                allow_cleartext=True,
            )
        )
        assert sent(plain) == ["Bearer token-1"]
        assert sent(plain) == ["Bearer token-2"]
        assert sent(plain) == ["Bearer token-2"]
    assert [form["refresh_token"] for form in server.forms] == ["first", "second", "second"]
    assert server.forms[0]["client_id"] == "me"
    assert server.forms[0]["client_secret"] == "secret"
    assert "authorization" not in server.headers[0]


def test_a_service_account_exchanges_its_token(plain: Channel, server: TokenServer, tmp_path: Path) -> None:
    file = key(tmp_path, "RS256")
    jwt = {"service_account_file": str(account(tmp_path, file)), "scope": "all"}
    with to(server) as tokens:
        plain.add_interceptor(
            ready.OAuth2(tokens, grant="jwt_bearer", token_path="/token?x=1", jwt=jwt, allow_cleartext=True)
        )
        assert sent(plain) == ["Bearer token-1"]
    assert server.paths == ["/token?x=1"]
    [form] = server.forms
    header, claims = opened(form.pop("assertion"), file)
    assert form == {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "key-2"}
    assert claims.pop("exp") - claims.pop("iat") == 300
    assert claims.pop("jti")
    assert claims == {"iss": "me@project", "aud": "https://tokens/oauth2/token", "scope": "all"}


def test_a_signed_token_in_place_of_a_secret(plain: Channel, server: TokenServer, tmp_path: Path) -> None:
    file = key(tmp_path, "ES256")
    server.answers = [token("token-1", expires_in=0)]
    with to(server) as tokens:
        jwt = {"key_file": file, "audience": "https://tokens/"}
        plain.add_interceptor(client(tokens, client_secret=None, jwt=jwt))
        assert sent(plain) == ["Bearer token-1"]
        assert sent(plain) == ["Bearer token-1"]
    ids = set()
    for form in server.forms:
        _, claims = opened(form.pop("client_assertion"), file)
        assert form == {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        }
        ids.add(claims["jti"])
        assert [claims[name] for name in ("iss", "sub", "aud")] == ["me", "me", "https://tokens/"]
    assert len(ids) == 2


def test_a_key_that_is_not_there_fails_calls_until_it_is(plain: Channel, server: TokenServer, tmp_path: Path) -> None:
    file = Path(key(tmp_path, "ES256"))
    kept = file.read_bytes()
    with to(server) as tokens:
        jwt = {"key_file": str(file), "audience": "https://tokens/"}
        plain.add_interceptor(client(tokens, client_secret=None, jwt=jwt))
        wrong = (
            (None, "can't be read: No such file"),
            (b"x", "no private key in PEM form"),
            (b"x" * 65537, "has more than 65536 bytes"),
        )
        for content, words in wrong:
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content)
            with pytest.raises(RpcError, match=words) as raised:
                unary(plain, timeout=20)
            assert raised.value.code() is StatusCode.UNAVAILABLE
        assert server.forms == []
        file.write_bytes(kept)
        assert sent(plain) == ["Bearer token-1"]


@pytest.mark.parametrize("options", [{"protocol": "connect", "http": "2"}, {"protocol": "grpc"}])
def test_over_http2(plain: Channel, options: Dict[str, str]) -> None:
    with running_http2_server() as server, Channel(server.target, tls=False, options=options) as tokens:
        server.answers = [
            token("token-1", expires_in=0),
            (400, {"error": "invalid_client"}, {}),
            (503, b"", {"retry-after": "3600"}),
        ]
        added = plain.add_interceptor(client(tokens))
        assert sent(plain) == ["Bearer token-1"]
        with pytest.raises(RpcError, match="HTTP status 400: invalid_client") as raised:
            unary(plain)
        assert raised.value.code() == StatusCode.UNAUTHENTICATED
        added.remove()
        plain.add_interceptor(client(tokens))
        for _ in range(2):
            with pytest.raises(RpcError, match=r"HTTP status 503$") as raised:
                unary(plain)
            assert raised.value.code() == StatusCode.UNAVAILABLE
    assert server.paths == ["/oauth2/token"] * 3
    assert server.headers[0][":method"] == "POST"
    assert server.headers[0]["authorization"] == "Basic bWU6cyUyNmNyZXQ="


def test_a_refusal_in_the_server_s_words(plain: Channel, server: TokenServer) -> None:
    server.answers = [(400, {"error": "invalid_scope", "error_description": "no such scope"}, {})]
    with to(server) as tokens:
        plain.add_interceptor(client(tokens))
        with pytest.raises(RpcError) as raised:
            unary(plain)
    assert raised.value.code() == StatusCode.UNAUTHENTICATED
    details = "no token from the token server: HTTP status 400: invalid_scope: no such scope"
    assert raised.value.details() == details


def test_an_answer_that_does_not_end(plain: Channel) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def pour() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{")
                while True:
                    connection.sendall(b" " * 65536)

        thread = threading.Thread(target=pour)
        thread.start()
        with to(TokenServer(listening.getsockname()[1])) as tokens:
            plain.add_interceptor(client(tokens))
            with pytest.raises(RpcError, match="over the limit of 65536") as raised:
                unary(plain)
        assert raised.value.code() == StatusCode.RESOURCE_EXHAUSTED
        thread.join()


def test_a_closed_channel_gives_no_tokens(plain: Channel, server: TokenServer) -> None:
    with to(server) as tokens:
        plain.add_interceptor(client(tokens))
    with pytest.raises(RpcError, match="no token from the token server: the channel to it has been closed"):
        unary(plain)


@pytest.mark.parametrize("told", ["s&cret", "in s%26cret out", base64.b64encode(b"me:s%26cret").decode()])
def test_no_secret_in_logs(plain: Channel, server: TokenServer, told: str) -> None:
    """The token server tells the secret, as it is or as the request had it, in its error."""
    lines: List[str] = []
    server.answers = [(401, {"error": "x", "error_description": told}, {}), token("tok-en")]
    with to(server) as tokens:
        log = ready.Logging(lambda line: lines.append(json.dumps(line)))
        plain.add_interceptor(log, priority=1)
        tokens.add_interceptor(log, priority=1)
        plain.add_interceptor(client(tokens), priority=100)
        with pytest.raises(RpcError) as refused:
            unary(plain)
        assert "no token from the token server" in refused.value.details()

        def goes() -> bool:
            with contextlib.suppress(RpcError):
                return unary(plain) == b"x"
            return False

        eventually(goes)
        texts = [json.dumps(tokens.stats()), refused.value.details(), *lines]
    assert lines
    assert not any(secret in text for text in texts for secret in (told, "s&cret", "s%26cret", "tok-en"))


def test_cleartext_needs_leave(server: TokenServer) -> None:
    with to(server) as tokens, pytest.raises(InvalidArgumentError, match="has no TLS"):
        client(tokens, allow_cleartext=False)


def test_a_service_that_refuses_every_token_costs_the_token_server_little(server: TokenServer) -> None:
    """A token that is refused at once is replaced once; then the token server has a second's rest."""
    server.answers = [token(f"token-{number}") for number in range(100)]
    with to(server) as tokens, refusing() as target, Channel(target, tls=False) as channel:
        channel.add_interceptor(client(tokens))
        for _ in range(20):
            with pytest.raises(RpcError) as refused:
                unary(channel)
            assert refused.value.code() == StatusCode.UNAUTHENTICATED
    assert len(server.forms) <= 6
