"""Channel options by grpcio's names, and interceptors of both kinds on a live channel."""

from __future__ import annotations

import inspect
import json
import pickle
import warnings
from typing import Any, Iterator, List

import grpc
import pytest

import penstock.grpc
from helpers import Only
from penstock import Level
from penstock.grpc._options import channel_options


@pytest.fixture
def channel(server: str) -> Iterator[Any]:
    with penstock.grpc.insecure_channel(server) as opened:
        yield opened


def test_every_option_is_one_of_penstock(server: str) -> None:
    config = json.dumps({"methodConfig": [{"name": [{}], "timeout": "20s"}]})
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", 1000),
        ("grpc.max_metadata_size", 20000),
        ("grpc.primary_user_agent", "orders/1"),
        ("grpc.secondary_user_agent", "more"),
        ("grpc.default_authority", "orders.example"),
        ("grpc.keepalive_time_ms", 30000),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.client_idle_timeout_ms", 60000),
        ("grpc.dns_min_time_between_resolutions_ms", 10),
        ("grpc.http2.lookahead_bytes", 1),
        ("grpc.service_config", config),
        ("grpc.lb_policy_name", "round_robin"),
        ("grpc.default_compression_algorithm", 2),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("SingleThreadedUnaryStream", 1),
    ]
    chosen = channel_options(options, None)
    assert chosen == {
        "max_receive_message_bytes": 2**31 - 1,
        "max_send_message_bytes": 1000,
        "max_header_list_bytes": 20000,
        "user_agent": "orders/1 more",
        "authority": "orders.example",
        "keepalive_time_ms": 30000,
        "keepalive_timeout_ms": 5000,
        "keepalive_without_calls": True,
        "initial_backoff_ms": 100,
        "max_backoff_ms": 1000,
        "connect_timeout_ms": 500,
        "idle_timeout_ms": 60000,
        "compression": "gzip",
        "min_resolve_interval_ms": 10,
        "initial_stream_window_bytes": 65535,
        "service_config": {**json.loads(config), "loadBalancingConfig": [{"round_robin": {}}]},
    }
    seen: List[Any] = []
    with penstock.grpc.insecure_channel(server, options, penstock.grpc.Compression.Deflate) as opened:
        opened.add_interceptor(
            Only(on_start=lambda hop: seen.append((hop.authority, hop.compression, 19 < (hop.deadline or 0) <= 20)))
        )
        assert opened.unary_unary("/penstock.Echo/Unary")(b"x" * 100) == b"x" * 100
        with pytest.raises(grpc.RpcError) as caught:
            opened.unary_unary("/penstock.Echo/Unary")(b"x" * 1001)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert seen[0] == ("orders.example", "deflate", True)


@pytest.mark.parametrize(
    ("option", "instead"), [("grpc.http2.bdp_probe", "max_window_bytes"), ("grpc.unheard_of", "docs/options.md")]
)
def test_an_option_without_a_meaning_is_named(server: str, option: str, instead: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        penstock.grpc.insecure_channel(server, [(option, 0)]).close()
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert option in str(warning.message)
    assert instead in str(warning.message)
    assert warning.filename == __file__


def test_malformed_options(server: str) -> None:
    for options in ([("grpc.max_send_message_length", "many")], {"a": 1}, [("grpc.service_config", "{")]):
        with pytest.raises(ValueError, match=r"."):
            penstock.grpc.insecure_channel(server, options)


# ---- Interceptors ----


class Tagging(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    def __init__(self, name: str, order: List[str]) -> None:
        self.name = name
        self.order = order

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self.order.append(self.name)
        return continuation(details, request)

    intercept_unary_stream = intercept_unary_unary


def test_interceptors_of_grpcio_on_a_live_channel(channel: Any) -> None:
    order: List[str] = []
    unary = channel.unary_unary("/penstock.Echo/Unary")
    low = channel.add_interceptor(Tagging("low", order), priority=1)
    high = channel.add_interceptor(Tagging("high", order), priority=2)
    ours = channel.add_interceptor(Only(on_start=lambda hop: order.append("ours")), priority=9, kinds=None)

    def taken() -> List[str]:
        seen, order[:] = list(order), []
        return seen

    assert unary(b"a") == b"a"
    assert taken() == ["high", "low", "ours"]
    assert unary.with_call(b"a")[0] == unary.future(b"a").result(timeout=20) == b"a"
    assert taken() == ["high", "low", "ours"] * 2
    low.priority = 3
    assert low.priority == 3
    assert list(channel.unary_stream("/penstock.Echo/ServerStream")(b"a")) == [b"a"]
    assert taken() == ["low", "high", "ours"]
    # They are for two of the four kinds.
    assert channel.stream_unary("/penstock.Echo/ClientStream")(iter([b"a"])) == b"a"
    assert taken() == ["ours"]
    high.remove()
    high.remove()
    ours.remove()
    with low:
        unary(b"a")
        assert taken() == ["low"]
    unary(b"a")
    assert taken() == []
    with pytest.raises(TypeError, match="methods"):
        channel.add_interceptor(Tagging("no", order), methods="/a/*")


def test_an_interceptor_of_ours_sees_objects(channel: Any) -> None:
    seen: List[Any] = []
    look = Only(on_send=lambda hop: seen.append(hop.message), on_receive=lambda hop: seen.append(hop.message))
    look.level = Level.OBJECT
    channel.add_interceptor(look)
    upper = channel.unary_unary("/penstock.Echo/Unary", lambda text: text.encode(), lambda data: data.decode())
    assert upper("a") == upper.future("a").result(timeout=20) == "a"
    assert seen == ["a"] * 4


def test_an_exception_in_an_interceptor_of_ours_reaches_the_caller(channel: Any) -> None:
    def broken(hop: penstock.Hop) -> None:
        raise ZeroDivisionError("in an interceptor")

    channel.add_interceptor(Only(on_start=broken), name="broken")
    with pytest.raises(grpc.RpcError, match="broken") as caught:
        channel.unary_unary("/penstock.Echo/Unary")(b"a")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"a")
    with pytest.raises(grpc.RpcError, match="broken") as caught:
        list(call)
    assert caught.value is call
    assert isinstance(call.__cause__, ZeroDivisionError)
    future = channel.unary_unary("/penstock.Echo/Unary").future(b"a")
    assert isinstance(future.exception(timeout=20).__cause__, ZeroDivisionError)


# ---- Small rules ----


def test_signatures_are_those_of_grpcio(channel: Any) -> None:
    for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        ours = getattr(channel, kind)("/a/b")
        theirs = getattr(grpc.insecure_channel("localhost:1"), kind)("/a/b")
        for name in ("__call__", "with_call", "future"):
            if hasattr(theirs, name):
                wanted = list(inspect.signature(getattr(theirs, name)).parameters)
                assert list(inspect.signature(getattr(ours, name)).parameters) == wanted
    for name in (
        *("insecure_channel", "secure_channel", "intercept_channel", "ssl_channel_credentials"),
        *("metadata_call_credentials", "access_token_call_credentials", "composite_channel_credentials"),
        *("composite_call_credentials", "local_channel_credentials", "channel_ready_future"),
    ):
        wanted = list(inspect.signature(getattr(grpc, name)).parameters)
        assert list(inspect.signature(getattr(penstock.grpc, name)).parameters) == wanted


def test_errors_can_be_pickled(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary")(b'{"code": 5, "message": "nothing"}')
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, grpc.RpcError)
    assert (copy.code(), copy.details(), str(copy)) == (grpc.StatusCode.NOT_FOUND, "nothing", str(caught.value))
