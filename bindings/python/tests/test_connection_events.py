"""Interceptors that get the events of connections: docs/channel.md, "Connection events"."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import Any, List

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import penstock
from helpers import eventually
from penstock import ConnectionEvent, ConnectionEventKind


class Observer(penstock.Interceptor):
    """Keeps the events of connections and look-ups that it gets; test_event_log.py has the others."""

    def __init__(self) -> None:
        self.events: List[ConnectionEvent] = []

    def on_connection(self, event: ConnectionEvent) -> None:
        if event.kind <= ConnectionEventKind.UNHEALTHY:
            self.events.append(event)

    def kinds(self) -> List[str]:
        return [event.kind.name for event in self.events]


def test_a_connection_from_its_beginning(server: str) -> None:
    own, all_of_it = Observer(), Observer()
    with penstock.Runtime() as runtime:
        runtime.add_interceptor(all_of_it)
        with penstock.Channel(server, tls=False, runtime=runtime, interceptors=[own]) as channel:
            channel.unary_unary("/penstock.Probe/Unary")(b"{}")
            eventually(lambda: len(own.events) == 3)
            assert own.kinds() == ["RESOLVING", "CONNECTING", "READY"]
            ready = own.events[2]
            assert ready.target == server
            assert ready.address == server
            assert ready.message is None
            assert ready.tls_version is None
            assert ready.seconds == 0
        eventually(lambda: all_of_it.kinds()[-1] == "LOST")
    assert all_of_it.kinds() == ["RESOLVING", "CONNECTING", "READY", "LOST"]
    assert [(event.protocol, event.http) for event in all_of_it.events] == [
        (None, None),
        (None, None),
        ("grpc", "2"),
        (None, None),
    ]


def test_a_wait_after_a_failure() -> None:
    observer = Observer()
    with penstock.Channel("127.0.0.1:1", tls=False, interceptors=[observer]) as channel:
        with pytest.raises(penstock.RpcError):
            channel.unary_unary("/penstock.Probe/Unary")(b"{}")
        eventually(lambda: "BACKOFF" in observer.kinds())
        event = observer.events[-1]
        assert event.kind is ConnectionEventKind.BACKOFF
        assert event.message == "Connection refused"
        # A second, and up to a fifth more or less.
        assert 0 < event.seconds <= 1.2


def test_an_exception_is_reported(server: str) -> None:
    reported: List[Any] = []
    seen = threading.Event()

    class Failing(penstock.Interceptor):
        def on_connection(self, event: ConnectionEvent) -> None:
            raise ValueError("no")

    def hook(name: str, callback: str, error: BaseException) -> None:
        reported.append((name, callback, error))
        seen.set()

    penstock.set_exception_hook(hook)
    try:
        with penstock.Channel(server, tls=False, interceptors=[Failing()]) as channel:
            assert channel.unary_unary("/penstock.Probe/Unary")(b"{}")
            assert seen.wait(20)
    finally:
        penstock.set_exception_hook(None)
    name, callback, error = reported[0]
    assert (name, callback) == ("Failing", "on_connection")
    assert isinstance(error, ValueError)


def test_the_health_of_a_server() -> None:
    servicer = health.HealthServicer()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    observer = Observer()
    config = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": "shop"}}
    try:
        servicer.set("shop", health_pb2.HealthCheckResponse.SERVING)
        with penstock.Channel(
            f"127.0.0.1:{port}", tls=False, options={"service_config": config}, interceptors=[observer]
        ) as channel:
            channel.connect()
            eventually(lambda: observer.kinds()[-1:] == ["HEALTHY"])
            servicer.set("shop", health_pb2.HealthCheckResponse.NOT_SERVING)
            eventually(lambda: observer.kinds()[-1:] == ["UNHEALTHY"])
            assert "does not serve" in (observer.events[-1].message or "")
            assert observer.kinds() == ["RESOLVING", "CONNECTING", "READY", "HEALTHY", "UNHEALTHY"]
    finally:
        server.stop(None).wait(20)


WEIGHTED = {"loadBalancingConfig": [{"weighted_round_robin": {}}]}
HEDGING = {"methodConfig": [{"name": [{"service": "a"}], "hedgingPolicy": {}}]}


def ignored(observer: Observer) -> List[str]:
    """The first words of the messages of all IGNORED events."""
    return [(event.message or "").split(":")[0] for event in observer.events if event.kind.name == "IGNORED"]


def test_what_a_service_config_has_in_vain(server: str) -> None:
    observer = Observer()
    config = {**WEIGHTED, **HEDGING}
    with penstock.Channel(server, tls=False, options={"service_config": config}, interceptors=[observer]) as channel:
        channel.connect()
        eventually(lambda: observer.kinds()[-1:] == ["READY"])
    assert observer.kinds()[:4] == ["IGNORED"] * 2 + ["RESOLVING", "CONNECTING"]
    assert ignored(observer) == ["weighted_round_robin", "hedgingPolicy"]
    assert all(len(event.message or "") > 30 for event in observer.events[:2])


def test_what_a_later_service_config_has_in_vain(server: str) -> None:
    """A resolver's config is told when it comes, whether or not it changes the policy; the same config is not told
    again."""
    observer = Observer()
    resolver = penstock.Resolver()
    addresses = [{"address": f"ipv4:{server}"}]

    def push(**config: Any) -> None:
        resolver.push({"addresses": addresses, "service_config": config})

    with penstock.Channel("orders", tls=False, interceptors=[observer], resolver=resolver) as channel:
        push()
        channel.connect()
        eventually(lambda: observer.kinds()[-1:] == ["READY"])
        assert ignored(observer) == []
        push(**HEDGING)
        eventually(lambda: ignored(observer) == ["hedgingPolicy"])
        push(**HEDGING)
        push(**WEIGHTED, **HEDGING)
        eventually(lambda: ignored(observer)[1:] == ["weighted_round_robin", "hedgingPolicy"])
        push()
        push(**WEIGHTED)
        eventually(lambda: ignored(observer)[3:] == ["weighted_round_robin"])


def test_a_server_that_has_no_health_service(server: str) -> None:
    observer = Observer()
    config = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}
    with penstock.Channel(server, tls=False, options={"service_config": config}, interceptors=[observer]) as channel:
        channel.connect()
        eventually(lambda: observer.kinds()[-1:] == ["HEALTHY"])
    assert observer.kinds()[:5] == ["RESOLVING", "CONNECTING", "READY", "IGNORED", "HEALTHY"]
    ignored = observer.events[3]
    assert ignored.address == server
    assert (ignored.message or "").startswith("healthCheckConfig")
