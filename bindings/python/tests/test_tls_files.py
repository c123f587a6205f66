"""TLS of later connections: files that are renewed or go bad, and sessions that are resumed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from authorities import Authority, peer
from helpers import eventually, run
from penstock import Channel, ConnectionEvent, EventLevel, Interceptor, RpcError

UNARY = "/penstock.Echo/Unary"
# Each call has a connection of its own.
EACH = {"protocol": "connect", "http": "1.1", "http1_idle_timeout_ms": 0}


class Log(Interceptor):
    """Keeps the events of its channel."""

    def __init__(self) -> None:
        self.events: List[ConnectionEvent] = []

    def on_connection(self, event: ConnectionEvent) -> None:
        self.events.append(event)

    def of(self, kind: str) -> List[ConnectionEvent]:
        return [event for event in self.events if event.kind.name == kind]

    def messages(self, kind: str) -> List[str]:
        return [event.message or "" for event in self.of(kind)]


@contextlib.contextmanager
def opened(
    certificate: Path, log: Optional[Log], tls: Dict[str, Any], client_ca: Optional[Path] = None, **options: Any
) -> Iterator[Channel]:
    """A channel to a peer of its own, with a connection for each call unless ``options`` say otherwise."""
    interceptors = [log] if log else []
    with peer(certificate, client_ca) as target:
        with_options = Channel(target, tls=tls, options=options or EACH, interceptors=interceptors)
        with with_options as channel:
            yield channel


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authorities"), "root")
    made.server("good")
    made.issue("client", "keyUsage=digitalSignature")
    made.issue("later", "keyUsage=digitalSignature")
    Authority(made.folder, "stranger").issue("unknown", "keyUsage=digitalSignature")
    return made


def test_files_are_read_anew(authority: Authority, tmp_path: Path) -> None:
    """Certificate and key of a client, and its roots, change under a channel that goes on."""
    of, log = authority.folder, Log()
    chain, key, roots = (tmp_path / name for name in ("chain.pem", "key.pem", "roots.pem"))

    def put(name: str) -> None:
        chain.write_bytes((of / f"{name}.pem").read_bytes())
        key.write_bytes((of / f"{name}.key").read_bytes())

    put("unknown")
    roots.write_bytes((of / "root.pem").read_bytes())
    tls = {"roots_file": str(roots), "certificate_chain_file": str(chain), "private_key_file": str(key)}
    with opened(of / "good.pem", log, tls, authority.root) as channel:
        call = channel.unary_unary(UNARY)
        with pytest.raises(RpcError, match="may not accept the channel's"):
            call(b"x", timeout=20)
        put("client")
        assert call(b"x", timeout=20, wait_for_ready=True) == b"x"
        (event,) = log.of("TLS_RELOADED")
        assert event.level is EventLevel.INFO
        assert event.message == f"certificate_chain_file {chain}, private_key_file {key}"
        line = json.loads(event.json)
        assert (line["event"], line["message"]) == ("tls_reloaded", event.message)

        # A half-written file: what was read before stays, and is told once.
        whole = (of / "later.pem").read_bytes()
        chain.write_bytes(whole[: len(whole) // 2])
        for _ in range(3):
            assert call(b"x", timeout=20) == b"x"
        (event,) = log.of("TLS_KEPT")
        assert event.level is EventLevel.WARNING
        assert event.message is not None
        assert event.message.startswith(
            f"certificate_chain_file {chain}: certificate_chain_file: certificate 1 does not parse"
        )
        # The certificate is whole, but the key is still the one from before.
        chain.write_bytes(whole)
        assert call(b"x", timeout=20) == b"x"
        assert log.messages("TLS_KEPT")[1] == (
            f"certificate_chain_file {chain}: private_key_file: the private key does not belong to the "
            "certificate (key values mismatch)"
        )
        key.unlink()
        assert call(b"x", timeout=20) == b"x"
        assert "private_key_file: cannot read the file: No such file" in log.messages("TLS_KEPT")[2]
        # A rename puts the new key into place.
        (tmp_path / "new").write_bytes((of / "later.key").read_bytes())
        os.replace(tmp_path / "new", key)
        assert call(b"x", timeout=20) == b"x"
        assert log.messages("TLS_RELOADED")[1] == f"private_key_file {key}"
        assert len(log.of("TLS_KEPT")) == 3

        roots.write_bytes((of / "stranger.pem").read_bytes())
        with pytest.raises(RpcError, match=r"unable to get local issuer|self-signed certificate in"):
            call(b"x", timeout=20)
        assert log.messages("TLS_RELOADED")[2] == f"roots_file {roots}"


def test_a_list_of_revocations_is_read_anew(authority: Authority, tmp_path: Path) -> None:
    own = Authority(tmp_path, "revoking")
    own.server("server")
    crls = tmp_path / "crls.pem"
    crls.write_bytes(own.crl())
    tls = {"roots_file": str(own.root), "crls_file": str(crls)}
    with opened(tmp_path / "server.pem", None, tls) as channel:
        assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        own.revoke("server")
        crls.write_bytes(own.crl())
        with pytest.raises(RpcError, match="certificate revoked"):
            channel.unary_unary(UNARY)(b"x", timeout=20)


def test_nothing_is_read_again_without_a_change(authority: Authority) -> None:
    log = Log()
    tls = {"roots_file": str(authority.root)}
    with opened(authority.folder / "good.pem", log, tls) as channel:
        for _ in range(3):
            assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        assert len(log.of("SECURED")) == 3
        assert not log.of("TLS_RELOADED") + log.of("TLS_KEPT")


def test_pushed_certificates_replace_their_files(authority: Authority, tmp_path: Path) -> None:
    """A part that a call has set is not read from its file any more."""
    roots, log = tmp_path / "roots.pem", Log()
    roots.write_bytes((authority.folder / "stranger.pem").read_bytes())
    with opened(authority.folder / "good.pem", log, {"roots_file": str(roots)}) as channel:
        channel.set_tls_pem(roots=authority.root.read_bytes())
        assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        roots.write_text("no certificate")
        assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        assert not log.of("TLS_RELOADED") + log.of("TLS_KEPT")


# ---- Sessions ----


def resumed(log: Log) -> List[bool]:
    return [json.loads(event.json)["tls_resumed"] for event in log.of("SECURED")]


@pytest.mark.parametrize("asks", [False, True])
def test_sessions_are_resumed(authority: Authority, tmp_path: Path, asks: bool) -> None:
    """Also of a server that asks for a client certificate; a change of the roots begins without sessions."""
    of, log, roots = authority.folder, Log(), tmp_path / "roots.pem"
    roots.write_bytes(authority.root.read_bytes())
    tls: Dict[str, Any] = {"roots_file": str(roots), "session_resumption": True}
    if asks:
        tls.update(certificate_chain_file=str(of / "client.pem"), private_key_file=str(of / "client.key"))
    with opened(of / "good.pem", log, tls, authority.root if asks else None) as channel:
        call = channel.unary_unary(UNARY)
        for _ in range(4):
            assert call(b"x", timeout=20) == b"x"
        assert resumed(log) == [False, True, True, True]
        assert channel.stats()["tls"] == {"full_handshakes": 1, "resumed_handshakes": 3}
        _, done = call.with_call(b"x", timeout=20)
        assert done.peer_certificates is not None
        assert "BEGIN CERTIFICATE" in str(done.peer_certificates)

        roots.write_bytes(authority.root.read_bytes() + (of / "stranger.pem").read_bytes())
        for _ in range(2):
            assert call(b"x", timeout=20) == b"x"
        assert resumed(log)[5:] == [False, True]
        channel.set_tls_pem()
        assert call(b"x", timeout=20) == b"x"
        assert resumed(log)[7:] == [False]

        # No session makes up for a root that is trusted no more.
        roots.write_bytes((of / "stranger.pem").read_bytes())
        with pytest.raises(RpcError, match="certificate verify failed"):
            call(b"x", timeout=20)


def test_sessions_are_resumed_over_http2(authority: Authority) -> None:
    tls = {"roots_file": str(authority.root), "session_resumption": True}
    with opened(authority.folder / "good.pem", None, tls, max_connection_age_ms=1) as channel:
        call = channel.unary_unary(UNARY)

        def has_resumed() -> bool:
            assert call(b"x", timeout=20) == b"x"
            return bool(channel.stats()["tls"]["resumed_handshakes"])

        eventually(has_resumed)
        connections = [one for each in channel.stats()["endpoints"] for one in each["connections"]]
        assert all(isinstance(one["tls_resumed"], bool) for one in connections)


def test_no_session_is_resumed_unless_an_option_says_so(authority: Authority) -> None:
    log = Log()
    tls = {"roots_file": str(authority.root)}
    with opened(authority.folder / "good.pem", log, tls) as channel:
        for _ in range(3):
            assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        assert resumed(log) == [False, False, False]


def test_versions_before_13_are_not_resumed(authority: Authority) -> None:
    """Their tickets have the keys of the connection that they were made for."""
    log = Log()
    ciphers = ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    tls = {"roots_file": str(authority.root), "session_resumption": True, "ciphers": ciphers}
    with opened(authority.folder / "good.pem", log, tls) as channel:
        for _ in range(3):
            assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        assert resumed(log) == [False, False, False]


def test_no_session_is_resumed_with_lists_of_revoked_certificates(tmp_path: Path) -> None:
    """A resumed session shows no certificate that could be looked up, and the lists may have run out."""
    own, log = Authority(tmp_path, "listing"), Log()
    own.server("server")
    (tmp_path / "crls.pem").write_bytes(own.crl())
    tls = {"roots_file": str(own.root), "crls_file": str(tmp_path / "crls.pem"), "session_resumption": True}
    with opened(tmp_path / "server.pem", log, tls) as channel:
        for _ in range(3):
            assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        assert resumed(log) == [False, False, False]


def test_a_pipe_in_the_place_of_a_file_does_not_hold_up_the_loop(authority: Authority, tmp_path: Path) -> None:
    log, roots = Log(), tmp_path / "roots.pem"
    roots.write_bytes(authority.root.read_bytes())
    with opened(authority.folder / "good.pem", log, {"roots_file": str(roots)}) as channel:
        assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        roots.unlink()
        os.mkfifo(roots)
        assert channel.unary_unary(UNARY)(b"x", timeout=20) == b"x"
        assert log.messages("TLS_KEPT") == [f"roots_file {roots}: roots_file: cannot read the file: Invalid argument"]


def test_a_key_log_goes_on_when_files_are_read_anew(authority: Authority, tmp_path: Path) -> None:
    """Its folder need not be there any more."""
    log, roots, folder = Log(), tmp_path / "roots.pem", tmp_path / "keys"
    roots.write_bytes(authority.root.read_bytes())
    folder.mkdir()
    tls = {"roots_file": str(roots), "key_log_file": str(folder / "log")}
    with opened(authority.folder / "good.pem", log, tls) as channel:
        call = channel.unary_unary(UNARY)
        assert call(b"x", timeout=20) == b"x"
        with (folder / "log").open("rb") as keys:
            count = len(keys.read())
            folder.rename(tmp_path / "elsewhere")
            roots.write_bytes(authority.root.read_bytes() + (authority.folder / "stranger.pem").read_bytes())
            assert call(b"x", timeout=20) == b"x"
            assert len(log.of("TLS_RELOADED")) == 1
            assert len(keys.read()) >= count > 0


def test_the_thread_s_errors_of_openssl_stay_empty(tmp_path: Path) -> None:
    """The program's own TLS on this thread would take an error that is left for its own."""
    own = Authority(tmp_path, "quiet")
    own.server("server")
    openssl = ctypes.CDLL("libcrypto.so.3")
    openssl.ERR_clear_error()
    with Channel("localhost:1", tls={"roots_file": str(own.root), "crls_pem": own.crl().decode()}):
        assert openssl.ERR_peek_error() == 0


def test_a_child_resumes_no_session_of_its_parent(authority: Authority) -> None:
    tls = {"roots_file": str(authority.root), "session_resumption": True}
    with peer(authority.folder / "good.pem", None) as target:
        text = f"""
channel = penstock.Channel({target!r}, tls={tls!r}, options={EACH!r})
call = channel.unary_unary({UNARY!r})
for _ in range(2): call(b"x", timeout=20)
before = channel.stats()["tls"]["resumed_handshakes"]
child = os.fork()
if child == 0:
    call(b"x", timeout=20)
    os._exit(10 + channel.stats()["tls"]["resumed_handshakes"] - before)
print(before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        assert run(text, target) == "1 10\n"
