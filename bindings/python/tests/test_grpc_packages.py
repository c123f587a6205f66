"""Packages written for grpcio, unchanged, on our channel: all of their calls go through penstock."""

from __future__ import annotations

import importlib
import queue
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List

import grpc
import pytest

import penstock.grpc
from helpers import eventually, run
from penstock import Hop, Interceptor


class Counting(Interceptor):
    def __init__(self) -> None:
        self.methods: List[str] = []

    def on_start(self, hop: Hop) -> None:
        self.methods.append(hop.method)


@pytest.fixture
def server(servers: Dict[str, str]) -> str:
    return servers["packages"]


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def channel(server: str, counting: Counting, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a channel of grpcio's is made")

    monkeypatch.setattr("grpc._channel.Channel", refuse)
    monkeypatch.setattr("grpc._cython.cygrpc.Channel", refuse)
    with penstock.grpc.insecure_channel(server) as opened:
        opened.add_interceptor(counting)
        yield opened


def test_generated_stubs(channel: Any, counting: Counting) -> None:
    import helloworld_pb2
    import helloworld_pb2_grpc

    stub = helloworld_pb2_grpc.GreeterStub(channel)
    you = helloworld_pb2.HelloRequest(name="you")
    assert stub.SayHello(you, timeout=20).message == "Hello, you!"
    assert stub.SayHello.future(you).result(timeout=20).message == "Hello, you!"
    assert next(reply.message for reply in stub.SayHelloStreamReply(you)) == "Hello, you!"
    assert [reply.message for reply in stub.SayHelloBidiStream(iter([you, you]))] == ["Hello, you!"] * 2
    assert len(counting.methods) == 4


def test_the_class_of_a_generated_service_makes_its_own_channel(channel: Any, server: str) -> None:
    import helloworld_pb2

    greet = penstock.grpc.experimental.unary_unary
    serialize, parse = helloworld_pb2.HelloRequest.SerializeToString, helloworld_pb2.HelloReply.FromString
    you = helloworld_pb2.HelloRequest(name="you")
    for _ in range(2):
        reply = greet(you, server, "/helloworld.Greeter/SayHello", serialize, parse, insecure=True)
        assert reply.message == "Hello, you!"


def test_health(channel: Any, counting: Counting) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    assert stub.Check(health_pb2.HealthCheckRequest(service="helloworld.Greeter")).status == serving
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="helloworld.Greeter"))
    assert next(watch).status == serving
    assert watch.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert len(counting.methods) == 3


def test_reflection(channel: Any, counting: Counting) -> None:
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    database = ProtoReflectionDescriptorDatabase(channel)
    assert "helloworld.Greeter" in database.get_services()
    service = DescriptorPool(database).FindServiceByName("helloworld.Greeter")
    assert "SayHello" in [method.name for method in service.methods]
    assert counting.methods


def test_rich_statuses(channel: Any) -> None:
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Rich")(b"")
    status = rpc_status.from_call(caught.value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, status.message, info.reason) == (9, "not so", "BECAUSE")


# ---- google.api_core ----


def test_api_core_wraps_the_errors_of_each_kind(channel: Any) -> None:
    from google.api_core import exceptions, grpc_helpers

    wrapped = grpc_helpers.wrap_errors(channel.unary_unary("/penstock.Probe/Unary"))
    refusal = b'{"code": 5, "message": "nothing"}'
    with pytest.raises(exceptions.NotFound, match="nothing") as caught:
        wrapped(refusal)
    assert caught.value.grpc_status_code is grpc.StatusCode.NOT_FOUND
    stream = grpc_helpers.wrap_errors(channel.unary_stream("/penstock.Probe/Stream"))
    responses = stream(b'{"count": 2, "code": 10, "message": "enough"}')
    assert len(next(responses)) == len(next(responses)) == 4
    with pytest.raises(exceptions.Aborted, match="enough"):
        next(responses)
    assert isinstance(responses, grpc.Call)
    assert responses.code() is grpc.StatusCode.ABORTED


