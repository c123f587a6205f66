"""The program's own use of OpenSSL, and other versions of OpenSSL in the process: docs/tls.md, "The program's own
OpenSSL"."""

from __future__ import annotations

import ctypes
import socket
import ssl
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest

import penstock
from authorities import handshaker
from helpers import run
from penstock import Channel
from test_tls import echo, refused

psycopg2 = pytest.importorskip("psycopg2")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
# psycopg2 from PyPI brings a libssl and a libcrypto of its own, of a later version, with the same names of symbols.
BESIDE = Path(psycopg2.__file__).parent.parent / "psycopg2_binary.libs"


def libcrypto() -> ctypes.CDLL:
    """The libcrypto that this process has, and the library uses."""
    if penstock.library_versions()["libraries"]["openssl"]["inside"]:
        pytest.skip("the library has an OpenSSL of its own inside")
    found = ctypes.CDLL("libcrypto.so.3")
    found.BIO_new_file.restype = ctypes.c_void_p
    for name in ("ERR_peek_error", "ERR_get_error"):
        getattr(found, name).restype = ctypes.c_ulong
    return found


def handshake(target: str, roots: Path) -> None:
    """A connection by Python's own ssl."""
    context = ssl.create_default_context(cafile=str(roots))
    host, port = target.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), 20)
    with plain, context.wrap_socket(plain, server_hostname=host) as secure:
        assert secure.version() == "TLSv1.3"
        secure.sendall(b"hello")


@pytest.fixture
def own_server(certificates: Path) -> Any:
    """The target of a server by Python's ssl, in this process."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with handshaker(context) as target:
        yield target


def test_errors_that_the_program_has_left_do_no_harm(servers: Dict[str, str], certificates: Path) -> None:
    library = libcrypto()
    roots = {"roots_file": str(certificates / "ca.pem")}
    with Channel(servers["tls"], tls=roots) as channel:
        # The call runs on this thread, which drives the loop while it waits.
        for _ in range(3):
            assert library.BIO_new_file(b"/nowhere", b"r") is None
            assert library.ERR_peek_error() != 0
            assert channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20) == b"secret"


def test_no_error_is_left_to_the_program(servers: Dict[str, str], certificates: Path, own_server: str) -> None:
    library = libcrypto()
    roots = certificates / "ca.pem"
    wrong: List[Any] = [
        lambda: refused(servers["tls"], True),
        lambda: refused(servers["tls"], {"roots_file": str(roots), "server_name": "other.example"}),
        lambda: refused(servers["plain"], {"roots_file": str(roots)}),
        lambda: refused(servers["mtls"], {"roots_file": str(roots)}),
        lambda: Channel(servers["tls"], tls={"roots_pem": "no certificate"}),
        lambda: Channel(servers["tls"], tls={"roots_file": "/nowhere"}),
    ]
    for number, each in enumerate(wrong):
        try:
            each()
        except penstock.Error:
            assert number >= 4
        assert library.ERR_peek_error() == 0, number
        handshake(own_server, roots)


def test_all_of_them_at_once(servers: Dict[str, str], certificates: Path, own_server: str) -> None:
    """On each thread in turn: the library, Python's ssl, and cryptography's OpenSSL, which is another version."""
    roots = certificates / "ca.pem"
    failures: List[BaseException] = []

    def work() -> None:
        key = ed25519.Ed25519PrivateKey.generate()
        try:
            for number in range(15):
                assert echo(servers["tls"], {"roots_file": str(roots)}) == b"secret"
                handshake(own_server, roots)
                if number % 5 == 0:
                    refused(servers["tls"], True)
                key.public_key().verify(key.sign(b"text"), b"text")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert failures == []


# The program's settings for its own OpenSSL are not the library's: without algorithms the program can't do TLS, and
# the library can.
NO_ALGORITHMS = """
import ctypes, hashlib, ssl
libcrypto = ctypes.CDLL("libcrypto.so.3")
assert libcrypto.EVP_set_default_properties(None, b"provider=none") == 1
try:
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    raise SystemExit("the program still has algorithms")
except ssl.SSLError:
    pass
with penstock.Channel(target, tls={"roots_file": ROOTS}) as channel:
    assert channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20) == b"secret"
assert libcrypto.EVP_set_default_properties(None, b"") == 1
ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
print("ok")
"""


def test_the_program_s_settings_are_its_own(servers: Dict[str, str], certificates: Path) -> None:
    roots = f"ROOTS = {str(certificates / 'ca.pem')!r}\n"
    assert run(NO_ALGORITHMS, servers["tls"], roots) == "ok\n"


LOAD = """
import ctypes, glob
for name in ("libcrypto", "libssl"):
    [file] = glob.glob(f"{BESIDE}/{name}-*")
    other = ctypes.CDLL(file, MODE)
"""
USE = """
other.TLS_client_method.restype = other.SSL_CTX_new.restype = ctypes.c_void_p
other.SSL_CTX_new.argtypes = other.SSL_CTX_free.argtypes = [ctypes.c_void_p]

def call():
    with penstock.Channel(target, tls={"roots_file": ROOTS}) as channel:
        assert channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20) == b"secret"
    with penstock.Channel(target, tls=True) as channel:
        try:
            channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20)
            raise SystemExit("a stranger is trusted")
        except penstock.RpcError as error:
            assert "certificate verify failed" in error.details(), error.details()

call()
for _ in range(3):
    context = other.SSL_CTX_new(other.TLS_client_method())
    assert context
    call()
    other.SSL_CTX_free(context)
import ssl
ssl.create_default_context()
print("ok")
"""


@pytest.mark.parametrize("first", ["other", "penstock"])
@pytest.mark.parametrize("mode", ["RTLD_LOCAL", "RTLD_GLOBAL"])
def test_another_version_in_the_process(first: str, mode: str, servers: Dict[str, str], certificates: Path) -> None:
    """One that plug-ins load for themselves, or for all: before the library or behind it."""
    given = f"ROOTS, BESIDE = {str(certificates / 'ca.pem')!r}, {str(BESIDE)!r}\n"
    load = LOAD.replace("MODE", f"ctypes.{mode}")
    if first == "other":
        assert run(USE, servers["tls"], given + load) == "ok\n"
    else:
        assert run(load + USE, servers["tls"], given) == "ok\n"
