"""The program's resolvers: docs/channel.md."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent import futures
from typing import Any, Callable, Iterator, List, Tuple

import grpc
import pytest

import penstock
from helpers import eventually
from penstock import StatusCode

NAME = "/test.Name/Name"


class Server:
    """A grpcio server that answers each call with its own address."""

    def __init__(self) -> None:
        server = self

        class Handlers(grpc.GenericRpcHandler):
            def service(self, details: Any) -> Any:
                return grpc.unary_unary_rpc_method_handler(lambda request, context: server.address.encode())

        self._server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Handlers()])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def two() -> Iterator[Tuple[str, str]]:
    servers = [Server(), Server()]
    yield servers[0].address, servers[1].address
    for server in servers:
        server.stop()


def only(address: str, **more: Any) -> Any:
    return {"addresses": [{"address": address}], **more}


class Recorder(penstock.Resolver):
    def __init__(self, snapshot: Any = None) -> None:
        self.calls: List[str] = []
        self.snapshot = snapshot

    def resolve(self) -> None:
        self.calls.append("resolve")
        if self.snapshot is not None:
            self.push(self.snapshot)

    def stop(self) -> None:
        self.calls.append("stop")


def name_of(channel: penstock.Channel, **options: Any) -> str:
    answer: bytes = channel.unary_unary(NAME)(b"", timeout=20, **options)
    return answer.decode()


def test_pushed_within_resolve(two: Tuple[str, str]) -> None:
    resolver = Recorder(only(two[0]))
    with penstock.Channel("orders", tls=False, resolver=resolver) as channel:
        assert name_of(channel) == two[0]
        resolver.push(only(two[1], service_config={"methodConfig": []}))
        eventually(lambda: name_of(channel) == two[1])
    eventually(lambda: resolver.calls == ["resolve", "stop"])
    with pytest.raises(penstock.ClosedError):
        resolver.push(only(two[0]))


def test_pushed_before_there_is_a_channel(two: Tuple[str, str]) -> None:
    resolver = penstock.Resolver()
    resolver.push(only("192.0.2.1:1"))
    resolver.push(only(two[0]))
    with penstock.Channel("orders", tls=False, resolver=resolver) as channel:
        assert name_of(channel) == two[0]
        with pytest.raises(penstock.StateError):
            penstock.Channel("orders", tls=False, resolver=resolver)


def test_pushed_from_a_thread(two: Tuple[str, str]) -> None:
    resolver = penstock.Resolver()
    with penstock.Channel("orders", tls=False, resolver=resolver) as channel:
        threading.Timer(0.05, resolver.push, [only(two[0])]).start()
        assert name_of(channel) == two[0]


def test_method_configs_of_a_snapshot(two: Tuple[str, str]) -> None:
    resolver = penstock.Resolver()
    slow = {"methodConfig": [{"name": [{}], "timeout": "0s"}]}
    with penstock.Channel("orders", tls=False, resolver=resolver, options={"service_config": slow}) as channel:
        resolver.push(only(two[0]))
        with pytest.raises(penstock.RpcError) as failure:
            name_of(channel)
        assert failure.value.code() is StatusCode.DEADLINE_EXCEEDED
        resolver.push(only(two[0], service_config={}))

        def works() -> bool:
            try:
                return name_of(channel) == two[0]
            except penstock.RpcError:
                return False

        eventually(works)


def test_the_policy_of_a_snapshot(two: Tuple[str, str]) -> None:
    """Each snapshot has its own policy: all calls go to one server, then to both by weight, then to one server
    again."""
    addresses = [{"address": two[0], "weight": 3}, {"address": two[1]}]

    def shares() -> List[int]:
        names = [name_of(channel) for _ in range(40)]
        return [names.count(two[0]), names.count(two[1])]

    def shares_are(expected: List[int]) -> Callable[[], bool]:
        return lambda: shares() == expected

    resolver = penstock.Resolver()
    with penstock.Channel("orders", tls=False, resolver=resolver) as channel:
        resolver.push({"addresses": addresses})
        assert shares() == [40, 0]
        for policy, expected in ("round_robin", [20, 20]), ("static_weighted_round_robin", [30, 10]):
            service = {"loadBalancingConfig": [{policy: {}}]}
            resolver.push({"addresses": addresses, "service_config": service})
            eventually(shares_are(expected))
        resolver.push({"addresses": addresses[1:]})
        eventually(lambda: shares() == [0, 40])


def test_errors_and_wrong_snapshots(two: Tuple[str, str]) -> None:
    resolver = penstock.Resolver()
    with penstock.Channel("orders", tls=False, resolver=resolver, options={"initial_backoff_ms": 20}) as channel:
        resolver.push({"error": "the list is empty"})
        with pytest.raises(penstock.RpcError, match="the name of orders does not resolve: the list is empty"):
            name_of(channel)
        resolver.push(only(two[0]))
        assert name_of(channel, wait_for_ready=True) == two[0]
        with pytest.raises(penstock.InvalidArgumentError) as wrong:
            resolver.push({"addresses": [{"address": two[1]}, {"address": "example.com:1"}]})
        assert wrong.value.path == "$.addresses[1].address"
        with pytest.raises(penstock.InvalidArgumentError) as wrong:
            resolver.push(only(two[1], service_config={"loadBalancingConfig": [{"mine": {}}]}))
        assert wrong.value.path == "$.service_config.loadBalancingConfig"
        assert name_of(channel) == two[0]


def test_a_resolver_that_raises(two: Tuple[str, str]) -> None:
    told: List[Any] = []

    class Raises(penstock.Resolver):
        def resolve(self) -> None:
            self.push(only(two[0]))
            raise ValueError("no")

    penstock.set_exception_hook(lambda *details: told.append(details))
    try:
        with penstock.Channel("orders", tls=False, resolver=Raises()) as channel:
            assert name_of(channel) == two[0]
    finally:
        penstock.set_exception_hook(None)
    assert [(name, callback, str(error)) for name, callback, error in told] == [("Raises", "resolve", "no")]


def test_nothing_is_left(two: Tuple[str, str]) -> None:
    """The library releases the resolver when the channel has closed."""
    resolver = Recorder(only(two[0]))
    with penstock.Channel("orders", tls=False, resolver=resolver) as channel:
        assert name_of(channel) == two[0]
        known = weakref.ref(resolver)
        del resolver
        gc.collect()
        assert known() is not None
        assert name_of(channel) == two[0]
    eventually(lambda: gc.collect() >= 0 and known() is None)