def test_api_core_retries(channel: Any) -> None:
    from google.api_core import exceptions, gapic_v1, retry

    tried = []

    class Unavailable(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            tried.append(details.timeout)
            return continuation(details, b'{"code": 14}' if len(tried) < 3 else request)

    added = channel.add_interceptor(Unavailable())
    again = retry.Retry(retry.if_exception_type(exceptions.ServiceUnavailable), initial=0.01, timeout=30)
    method = gapic_v1.method.wrap_method(channel.unary_unary("/penstock.Probe/Unary"), default_retry=again)
    assert method(b"{}", timeout=20)
    assert len(tried) == 3
    added.remove()


def test_api_core_bidi(channel: Any) -> None:
    from google.api_core import bidi

    rpc = bidi.BidiRpc(channel.stream_stream("/penstock.Echo/Bidi"), initial_request=b"first")
    told: List[Any] = []
    over = threading.Event()
    rpc.add_done_callback(lambda call: (told.append(call), over.set()))
    rpc.open()
    assert rpc.is_active
    assert rpc.recv() == b"first"
    rpc.send(b"second")
    assert rpc.recv() == b"second"
    rpc.call.cancel()
    assert over.wait(30)
    rpc.close()
    assert not rpc.is_active
    assert isinstance(told[0], grpc.RpcError)


def test_api_core_consumes_a_stream_in_the_background(channel: Any) -> None:
    from google.api_core import bidi

    def recovers(error: Any) -> bool:
        return False

    rpc = bidi.ResumableBidiRpc(
        channel.stream_stream("/penstock.Echo/Bidi"), should_recover=recovers, initial_request=b"first"
    )
    received: queue.Queue[bytes] = queue.Queue()
    consumer = bidi.BackgroundConsumer(rpc, received.put)
    consumer.start()
    assert received.get(timeout=30) == b"first"
    rpc.send(b"second")
    assert received.get(timeout=30) == b"second"
    consumer.stop()
    assert not consumer.is_active


# ---- The shim ----


def test_generated_modules_without_grpcio(stubs: str, server: str) -> None:
    """The program can't import grpcio: the shim takes its place, also where grpcio is installed."""
    text = f"""
penstock.install_grpc_shim()
penstock.install_grpc_shim()
sys.path.insert(0, {stubs!r})
import grpc, helloworld_pb2, helloworld_pb2_grpc
from grpc import StatusCode, RpcError, ssl_channel_credentials, ServicerContext
from grpc_health.v1 import health_pb2, health_pb2_grpc
with grpc.insecure_channel(target) as channel:
    stub = helloworld_pb2_grpc.GreeterStub(channel)
    print(stub.SayHello(helloworld_pb2.HelloRequest(name="you")).message)
    try:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="nobody"))
    except grpc.RpcError as error:
        print(error.code() is StatusCode.NOT_FOUND is penstock.StatusCode.NOT_FOUND, isinstance(error, grpc.Call))
    print(isinstance(channel, grpc.Channel), grpc is penstock.grpc)
try:
    grpc.server(None)
except NotImplementedError as error:
    print(error)
assert not any(name.startswith("grpc._cython") for name in sys.modules)
"""
    assert run(text, server).splitlines() == [
        *("Hello, you!", "True True", "True True"),
        "grpc.server needs grpcio: penstock has no server",
    ]


def test_asyncio_without_grpcio(stubs: str, server: str) -> None:
    text = f"""
penstock.install_grpc_shim()
sys.path.insert(0, {stubs!r})
import asyncio, grpc, grpc.aio, grpc._channel, grpc.aio._metadata, helloworld_pb2, helloworld_pb2_grpc
import grpc.experimental.aio
from grpc.aio._call import AioRpcError
from grpc.experimental import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

class Note(grpc.aio.UnaryUnaryClientInterceptor, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_unary(self, continuation, details, request):
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        metadata.add("x-note", "1")
        call = await continuation(details._replace(metadata=metadata), request)
        print(details.method, isinstance(call, grpc.aio.UnaryUnaryCall), await call.code() is grpc.StatusCode.OK)
        return call

    async def intercept_unary_stream(self, continuation, details, request):
        raise AssertionError("used for its first kind only")

async def main():
    async with grpc.aio.insecure_channel(target, interceptors=[Note()]) as channel:
        await channel.channel_ready()
        print(isinstance(channel, grpc.aio.Channel), channel.get_state() is grpc.ChannelConnectivity.READY)
        stub = helloworld_pb2_grpc.GreeterStub(channel)
        you = helloworld_pb2.HelloRequest(name="you")
        print((await stub.SayHello(you)).message)
        print([reply.message async for reply in stub.SayHelloStreamReply(you)])
        both = stub.SayHelloBidiStream()
        await both.write(you)
        print((await both.read()).message, isinstance(both, grpc.aio.StreamStreamCall))
        await both.done_writing()
        print(await both.read() is grpc.aio.EOF, repr(grpc.aio.EOF))
        try:
            await both.write(you)
        except asyncio.InvalidStateError:
            print("ended")
        try:
            async for _ in both: pass
        except grpc.aio.UsageError as error:
            print(error)
        print(type(await both.trailing_metadata()) is grpc.aio._metadata.Metadata)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="nobody"))
        print((await watch.read()).status, watch.cancel())
        try:
            await channel.unary_unary("/penstock.Nobody/None")(b"")
        except grpc.aio.AioRpcError as error:
            print(error.code() is grpc.StatusCode.UNIMPLEMENTED, isinstance(error, grpc.RpcError))

asyncio.run(main())
print(AioRpcError is grpc.aio.AioRpcError is aio.AioRpcError, aio is grpc.experimental.aio)
with grpc.insecure_channel(target) as channel:
    try:
        channel.unary_unary("/penstock.Nobody/None")(b"")
    except grpc._channel._InactiveRpcError as error:
        print(error.code())
try:
    grpc.aio.server()
except NotImplementedError as error:
    print(error)
try:
    import grpc.framework
except ModuleNotFoundError as error:
    print(error)
assert not any(name.startswith("grpc._cython") for name in sys.modules)
"""
    assert run(text, server).splitlines() == [
        "True True",
        *("b'/helloworld.Greeter/SayHello' True True", "Hello, you!"),
        "['Hello, you!', 'Servus, you!', 'Salut, you!']",
        *("Hello, you! True", "True <grpc.aio.EOF>", "ended"),
        "The iterator and read/write APIs may not be mixed on a single RPC.",
        *("True", "3 True"),
        *("b'/penstock.Nobody/None' True False", "True True"),
        *("True True", "StatusCode.UNIMPLEMENTED"),
        "grpc.aio.server needs grpcio: penstock has no server",
        "No module named 'grpc.framework'",
    ]


def test_experimental_names_without_grpcio(stubs: str, server: str) -> None:
    text = """
penstock.install_grpc_shim()
import grpc.experimental, grpc.experimental.session_cache
from grpc.experimental import aio, gevent
cleartext = grpc.experimental.insecure_channel_credentials()
with grpc.secure_channel(target, cleartext) as channel:
    print(channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=60))
print(grpc.experimental.unary_unary(b"y", target, "/penstock.Echo/Unary", channel_credentials=cleartext))
print(cleartext is grpc.experimental.insecure_channel_credentials())
print(issubclass(grpc.experimental.ExperimentalApiWarning, Warning), aio.Channel is grpc.aio.Channel)
for refused in (
    lambda: grpc.experimental.ssl_channel_credentials_with_custom_signer(private_key_sign_fn=print),
    lambda: grpc.experimental.wrap_server_method_handler(print, None),
    lambda: grpc.experimental.PrivateKeySignatureAlgorithm,
    lambda: grpc.experimental.nonsense,
):
    try: refused()
    except (NotImplementedError, AttributeError) as error: print(error)
try: gevent.init_gevent()
except RuntimeError as error: print(error)
assert not any(name.startswith("grpc._cython") for name in sys.modules)
"""
    signer = "ssl_channel_credentials_with_custom_signer"
    first, *refusals, last = run(text, server).splitlines()
    assert first == "b'x'"
    assert refusals == [
        *("b'y'", "True", "True True"),
        f"experimental.{signer} is not available in penstock.grpc: give the private key itself to "
        "ssl_channel_credentials",
        "grpc.experimental.wrap_server_method_handler needs grpcio: penstock has no server",
        f"PrivateKeySignatureAlgorithm is not available in penstock.grpc, since {signer} is not",
        "module 'penstock.grpc.experimental' has no attribute 'nonsense'",
    ]
    assert "gevent" in last


def test_calls_wait_in_gevents_hub_by_grpcios_name(server: str) -> None:
    text = """
penstock.install_grpc_shim()
import gevent, time
import grpc, grpc.experimental.gevent
grpc.experimental.gevent.init_gevent()
others = []
with grpc.insecure_channel(target) as channel:
    calls = [gevent.spawn(channel.unary_unary("/penstock.Echo/Unary"), b"%d" % each) for each in range(3)]
    calls.append(gevent.spawn(others.append, 1))
    print([call.get(timeout=60) for call in calls[:3]], others, threading.active_count())
"""
    assert run(text, server) == "[b'0', b'1', b'2'] [1] 1\n"


def test_experimental_names_are_those_of_grpcio() -> None:
    import grpc.experimental

    theirs, ours = grpc.experimental, penstock.grpc.experimental
    assert set(ours.__all__) == set(theirs.__all__)
    for name in ("ChannelOptions", "ExperimentalApiWarning", "UsageError", "wrap_server_method_handler"):
        assert getattr(ours, name) is getattr(theirs, name)
    importlib.import_module("grpc.experimental.aio")
    importlib.import_module("penstock.grpc.experimental.aio")
    assert set(ours.aio.__all__) == set(grpc.aio.__all__)
    assert ours.aio.insecure_channel is penstock.grpc.aio.insecure_channel
    for name in ("gevent", "session_cache"):
        modules = [importlib.import_module(f"{package}.{name}") for package in (theirs.__name__, ours.__name__)]
        names = [{each for each in vars(module) if "_" in each[1:] and each[0] != "_"} for module in modules]
        assert names[0] == names[1]


def test_a_session_cache_lets_a_channel_resume_sessions(servers: Dict[str, str], certificates: Path) -> None:
    from penstock.grpc.experimental.session_cache import ssl_session_cache_lru

    secrets = penstock.grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    # Each call needs a connection of its own.
    options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.client_idle_timeout_ms", 1)]
    for cache, resumes in ((ssl_session_cache_lru(8), True), (None, False)):
        with penstock.grpc.secure_channel(
            servers["tls"], secrets, [*options, ("grpc.ssl_session_cache", cache)]
        ) as channel:

            def handshakes(channel: Any = channel) -> int:
                assert channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=60) == b"x"
                return int(sum(channel.penstock.stats()["tls"].values()))

            eventually(lambda: handshakes() > 3)
            assert (channel.penstock.stats()["tls"]["resumed_handshakes"] > 0) == resumes


def test_the_shim_comes_before_grpcio(server: str) -> None:
    text = """
import grpc
try:
    penstock.install_grpc_shim()
except RuntimeError as error:
    print(error)
"""
    assert "imported already" in run(text, server)
