"""The program's pickers (docs/channel.md), on_pick and prefer (docs/hops.md), with several servers."""

from __future__ import annotations

import gc
import weakref
import zlib
from concurrent import futures
from typing import Any, Dict, Iterator, List, Optional

import grpc
import pytest

import penstock
from helpers import Only, eventually
from penstock import Connectivity, StatusCode, Verdict

NAME = "/test.Name/Name"


class Server:
    """A grpcio server that answers each call with its own address."""

    def __init__(self, port: int = 0) -> None:
        server = self

        class Handlers(grpc.GenericRpcHandler):
            def service(self, details: Any) -> Any:
                return grpc.unary_unary_rpc_method_handler(lambda request, context: server.address.encode())

        self._server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Handlers()])
        self.address = f"127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{port}')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()


class Zones(penstock.Resolver):
    """Pushes the addresses of all servers, each with its zone as an attribute."""

    def __init__(self, zones: Dict[str, List[str]], policy: str = "round_robin") -> None:
        addresses = [
            {"address": address, "weight": 7, "attributes": {"zone": zone}}
            for zone, servers in zones.items()
            for address in servers
        ]
        self.push({"addresses": addresses, "service_config": {"loadBalancingConfig": [{policy: {}}]}})


@pytest.fixture(scope="module")
def servers() -> Iterator[List[Server]]:
    made = [Server() for _ in range(4)]
    yield made
    for server in made:
        server.stop()


@pytest.fixture
def zones(servers: List[Server]) -> Dict[str, List[str]]:
    addresses = [server.address for server in servers]
    return {"a": addresses[:2], "b": addresses[2:]}


def open_channel(zones: Dict[str, List[str]], **more: Any) -> penstock.Channel:
    policy = more.pop("policy", "round_robin")
    return penstock.Channel("names.example:1", tls=False, resolver=Zones(zones, policy), **more)


def ask(channel: penstock.Channel, **more: Any) -> str:
    return bytes(channel.unary_unary(NAME)(b"", wait_for_ready=True, timeout=20, **more)).decode()


def connect(channel: penstock.Channel, zones: Dict[str, List[str]]) -> None:
    """Waits until the channel is connected to every server."""
    missing = {address for servers in zones.values() for address in servers}

    def done() -> bool:
        missing.discard(ask(channel))
        return not missing

    eventually(done)


# ---- Hops ----


class Router(penstock.Interceptor):
    """Sends each call to the zone that its metadata names."""

    def on_start(self, hop: penstock.Hop) -> None:
        zone = hop.metadata.get("x-zone")
        if zone is not None:
            hop.prefer("zone", str(zone), required=True)


@pytest.mark.parametrize("per_attempt", [False, True])
def test_a_hop_routes_by_metadata(zones: Dict[str, List[str]], per_attempt: bool) -> None:
    with open_channel(zones) as channel:
        channel.add_interceptor(Router(), per_attempt=per_attempt)
        for zone, addresses in zones.items():
            # The channel may connect to the second server of a zone later than to the first.
            seen = [ask(channel, metadata={"x-zone": zone})]
            while len(set(seen)) < 2 and len(seen) < 10000:
                seen.append(ask(channel, metadata={"x-zone": zone}))
            assert set(seen) == set(addresses)
        with pytest.raises(penstock.RpcError, match="no ready endpoint has zone=c") as caught:
            ask(channel, metadata={"x-zone": "c"})
        assert caught.value.code() is StatusCode.UNAVAILABLE


def test_a_wish_may_fall_back(zones: Dict[str, List[str]]) -> None:
    with open_channel(zones) as channel:
        connect(channel, zones)
        wish: List[Any] = ["zone", "c"]
        channel.add_interceptor(Only(on_start=lambda hop: hop.prefer(*wish)))
        assert ask(channel)
        wish[:] = ["zone", "b"]
        assert {ask(channel) for _ in range(10)} == set(zones["b"])
        wish[:] = [None]
        assert len({ask(channel) for _ in range(10)}) == 4


