"""penstock.ready: each ready-made interceptor against grpcio's server."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from typing import Any, Callable, List, Optional, Tuple

import pytest

import penstock
from conftest import REPOSITORY, json_bytes
from helpers import Only, bidi, eventually, on_thread, seen, unary
from penstock import Channel, Kind, RpcError, StatusCode, ready

# ---- Logging ----


def test_events_are_logged_as_json_lines(channel: Channel, probe: Callable[..., Any]) -> None:
    lines: List[str] = []
    channel.add_interceptor(ready.Logging(lines.append))
    binary: List[str] = []
    channel.add_interceptor(ready.Logging(binary.append, events=["start"], redact_binary=True))
    probe({"initial": [["a", "1"], ["a", "2"]]}, metadata={"authorization": "Bearer s3cret", "b-bin": b"\0\1"})
    start, headers, status = map(json.loads, lines)
    assert (start["event"], start["method"], start["kind"]) == ("start", "/penstock.Probe/Unary", "unary")
    assert start["target"] == channel.target
    assert start["metadata"] == {"authorization": ["redacted"], "b-bin": ["AAE="]}
    assert json.loads(binary[0])["metadata"] == {"authorization": ["redacted"], "b-bin": ["redacted"]}
    assert headers["metadata"]["a"] == ["1", "2"]
    assert (status["event"], status["code"], status["name"]) == ("status", 0, "OK")
    assert status["elapsed_us"] > 0
    assert len({line["call"] for line in (start, headers, status)}) == 1


def test_logging_has_a_choice_of_events_and_goes_to_a_logger(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("penstock.tests")
    channel.add_interceptor(ready.Logging(logger, events=["send", "receive"], redact=[], metadata=False))
    channel.add_interceptor(ready.Logging(logger, events=["half_close"], messages="none"))
    with caplog.at_level(logging.INFO, "penstock.tests"):
        unary(channel, b"four")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["event"], line.get("bytes")) for line in lines] == [
        ("send", 4),
        ("half_close", None),
        ("receive", 4),
    ]


def test_a_logging_function_that_raises_harms_no_call(channel: Channel) -> None:
    told: List[Any] = []
    penstock.set_exception_hook(lambda *what: told.append(what))
    try:

        def write(line: str) -> None:
            raise ValueError(line)

        channel.add_interceptor(ready.Logging(write, events=["start"]))
        assert unary(channel) == b"x"
    finally:
        penstock.set_exception_hook(None)
    assert [what[:2] for what in told] == [("Logging", "write")]


# ---- Metrics ----


def test_metrics_count_by_method_and_code(channel: Channel, probe: Callable[..., Any]) -> None:
    metrics = ready.Metrics(buckets=[0.001, 20, 40])
    channel.add_interceptor(metrics)
    for _ in range(3):
        unary(channel, b"four")
    bidi(channel, [b"1", b"2"])
    with pytest.raises(RpcError):
        probe({"code": 5})
    methods = {method["method"]: method for method in metrics.snapshot()["methods"]}
    echo = methods["/penstock.Echo/Unary"]
    assert (echo["started"], echo["in_flight"]) == (3, 0)
    assert echo["sent"] == echo["received"] == {"messages": 3, "bytes": 12}
    (code,) = echo["codes"]
    assert (code["code"], code["name"], code["count"]) == (0, "OK", 3)
    assert [bucket["le_ms"] for bucket in code["buckets"]] == [1, 20000, 40000, None]
    assert code["buckets"][-1]["count"] == 3
    assert methods["/penstock.Probe/Unary"]["codes"][0]["name"] == "NOT_FOUND"
    assert methods["/penstock.Echo/Bidi"]["kind"] == "bidi"


def test_metrics_in_prometheus_text_format(channel: Channel, server: str) -> None:
    """Each line is a comment or a sample, each sample's family has a type, and the counts of buckets are
    cumulative."""
    metrics = ready.Metrics(max_methods=2)
    channel.add_interceptor(metrics)
    unary(channel)
    bidi(channel, [b"1"])
    with pytest.raises(RpcError):
        channel.unary_unary('/no.Such/"Method\\')(b"")
    types = {}
    sample = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\["\\n])*",?)+)\} ([0-9.]+)')
    counts = {}
    for line in metrics.prometheus().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
        elif not line.startswith("# HELP "):
            found = sample.fullmatch(line)
            assert found, line
            family = re.sub(r"_(bucket|sum|count)$", "", found.group(1))
            kind = (
                "counter" if family.endswith("_total") else "gauge" if family.endswith("_in_flight") else "histogram"
            )
            assert types[family] == kind
            counts[found.group(1), found.group(2)] = float(found.group(3))
    labels = f'grpc_type="unary",grpc_service="penstock.Echo",grpc_method="Unary",grpc_target="{server}"'
    assert counts["grpc_client_started_total", labels] == 1
    labels += ',grpc_code="OK"'
    assert counts["grpc_client_handled_total", labels] == 1
    assert counts["grpc_client_handling_seconds_count", labels] == 1
    assert counts["grpc_client_handling_seconds_bucket", labels + ',le="+Inf"'] == 1
    assert (
        "grpc_client_started_total",
        'grpc_type="unary",grpc_service="other",grpc_method="other",grpc_target="other"',
    ) in counts


def test_metrics_are_read_while_calls_run(channel: Channel) -> None:
    metrics = ready.Metrics()
    channel.add_interceptor(metrics)
    threads = [on_thread(lambda: [unary(channel) for _ in range(50)]) for _ in range(4)]
    started = [0]
    while any(thread.is_alive() for thread in threads):
        methods = metrics.snapshot()["methods"]
        started.append(methods[0]["started"] if methods else 0)
        assert "grpc_client_started_total" in metrics.prometheus()
    assert started == sorted(started)
    for thread in threads:
        thread.join()
    assert metrics.snapshot()["methods"][0]["started"] == 200


# ---- Trace context ----

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_trace_begins_or_is_passed_on(channel: Channel, probe: Callable[..., Any]) -> None:
    channel.add_interceptor(ready.TraceContext())
    (first,), (second,) = seen(probe(), "traceparent"), seen(probe(), "traceparent")
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", first)
    assert first[:35] != second[:35]
    view = probe(metadata={"traceparent": PARENT, "tracestate": "a=1,b=2"})
    (passed,) = seen(view, "traceparent")
    assert passed[:36] == PARENT[:36]
    assert passed[36:52] != PARENT[36:52]
    assert seen(view, "tracestate") == ["a=1,b=2"]
    (fresh,) = seen(probe(metadata={"traceparent": "ff" + PARENT[2:]}), "traceparent")
    assert fresh[3:35] != PARENT[3:35]


def test_what_was_sent_is_told_to_hops_and_callers(channel: Channel) -> None:
    told: List[Optional[str]] = []
    channel.add_interceptor(ready.TraceContext(parent_id="keep", sampled=0), priority=1)
    channel.add_interceptor(Only(on_start=lambda hop: told.append(ready.TraceContext.of(hop))))
    _, call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", metadata={"traceparent": PARENT})
    assert ready.TraceContext.of(call) == PARENT
    assert told == [PARENT]
    with pytest.raises(RpcError) as raised:
        channel.unary_unary("/no.Such/Method")(b"")
    fresh = ready.TraceContext.of(raised.value)
    assert fresh is not None
    assert fresh.endswith("-00")


# ---- Response cache ----


@pytest.fixture
def asked(channel: Channel) -> Callable[..., Tuple[Any, bool]]:
    call = channel.unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)

    def ask(wish: Any = None, **options: Any) -> Tuple[Any, bool]:
        answer, ended = call.with_call(wish or {}, **options)
        return answer, ready.ResponseCache.answered(ended)

    return ask


def test_the_same_call_is_answered_from_the_cache(channel: Channel, asked: Callable[..., Any]) -> None:
    channel.add_interceptor(ready.ResponseCache(metadata=["x-tenant"]))
    first, hit = asked({"initial": [["a", "1"]]})
    assert not hit
    assert asked({"initial": [["a", "1"]]}) == (first, True)
    assert not asked({"initial": [["a", "2"]]})[1]
    assert not asked({"initial": [["a", "1"]]}, metadata={"x-tenant": "t"})[1]
    assert asked({"initial": [["a", "1"]]}, metadata={"x-other": "t"})[1]
    _, call = channel.unary_unary("/penstock.Probe/Unary").with_call(json_bytes({"initial": [["a", "1"]]}))
    assert ready.ResponseCache.answered(call)
    assert call.initial_metadata().get("a") == "1"
    for _ in range(2):
        with pytest.raises(RpcError) as raised:
            asked({"code": 5, "message": "no"})
        assert raised.value.code() == StatusCode.NOT_FOUND
    assert bidi(channel, [b"1"]) == bidi(channel, [b"1"])


def test_the_cache_is_bounded_in_time_and_number(channel: Channel, asked: Callable[..., Any]) -> None:
    registration = channel.add_interceptor(ready.ResponseCache(max_entries=1))
    assert [asked({"n": n})[1] for n in (1, 1, 2, 2, 1)] == [False, True, False, True, False]
    registration.remove()
    channel.add_interceptor(ready.ResponseCache(ttl=0.05))
    assert not asked()[1]
    eventually(lambda: not asked()[1])


def test_one_cache_in_two_channels(server: str) -> None:
    cache = ready.ResponseCache()
    first, second = (Channel(server, tls=False, interceptors=[cache]) for _ in range(2))
    with first as one, second as other:
        assert unary(one) == b"x"
        _, call = other.unary_unary("/penstock.Echo/Unary").with_call(b"x")
        assert ready.ResponseCache.answered(call)


# ---- Rate limit ----


def test_calls_wait_their_turn(channel: Channel) -> None:
    channel.add_interceptor(ready.RateLimit(50, burst=1, max_wait=20))
    began = time.monotonic()
    for turn in range(4):
        unary(channel)
        assert time.monotonic() - began >= turn * 0.02 - 0.001


def test_those_who_would_wait_too_long_are_turned_away(channel: Channel) -> None:
    channel.add_interceptor(ready.RateLimit(0.001, burst=1, max_wait=0.1, code=StatusCode.UNAVAILABLE))
    unary(channel)
    with pytest.raises(RpcError) as raised:
        unary(channel)
    assert raised.value.code() == StatusCode.UNAVAILABLE
    with pytest.raises(penstock.InvalidArgumentError) as refused:
        ready.RateLimit(0)
    assert refused.value.path == "$.rate"


# ---- Fault injection ----


def test_faults_delay_and_abort(channel: Channel) -> None:
    channel.add_interceptor(ready.FaultInjection(delay=0.03))
    began = time.monotonic()
    unary(channel)
    assert time.monotonic() - began >= 0.029
    channel.add_interceptor(ready.FaultInjection(abort=StatusCode.DATA_LOSS, message="oh no"))
    with pytest.raises(RpcError) as raised:
        unary(channel)
    assert (raised.value.code(), raised.value.details()) == (StatusCode.DATA_LOSS, "oh no")


def test_faults_are_the_same_for_the_same_seed(server: str) -> None:
    def faults(seed: int) -> List[bool]:
        injection = ready.FaultInjection(abort=StatusCode.UNAVAILABLE, abort_percent=40.5, seed=seed)
        aborted = []
        with Channel(server, tls=False, interceptors=[injection]) as channel:
            for _ in range(60):
                try:
                    unary(channel)
                    aborted.append(False)
                except RpcError as error:
                    aborted.append(error.code() == StatusCode.UNAVAILABLE)
        return aborted

    assert faults(1) == faults(1) != faults(2)
    assert 5 < sum(faults(1)) < 50


# ---- Header rules ----


def test_header_rules(channel: Channel) -> None:
    rules = ready.HeaderRules(
        request=[
            ("set", "a", "1"),
            ("add", "b", "2"),
            ("remove", "c"),
            ("rename", "d", "e"),
            ("add", "f-bin", b"\0"),
        ],
        headers=[("rename", "x", "y")],
        trailers=[("set", "z", "3")],
    )
    channel.add_interceptor(rules)
    sent = [("a", "0"), ("b", "1"), ("c", "1"), ("d", "1")]
    call = channel.unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)
    view, ended = call.with_call({"initial": [["x", "1"]]}, metadata=sent)
    names = sorted((key, value) for key, value in view["metadata"] if key in ("a", "b", "c", "d", "e", "f-bin"))
    assert names == [("a", "1"), ("b", "1"), ("b", "2"), ("e", "1"), ("f-bin", "00")]
    assert ended.initial_metadata().get("y") == "1"
    assert ended.initial_metadata().get("x") is None
    assert ended.trailing_metadata().get("z") == "3"


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (("set", "s3cret"), ValueError),
        (("put", "a", "s3cret"), ValueError),
        (("set", "a", b"s3cret"), TypeError),
        (("set", "a-bin", "s3cret"), TypeError),
        (("set", b"a", "s3cret"), TypeError),
        (("set", "grpc-timeout", "1S"), penstock.InvalidArgumentError),
        (("set", "a", "s3cret "), penstock.InvalidArgumentError),
    ],
)
def test_a_wrong_header_rule_is_refused(rule: Any, error: Any) -> None:
    with pytest.raises(error) as raised:
        ready.HeaderRules(request=[rule])
    assert "s3cret" not in str(raised.value)


# ---- All of them ----


def test_they_are_registered_as_any_other(server: str) -> None:
    rules = ready.HeaderRules(headers=[("set", "seen", "1")])
    with penstock.Runtime() as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        registration = runtime.add_interceptor(rules, priority=7, methods="/penstock.Echo/*", name="mine")
        (listed,) = channel.interceptors
        assert (listed["name"], listed["priority"], listed["methods"]) == ("mine", 7, "/penstock.Echo/*")
        registration.priority = 8
        _, call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
        assert call.initial_metadata().get("seen") == "1"
        registration.remove()
        _, call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
        assert call.initial_metadata().get("seen") is None


def test_the_child_of_a_fork_goes_on_with_a_copy_of_the_state(server: str) -> None:
    metrics = ready.Metrics()
    with Channel(server, tls=False, interceptors=[metrics]) as channel:
        unary(channel)
    if (child := os.fork()) == 0:
        status = 1
        try:
            with Channel(server, tls=False, interceptors=[metrics]) as channel:
                unary(channel)
            status = 0 if metrics.snapshot()["methods"][0]["started"] == 2 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert metrics.snapshot()["methods"][0]["started"] == 1


def test_it_is_documented() -> None:
    page = (REPOSITORY / "docs/ready.md").read_text(encoding="utf-8")
    for name in ready.__all__:
        if name != "TokenRequest":
            assert f"ready.{name}" in page


def test_the_filter_and_the_name_of_a_registration(channel: Channel) -> None:
    """A ready-made interceptor takes those that it is registered with."""
    metrics = ready.Metrics()
    token = channel.add_interceptor(metrics, 7, "/penstock.Echo/*", [Kind.BIDI, Kind.UNARY], "counts")
    assert [channel.interceptors[0][key] for key in ("name", "priority", "methods", "kinds")] == [
        *("counts", 7, "/penstock.Echo/*"),
        ["unary", "bidi"],
    ]
    unary(channel)
    list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
    channel.unary_unary("/penstock.Probe/Unary")(b"")
    assert [method["method"] for method in metrics.snapshot()["methods"]] == ["/penstock.Echo/Unary"]
    token.remove()
