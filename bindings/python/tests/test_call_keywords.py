"""The keywords of every function that makes a call, besides timeout and metadata: a trace, and idempotency."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable, Dict, List

import pytest

import penstock
from helpers import Only
from penstock import Channel, Hop, Idempotency, StreamStream, StreamUnary, UnaryStream, UnaryUnary
from penstock._calls.keywords import CallKeywords

ECHO = "/penstock.Echo/"
# Each function makes a call with the given keywords, waits for its end, and gives the object that has the trace.
WAYS: Dict[str, Callable[..., Any]] = {
    "unary_unary": lambda channel, **options: outcome(channel.unary_unary(ECHO + "Unary"), b"x", options),
    "unary_stream": lambda channel, **options: read(channel.unary_stream(ECHO + "ServerStream")(b"x", **options)),
    "stream_unary": lambda channel, **options: outcome(channel.stream_unary(ECHO + "ClientStream"), [b"x"], options),
    "stream_stream": lambda channel, **options: read(channel.stream_stream(ECHO + "Bidi")([b"x"], **options)),
}
SHORT: Dict[str, Callable[..., Any]] = {
    "unary_unary, called": lambda channel, **options: channel.unary_unary(ECHO + "Unary")(b"x", **options),
    "stream_unary, called": lambda channel, **options: channel.stream_unary(ECHO + "ClientStream")([b"x"], **options),
}


def outcome(method: Any, request: Any, options: Dict[str, Any]) -> Any:
    response, ended = method.with_call(request, **options)
    assert response == b"x"
    return ended


def read(call: Any) -> Any:
    assert list(call) == [b"x"]
    return call


@pytest.mark.parametrize("way", WAYS)
def test_a_call_keeps_so_many_events(channel: Channel, way: str) -> None:
    trace = WAYS[way](channel, trace=3).trace
    assert len(trace["events"]) == 3
    assert trace["events"][-1]["what"] == "ended"
    assert WAYS[way](channel).trace.get("events") is None


@pytest.mark.parametrize("way", {**WAYS, **SHORT})
def test_a_call_says_how_idempotent_it_is(channel: Channel, way: str) -> None:
    seen: List[Idempotency] = []
    channel.add_interceptor(Only(on_start=lambda hop: seen.append(hop.idempotency)))
    call = {**WAYS, **SHORT}[way]
    for idempotency in Idempotency:
        call(channel, idempotency=idempotency)
    call(channel)
    assert seen == [*Idempotency, Idempotency.UNKNOWN]


@pytest.mark.parametrize("way", WAYS)
def test_a_call_compresses_from_a_minimum_size(channel: Channel, way: str) -> None:
    for least, is_longer in ((None, False), (0, True), (100, False)):
        sent = WAYS[way](channel, compression="gzip", compression_min_bytes=least).stats["sent"]
        assert (sent["compressed_bytes"] > sent["bytes"]) == is_longer, (least, sent)


@pytest.mark.parametrize("way", {**WAYS, **SHORT})
def test_a_call_limits_what_it_receives(channel: Channel, way: str) -> None:
    call = {**WAYS, **SHORT}[way]
    call(channel, max_receive_message_bytes=1)
    with pytest.raises(penstock.RpcError, match="RESOURCE_EXHAUSTED"):
        call(channel, max_receive_message_bytes=0)
    for wrong in (-1, 2**31):
        with pytest.raises(penstock.InvalidArgumentError, match="a number of bytes"):
            call(channel, max_receive_message_bytes=wrong)
    with pytest.raises(TypeError):
        call(channel, compression_min_bytes="1")


def test_an_error_has_the_trace_of_its_call(channel: Channel) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: hop.end(penstock.StatusCode.ABORTED, "no")), name="guard")
    for way, call in {**WAYS, **SHORT}.items():
        with pytest.raises(penstock.RpcError) as raised:
            call(channel, trace=100)
        assert "guard" in str(raised.value.trace["events"]), way


def test_true_is_the_library_s_number_and_one_is_one(channel: Channel) -> None:
    # True == 1, but as ``trace`` they mean different options, so the parsed options are kept under different keys.
    for _ in range(2):
        assert len(WAYS["unary_unary"](channel, trace=1).trace["events"]) == 1
        assert len(WAYS["unary_unary"](channel, trace=True).trace["events"]) > 1


def test_a_call_says_otherwise_than_its_channel(server: str) -> None:
    with Channel(server, tls=False, options={"trace": {"events": 4}}) as channel:
        ends = [WAYS["unary_unary"](channel, **options) for options in ({}, {"trace": 2}, {"trace": 0})]
        lengths = [len(end.trace.get("events") or []) for end in ends]
        assert lengths == [4, 2, 0]
        assert WAYS["unary_unary"](channel, trace=False).trace.get("events") is None


def test_all_keywords_go_together(channel: Channel, probe: Callable[..., Any]) -> None:
    seen: List[Any] = []
    own = Only(on_start=lambda hop: seen.append((hop.idempotency, hop.wait_for_ready, hop.compression)))
    view = probe(
        timeout=30,
        metadata={"x-tag": "1"},
        wait_for_ready=True,
        compression="gzip",
        interceptors=[own],
        trace=8,
        idempotency=Idempotency.NO_SIDE_EFFECTS,
    )
    assert ["x-tag", "1"] in view["metadata"]
    assert seen == [(Idempotency.NO_SIDE_EFFECTS, True, "gzip")]


@pytest.mark.parametrize("wrong", [-1, 65537])
@pytest.mark.parametrize("way", {**WAYS, **SHORT})
def test_a_number_of_events_out_of_range_is_refused(channel: Channel, way: str, wrong: int) -> None:
    with pytest.raises(penstock.InvalidArgumentError) as raised:
        {**WAYS, **SHORT}[way](channel, trace=wrong)
    assert raised.value.path == "$.trace.events"


@pytest.mark.parametrize(
    ("keywords", "error"),
    [({"trace": "all"}, TypeError), ({"trace": 1.5}, TypeError), ({"idempotency": "idempotent"}, ValueError)],
)
def test_what_is_no_number_and_no_idempotency_is_refused(
    channel: Channel, keywords: Dict[str, Any], error: type[Exception]
) -> None:
    started: List[str] = []
    channel.add_interceptor(Only(on_start=lambda hop: started.append(hop.method)))
    for call in (*WAYS.values(), *SHORT.values()):
        with pytest.raises(error):
            call(channel, **keywords)
    assert started == []


# Each function that makes calls, and the names of its arguments that come before the keywords of a call.
MAKERS: Dict[str, List[str]] = {
    "UnaryUnary.__call__": ["request"],
    "UnaryUnary.with_call": ["request"],
    "UnaryStream.__call__": ["request"],
    "StreamUnary.__call__": ["request_iterator"],
    "StreamUnary.with_call": ["request_iterator"],
    "StreamStream.__call__": ["request_iterator"],
    "Hop.unary": ["method", "request", "on_reply", "from_top", "detached"],
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_way_shows_the_same_keywords(name: str) -> None:
    owner, _, method = name.partition(".")
    classes = {each.__name__: each for each in (Hop, StreamStream, StreamUnary, UnaryStream, UnaryUnary)}
    function = getattr(classes[owner], method)
    shown = list(inspect.signature(function).parameters.values())
    keywords = [field.name for field in dataclasses.fields(CallKeywords)]
    assert [each.name for each in shown] == ["self", *MAKERS[name], *keywords]
    defaults = {each.name: each.default for each in shown}
    assert all(defaults[keyword] == getattr(CallKeywords(), keyword) for keyword in keywords)
    assert all(f"``{keyword}``: " in function.__doc__ for keyword in keywords)


def test_keywords_may_go_by_place_as_in_grpcio_and_the_request_by_name(channel: Channel) -> None:
    seen: List[Any] = []
    channel.add_interceptor(
        Only(on_start=lambda hop: seen.append((hop.deadline, hop.wait_for_ready, hop.compression)))
    )
    call = channel.unary_unary(ECHO + "Unary")
    assert call(b"x", 30, (("x-tag", "1"),), None, True, "gzip") == b"x"
    assert call(request=b"y") == b"y"
    assert channel.stream_unary(ECHO + "ClientStream")(request_iterator=[b"z"]) == b"z"
    assert 0 < seen[0][0] <= 30
    assert [each[1:] for each in seen] == [(True, "gzip"), (False, "identity"), (False, "identity")]


def test_a_keyword_that_there_is_not_is_refused(channel: Channel) -> None:
    for call in (*WAYS.values(), *SHORT.values()):
        with pytest.raises(TypeError, match="deadline"):
            call(channel, deadline=3)