class Refusing(penstock.Interceptor):
    """Refuses the servers in `refused`."""

    per_attempt = True

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.seen: List[Optional[str]] = []

    def on_pick(self, hop: penstock.Hop) -> Optional[Verdict]:
        assert hop.event is penstock.EventKind.PICK
        assert hop.metadata.get("x-user") == hop.request_metadata.get("x-user")
        assert hop.address_attribute("rack") is None
        self.seen.append(f"{hop.address} {hop.address_attribute('zone')}")
        return Verdict.DROP if hop.address in self.refused else None

    def on_headers(self, hop: penstock.Hop) -> None:
        assert hop.address is None
        assert hop.address_attribute("zone") is None


def test_a_hop_refuses_a_server(zones: Dict[str, List[str]]) -> None:
    bad = zones["a"][1]
    hop = Refusing(bad)
    with open_channel(zones, interceptors=[hop]) as channel:
        answers = {ask(channel) for _ in range(30)}
        assert bad not in answers
        eventually(lambda: ask(channel) and f"{bad} a" in hop.seen)
        hop.refused = {address for servers in zones.values() for address in servers}
        with pytest.raises(penstock.RpcError, match="interceptors have refused every endpoint that is ready: 4"):
            ask(channel)
        hop.refused = set()
        connect(channel, zones)


def test_the_only_server_is_refused(zones: Dict[str, List[str]]) -> None:
    hop = Refusing(zones["a"][0])
    words = "interceptors have refused every endpoint that is ready: 1"
    with (
        open_channel(zones, policy="pick_first", interceptors=[hop]) as channel,
        pytest.raises(penstock.RpcError, match=words),
    ):
        ask(channel)
    assert hop.seen == [f"{zones['a'][0]} a"]


def test_on_pick_may_raise(zones: Dict[str, List[str]]) -> None:
    def on_pick(hop: penstock.Hop) -> None:
        raise ValueError("no such server")

    penstock.set_exception_hook(lambda *given: None)
    try:
        with open_channel(zones) as channel:
            channel.add_interceptor(Only(on_pick=on_pick), per_attempt=True)
            with pytest.raises(penstock.RpcError, match="on_pick raised ValueError") as caught:
                ask(channel)
            assert isinstance(caught.value.__cause__, ValueError)
    finally:
        penstock.set_exception_hook(None)


def test_on_pick_is_per_attempt(zones: Dict[str, List[str]]) -> None:
    with open_channel(zones) as channel, pytest.raises(penstock.InvalidArgumentError, match="on_pick"):
        channel.add_interceptor(Only(on_pick=lambda hop: None))


# ---- Pickers ----


def pin(pick: penstock.Pick) -> Optional[penstock.Endpoint]:
    """Sends all calls of a user to the same server, as long as the set of ready servers stays the same."""
    assert pick.method == NAME
    user = str(pick.metadata["x-user"])
    return max(pick.endpoints, key=lambda each: zlib.crc32(f"{user} {each.address}".encode()))


def test_a_picker_pins_users(zones: Dict[str, List[str]], servers: List[Server]) -> None:
    # Names that differ in many digits: the checksums of "0" to "99" may all leave one server out.
    users = [str(7919 * number) for number in range(100)]
    with open_channel(zones, policy="pick_first", picker=pin) as channel:
        eventually(lambda: len({ask(channel, metadata={"x-user": user}) for user in users}) == 4)
        pinned = {user: ask(channel, metadata={"x-user": user}) for user in users}
        for user, address in pinned.items():
            assert ask(channel, metadata={"x-user": user}) == address


def test_a_pinned_user_moves_when_the_server_stops() -> None:
    own = [Server(), Server()]
    # Names that differ in many digits: the checksums of "0" to "19" may all choose the same server.
    users = [str(7919 * number) for number in range(20)]
    zones = {"a": [server.address for server in own]}
    with open_channel(zones, picker=pin) as channel:
        eventually(lambda: len({ask(channel, metadata={"x-user": user}) for user in users}) == 2)
        own[0].stop()
        eventually(lambda: {ask(channel, metadata={"x-user": user}) for user in users} == {own[1].address})
    own[1].stop()


