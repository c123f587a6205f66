"""The settings, credentials and values of a call that `create` and `on_start` see and change."""

from __future__ import annotations

import json
import queue
from pathlib import Path
from typing import Any, Dict, List

import pytest

import penstock
from helpers import Only, unary
from penstock import Channel, Hop, Idempotency, Kind, RpcError, StatusCode

SETTINGS = (
    "compression",
    "max_receive_message_bytes",
    "max_send_message_bytes",
    "idempotency",
    "wait_for_ready",
    "has_credentials",
)


def settings(hop: Hop) -> List[Any]:
    return [getattr(hop, name) for name in SETTINGS]


def test_create_sees_the_call_and_its_options(channel: Channel) -> None:
    seen: List[Any] = []

    def create(hop: Hop) -> None:
        seen.append([hop.method, hop.kind, hop.target])
        seen.append([hop.metadata.get_all("x-given"), hop.metadata.get_all("x-above")])
        seen.append(settings(hop))
        assert hop.deadline is not None
        assert 10 < hop.deadline <= 20
        for change in (
            lambda: hop.metadata.add("x-given", "2"),
            lambda: setattr(hop, "compression", "identity"),
            lambda: setattr(hop, "idempotency", Idempotency.UNKNOWN),
            lambda: setattr(hop, "wait_for_ready", False),
            lambda: setattr(hop, "max_send_message_bytes", 1),
            lambda: setattr(hop, "max_receive_message_bytes", 1),
            lambda: hop.set_credentials("x"),
        ):
            with pytest.raises(penstock.StateError):
                change()

    channel.add_interceptor(Only(on_start=lambda hop: hop.metadata.add("x-above", "2")), 1)
    channel.add_interceptor(Only(create=create))
    unary(channel, timeout=20, metadata={"x-given": "1"}, compression="gzip", wait_for_ready=True)
    assert seen[0] == ["/penstock.Echo/Unary", Kind.UNARY, channel.target]
    assert seen[1] == [["1"], ["2"]]
    assert seen[2] == ["gzip", 4 << 20, 2**31 - 1, Idempotency.UNKNOWN, True, False]


def test_on_start_changes_how_the_call_is_made(channel: Channel, probe: Any) -> None:
    seen: List[Any] = []

    def change(hop: Hop) -> None:
        hop.compression = "gzip"
        hop.max_receive_message_bytes = 5 << 20
        hop.max_send_message_bytes = 6 << 20
        hop.idempotency = Idempotency.NO_SIDE_EFFECTS
        hop.wait_for_ready = True
        hop.metadata["x-in"] = "start"
        with pytest.raises(penstock.InvalidArgumentError):
            hop.compression = "br"
        with pytest.raises(penstock.InvalidArgumentError):
            hop.max_send_message_bytes = 2**31
        with pytest.raises(ValueError, match="7"):
            hop.idempotency = 7  # type: ignore[assignment]

    def see(hop: Hop) -> None:
        seen.append(settings(hop))

    channel.add_interceptor(Only(on_start=change), 1)
    channel.add_interceptor(Only(on_start=see, on_status=see))
    view = probe()
    assert ["x-in", "start"] in view["metadata"]
    assert seen == [["gzip", 5 << 20, 6 << 20, Idempotency.NO_SIDE_EFFECTS, True, False]] * 2
    assert len(unary(channel, bytes((4 << 20) + 9))) == (4 << 20) + 9


def test_a_limit_of_a_hop_holds(channel: Channel) -> None:
    def limit(hop: Hop) -> None:
        hop.max_receive_message_bytes = 3

    channel.add_interceptor(Only(on_start=limit))
    assert unary(channel, b"abc") == b"abc"
    with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED"):
        unary(channel, b"abcd")


def secure(servers: Dict[str, str], certificates: Path) -> Channel:
    return Channel(servers["tls"], tls={"roots_file": str(certificates / "ca.pem")})


def seen_by_server(channel: Channel, **options: Any) -> Dict[str, List[str]]:
    view = channel.unary_unary("/penstock.Probe/Unary", None, json.loads)(b"{}", **options)
    found: Dict[str, List[str]] = {}
    for name, value in view["metadata"]:
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize(
    "credentials", ["Bearer s3cret", {"authorization": "Bearer s3cret"}, [("authorization", "Bearer s3cret")]]
)
def test_credentials_are_sent_over_tls(servers: Dict[str, str], certificates: Path, credentials: Any) -> None:
    shown: List[Any] = []
    with secure(servers, certificates) as channel:
        channel.add_interceptor(Only(on_start=lambda hop: shown.append((hop.has_credentials, hop.metadata.json))))
        seen = seen_by_server(channel, credentials=credentials, metadata={"authorization": "Basic other", "x-a": "1"})
    assert (seen["authorization"], seen["x-a"]) == (["Bearer s3cret"], ["1"])
    assert shown[0][0] is True
    assert "s3cret" not in shown[0][1]


def test_credentials_are_not_sent_in_clear(channel: Channel) -> None:
    reached: List[str] = []
    channel.add_interceptor(Only(on_headers=lambda hop: reached.append("headers")))
    with pytest.raises(RpcError, match=r"UNAUTHENTICATED.*TLS") as caught:
        unary(channel, credentials="Bearer s3cret")
    assert reached == []
    assert caught.value.stats["first_byte_sent_us"] is None
    assert "s3cret" not in caught.value.debug_error_string()
    with pytest.raises(ValueError, match="authorization"):
        unary(channel, credentials=object())


def test_a_hop_sets_and_removes_credentials(servers: Dict[str, str], certificates: Path, channel: Channel) -> None:
    with secure(servers, certificates) as tls:
        tls.add_interceptor(Only(on_start=lambda hop: hop.set_credentials("Bearer of the hop")))
        assert seen_by_server(tls)["authorization"] == ["Bearer of the hop"]
    registration = channel.add_interceptor(Only(on_start=lambda hop: hop.set_credentials("x")))
    with pytest.raises(RpcError, match="UNAUTHENTICATED"):
        unary(channel)
    registration.remove()
    channel.add_interceptor(Only(on_start=lambda hop: hop.set_credentials(None)))
    assert unary(channel, credentials="Bearer s3cret") == b"x"


def test_values_are_shared_while_the_call_runs(channel: Channel) -> None:
    def answer(hop: Hop) -> None:
        hop.set_value("answer", [*hop.get_value("asked"), hop.message])

    channel.add_interceptor(Only(on_send=answer))
    requests: queue.Queue[Any] = queue.Queue()
    call = channel.stream_stream("/penstock.Echo/Bidi")(iter(requests.get, None))
    asked = [42]
    call.values["asked"] = asked
    assert call.values["asked"] is asked
    assert "answer" not in call.values
    requests.put(b"go")
    assert next(call) == b"go"
    assert call.values["answer"] == [42, b"go"]
    call.values["more"] = 1
    del call.values["more"]
    with pytest.raises(KeyError):
        del call.values["more"]
    call.cancel()
    requests.put(None)
    assert call.code() == StatusCode.CANCELLED
    assert call.values["answer"] == [42, b"go"]
