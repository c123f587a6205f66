"""Statistics: the numbers that hops and callers get about a call, and the facts about its connection."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from conftest import REPOSITORY
from helpers import EVENTS, Only, bidi, running_peer, unary
from penstock import Channel, Hop, RpcError, Verdict


def recording(seen: Dict[str, Any], what: str) -> Only:
    def see(event: str) -> Any:
        return lambda hop: seen.setdefault(event, getattr(hop, what)) and None

    return Only(**{event: see(event) for event in EVENTS})


def test_statistics_grow_with_the_call(channel: Channel) -> None:
    seen: Dict[str, Any] = {}
    channel.add_interceptor(recording(seen, "stats"))
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"ping")
    start, headers, status, end = seen["on_start"], seen["on_headers"], seen["on_status"], outcome.stats
    assert abs(start["created_unix_ms"] / 1000 - time.time()) < 60
    times = ("first_byte_sent_us", "headers_us", "first_message_us", "duration_us")
    nothing = (*times, "peer", "local", "tls", "connection_silent_ms")
    assert [start[name] for name in nothing] == [None] * 8
    assert start["attempts"] == 0
    assert headers["peer"] == channel.target
    assert headers["local"].startswith("127.0.0.1:")
    assert (headers["tls"], headers["attempts"], headers["first_message_us"]) == (None, 1, None)
    assert headers["sent"] == {"messages": 1, "bytes": 4, "compressed_bytes": 4, "wire_bytes": 9}
    assert status["received"] == headers["sent"] == end["received"]
    assert status["duration_us"] is None
    assert [end[name] for name in times] == sorted(end[name] for name in times)
    assert 0 <= status["connection_silent_ms"] < 60_000
    assert outcome.peer_certificates is None


def test_the_caller_of_a_failed_call_has_them_too(channel: Channel) -> None:
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary")(b'{"code": 5, "message": "gone"}')
    stats = caught.value.stats
    assert (stats["peer"], stats["attempts"], stats["sent"]["messages"]) == (channel.target, 1, 1)
    assert json.loads(caught.value.debug_error_string())["stats"]["peer"] == channel.target


def test_compressed_sizes(channel: Channel) -> None:
    data = bytes(100_000)
    seen: List[Any] = []

    def see(hop: Hop) -> None:
        seen.append(hop.stats["sent"])

    channel.add_interceptor(Only(on_status=see))
    assert unary(channel, data, compression="gzip") == data
    (sent,) = seen
    assert (sent["messages"], sent["bytes"]) == (1, 100_000)
    assert 20 < sent["compressed_bytes"] < 1000
    assert sent["wire_bytes"] == sent["compressed_bytes"] + 5


def test_attempts_are_counted(channel: Channel) -> None:
    class Twice(Only):
        replay_bytes = 1000

        def on_headers(self, hop: Hop) -> Verdict:
            return Verdict.HOLD

        def on_receive(self, hop: Hop) -> Verdict:
            return Verdict.HOLD

        def on_status(self, hop: Hop) -> Any:
            return Verdict.RESTART if hop.can_restart else None

    channel.add_interceptor(Twice())
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary")(b'{"code": 14}')
    assert caught.value.stats["attempts"] == 2
    assert caught.value.stats["sent"]["messages"] == 2


def test_a_stream_s_statistics(channel: Channel) -> None:
    assert bidi(channel, [b"a", b"bc"]) == [b"a", b"bc"]
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"a", b"bc"])
    assert list(call) == [b"a", b"bc"]
    assert call.stats["received"] == {"messages": 2, "bytes": 3, "compressed_bytes": 3, "wire_bytes": 13}


@pytest.mark.parametrize("kind", ["tls", "mtls"])
def test_tls_is_told_at_hops_and_to_the_caller(servers: Dict[str, str], certificates: Path, kind: str) -> None:
    tls = {"roots_file": str(certificates / "ca.pem")}
    if kind == "mtls":
        tls["certificate_chain_file"] = str(certificates / "client.pem")
        tls["private_key_file"] = str(certificates / "client.key")
    shown = (certificates / "server.pem").read_text(encoding="ascii")
    stats: Dict[str, Any] = {}
    pem: Dict[str, Any] = {}
    with Channel(servers[kind], tls=tls) as channel:
        channel.add_interceptor(recording(stats, "stats"))
        channel.add_interceptor(recording(pem, "peer_certificates"))
        _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", timeout=20)
    told = outcome.stats["tls"]
    assert told["version"] in ("TLSv1.2", "TLSv1.3")
    assert told["cipher"]
    assert (told["alpn"], told["certificates"]) == ("h2", 1)
    assert stats["on_headers"]["tls"] == told
    assert stats["on_start"]["tls"] is None
    # openssl may write other text before the PEM block.
    block = shown[shown.index("-----BEGIN") :]
    assert outcome.peer_certificates == pem["on_headers"] == block
    assert pem.get("on_start") is None


def test_a_kept_hop_tells_after_the_call(channel: Channel) -> None:
    kept: List[Hop] = []
    channel.add_interceptor(Only(on_start=lambda hop: kept.append(hop.retain())))
    unary(channel)
    assert kept[0].stats["duration_us"] > 0


def test_transparent_retries_are_counted() -> None:
    """The server refuses a stream (REFUSED_STREAM), so the request is sent again. The statistics count two attempts,
    and the messages of both."""
    script = REPOSITORY / "Tests/faults/rst-refused-once.script"
    attempts: List[Tuple[int, bool]] = []
    each = Only(on_start=lambda hop: attempts.append((hop.previous_attempts, hop.is_transparent_retry)))
    with running_peer("--script", str(script)) as target, Channel(target, tls=False) as channel:
        channel.add_interceptor(each, per_attempt=True)
        response, outcome = channel.unary_unary("/a.B/C").with_call(b"ping", timeout=20)
    assert (response, outcome.stats["attempts"]) == (b"pong", 2)
    assert outcome.stats["sent"]["messages"] == 2
    assert attempts == [(0, False), (0, True)]
