"""The event log: levels, lines of JSON, slow callbacks, retries and outliers; docs/operating.md, "The events"."""

from __future__ import annotations

import contextlib
import json
import time
from concurrent import futures
from typing import Any, Dict, List, Optional

import grpc
import pytest

import penstock
from helpers import eventually
from penstock import ConnectionEvent, ConnectionEventKind, EventLevel, Hop

UNARY = "/penstock.Probe/Unary"


class Log(penstock.Interceptor):
    """Keeps all events of its channel."""

    def __init__(self) -> None:
        self.events: List[ConnectionEvent] = []

    def on_connection(self, event: ConnectionEvent) -> None:
        self.events.append(event)

    def of(self, kind: str) -> List[ConnectionEvent]:
        return [event for event in self.events if event.kind.name == kind]

    def lines(self) -> List[Dict[str, Any]]:
        return [json.loads(event.json) for event in self.events]


class Sleeper(penstock.Interceptor):
    """Sleeps in one callback."""

    def __init__(self, callback: str, seconds: float) -> None:
        self._callback, self._seconds = callback, seconds

    def _sleep(self, callback: str) -> None:
        if callback == self._callback:
            time.sleep(self._seconds)

    def create(self, hop: Hop) -> None:
        self._sleep("create")

    def on_start(self, hop: Hop) -> None:
        self._sleep("on_start")

    def on_headers(self, hop: Hop) -> None:
        self._sleep("on_headers")

    def on_receive(self, hop: Hop) -> None:
        self._sleep("on_receive")

    def on_status(self, hop: Hop) -> None:
        self._sleep("on_status")

    def destroy(self, hop: Hop) -> None:
        self._sleep("destroy")


class Quick(penstock.Interceptor):
    def on_start(self, hop: Hop) -> None:
        pass

    def on_headers(self, hop: Hop) -> None:
        pass

    def on_receive(self, hop: Hop) -> None:
        pass

    def on_status(self, hop: Hop) -> None:
        pass

    def destroy(self, hop: Hop) -> None:
        pass


