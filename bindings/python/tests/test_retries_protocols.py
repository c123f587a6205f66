"""Retry policies over each protocol and version of HTTP, against the peer. A hop of each attempt makes the server
fail the first ones."""

from __future__ import annotations

from typing import Any, Iterator, List, Tuple

import pytest

import penstock
from helpers import Peer, eventually
from penstock import Hop, Interceptor
from test_retries import policy

WAYS = [
    ("grpc", "2"),
    ("grpc-web", "2"),
    ("grpc-web", "1.1"),
    ("grpc-web-text", "2"),
    ("grpc-web-text", "1.1"),
    ("connect", "2"),
    ("connect", "1.1"),
]
STREAMS = ["US", "SU"]


@pytest.fixture
def server() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def took(server: Peer) -> List[Tuple[str, str]]:
    """The protocol and the version of HTTP of each request that the server has had so far."""
    return [(one["protocol"], one["http"]) for one in server.seen]


class Fails(Interceptor):
    """Makes the server end the first attempts of each call with UNAVAILABLE, without a message."""

    per_attempt = True

    def __init__(self, times: int, **headers: str) -> None:
        self.times, self.headers = times, headers

    def on_start(self, hop: Hop) -> None:
        if hop.previous_attempts < self.times:
            hop.metadata["x-status"] = "14"
            hop.metadata["x-after"] = "0"
            for name, value in self.headers.items():
                hop.metadata[name.replace("_", "-")] = value


def call(channel: penstock.Channel, kind: str) -> Any:
    """Makes a call of the kind, which succeeds if its answer is that to its messages; gives the call."""
    metadata = {"x-echo-metadata": "1"}
    if kind == "UU":
        hello = channel.unary_unary("/helloworld.Greeter/SayHello")
        answer, call = hello.with_call(b"\n\x03abc", timeout=60, metadata=metadata)
        assert answer == b"\n\x0bHello, abc!"
        return call
    if kind == "SU":
        parts = iter([b"a", b"", b"bc"])
        answer, call = channel.stream_unary("/penstock.Echo/ClientStream").with_call(
            parts, timeout=60, metadata=metadata
        )
        assert answer == b"abc"
        return call
    call = channel.unary_stream("/penstock.Echo/ServerStream")(
        b"abc", timeout=60, metadata={**metadata, "x-count": "3"}
    )
    assert list(call) == [b"abc"] * 3
    return call


def opened(server: Peer, way: Tuple[str, str], interceptor: Interceptor, *codes: str) -> penstock.Channel:
    options = {"protocol": way[0], "http": way[1], "service_config": policy(4, *codes)}
    return penstock.Channel(server.target, tls=False, options=options, interceptors=[interceptor])


def sent_again(server: Peer, way: Tuple[str, str], kind: str) -> None:
    with opened(server, way, Fails(2)) as channel:
        done = call(channel, kind)
        assert done.trailing_metadata().get("seen-grpc-previous-rpc-attempts") == "2"
        assert done.stats["attempts"] == 3
        assert channel.stats()["attempts"]["retries"] == 2
        eventually(lambda: took(server) == [way] * 3)


def sent_once(server: Peer, way: Tuple[str, str], kind: str, **headers: str) -> None:
    fails = Fails(1, **headers)
    with opened(server, way, fails) as channel:
        with pytest.raises(penstock.RpcError) as caught:
            call(channel, kind)
        assert caught.value.code() is penstock.StatusCode.UNAVAILABLE
        assert caught.value.stats["attempts"] == 1
        assert channel.stats()["attempts"]["retries"] == 0
        fails.times = 0
        call(channel, "UU")
        eventually(lambda: len(server.seen) >= 2)
        assert took(server) == [way] * 2


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_unary_call_is_sent_again(server: Peer, way: Tuple[str, str]) -> None:
    sent_again(server, way, "UU")


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("way", [way for way in WAYS if way[0] != "connect"], ids="-".join)
def test_a_stream_is_sent_again_if_the_server_fails_it_at_once(server: Peer, way: Tuple[str, str], kind: str) -> None:
    sent_again(server, way, kind)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("way", [way for way in WAYS if way[0] == "connect"], ids="-".join)
def test_a_stream_of_connect_begins_with_headers_and_is_sent_once(
    server: Peer, way: Tuple[str, str], kind: str
) -> None:
    sent_once(server, way, kind)


@pytest.mark.parametrize("kind", ["UU", *STREAMS])
@pytest.mark.parametrize("way", [way for way in WAYS if way[0] != "connect"], ids="-".join)
def test_an_answer_that_has_begun_is_kept(server: Peer, way: Tuple[str, str], kind: str) -> None:
    """The server sends its headers, and a status behind them."""
    sent_once(server, way, kind, x_begin="headers")


@pytest.mark.parametrize("kind", ["UU", *STREAMS])
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_another_code_is_not_tried_again(server: Peer, way: Tuple[str, str], kind: str) -> None:
    with opened(server, way, Fails(1), "ABORTED") as channel, pytest.raises(penstock.RpcError) as caught:
        call(channel, kind)
    assert caught.value.code() is penstock.StatusCode.UNAVAILABLE
    assert caught.value.stats["attempts"] == 1
