"""The ready-made bearer token: kept, renewed, refused, and never delivered."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest

import penstock
from helpers import eventually, seen, unary
from penstock import Channel, Hop, RpcError, StatusCode, ready


class Source:
    """Gives "token-1", "token-2", ..., and records the requests."""

    def __init__(self, expires_in: Optional[float] = None) -> None:
        self.requests: List[penstock.ready.TokenRequest] = []
        self.expires_in = expires_in

    def __call__(self, request: ready.TokenRequest) -> Tuple[str, Optional[float]]:
        self.requests.append(request)
        return f"token-{len(self.requests)}", self.expires_in


class Refusing(penstock.Interceptor):
    """Makes the server refuse the tokens "token-1" to "token-``up_to``", by sending their calls to a method that
    refuses; counts the starts and the refusals."""

    def __init__(self, up_to: int) -> None:
        self.up_to = up_to
        self.starts = 0
        self.refusals = 0

    def on_start(self, hop: Hop) -> None:
        self.starts += 1
        number = re.fullmatch(r"Bearer token-(\d+)", str(hop.metadata.get("authorization", "")))
        if number is None or int(number.group(1)) <= self.up_to:
            hop.method = "/penstock.Probe/Refuse"

    def on_status(self, hop: Hop) -> None:
        assert hop.status is not None
        self.refusals += hop.status.code == StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_token_is_sent_and_kept(channel: Channel, probe: Callable[..., Any], in_thread: bool) -> None:
    source = Source()
    channel.add_interceptor(ready.BearerToken(source, in_thread=in_thread, allow_cleartext=True))
    for _ in range(3):
        assert seen(probe(), "authorization") == ["Bearer token-1"]
    assert len(source.requests) == 1
    assert source.requests[0].refused is None


def test_a_token_goes_over_tls_only(channel: Channel, servers: Dict[str, str], certificates: Path) -> None:
    source = Source()
    channel.add_interceptor(ready.BearerToken(source))
    with pytest.raises(RpcError) as raised:
        unary(channel)
    assert raised.value.code() == StatusCode.UNAUTHENTICATED
    assert "allow_cleartext" in raised.value.details()
    assert source.requests == []
    with Channel(servers["tls"], tls={"roots_file": str(certificates / "ca.pem")}) as secure:
        secure.add_interceptor(ready.BearerToken(source))
        assert unary(secure) == b"x"
    assert len(source.requests) == 1


def test_a_call_with_its_own_header_is_left_alone(channel: Channel, probe: Callable[..., Any]) -> None:
    source = Source()
    channel.add_interceptor(ready.BearerToken(source, header="x-key", scheme="", allow_cleartext=True))
    assert seen(probe(), "x-key") == ["token-1"]
    assert seen(probe(metadata={"x-key": "mine"}), "x-key") == ["mine"]


def test_a_refused_token_is_replaced_and_the_call_started_anew(channel: Channel, probe: Callable[..., Any]) -> None:
    source, refusing = Source(), Refusing(up_to=1)
    channel.add_interceptor(ready.BearerToken(source, allow_cleartext=True), priority=10)
    channel.add_interceptor(refusing)
    assert seen(probe(), "authorization") == ["Bearer token-2"]
    assert [request.refused for request in source.requests] == [None, "token-1"]
    assert refusing.starts == 2


def test_a_refusal_comes_through_when_the_next_token_is_refused_too(channel: Channel) -> None:
    source = Source()
    channel.add_interceptor(ready.BearerToken(source, allow_cleartext=True), priority=10)
    channel.add_interceptor(Refusing(up_to=1000))
    with pytest.raises(RpcError) as raised:
        unary(channel)
    assert raised.value.code() == StatusCode.UNAUTHENTICATED
    assert raised.value.details() == "who are you"
    assert len(source.requests) == 2


def test_100_calls_failing_at_once_cause_one_refresh(channel: Channel) -> None:
    requests: List[ready.TokenRequest] = []
    refusing = Refusing(up_to=1)
    channel.add_interceptor(ready.BearerToken(requests.append, in_thread=False, allow_cleartext=True), priority=10)
    channel.add_interceptor(refusing)
    with ThreadPoolExecutor(100) as pool:
        calls = [pool.submit(unary, channel, b"%d" % number) for number in range(100)]
        eventually(lambda: len(requests) == 1)
        requests[0].complete("token-1")
        eventually(lambda: refusing.refusals == 100)
        assert len(requests) == 2
        requests[1].complete("token-2", expires_in=60)
        assert [call.result(timeout=20) for call in calls] == [b"%d" % number for number in range(100)]
    assert len(requests) == 2
    with pytest.raises(penstock.AlreadyError):
        requests[1].complete("token-3")
    with pytest.raises(penstock.AlreadyError):
        requests[1].fail()


def test_a_source_that_fails_raises_or_forgets(channel: Channel) -> None:
    answers: List[Callable[[ready.TokenRequest], None]] = []

    def source(request: ready.TokenRequest) -> None:
        return answers.pop(0)(request)

    def failing(request: ready.TokenRequest) -> None:
        request.fail(StatusCode.PERMISSION_DENIED, "locked out")

    def raising(request: ready.TokenRequest) -> None:
        raise ValueError("broken")

    told: List[Tuple[str, str, BaseException]] = []
    penstock.set_exception_hook(lambda *what: told.append(what))
    try:
        channel.add_interceptor(ready.BearerToken(source, allow_cleartext=True))
        for answer, code, details in (
            (failing, StatusCode.PERMISSION_DENIED, "locked out"),
            (raising, StatusCode.UNAVAILABLE, "the token source raised ValueError"),
            (lambda request: None, StatusCode.UNAVAILABLE, "the token source gave no answer"),
        ):
            answers.append(answer)
            with pytest.raises(RpcError) as raised:
                unary(channel)
            assert (raised.value.code(), raised.value.details()) == (code, details)
    finally:
        penstock.set_exception_hook(None)
    assert [(name, callback) for name, callback, _ in told] == [("BearerToken", "source")]


def test_a_source_whose_thread_can_not_be_started_is_told_of(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("no more threads")

    told: List[Tuple[str, str, BaseException]] = []
    penstock.set_exception_hook(lambda *what: told.append(what))
    try:
        channel.add_interceptor(ready.BearerToken(Source(), in_thread=True, allow_cleartext=True))
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(RpcError, match="UNAVAILABLE: the token source raised RuntimeError"):
                unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert [(name, callback, str(error)) for name, callback, error in told] == [
        ("BearerToken", "source", "no more threads")
    ]


def test_a_token_that_expires_and_one_that_does_not_come(channel: Channel) -> None:
    source = Source(expires_in=0)
    registration = channel.add_interceptor(ready.BearerToken(source, allow_cleartext=True))
    assert unary(channel) == unary(channel) == b"x"
    assert len(source.requests) == 2
    registration.remove()
    requests: List[ready.TokenRequest] = []
    channel.add_interceptor(ready.BearerToken(requests.append, refresh_timeout=0.03, allow_cleartext=True))
    with pytest.raises(RpcError) as raised:
        unary(channel)
    assert raised.value.details() == "no token came in time"
    requests[0].complete("late, and still good")
    assert unary(channel) == b"x"


def test_a_cancelled_call_leaves_the_others_waiting(channel: Channel) -> None:
    requests: List[ready.TokenRequest] = []
    channel.add_interceptor(ready.BearerToken(requests.append, allow_cleartext=True))
    echo = channel.unary_stream("/penstock.Echo/ServerStream")
    first, second = echo(b"1"), echo(b"2")
    eventually(lambda: len(requests) == 1)
    first.cancel()
    with pytest.raises(penstock.InvalidArgumentError):
        requests[0].complete("two\nlines")
    requests[0].complete("token")
    assert list(second) == [b"2"]
    assert first.code() == StatusCode.CANCELLED


def test_a_token_in_a_file(channel: Channel, probe: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "token"
    first = channel.add_interceptor(ready.TokenFile(file, reread=3600, allow_cleartext=True))
    with pytest.raises(RpcError, match=f"{file} can't be read: No such file or directory") as raised:
        unary(channel)
    assert raised.value.code() == StatusCode.UNAVAILABLE
    file.write_text("token-1\n")
    assert seen(probe(), "authorization") == ["Bearer token-1"]
    file.write_text("token-2\n")
    assert seen(probe(), "authorization") == ["Bearer token-1"]
    first.remove()
    channel.add_interceptor(ready.TokenFile(str(file), scheme="", header="x-key", allow_cleartext=True))
    assert seen(probe(), "x-key") == ["token-2"]
