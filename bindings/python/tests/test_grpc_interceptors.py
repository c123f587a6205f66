"""grpcio's own `grpc.intercept_channel` and interceptors on our channel, which grpcio accepts as its own."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterator, List

import grpc
import pytest

import penstock.grpc
from conftest import json_bytes
from helpers import Only, seen
from penstock import Channel, Hop, RpcError, StatusCode

Made = Callable[[Any], Any]
UNARY_REPLIES: List[Any] = [
    pytest.param(lambda c: c.unary_unary("/penstock.Probe/Unary"), id="unary"),
    pytest.param(lambda c: c.stream_unary("/penstock.Probe/Unary"), id="client stream"),
]


class Details(grpc.ClientCallDetails):  # type: ignore[misc]
    """The details of a call, with one more metadata field, x-by."""

    def __init__(self, given: Any) -> None:
        self.method = given.method
        self.timeout = given.timeout
        self.metadata = (*(given.metadata or ()), ("x-by", "grpcio"))
        self.credentials = given.credentials
        self.wait_for_ready = given.wait_for_ready
        self.compression = given.compression


class Look(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Adds x-by to the metadata of each call, and keeps what the continuation returns (the call or its error)."""

    def __init__(self) -> None:
        self.outcomes: List[Any] = []

    def _look(self, continuation: Any, details: Any, request: Any) -> Any:
        outcome = continuation(Details(details), request)
        self.outcomes.append(outcome)
        return outcome

    intercept_unary_unary = _look
    intercept_unary_stream = _look
    intercept_stream_unary = _look
    intercept_stream_stream = _look


@pytest.fixture
def look() -> Look:
    return Look()


@pytest.fixture
def intercepted(channel: Channel, look: Look) -> Any:
    return grpc.intercept_channel(channel, look)


def requests_for(call: Any, request: bytes) -> Any:
    return request if "UnaryUnary" in type(call).__name__ else iter([request])


def test_calls_that_end_well(channel: Channel, intercepted: Any, look: Look) -> None:
    headers: List[Any] = []

    def note(hop: Hop) -> None:
        headers.append(hop.metadata["x-by"])

    channel.add_interceptor(Only(on_start=note))
    assert intercepted.unary_unary("/penstock.Echo/Unary")(b"a", timeout=20) == b"a"
    response, outcome = intercepted.unary_unary("/penstock.Echo/Unary").with_call(b"a", metadata=(("x-a", "b"),))
    assert (response, outcome.result(), outcome.code()) == (b"a", b"a", StatusCode.OK)
    assert (outcome.is_active(), outcome.done(), outcome.exception(), outcome.cancel()) == (False, True, None, False)
    assert outcome.add_callback(lambda: None) is False
    assert outcome.time_remaining() is None
    assert intercepted.stream_unary("/penstock.Echo/ClientStream")(iter([b"a", b"b"])) == b"ab"
    response, outcome = intercepted.stream_unary("/penstock.Echo/ClientStream").with_call(iter([b"a", b"b"]))
    assert (response, outcome.result(), outcome.code()) == (b"ab", b"ab", StatusCode.OK)
    assert outcome.add_callback(lambda: None) is False
    assert list(intercepted.unary_stream("/penstock.Echo/ServerStream")(b"a")) == [b"a"]
    assert list(intercepted.stream_stream("/penstock.Echo/Bidi")(iter([b"a", b"b"]))) == [b"a", b"b"]
    assert len(look.outcomes) == 6
    assert headers == ["grpcio"] * 6


@pytest.mark.parametrize("made", UNARY_REPLIES)
def test_an_error_is_raised_as_it_is(intercepted: Any, look: Look, made: Made) -> None:
    wish = json.dumps({"code": 9, "message": "not like this", "trailing": [["x-why", "because"]]}).encode()
    call = made(intercepted)
    with pytest.raises(grpc.RpcError) as caught:
        call(requests_for(call, wish))
    error = caught.value
    assert isinstance(error, RpcError)
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not like this")
    assert ("x-why", "because") in error.trailing_metadata()
    # The interceptor got the same object, which is both a call and a future for grpcio.
    assert look.outcomes == [error]
    assert error.exception() is error
    assert error.exception(timeout=1) is error
    assert (error.done(), error.running(), error.cancelled()) == (True, False, False)
    assert (error.is_active(), error.cancel(), error.time_remaining()) == (False, False, None)
    with pytest.raises(RpcError) as again:
        error.result(timeout=1)
    assert again.value is error
    assert error.traceback() is error.__traceback__ is not None
    assert error.traceback(timeout=1) is not None
    told: List[Any] = []
    error.add_done_callback(told.append)
    assert told == [error]
    assert error.add_callback(lambda: told.append("never")) is False
    assert told == [error]


def broken(_: Any) -> Any:
    raise ZeroDivisionError("broken")