def test_a_picker_sees_the_servers(zones: Dict[str, List[str]]) -> None:
    kept: List[Any] = []

    def picker(pick: penstock.Pick) -> int:
        first = pick.endpoints[0]
        if not kept:
            kept.extend([pick, first, pick.metadata])
        assert len(pick) == len(pick.endpoints) > 0
        for each in pick.endpoints:
            assert each.address in zones[each.attribute("zone") or ""]
            assert each.weight == 7
            assert each.attribute("rack") is None
        assert 0 < (pick.deadline or 0) <= 20
        assert pick.wait_for_ready
        assert pick.authority == "names.example:1"
        for change in (
            lambda: setattr(pick, "method", "/a/b"),
            lambda: pick.set_credentials("x"),
            lambda: pick.prefer("zone", "a"),
            lambda: pick.metadata.__setitem__("x-more", "1"),
        ):
            with pytest.raises(penstock.StateError):
                change()
        return len(pick) - 1

    with open_channel(zones, picker=picker) as channel:
        eventually(lambda: ask(channel) == zones["b"][1])
    for use in (lambda: len(kept[0]), lambda: kept[1].address, lambda: kept[2].get("x"), lambda: kept[0].method):
        with pytest.raises(penstock.StateError):
            use()


def test_the_answers_of_a_picker(zones: Dict[str, List[str]]) -> None:
    answers: List[Any] = []
    reports: List[Any] = []
    penstock.set_exception_hook(lambda *given: reports.append(given))

    def picker(pick: penstock.Pick) -> Any:
        return answers[0](pick) if callable(answers[0]) else answers[0]

    def fails(answer: Any, code: StatusCode, words: str) -> None:
        answers[:] = [answer]
        with pytest.raises(penstock.RpcError, match=words) as caught:
            ask(channel)
        assert caught.value.code() is code

    try:
        with open_channel(zones) as channel:
            connect(channel, zones)
            channel.set_picker(picker)
            fails(4, StatusCode.INTERNAL, "the picker has returned 4 for 4 endpoints")
            fails(-1, StatusCode.INTERNAL, "the picker has returned 2147483647 for 4 endpoints")
            fails(-2, StatusCode.INTERNAL, "the picker has returned 2147483647 for 4 endpoints")
            fails(lambda pick: pick.fail(StatusCode.ABORTED, "no"), StatusCode.ABORTED, "no")
            fails("first", StatusCode.INTERNAL, "the picker raised TypeError")
            fails(lambda pick: 1 // 0, StatusCode.INTERNAL, "the picker raised ZeroDivisionError")
            fails(lambda pick: pick.fail(StatusCode.OK), StatusCode.INTERNAL, "InvalidArgumentError")
            answers[:] = [None]
            with pytest.raises(penstock.RpcError) as caught:
                channel.unary_unary(NAME)(b"", timeout=0.05)
            assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
            channel.set_picker(None)
            connect(channel, zones)
    finally:
        penstock.set_exception_hook(None)
    assert [callback for _, callback, _ in reports] == ["picker"] * 3
    with pytest.raises(penstock.ClosedError):
        channel.set_picker(picker)
    with pytest.raises(TypeError):
        channel.set_picker("round_robin")  # type: ignore[arg-type]


def test_a_picker_is_let_go(zones: Dict[str, List[str]]) -> None:
    class First:
        def __call__(self, pick: penstock.Pick) -> int:
            return 0

    first, second = First(), First()
    gone = [weakref.ref(first), weakref.ref(second)]
    channel = open_channel(zones, picker=first)
    ask(channel)
    channel.set_picker(second)
    del first, second
    eventually(lambda: ask(channel) and (gc.collect(), gone[0]() is None)[1])
    channel.close()
    eventually(lambda: (gc.collect(), gone[1]() is None)[1])
    assert channel.connectivity is Connectivity.SHUTDOWN
