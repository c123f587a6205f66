"""TLS that has to fail: each wrong thing, over real handshakes, and the text that a user gets for it."""

from __future__ import annotations

import re
import ssl
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

import penstock
from authorities import Authority, handshaker, peer
from helpers import eventually
from penstock import Channel, RpcError, StatusCode

UNARY = "/penstock.Echo/Unary"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("authorities")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    """An authority with an intermediate one and the certificates that the tests need."""
    made = Authority(folder, "root")
    Authority(folder, "middle", made)
    Authority(folder, "stranger").issue("unknown", "subjectAltName=DNS:client")
    made.server("good")
    made.server("elsewhere", san="DNS:shop.example")
    made.server("stars", san="DNS:*.stars.example")
    made.server("expired", start=-9, end=-2)
    made.server("future", start=2, end=9)
    made.server("revoked")
    made.revoke("revoked")
    made.issue("client", "keyUsage=digitalSignature")
    made.issue("workload", "subjectAltName=URI:spiffe://example.org/shop")
    made.issue("two", "subjectAltName=URI:spiffe://example.org/shop,URI:spiffe://example.org/cart")
    return made


def call(target: str, tls: Any, **options: Any) -> bytes:
    with Channel(target, tls=tls, options=options) as channel:
        return channel.unary_unary(UNARY)(b"secret", timeout=20)


def refused(target: str, tls: Any, **options: Any) -> str:
    """The message of a call to a server that the channel can't connect to, without its beginning and its end."""
    with pytest.raises(RpcError) as caught:
        call(target, tls, **options)
    assert caught.value.code() == StatusCode.UNAVAILABLE
    text = caught.value.details()
    return re.sub(r"^could not connect to [^ ]+: |; next attempt.*$", "", text)


def refused_by(authority: Authority, name: str, **tls: Any) -> str:
    with peer(authority.folder / f"{name}.pem") as target:
        return refused(target, {"roots_file": str(authority.root), **tls})


VERIFY = "certificate verify failed: "


def test_what_is_right_passes(authority: Authority) -> None:
    with peer(authority.folder / "good.pem") as target:
        assert call(target, {"roots_file": str(authority.root)}) == b"secret"
        assert call(target, {"roots_file": str(authority.root), "crls_pem": authority.crl()}) == b"secret"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("expired", "certificate has expired, expected host 127.0.0.1; subject CN=expired, issuer CN=root"),
        ("future", "certificate is not yet valid, expected host 127.0.0.1; subject CN=future, issuer CN=root"),
        ("elsewhere", "IP address mismatch, expected host 127.0.0.1; subject CN=elsewhere, issuer CN=root"),
        (
            "unknown",
            "unable to get local issuer certificate, expected host 127.0.0.1; subject CN=unknown, issuer CN=stranger",
        ),
        ("stranger", "self-signed certificate, expected host 127.0.0.1; subject CN=stranger, issuer CN=stranger"),
    ],
)
def test_a_wrong_certificate(authority: Authority, name: str, words: str) -> None:
    # OpenSSL 3.6 adds the other cause.
    assert refused_by(authority, name).replace(" or the system clock is incorrect", "") == VERIFY + words


def test_a_wrong_name(authority: Authority) -> None:
    assert refused_by(authority, "good", server_name="shop.example") == (
        VERIFY + "hostname mismatch, expected host shop.example; subject CN=good, issuer CN=root"
    )


NAMES = ["old.example", "shop.example"]


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("elsewhere", NAMES),
        ("elsewhere", ["shop.example.", "old.example"]),
        ("elsewhere", ["10.1.2.3", "shop.example"]),
        ("good", ["old.example", "127.0.0.1"]),
        ("good", ["10.1.2.3", "127.0.0.1"]),
        ("stars", [*NAMES, "a.stars.example"]),
    ],
)
def test_one_of_several_names(authority: Authority, name: str, names: List[str]) -> None:
    """Host names and addresses may be mixed; a name may be the first or a later one."""
    with peer(authority.folder / f"{name}.pem") as target:
        assert call(target, {"roots_file": str(authority.root), "server_name": names}) == b"secret"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a.example"], "hostname mismatch, expected host a.example"),
        (NAMES, "hostname mismatch, expected host old.example or shop.example"),
        (["10.1.2.3", "::1"], "IP address mismatch, expected host 10.1.2.3 or ::1"),
        (
            ["a.example", "10.1.2.3", "c.example."],
            "hostname mismatch, expected host a.example, 10.1.2.3 or c.example",
        ),
        # The common name does not count.
        (["good", "a.localhost"], "hostname mismatch, expected host good or a.localhost"),
        (
            [f"{number}.example" for number in range(16)],
            "hostname mismatch, expected host "
            + ", ".join(f"{number}.example" for number in range(15))
            + " or 15.example",
        ),
    ],
)
def test_none_of_several_names(authority: Authority, names: List[str], words: str) -> None:
    assert refused_by(authority, "good", server_name=names) == VERIFY + words + "; subject CN=good, issuer CN=root"