def test_an_error_of_this_side_is_raised_as_it_is(intercepted: Any, look: Look) -> None:
    """A serializer that raises gives an RpcError without a reply, and a wrong argument gives a ValueError. Both reach
    the caller as they would without `grpc.intercept_channel`."""
    with pytest.raises(grpc.RpcError, match="INTERNAL: Exception serializing request!") as caught:
        intercepted.unary_unary("/penstock.Echo/Unary", broken)(b"")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert look.outcomes == [caught.value]
    with pytest.raises(ValueError, match="NaN"):
        intercepted.unary_unary("/penstock.Echo/Unary")(b"", timeout=float("nan"))
    assert isinstance(look.outcomes[-1].exception(), ValueError)


def test_an_error_of_a_stream_is_raised_by_its_iteration(intercepted: Any, look: Look) -> None:
    wish = {"count": 2, "code": 10, "message": "enough"}
    received: List[bytes] = []
    with pytest.raises(grpc.RpcError, match="ABORTED: enough") as caught:
        received.extend(intercepted.unary_stream("/penstock.Probe/Stream", json_bytes)(wish))
    assert len(received) == 2
    assert caught.value.exception() is caught.value
    with pytest.raises(grpc.RpcError, match="UNKNOWN: Exception iterating requests!") as caught:
        list(intercepted.stream_stream("/penstock.Echo/Bidi")(broken(n) for n in range(1)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (look.outcomes[0].code(), look.outcomes[0].is_active()) == (StatusCode.ABORTED, False)


class Retry(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Repeats a call that has failed, by calling the continuation again, as interceptors of grpcio do."""

    def __init__(self) -> None:
        self.codes: List[Any] = []

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        outcome = continuation(details, request)
        self.codes.append(outcome.code())
        if outcome.exception() is not None:
            outcome = continuation(Details(details), request)
            self.codes.append(outcome.code())
        return outcome


def test_an_interceptor_tries_again(channel: Channel) -> None:
    def refuse(hop: Hop) -> None:
        if "x-by" not in hop.metadata:
            hop.end(StatusCode.UNAVAILABLE, "not at once")

    channel.add_interceptor(Only(on_start=refuse))
    retry = Retry()
    probe = grpc.intercept_channel(channel, retry).unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)
    assert seen(probe({}), "x-by") == ["grpcio"]
    assert retry.codes == [StatusCode.UNAVAILABLE, StatusCode.OK]


class Replace(grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Returns an iterator of its own over the responses, in place of the call."""

    def _replace(self, continuation: Any, details: Any, request: Any) -> Iterator[bytes]:
        return (message.upper() for message in continuation(details, request))

    intercept_unary_stream = _replace
    intercept_stream_stream = _replace


def test_several_interceptors_of_both_kinds(channel: Channel, look: Look) -> None:
    order: List[Any] = []
    channel.add_interceptor(Only(on_start=lambda hop: order.append(("ours", hop.metadata["x-by"]))))
    intercepted = grpc.intercept_channel(channel, Replace(), look)
    assert list(intercepted.unary_stream("/penstock.Echo/ServerStream")(b"a")) == [b"A"]
    assert list(intercepted.stream_stream("/penstock.Echo/Bidi")(iter([b"a", b"b"]))) == [b"A", b"B"]
    assert order == [("ours", "grpcio")] * 2


class Raise(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        raise LookupError("no such user")


@pytest.mark.parametrize("module", [grpc, penstock.grpc], ids=["grpcio", "penstock"])
def test_an_interceptor_around_one_that_raises(server: str, look: Look, module: Any) -> None:
    with module.insecure_channel(server) as channel:
        intercepted = module.intercept_channel(channel, look, Raise())
        with pytest.raises(LookupError):
            intercepted.unary_unary("/penstock.Echo/Unary")(b"x")
    [outcome] = look.outcomes
    assert (outcome.code(), outcome.details()) == (
        grpc.StatusCode.INTERNAL,
        "Exception raised while intercepting the RPC",
    )
    assert (outcome.done(), outcome.running(), outcome.is_active(), outcome.cancelled()) == (
        True,
        False,
        False,
        False,
    )
    assert outcome.cancel() is False
    assert (outcome.time_remaining(), outcome.initial_metadata(), outcome.trailing_metadata()) == (None, None, None)
    assert isinstance(outcome.exception(), LookupError)
    assert outcome.traceback() is not None
    told: List[Any] = []
    outcome.add_done_callback(told.append)
    assert told == [outcome]


def test_leaving_the_intercepted_channel_closes_ours(server: str, look: Look) -> None:
    with grpc.intercept_channel(Channel(server, tls=False), look) as intercepted:
        echo = intercepted.unary_unary("/penstock.Echo/Unary")
        assert echo(b"x") == b"x"
    with pytest.raises(ValueError, match="closed"):
        echo(b"x")
