"""TLS: which servers are trusted, the error texts for those that are not, and client certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

import penstock
from penstock import Channel, RpcError, StatusCode


def echo(target: str, tls: Any) -> Any:
    with Channel(target, tls=tls) as channel:
        return channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20)


def refused(target: str, tls: Any) -> str:
    with pytest.raises(RpcError) as caught:
        echo(target, tls)
    assert caught.value.code() == StatusCode.UNAVAILABLE
    return caught.value.details()


def test_roots_from_a_file_or_as_text(servers: Dict[str, str], certificates: Path) -> None:
    roots = certificates / "ca.pem"
    assert echo(servers["tls"], {"roots_file": str(roots)}) == b"secret"
    assert echo(servers["tls"], {"roots_pem": roots.read_text()}) == b"secret"
    assert echo(servers["tls"], {"roots_pem": roots.read_bytes()}) == b"secret"


def test_a_stranger_is_not_trusted_and_the_error_says_why(servers: Dict[str, str]) -> None:
    assert "certificate" in refused(servers["tls"], True)
    assert echo(servers["tls"], {"verify": False}) == b"secret"


def test_tls_is_on_unless_it_is_turned_off(servers: Dict[str, str]) -> None:
    with Channel(servers["tls"]) as channel, pytest.raises(RpcError, match="certificate"):
        channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20)
    with Channel(servers["plain"]) as channel, pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Echo/Unary")(b"never in the open", timeout=20)
    assert caught.value.code() == StatusCode.UNAVAILABLE
    assert echo(servers["plain"], False) == b"secret"


def test_the_name_is_verified(servers: Dict[str, str], certificates: Path) -> None:
    roots = {"roots_file": str(certificates / "ca.pem")}
    assert "mismatch" in refused(servers["tls"], {**roots, "server_name": "other.example"}).lower()
    assert echo(servers["tls"], {**roots, "server_name": "localhost"}) == b"secret"


def test_a_certificate_of_one_s_own(servers: Dict[str, str], certificates: Path) -> None:
    roots = {"roots_file": str(certificates / "ca.pem")}
    files = {name: str(certificates / f"client.{end}") for name, end in (("chain", "pem"), ("key", "key"))}
    mutual = {**roots, "certificate_chain_file": files["chain"], "private_key_file": files["key"]}
    assert echo(servers["mtls"], mutual) == b"secret"
    texts = {name: Path(file).read_bytes() for name, file in files.items()}
    mutual = {**roots, "certificate_chain_pem": texts["chain"], "private_key_pem": texts["key"]}  # type: ignore[dict-item]
    assert echo(servers["mtls"], mutual) == b"secret"
    # grpcio's server closes the connection without a TLS alert, so the text is the library's own.
    assert "it asked for a client certificate, and the channel has none; next" in refused(servers["mtls"], roots)


def test_cleartext_and_tls_do_not_meet(servers: Dict[str, str]) -> None:
    assert "it sent nothing, and may want TLS; next attempt" in refused(servers["tls"], False)
    assert "does not speak TLS: it answered in cleartext HTTP/2" in refused(servers["plain"], {"verify": False})


def test_tls_is_given_once(servers: Dict[str, str]) -> None:
    with pytest.raises(ValueError, match="twice"):
        Channel(servers["tls"], tls=True, options={"tls": False})
    with pytest.raises(ValueError, match="twice"):
        Channel(servers["plain"], tls=False, options={"tls": True})
    with Channel(servers["tls"], options={"tls": {"verify": False}}) as channel:
        assert channel.unary_unary("/penstock.Echo/Unary")(b"secret") == b"secret"


@pytest.mark.parametrize(
    ("tls", "path"),
    [
        ({"roots_pem": "not a certificate"}, "roots_pem"),
        ({"roots_file": "/nowhere/roots.pem"}, "roots_file"),
        ({"rots_pem": ""}, "rots_pem"),
        ({"verify": "yes"}, "verify"),
        ({"certificate_chain_pem": "x", "private_key_pem": "y"}, "certificate_chain_pem"),
    ],
)
def test_wrong_options_are_named(servers: Dict[str, str], tls: Any, path: str) -> None:
    with pytest.raises(penstock.InvalidArgumentError) as caught:
        Channel(servers["tls"], tls=tls)
    assert caught.value.path is not None
    assert path in caught.value.path


def test_certificates_are_renewed(servers: Dict[str, str], certificates: Path) -> None:
    texts = {name: (certificates / name).read_bytes() for name in ("ca.pem", "client.pem", "client.key")}
    with Channel(servers["mtls"], tls={"roots_pem": texts["ca.pem"]}) as channel:  # type: ignore[dict-item]
        call = channel.unary_unary("/penstock.Echo/Unary")
        with pytest.raises(RpcError):
            call(b"secret", timeout=20)
        channel.set_tls_pem(certificate_chain=texts["client.pem"], private_key=texts["client.key"].decode())
        assert call(b"secret", timeout=20) == b"secret"
        with pytest.raises(penstock.InvalidArgumentError, match="private key"):
            channel.set_tls_pem(certificate_chain=texts["client.pem"])
    with Channel(servers["plain"], tls=False) as channel, pytest.raises(penstock.StateError):
        channel.set_tls_pem(roots=texts["ca.pem"])