@pytest.mark.parametrize("callback", ["create", "on_start", "on_headers", "on_receive", "on_status", "destroy"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_slow_callback_is_named(server: str, callback: str, place: int) -> None:
    """The event names the one of three interceptors that was slow, and its callback, wherever it stands."""
    log = Log()
    among: List[penstock.Interceptor] = [Quick(), Quick()]
    among.insert(place, Sleeper(callback, 0.15))
    with penstock.Channel(server, tls=False, interceptors=[log, *among]) as channel:
        assert channel.unary_unary(UNARY)(b"{}")
        eventually(lambda: bool(log.of("SLOW_CALLBACK")))
    (event,) = log.of("SLOW_CALLBACK")
    assert (event.interceptor, event.callback, event.method) == ("Sleeper", callback, UNARY)
    assert event.level is EventLevel.WARNING
    assert 0.1 <= event.seconds < 60
    assert event.call
    line = json.loads(event.json)
    assert line["time_ms"] > 1.7e12
    del line["time_ms"]
    assert line == {
        "level": "warning",
        "event": "slow_callback",
        "target": server,
        "ms": round(event.seconds * 1000),
        "call": event.call,
        "method": UNARY,
        "interceptor": "Sleeper",
        "callback": callback,
    }


def test_a_lane_that_a_callback_keeps_is_named(server: str) -> None:
    """A callback on an executor keeps its lane, and not the loop."""
    log = Log()

    class Slow(penstock.Interceptor):
        executor = penstock.SerialExecutor()

        def on_headers(self, hop: Hop) -> None:
            time.sleep(0.15)

    with penstock.Channel(server, tls=False, interceptors=[log, Slow()]) as channel:
        assert channel.unary_unary(UNARY)(b"{}")
        eventually(lambda: bool(log.of("SLOW_CALLBACK")))
    (event,) = log.of("SLOW_CALLBACK")
    assert (event.interceptor, event.callback) == ("Slow", "on_headers")


def test_a_picker_that_is_slow_is_told_without_a_name(server: str) -> None:
    log = Log()

    def pick(pick: penstock.Pick) -> Any:
        time.sleep(0.15)
        return pick.endpoints[0]

    with penstock.Channel(server, tls=False, interceptors=[log], picker=pick) as channel:
        assert channel.unary_unary(UNARY)(b"{}")
        eventually(lambda: bool(log.of("SLOW_CALLBACK")))
    event = log.of("SLOW_CALLBACK")[0]
    assert (event.interceptor, event.callback) == (None, "on_pick")
    assert json.loads(event.json)["interceptor"] is None


ROUND_ROBIN = {"loadBalancingConfig": [{"round_robin": {}}]}


@pytest.mark.parametrize(("limit", "told"), [(0, False), (10_000, False), (20, True)])
def test_how_slow_a_callback_has_to_be(server: str, limit: int, told: bool) -> None:
    log, resolver = Log(), penstock.Resolver()
    addresses = [{"address": f"ipv4:{server}"}]
    with penstock.Channel(
        "orders",
        tls=False,
        options={"slow_callback_ms": limit},
        interceptors=[log, Sleeper("on_start", 0.15)],
        resolver=resolver,
    ) as channel:
        resolver.push({"addresses": addresses})
        assert channel.unary_unary(UNARY)(b"{}")
        # Events come in order, so this one shows that no slow callback is still to be told.
        resolver.push({"addresses": addresses, "service_config": ROUND_ROBIN})
        eventually(lambda: bool(log.of("POLICY")))
    assert bool(log.of("SLOW_CALLBACK")) is told


def test_every_event_has_a_level_and_a_line(server: str) -> None:
    log = Log()
    with penstock.Runtime() as runtime:
        runtime.add_interceptor(log)
        options = {"idle_timeout_ms": 50}
        with penstock.Channel(server, tls=False, runtime=runtime, options=options) as channel:
            channel.unary_unary(UNARY)(b"{}")
            eventually(lambda: bool(log.of("LOST")))
    levels = [(line["event"], line["level"]) for line in log.lines()]
    assert levels == [
        ("resolving", "debug"),
        ("resolved", "debug"),
        ("connecting", "debug"),
        ("ready", "info"),
        ("draining", "info"),
        ("idle", "debug"),
        ("lost", "info"),
    ]
    assert [line.get("message") for line in log.lines()[:4]] == [None, "1 address", None, None]
    ready = log.lines()[3]
    assert (ready["protocol"], ready["http"], ready["address"]) == ("grpc", "2", server)
    assert [event.level.name.lower() for event in log.events] == [level for _, level in levels]


def test_no_address_can_be_reached() -> None:
    log = Log()
    with penstock.Channel("ipv4:127.0.0.1:1", tls=False, interceptors=[log]) as channel:
        with pytest.raises(penstock.RpcError):
            channel.unary_unary(UNARY)(b"{}")
        eventually(lambda: bool(log.of("UNREACHABLE")))
    (event,) = log.of("UNREACHABLE")
    assert event.level is EventLevel.ERROR
    assert "could not connect to ipv4:127.0.0.1:1: Connection refused" in (event.message or "")


class Backend:
    """A server whose one method ends with the given code, or answers."""

    def __init__(self, code: Optional[grpc.StatusCode] = None) -> None:
        self.code = code
        self.server = grpc.server(futures.ThreadPoolExecutor(4))

        def answer(request: bytes, context: Any) -> bytes:
            if self.code:
                context.abort(self.code, "not today")
            return request

        handler = grpc.method_handlers_generic_handler(
            "penstock.Backend", {"Unary": grpc.unary_unary_rpc_method_handler(answer)}
        )
        self.server.add_generic_rpc_handlers((handler,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(None).wait(20)


def call_backend(channel: penstock.Channel) -> Any:
    return channel.unary_unary("/penstock.Backend/Unary")(b"x")


def test_retries_and_their_throttling() -> None:
    """With three tokens one failure of two may be tried again, until half of the tokens are gone."""
    config = {
        "methodConfig": [
            {
                "name": [{"service": "penstock.Backend"}],
                "retryPolicy": {
                    "maxAttempts": 2,
                    "initialBackoff": "0.01s",
                    "maxBackoff": "0.01s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
        "retryThrottling": {"maxTokens": 3, "tokenRatio": 0.1},
    }
    log = Log()
    options = {"service_config": config}
    with Backend(grpc.StatusCode.UNAVAILABLE) as backend:
        target = f"127.0.0.1:{backend.port}"
        with penstock.Channel(target, tls=False, options=options, interceptors=[log]) as channel:
            for _ in range(2):
                with pytest.raises(penstock.RpcError):
                    call_backend(channel)
            eventually(lambda: bool(log.of("THROTTLED")))
    (retry,) = log.of("RETRY")
    assert retry.level is EventLevel.DEBUG
    assert retry.message == "UNAVAILABLE: not today"
    assert retry.method == "/penstock.Backend/Unary"
    assert 0 < retry.seconds <= 0.012
    throttled = log.of("THROTTLED")[0]
    assert throttled.level is EventLevel.WARNING
    assert throttled.call != retry.call


def test_one_bad_backend_of_three_is_ejected() -> None:
    config = {
        "loadBalancingConfig": [
            {
                "outlier_detection_experimental": {
                    "interval": "0.1s",
                    "maxEjectionPercent": 40,
                    "failurePercentageEjection": {"threshold": 50, "minimumHosts": 3, "requestVolume": 3},
                    "childPolicy": [{"round_robin": {}}],
                }
            }
        ]
    }
    log = Log()
    with Backend() as one, Backend(grpc.StatusCode.INTERNAL) as bad, Backend() as two:
        target = "ipv4:" + ",".join(f"127.0.0.1:{backend.port}" for backend in (one, bad, two))
        with penstock.Channel(target, tls=False, options={"service_config": config}, interceptors=[log]) as channel:

            def told() -> bool:
                with contextlib.suppress(penstock.RpcError):
                    call_backend(channel)
                return bool(log.of("EJECTED"))

            eventually(told)
    event = log.of("EJECTED")[0]
    assert event.address == f"127.0.0.1:{bad.port}"
    assert event.level is EventLevel.WARNING


def test_a_policy_that_changes(server: str) -> None:
    log, resolver = Log(), penstock.Resolver()
    addresses = [{"address": f"ipv4:{server}"}]
    with penstock.Channel("orders", tls=False, interceptors=[log], resolver=resolver) as channel:
        resolver.push({"addresses": addresses})
        channel.unary_unary(UNARY)(b"{}")
        resolver.push({"addresses": addresses, "service_config": {"loadBalancingConfig": [{"round_robin": {}}]}})
        eventually(lambda: bool(log.of("POLICY")))
    assert log.of("POLICY")[0].message == "round_robin"
    assert log.of("POLICY")[0].level is EventLevel.INFO


def test_kinds_are_those_of_the_header() -> None:
    assert [kind.value for kind in ConnectionEventKind] == list(range(1, 24))
