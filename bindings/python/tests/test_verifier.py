"""Verifiers: the program's own check of servers' certificates, ``Channel(verifier=...)``."""

from __future__ import annotations

import contextvars
import ssl
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

import penstock
import penstock.aio
from helpers import ended, program
from helpers import run as run_program
from penstock import Channel, RpcError, StatusCode, Verification

UNARY = "/penstock.Echo/Unary"


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@pytest.fixture
def roots(certificates: Path) -> Dict[str, str]:
    return {"roots_file": str(certificates / "ca.pem")}


def refused(target: str, roots: Any, verifier: Callable[[Verification], Any]) -> RpcError:
    with Channel(target, tls=roots, verifier=verifier) as channel, pytest.raises(RpcError) as caught:
        channel.unary_unary(UNARY)(b"secret", timeout=20)
    assert caught.value.code() == StatusCode.UNAVAILABLE
    return caught.value


def test_it_sees_the_chain_and_the_name(servers: Dict[str, str], certificates: Path, roots: Dict[str, str]) -> None:
    seen: List[Any] = []

    def look(server: Verification) -> bool:
        seen.append((server.name, server.certificates, server))
        return True

    with Channel(servers["tls"], tls={**roots, "server_name": "localhost"}, verifier=look) as channel:
        assert channel.unary_unary(UNARY)(b"secret", timeout=20) == b"secret"
    [(name, chain, server)] = seen
    assert name == "localhost"
    assert chain == [der(certificates / "server.pem"), der(certificates / "ca.pem")]
    with pytest.raises(penstock.StateError, match="only in the verifier"):
        _ = server.certificates


def test_it_refuses_in_words(servers: Dict[str, str], roots: Dict[str, str]) -> None:
    error = refused(servers["tls"], roots, lambda server: f"{server.name} is of another tenant")
    assert "certificate verify failed: the program refuses the server: 127.0.0.1 is of another tenant; subject " in (
        error.details()
    )
    assert "the program refuses the server; subject" in refused(servers["tls"], roots, lambda _: False).details()


def test_an_exception_refuses(servers: Dict[str, str], roots: Dict[str, str], capfd: Any) -> None:
    def fails(_: Verification) -> bool:
        raise KeyError("no such tenant")

    assert "the verifier raised KeyError: 'no such tenant'" in refused(servers["tls"], roots, fails).details()


def test_an_exception_without_words_refuses(servers: Dict[str, str], roots: Dict[str, str], capfd: Any) -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def fails(_: Verification) -> bool:
        raise SpeechlessError

    assert "the program refuses the server: the verifier raised " in refused(servers["tls"], roots, fails).details()


@pytest.mark.parametrize("answer", [None, 1, b"bytes"])
def test_only_true_accepts(answer: Any, servers: Dict[str, str], roots: Dict[str, str]) -> None:
    error = refused(servers["tls"], roots, lambda _: answer)
    assert f"the verifier returned {answer!r}, which is neither a bool nor a text" in error.details()


def test_it_is_the_only_check_without_verify(servers: Dict[str, str], certificates: Path) -> None:
    own = der(certificates / "server.pem")
    pinned = {"verify": False}
    with Channel(servers["tls"], tls=pinned, verifier=lambda server: server.certificates[0] == own) as channel:
        assert channel.unary_unary(UNARY)(b"secret", timeout=20) == b"secret"
    refused(servers["tls"], pinned, lambda server: server.certificates[0] == b"another")


def test_it_is_not_asked_about_what_the_library_refuses(servers: Dict[str, str], roots: Dict[str, str]) -> None:
    asked: List[Verification] = []
    refused(servers["tls"], {**roots, "server_name": "other.example"}, lambda server: bool(asked.append(server)))
    assert asked == []


def test_it_runs_in_the_context_of_its_channel(servers: Dict[str, str], roots: Dict[str, str]) -> None:
    tenant = contextvars.ContextVar("tenant", default="none")
    tenant.set("of the channel")
    seen: List[str] = []

    def look(_: Verification) -> bool:
        seen.append(tenant.get())
        tenant.set("changed")
        return True

    with Channel(servers["tls"], tls=roots, verifier=look) as channel:
        tenant.set("of the call")
        assert channel.unary_unary(UNARY)(b"secret", timeout=20) == b"secret"
    assert (seen, tenant.get()) == (["of the channel"], "of the call")


def test_it_has_to_be_a_function(servers: Dict[str, str]) -> None:
    with pytest.raises(TypeError, match="a function that gets a Verification, not 'no'"):
        Channel(servers["tls"], verifier="no")  # type: ignore[arg-type]


ON_A_LOOP = """
import asyncio
import penstock.aio

async def main():
    asked = []
    def look(server):
        asked.append(server.name)
        return True
    async with penstock.aio.Channel(target, tls={"verify": False}, verifier=look) as channel:
        assert await channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20) == b"secret"
    print(asked)

asyncio.run(main())
"""


def test_on_an_event_loop(servers: Dict[str, str]) -> None:
    assert run_program(ON_A_LOOP, servers["tls"]) == "['127.0.0.1']\n"


# A signal whose handler raises as the verifier begins must not let the server pass.
INTERRUPTED = """
import signal

class Stopped(BaseException):
    pass

def stop(*_):
    # Another thread may get the signal late, so it may come when nothing is left to be broken off.
    global is_armed
    if is_armed:
        is_armed = False
        raise Stopped

is_armed = False
signal.signal(signal.SIGALRM, stop)
accepted = 0
for number in range(200):
    # One that is accepted leaves its traces on the stack.
    with penstock.Channel(target, tls={"verify": False}, verifier=lambda _: True) as channel:
        channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20)
    with penstock.Channel(target, tls={"verify": False}, verifier=lambda _: False) as channel:
        passed = False
        is_armed = True
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + number % 50 / 20000)
                channel.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20)
                passed = True
            finally:
                is_armed = False
        except (penstock.RpcError, Stopped):
            pass
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        accepted += passed
print(accepted)
"""


def test_a_signal_accepts_nobody(servers: Dict[str, str]) -> None:
    first = "import sys\nsys.unraisablehook = lambda _: None\n"
    with program(INTERRUPTED, servers["tls"], first) as process:
        printed, complaints = ended(process)
    # Each verifier that was broken off is reported.
    assert printed == "0\n", complaints
