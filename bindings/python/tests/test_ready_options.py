"""The arguments of the ready-made interceptors, as the options that the library gets; and what they refuse."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

import penstock
from helpers import Only, eventually, seen, unary
from penstock import Channel, RpcError, StatusCode, ready
from penstock._handles import ctrl_c
from penstock.ready import _base, _credentials

Given = Dict[str, Any]
TELEMETRY = {
    "resource": {"service.name": "shop"},
    "metrics": False,
    "spans": False,
    "messages": True,
    "sampled": 0,
    "max_methods": 1,
    "max_spans": 2,
    "max_span_bytes": 100_000,
}
MADE: List[Tuple[Any, Given, Given]] = [
    (ready.BearerToken, {"source": str}, {}),
    (
        ready.BearerToken,
        {
            "source": str,
            "header": "x-token",
            "scheme": "Token",
            "refresh_early": 1.5,
            "refresh_timeout": 0.0001,
            "replay_bytes": 7,
            "allow_cleartext": False,
        },
        {
            "header": "x-token",
            "scheme": "Token",
            "refresh_early_ms": 1500,
            "refresh_timeout_ms": 1,
            "replay_bytes": 7,
            "allow_cleartext": False,
        },
    ),
    (ready.TokenFile, {"file": Path("/a")}, {"file": "/a"}),
    (
        ready.TokenFile,
        {"file": "/a", "reread": 2, "header": "x", "scheme": "", "replay_bytes": 0, "allow_cleartext": True},
        {
            "file": "/a",
            "reread_ms": 2000,
            "header": "x",
            "scheme": "",
            "replay_bytes": 0,
            "allow_cleartext": True,
        },
    ),
    (ready.Logging, {"write": print}, {}),
    (
        ready.Logging,
        {
            "write": print,
            "events": ("start",),
            "redact": (),
            "redact_binary": False,
            "metadata": False,
            "messages": "none",
            "channel": "none",
        },
        {
            "events": ["start"],
            "redact": [],
            "redact_binary": False,
            "metadata": False,
            "messages": "none",
            "channel": "none",
        },
    ),
    (ready.Metrics, {}, {}),
    (
        ready.Metrics,
        {"buckets": (0.0014, 0.0016, 1), "max_methods": 3, "max_peers": 4},
        {"buckets_ms": [1, 2, 1000], "max_methods": 3, "max_peers": 4},
    ),
    (ready.TraceContext, {}, {}),
    (
        ready.TraceContext,
        {"sampled": 50.5, "parent_id": "keep", "seed": 0},
        {"sampled": 50.5, "parent_id": "keep", "seed": 0},
    ),
    (ready.ResponseCache, {}, {}),
    (
        ready.ResponseCache,
        {"ttl": 0.5, "max_entries": 3, "max_bytes": 4000, "metadata": ()},
        {"ttl_ms": 500, "max_entries": 3, "max_bytes": 4000, "metadata": []},
    ),
    (ready.RateLimit, {"rate": 3}, {"rate": 3}),
    (
        ready.RateLimit,
        {"rate": 0.5, "burst": 2, "max_wait": 0, "max_waiting": 5, "code": StatusCode.UNAVAILABLE},
        {"rate": 0.5, "burst": 2, "max_wait_ms": 0, "max_waiting": 5, "code": 14},
    ),
    (ready.FaultInjection, {"delay": 0.25}, {"delay": {"ms": 250, "percent": 100}}),
    (
        ready.FaultInjection,
        {"abort": 5},
        {"abort": {"code": 5, "message": "injected fault", "percent": 100}},
    ),
    (
        ready.FaultInjection,
        {"delay": 0, "delay_percent": 1, "abort": StatusCode.ABORTED, "message": "no", "abort_percent": 2, "seed": 3},
        {"delay": {"ms": 0, "percent": 1}, "abort": {"code": 10, "message": "no", "percent": 2}, "seed": 3},
    ),
    (ready.HeaderRules, {}, {"request": [], "headers": [], "trailers": []}),
    (
        ready.HeaderRules,
        {
            "request": [("set", "a", "b"), ("add", "c-bin", b"\x00"), ("rename", "d", "e")],
            "headers": [("remove", "f")],
            "trailers": [("add", "C-Bin", b"")],
        },
        {
            "request": [
                {"set": "a", "value": "b"},
                {"add": "c-bin", "value": "AA=="},
                {"rename": "d", "to": "e"},
            ],
            "headers": [{"remove": "f"}],
            "trailers": [{"add": "C-Bin", "value": ""}],
        },
    ),
    (ready.Hedging, {}, {}),
    (
        ready.Hedging,
        {"max_attempts": 3, "delay": 0.1, "non_fatal_codes": [StatusCode.ABORTED, 14], "max_tokens": 5},
        {"max_attempts": 3, "delay_ms": 100, "non_fatal_codes": [10, 14], "throttle": {"max_tokens": 5}},
    ),
    (ready.Hedging, {"token_ratio": 0.5, "max_tokens": 2}, {"throttle": {"max_tokens": 2, "token_ratio": 0.5}}),
    (ready.Telemetry, {}, {}),
    (ready.Telemetry, TELEMETRY, TELEMETRY),
    (
        ready.SignedToken,
        {"key_file": Path("/k"), "key_id": "1", "issuer": "i", "subject": "s", "audience": "a", "lifetime": 60},
        {"key_file": "/k", "key_id": "1", "issuer": "i", "subject": "s", "audience": "a", "lifetime_ms": 60000},
    ),
    (
        ready.SignedToken,
        {
            "service_account_file": "/s",
            "scope": "x",
            "header": "h",
            "scheme": "S",
            "refresh_early": 1,
            "replay_bytes": 2,
            "allow_cleartext": True,
        },
        {
            "service_account_file": "/s",
            "scope": "x",
            "header": "h",
            "scheme": "S",
            "refresh_early_ms": 1000,
            "replay_bytes": 2,
            "allow_cleartext": True,
        },
    ),
]


@pytest.mark.parametrize(("kind", "given", "options"), MADE)
def test_the_options_of_arguments(kind: Any, given: Given, options: Given) -> None:
    assert kind(**given)._options == options


def test_the_options_of_a_token_server(server: str) -> None:
    with Channel(server, tls=False, options={"protocol": "connect"}) as channel:
        given: Given = {
            "grant": "jwt_bearer",
            "token_path": "/token",
            "jwt": {"key_file": Path("/k"), "issuer": "i", "audience": "a"},
            "scope": "s",
            "lifetime": 1.5,
            "refresh_early": 2,
            "refresh_timeout": 3,
            "replay_bytes": 4,
            "allow_cleartext": True,
        }
        assert ready.OAuth2(channel, **given)._options == {
            "grant": "jwt_bearer",
            "token_path": "/token",
            "jwt": {"key_file": "/k", "issuer": "i", "audience": "a"},
            "scope": "s",
            "lifetime_ms": 1500,
            "refresh_early_ms": 2000,
            "refresh_timeout_ms": 3000,
            "replay_bytes": 4,
            "allow_cleartext": True,
        }
        given = {
            "grant": "client_credentials",
            "token_path": "/token",
            "client_id": "me",
            "client_secret": "s3cret",
            "client_authentication": "form",
            "audience": "a",
            "allow_cleartext": True,
        }
        assert ready.OAuth2(channel, **given)._options == given
    assert (_credentials._path(None), _credentials._path(Path("/a"))) == (None, "/a")
    assert (_credentials._plain(5), _credentials._plain(Path("/a"))) == (5, "/a")
    assert (_base.ms(None), _base.ms(0), _base.ms(1.5)) == (None, 0, 1500)


@pytest.mark.parametrize(
    ("rule", "error", "said"),
    [
        (("drop", "a"), ValueError, "rule 1 is no header rule"),
        ((5, "a"), ValueError, "rule 1 is no header rule"),
        (("set", "a"), ValueError, "rule 1 is no header rule"),
        (("set", "a", "b", "c"), ValueError, "rule 1 is no header rule"),
        (("remove", "a", "b"), ValueError, "rule 1 is no header rule"),
        (("rename", "a"), ValueError, "rule 1 is no header rule"),
        (("remove", b"a"), TypeError, "rule 1: a header's name must be a str"),
        (("set", "a-bin", "b"), TypeError, 'rule 1: the value of a "-bin" name is bytes, of any other a str'),
        (("add", "A-BIN", "b"), TypeError, 'rule 1: the value of a "-bin" name is bytes, of any other a str'),
        (("set", "a", b"b"), TypeError, 'rule 1: the value of a "-bin" name is bytes, of any other a str'),
        (("rename", "a-bin", b"b"), TypeError, 'rule 1: the value of a "-bin" name is bytes, of any other a str'),
    ],
)
@pytest.mark.parametrize("place", ["request", "headers", "trailers"])
def test_a_header_rule_that_is_wrong(place: str, rule: Any, error: Any, said: str) -> None:
    with pytest.raises(error) as caught:
        ready.HeaderRules(**{place: [("remove", "a"), rule]})
    assert str(caught.value) == said


def test_a_wrong_option_is_named() -> None:
    for make, path in (
        (lambda: ready.RateLimit(-1), "$.rate"),
        (lambda: ready.FaultInjection(abort=5, abort_percent=101), "$.abort.percent"),
        (lambda: ready.FaultInjection(delay=1, delay_percent=-1), "$.delay.percent"),
        (lambda: ready.Logging(print, events=["never"]), "$.events[0]"),
        (lambda: ready.TraceContext(parent_id="none"), "$.parent_id"),
        (lambda: ready.Telemetry(sampled=101), "$.sampled"),
    ):
        with pytest.raises(penstock.InvalidArgumentError) as caught:
            make()
        assert caught.value.path == path


# ---- Logging ----


def test_lines_of_a_logger(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("calls")
    caplog.set_level(logging.INFO, "calls")
    channel.add_interceptor(ready.Logging(logger, events=["status"], channel="none"))
    assert unary(channel) == b"x"
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("calls", logging.INFO)
    assert record.msg == "%s"
    assert '"event":"status"' in record.getMessage().replace(" ", "")


def test_a_function_that_can_not_write_is_told_of(channel: Channel) -> None:
    told: List[Any] = []

    def write(line: str) -> None:
        raise LookupError("full")

    penstock.set_exception_hook(lambda name, callback, error: told.append((name, callback, str(error))))
    try:
        channel.add_interceptor(ready.Logging(write, events=["start"], channel="none"))
        assert unary(channel) == b"x"
    finally:
        penstock.set_exception_hook(None)
    assert told == [("Logging", "write", "full")]


# ---- Tokens ----


def token(channel: Channel, source: Callable[[Any], Any], **options: Any) -> Any:
    channel.add_interceptor(ready.BearerToken(source, allow_cleartext=True, **options))


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_source_runs_where_it_was_told_to(channel: Channel, probe: Any, in_thread: bool) -> None:
    names: List[str] = []

    def source(request: ready.TokenRequest) -> str:
        names.append(threading.current_thread().name)
        assert request.refused is None
        return "one"

    token(channel, source, in_thread=in_thread)
    assert seen(probe(), "authorization") == ["Bearer one"]
    assert [name == "penstock-token" for name in names] == [in_thread]


def test_a_refused_token_is_named(channel: Channel) -> None:
    refused: List[Any] = []

    def source(request: ready.TokenRequest) -> str:
        refused.append(request.refused)
        return "old" if request.refused is None else "new"

    token(channel, source)
    assert channel.unary_unary("/penstock.Probe/Authorized")(b"x") == b"x"
    assert refused == [None, "old"]


ANSWERS: List[Any] = [
    (lambda request: request.fail(), "UNAVAILABLE"),
    (lambda request: request.fail(StatusCode.ABORTED, "no"), "ABORTED: no"),
    (lambda request: request.fail(7), "PERMISSION_DENIED"),
    (lambda request: 1 // 0, "UNAVAILABLE: the token source raised ZeroDivisionError"),
    (lambda request: "a\nb", "UNAVAILABLE: the token source raised InvalidArgumentError"),
    (lambda request: 5, "UNAVAILABLE: the token source raised TypeError"),
    (lambda request: None, "UNAVAILABLE: the token source gave no answer"),
]


@pytest.mark.parametrize(("answer", "said"), ANSWERS)
def test_a_source_without_a_token(channel: Channel, answer: Any, said: str) -> None:
    told: List[Any] = []
    penstock.set_exception_hook(lambda name, callback, error: told.append((name, callback)))
    try:
        token(channel, answer)
        with pytest.raises(RpcError) as caught:
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert str(caught.value).startswith(said)
    assert told == ([("BearerToken", "source")] if "raised" in said else [])


class EndOfProgram(BaseException):
    """A wish to end, as KeyboardInterrupt is one."""


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_source_that_ends_the_program(server: str, in_thread: bool) -> None:
    """The code that waits gets the exception, if the source runs on its thread."""
    told: List[Any] = []

    def source(request: Any) -> Any:
        raise EndOfProgram

    penstock.set_exception_hook(lambda name, callback, error: told.append((name, callback, type(error))))
    try:
        # Only this thread drives the runtime.
        with penstock.Runtime(drive=False) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
            token(channel, source, in_thread=in_thread)
            with pytest.raises(RpcError if in_thread else EndOfProgram):
                unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert told == [("BearerToken", "source", EndOfProgram)]
    assert not ctrl_c._escaping


def test_a_request_is_answered_once(channel: Channel, probe: Any) -> None:
    said: List[str] = []

    def source(request: ready.TokenRequest) -> None:
        with pytest.raises(penstock.InvalidArgumentError, match=r"^the token can't be taken"):
            request.complete("a\nb")
        request.complete("one", 600)
        for again in (lambda: request.complete("two"), lambda: request.fail(message="no")):
            with pytest.raises(penstock.AlreadyError) as caught:
                again()
            said.append(caught.value.message)

    token(channel, source)
    assert seen(probe(), "authorization") == ["Bearer one"]
    assert seen(probe(), "authorization") == ["Bearer one"]
    assert said == ["the token can't be taken", "the failure can't be taken"]


def test_a_token_for_the_calls_that_wait_only(channel: Channel, probe: Any) -> None:
    tokens = iter(("one", "two", "three"))
    token(channel, lambda request: (next(tokens), 0))
    assert [seen(probe(), "authorization") for _ in range(2)] == [["Bearer one"], ["Bearer two"]]


# ---- What calls tell of them ----


def test_what_is_told_of_a_call(channel: Channel) -> None:
    at_hop: List[Any] = []
    channel.add_interceptor(ready.TraceContext(seed=1), priority=1)
    channel.add_interceptor(Only(on_status=lambda hop: at_hop.append(ready.TraceContext.of(hop))), priority=2)
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
    sent = ready.TraceContext.of(outcome)
    assert sent is not None
    assert sent.startswith("00-")
    eventually(lambda: at_hop == [sent])
    assert ready.Hedging.of(outcome) is None
    assert ready.ResponseCache.answered(outcome) is False
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Refuse")(b"x")
    assert str(ready.TraceContext.of(caught.value)).startswith("00-")


@pytest.mark.parametrize("interval", [0, -1, threading.TIMEOUT_MAX * 2])
def test_the_interval_of_an_export(channel: Channel, interval: float) -> None:
    with pytest.raises(ValueError, match=r"^interval must be above 0, and at most "):
        ready.Telemetry().export(channel, interval)
    with pytest.raises(ValueError, match=r"^a time must not be NaN$"):
        ready.Telemetry().export(channel, 1, float("nan"))


def test_figures_before_any_call() -> None:
    assert ready.Metrics().snapshot()["methods"] == []
    assert ready.Hedging().stats()["calls"] == 0
    telemetry = ready.Telemetry()
    ((scope,),) = (resource["scopeSpans"] for resource in telemetry.take_spans()["resourceSpans"])
    assert scope.get("spans", []) == []
    assert isinstance(telemetry.stats(), dict)
    assert isinstance(telemetry.prometheus(), str)
    assert ready.Telemetry.per_attempt is True
    assert ready.Telemetry.level is penstock.Level.BOTH