def test_the_first_name_is_sent(authority: Authority) -> None:
    """An address that is the first is not sent, and neither is a name behind it."""
    seen: List[Optional[str]] = []

    def watch(context: ssl.SSLContext) -> None:
        context.sni_callback = lambda connection, name, context: seen.append(name)

    with handshaker(python_server(authority, watch)) as target:
        for names, sent in ((["a.example", "localhost"], "a.example"), (["127.0.0.1", "localhost"], None)):
            seen.clear()
            with Channel(target, tls={"roots_file": str(authority.root), "server_name": names}) as channel:
                channel.connect()
                eventually(lambda: bool(seen))
            assert seen == [sent]


def test_a_revoked_certificate(authority: Authority) -> None:
    words = VERIFY + "certificate revoked, expected host 127.0.0.1; subject CN=revoked, issuer CN=root"
    assert refused_by(authority, "revoked", crls_pem=authority.crl()) == words


def test_a_list_of_another_authority_is_none(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    assert refused_by(authority, "good", crls_pem=other.crl()) == (
        VERIFY + "unable to get certificate CRL, expected host 127.0.0.1; subject CN=good, issuer CN=root"
    )


def test_authorities_without_a_list_pass(authority: Authority, tmp_path: Path) -> None:
    """The list of the one that has issued the server's certificate is enough; a list that is there counts."""
    root = Authority(tmp_path, "top")
    middle = Authority(tmp_path, "between", root)
    chain = middle.server("leaf")
    chain.write_bytes(chain.read_bytes() + middle.root.read_bytes())
    with peer(chain) as target:
        trust = {"roots_file": str(root.root)}
        assert call(target, {**trust, "crls_pem": middle.crl()}) == b"secret"
        assert call(target, {**trust, "crls_pem": middle.crl() + root.crl()}) == b"secret"
        root.revoke("between")
        text = refused(target, {**trust, "crls_pem": middle.crl() + root.crl()})
        assert text == VERIFY + "certificate revoked, expected host 127.0.0.1; subject CN=between, issuer CN=top"


def python_server(authority: Authority, change: Callable[[ssl.SSLContext], None]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(authority.folder / "good.pem"), str(authority.folder / "good.key"))
    context.set_alpn_protocols(["h2"])
    with warnings.catch_warnings():  # TLS 1.1 is deprecated
        warnings.simplefilter("ignore")
        change(context)
    return context


def without_alpn(context: ssl.SSLContext) -> None:
    context.set_alpn_protocols([])


def only_http1(context: ssl.SSLContext) -> None:
    context.set_alpn_protocols(["http/1.1"])


def only_tls11(context: ssl.SSLContext) -> None:
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1


def only_tls12(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def only_chacha(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")


ALERT = "the peer refused with a TLS alert: "


@pytest.mark.parametrize(
    ("change", "tls", "words"),
    [
        (without_alpn, {}, 'the server did not choose HTTP/2 (no ALPN "h2")'),
        (only_http1, {}, 'the server did not choose HTTP/2 (no ALPN "h2")'),
        (only_tls11, {}, ALERT + "protocol version"),
        (only_tls12, {"min_version": "1.3"}, ALERT + "protocol version"),
        (only_chacha, {"ciphers": ["ECDHE-ECDSA-AES128-GCM-SHA256"]}, ALERT + "handshake failure"),
        (only_tls12, {"ciphers": ["TLS_AES_128_GCM_SHA256"]}, ALERT + "protocol version"),
    ],
)
def test_a_server_that_is_too_old(
    authority: Authority, change: Callable[[ssl.SSLContext], None], tls: Dict[str, Any], words: str
) -> None:
    with handshaker(python_server(authority, change)) as target:
        assert refused(target, {"roots_file": str(authority.root), **tls}) == words


@pytest.mark.parametrize(
    ("tls", "version", "cipher"),
    [
        ({"min_version": "1.3"}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ({"ciphers": ["TLS_CHACHA20_POLY1305_SHA256"]}, "TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
        ({"ciphers": ["ECDHE-ECDSA-AES128-GCM-SHA256"]}, "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (
            {"ciphers": ["TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]},
            "TLSv1.3",
            "TLS_AES_128_GCM_SHA256",
        ),
    ],
)
def test_versions_and_ciphers(authority: Authority, tls: Dict[str, Any], version: str, cipher: str) -> None:
    options = {"roots_file": str(authority.root), **tls}
    with peer(authority.folder / "good.pem") as target, Channel(target, tls=options) as channel:
        _, done = channel.unary_unary(UNARY).with_call(b"x", timeout=20)
        assert (done.stats["tls"]["version"], done.stats["tls"]["cipher"]) == (version, cipher)


def test_client_certificates(authority: Authority) -> None:
    """Missing, of another authority, and right."""
    trust: Dict[str, Any] = {"roots_file": str(authority.root)}

    def own(name: str) -> Dict[str, Any]:
        files = authority.folder / f"{name}.pem", authority.folder / f"{name}.key"
        return {"certificate_chain_file": str(files[0]), "private_key_file": str(files[1])}

    with peer(authority.folder / "good.pem", authority.root) as target:
        asked = "; it asked for a client certificate, and "
        assert refused(target, trust) == ALERT + "certificate required" + asked + "the channel has none"
        text = refused(target, {**trust, **own("unknown")})
        assert text == ALERT + "unknown CA" + asked + "may not accept the channel's"
        assert call(target, {**trust, **own("client")}) == b"secret"
        with pytest.raises(penstock.InvalidArgumentError) as caught:
            call(target, {**trust, **own("client"), "private_key_file": str(authority.folder / "good.key")})
        assert str(caught.value).startswith(
            "$.tls.private_key_file: the private key does not belong to the certificate (key values mismatch)"
        )


# ---- Pins and SPIFFE ids ----


def test_pins(authority: Authority) -> None:
    """A pin is of the server's own key, or of an authority of its verified chain."""
    trust = {"roots_file": str(authority.root)}
    own, root, other = authority.pin("good"), authority.pin("root"), authority.pin("client")
    with peer(authority.folder / "good.pem") as target:
        for pins in ([own], [root], [other, own]):
            assert call(target, {**trust, "spki_pins": pins}) == b"secret"
        assert refused(target, {**trust, "spki_pins": [other]}) == (
            VERIFY + f'none of "spki_pins" fits the server\'s chain: found {own} (CN=good), {root} (CN=root); '
            f"expected {other}; subject CN=good, issuer CN=root"
        )
        # Without a verified chain only the server's own key counts: anybody can send an authority's certificate.
        assert call(target, {"verify": False, "spki_pins": [own]}) == b"secret"
        assert f"found {own} (CN=good); expected {root}" in refused(target, {"verify": False, "spki_pins": [root]})
        # A pin does not replace the other checks.
        assert "mismatch" in refused(target, {**trust, "spki_pins": [own], "server_name": "shop.example"})


def test_an_authority_that_is_only_sent_along_is_not_pinned(authority: Authority, tmp_path: Path) -> None:
    chain = authority.folder / "good.pem"
    long = tmp_path / "long.pem"
    long.write_bytes(chain.read_bytes() + (authority.folder / "middle.pem").read_bytes())
    long.with_suffix(".key").write_bytes((authority.folder / "good.key").read_bytes())
    with peer(long) as target:
        for more in ({}, {"verify": False}):
            tls = {"roots_file": str(authority.root), "spki_pins": [authority.pin("middle")], **more}
            assert "spki_pins" in refused(target, tls)


def test_spiffe_ids(authority: Authority) -> None:
    shop, cart = "spiffe://example.org/shop", "spiffe://example.org/cart"
    trust = {"roots_file": str(authority.root)}
    with peer(authority.folder / "workload.pem") as target:
        assert call(target, {**trust, "spiffe_ids": [cart, shop]}) == b"secret"
        assert call(target, {**trust, "spiffe_ids": [shop], "server_name": "shop.example"}) == b"secret"
        text = refused(target, {**trust, "spiffe_ids": [cart, shop + "s"]})
        assert text == VERIFY + (
            f'none of "spiffe_ids" fits the server\'s certificate: found {shop}; '
            f"expected {cart} or {shop}s; subject CN=workload, issuer CN=root"
        )
        assert "mismatch" in refused(target, trust)
    for valid in ("spiffe://a", "spiffe://a-1_b.org/A/b.c_D-9", "spiffe://example.org/" + "a" * 2027):
        assert "found 0 URIs; expected " + valid[:100] in refused_by(authority, "good", spiffe_ids=[valid])
    assert "found 0 URIs; expected " + shop in refused_by(authority, "good", spiffe_ids=[shop])
    assert "found 2 URIs; expected " + shop in refused_by(authority, "two", spiffe_ids=[shop])
    # The chain is verified all the same.
    with peer(authority.folder / "workload.pem") as target:
        text = refused(target, {"roots_file": str(authority.folder / "stranger.pem"), "spiffe_ids": [shop]})
        assert text == VERIFY + "unable to get local issuer certificate; subject CN=workload, issuer CN=root"


def test_constraints_of_names_leave_the_common_name_alone(authority: Authority) -> None:
    """Of an authority for some hosts, a workload's certificate whose common name looks like another host."""
    folder, shop = authority.folder, "spiffe://example.org/shop"
    confined = Authority(folder, "confined", authority, "nameConstraints=permitted;DNS:.svc.example")
    confined.server("cart.shop.internal", san="URI:" + shop)
    chain = folder / "chain.pem"
    chain.write_bytes((folder / "cart.shop.internal.pem").read_bytes() + confined.root.read_bytes())
    chain.with_suffix(".key").write_bytes((folder / "cart.shop.internal.key").read_bytes())
    with peer(chain) as target:
        by_name = target.replace("127.0.0.1", "localhost")
        assert call(by_name, {"roots_file": str(authority.root), "spiffe_ids": [shop]}) == b"secret"


# ---- Options ----


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ({"spki_pins": []}, "$.tls.spki_pins: expected an array that is not empty"),
        ({"spki_pins": ["x"]}, "$.tls.spki_pins[0]: expected a SHA-256 hash in base64, of 44 characters"),
        ({"spki_pins": ["*" * 44]}, "$.tls.spki_pins[0]: "),
        ({"spiffe_ids": ["spiffe://a", "https://example.org"]}, "$.tls.spiffe_ids[1]: expected a SPIFFE id"),
        ({"spiffe_ids": ["spiffe://Example.org/a"]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe://example.org/"]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe://"]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe:///a"]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe://example.org//a"]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe://example.org/a%20b"]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe://example.org:7/a"]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe://example.org/" + "a" * 2028]}, "$.tls.spiffe_ids[0]: "),
        ({"spiffe_ids": ["spiffe://a"], "verify": False}, '$.tls.spiffe_ids: they have to be verified, but "verify"'),
        ({"server_name": []}, "$.tls.server_name: expected an array of 1 to 16 names, got another array"),
        ({"server_name": ["a"] * 17}, "$.tls.server_name: expected an array of 1 to 16 names"),
        ({"server_name": ["a", "*.b"]}, "$.tls.server_name[1]: it has a character that no host name has"),
        ({"server_name": ["a", None]}, "$.tls.server_name[1]: expected a host name or an IP address, got null"),
        ({"crls_pem": "x"}, "$.tls.crls_pem: no list of revoked certificates in PEM form"),
        ({"crls_file": "/nowhere/x"}, "$.tls.crls_file: cannot read the file: No such file"),
        ({"min_version": "1.1"}, '$.tls.min_version: expected "1.2" or "1.3"'),
        ({"ciphers": ["TLS_NULL"]}, "$.tls.ciphers: TLS_NULL is not known"),
        ({"ciphers": ["ALL"]}, "$.tls.ciphers: ALL is not known"),
        ({"ciphers": ["AES128-SHA"]}, "$.tls.ciphers: AES128-SHA lacks forward secrecy, AEAD or certificates"),
        # With an anonymous suite no certificate would be checked.
        (
            {"ciphers": ["ADH-AES128-GCM-SHA256"]},
            "$.tls.ciphers: ADH-AES128-GCM-SHA256 lacks forward secrecy, AEAD or certificates",
        ),
        ({"ciphers": ["ALL:@SECLEVEL=0"]}, "$.tls.ciphers[0]: expected the name of a cipher suite"),
        (
            {"ciphers": ["ECDHE-ECDSA-AES128-GCM-SHA256"], "min_version": "1.3"},
            '$.tls.ciphers: "min_version" is "1.3", and no cipher suite of TLS 1.3 is named',
        ),
        ({"key_log_file": "/nowhere/keys"}, "$.tls.key_log_file: cannot write the file: No such file"),
        # A pipe without a reader would stop the process or the loop.
        ({"key_log_file": "/dev/null"}, "$.tls.key_log_file: cannot write the file: Invalid argument"),
    ],
)
def test_wrong_options(tls: Dict[str, Any], words: str) -> None:
    with pytest.raises(penstock.InvalidArgumentError) as caught:
        Channel("localhost:1", tls=tls)
    assert str(caught.value).startswith(words)


def test_only_an_option_logs_keys(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never, keys = tmp_path / "never", tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(never))
    with peer(authority.folder / "good.pem") as target:
        trust = {"roots_file": str(authority.root)}
        assert call(target, trust) == b"secret"
        assert call(target, {**trust, "key_log_file": str(keys)}) == b"secret"
        assert call(target, {**trust, "key_log_file": str(keys), "min_version": "1.3"}) == b"secret"
    assert not never.exists()
    assert keys.stat().st_mode & 0o777 == 0o600
    lines = keys.read_text().splitlines()
    randoms = {line.split()[1] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0 ")}
    assert len(randoms) == 2  # each connection's
