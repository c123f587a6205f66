"""Retry policies (gRFC A6): each plan is run by grpcio's client and by ours against the same server, which fails as
the plan says."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import grpc
import pytest

import penstock
import penstock.grpc
from helpers import eventually, running_peer
from penstock import Hop, Interceptor, Verdict

BACKOFF = {"initialBackoff": "0.01s", "maxBackoff": "0.02s", "backoffMultiplier": 2}


def policy(attempts: int = 4, *codes: str, throttle: Optional[Tuple[int, float]] = None) -> Dict[str, Any]:
    """A service config whose calls are sent again after ``codes``."""
    retry = {"maxAttempts": attempts, "retryableStatusCodes": list(codes) or ["UNAVAILABLE"], **BACKOFF}
    config: Dict[str, Any] = {"methodConfig": [{"name": [{}], "retryPolicy": retry}]}
    if throttle:
        config["retryThrottling"] = {"maxTokens": throttle[0], "tokenRatio": throttle[1]}
    return config


class Failing(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Fails the first ``times`` requests, in the way that the other fields say, and records what it gets."""

    def __init__(self) -> None:
        self.plan()

    def plan(
        self,
        times: int = 0,
        code: str = "UNAVAILABLE",
        pushback: Tuple[str, ...] = (),
        headers: bool = False,
        reads: bool = True,
    ) -> None:
        self.times, self.code, self.pushback, self.headers, self.reads = times, code, pushback, headers, reads
        self.previous: List[Optional[str]] = []
        self.requests: List[List[bytes]] = []
        self.lock = threading.Lock()

    def service(self, details: Any) -> Any:
        one, many = lambda request, context: self.answer([request], context)[0], self.answer
        kinds = {
            "UU": lambda: grpc.unary_unary_rpc_method_handler(one),
            "SU": lambda: grpc.stream_unary_rpc_method_handler(lambda messages, c: b"".join(many(messages, c))),
            "US": lambda: grpc.unary_stream_rpc_method_handler(lambda request, c: iter(many([request], c))),
            "SS": lambda: grpc.stream_stream_rpc_method_handler(lambda messages, c: iter(many(messages, c))),
        }
        return kinds[details.method[-2:]]()

    def answer(self, messages: Any, context: Any) -> List[bytes]:
        with self.lock:
            self.previous.append(dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts"))
            number = len(self.previous)
            self.requests.append([])
        received = self.requests[number - 1]
        if self.reads or number > self.times:
            received.extend(messages)
        if number <= self.times:
            if self.headers:
                context.send_initial_metadata((("begun", "yes"),))
            context.set_trailing_metadata([("grpc-retry-pushback-ms", value) for value in self.pushback])
            context.abort(grpc.StatusCode[self.code], f"failure {number}")
        return received


@pytest.fixture(scope="module")
def failing() -> Iterator[Tuple[Failing, str]]:
    handler = Failing()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.fixture
def dead_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def call(channel: Any, kind: str, messages: List[bytes]) -> bytes:
    """The joined messages of the answer. Both libraries have the same names for this."""
    name = {"U": "unary", "S": "stream"}
    method = getattr(channel, f"{name[kind[0]]}_{name[kind[1]]}")(f"/test.Failing/{kind}")
    answer = method(messages[0] if kind[0] == "U" else iter(messages), timeout=60)
    return answer if kind[1] == "U" else b"".join(answer)


def outcome(channel: Any, kind: str, messages: List[bytes]) -> Tuple[str, str]:
    try:
        return "OK", call(channel, kind, messages).decode()
    except grpc.RpcError as error:
        return error.code().name, error.details()
    except penstock.RpcError as error:
        return error.code().name, error.details()


def theirs(target: str, config: Dict[str, Any]) -> Any:
    return grpc.insecure_channel(target, options=[("grpc.service_config", json.dumps(config))])


def ours(target: str, config: Dict[str, Any], **options: Any) -> penstock.Channel:
    interceptors = options.pop("interceptors", ())
    options["service_config"] = config
    return penstock.Channel(target, tls=False, options=options, interceptors=interceptors)


PLANS: List[Tuple[str, Dict[str, Any], Dict[str, Any]]] = [
    ("none fails", policy(), {}),
    ("one fails", policy(), {"times": 1}),
    ("all but the last fail", policy(), {"times": 3}),
    ("all fail", policy(), {"times": 9}),
    ("more than five attempts", policy(9), {"times": 9}),
    ("two attempts", policy(2), {"times": 9}),
    ("another code", policy(4, "ABORTED", "INTERNAL"), {"times": 9}),
    ("a second code", policy(4, "ABORTED", "UNAVAILABLE"), {"times": 2}),
    ("the server names a wait", policy(), {"times": 3, "pushback": ("5",)}),
    ("the server wants no other", policy(), {"times": 3, "pushback": ("-1",)}),
    ("the server's word is malformed", policy(), {"times": 3, "pushback": ("soon",)}),
    ("no policy", {}, {"times": 1}),
]


@pytest.mark.parametrize("kind", ["UU", "SU", "US", "SS"])
@pytest.mark.parametrize(("config", "plan"), [plan[1:] for plan in PLANS], ids=[plan[0] for plan in PLANS])
def test_as_grpcio(failing: Tuple[Failing, str], kind: str, config: Dict[str, Any], plan: Dict[str, Any]) -> None:
    handler, target = failing
    messages = [b"a", b"bc"] if kind[0] == "S" else [b"abc"]
    seen = []
    for connect in (theirs, ours):
        handler.plan(**plan)
        with connect(target, config) as channel:
            result = outcome(channel, kind, messages)
        seen.append((result, handler.previous, handler.requests))
    assert seen[1] == seen[0]


@pytest.mark.parametrize("kind", ["UU", "SU", "US", "SS"])
def test_an_answer_with_headers_is_kept(failing: Tuple[Failing, str], kind: str) -> None:
    """grpcio's client sends such a request again now and then, if headers and status come at the same time."""
    handler, target = failing
    handler.plan(times=9, headers=True)
    with ours(target, policy()) as channel:
        assert outcome(channel, kind, [b"abc"]) == ("UNAVAILABLE", "failure 1")
    assert len(handler.previous) == 1


def test_the_throttle_as_grpcio(failing: Tuple[Failing, str]) -> None:
    """Ten tokens: the first call takes four, the second one, and then none is sent again until calls succeed."""
    handler, target = failing
    seen = []
    for connect in (theirs, ours):
        attempts = []
        with connect(target, policy(throttle=(10, 0.5))) as channel:
            for times in (9, 9, 9, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 9):
                handler.plan(times=times)
                outcome(channel, "UU", [b"x"])
                attempts.append(len(handler.previous))
        seen.append(attempts)
    assert seen[1] == seen[0]
    assert seen[1][:3] == [4, 1, 1]
    assert seen[1][-1] > 1


# A server that refuses the request five times (REFUSED_STREAM), answers with a failure, refuses the request five more
# times, and then takes it.
REFUSALS = """
handshake
repeat 5
expect headers
rst REFUSED_STREAM
again
expect headers
trailers
  :status: 200
  content-type: application/grpc
  grpc-status: 14
repeat 5
expect headers
rst REFUSED_STREAM
again
expect headers
answer
data message="pong"
trailers
  grpc-status: 0
"""


def test_requests_that_a_server_refuses_count_neither_as_attempts_nor_for_the_throttle(tmp_path: Path) -> None:
    """Two failures would stop all retries."""
    script = tmp_path / "refusals.script"
    script.write_text(REFUSALS)
    each = Counting(per_attempt=True)
    config = policy(2, throttle=(4, 0.1))
    with running_peer("--script", str(script)) as target, ours(target, config, interceptors=[each]) as channel:
        assert outcome(channel, "UU", [b"x"]) == ("OK", "pong")
        stats = channel.stats()
    assert each.attempts == [(0, False), *[(0, True)] * 5, (1, False), *[(1, True)] * 5]
    assert each.events == ["start", "UNAVAILABLE"] * 11 + ["start", "OK"]
    assert (stats["attempts"]["retries"], stats["attempts"]["throttled"]) == (1, 0)
    assert stats["throttle"]["tokens"] == 3


@pytest.mark.parametrize("wrong", [{"maxAttempts": 1}, {"maxBackoff": "0s"}, {"retryableStatusCodes": []}])
def test_a_wrong_policy_names_its_path(wrong: Dict[str, Any]) -> None:
    config = policy()
    config["methodConfig"][0]["retryPolicy"].update(wrong)
    with pytest.raises(penstock.LibraryError, match=rf"methodConfig\[0\]\.retryPolicy\.{next(iter(wrong))}"):
        ours("127.0.0.1:1", config)


class Counting(Interceptor):
    """Records the starts and statuses that it sees. If it has a code, it changes that of each status to it."""

    def __init__(self, per_attempt: bool = False, changed: Optional[penstock.StatusCode] = None) -> None:
        self.per_attempt = per_attempt
        self.changed = changed
        self.events: List[str] = []
        self.attempts: List[Tuple[int, bool]] = []

    def on_start(self, hop: Hop) -> None:
        self.events.append("start")
        self.attempts.append((hop.previous_attempts, hop.is_transparent_retry))

    def on_status(self, hop: Hop) -> None:
        self.events.append(hop.status.code.name)
        if self.changed:
            hop.status.code = self.changed


@pytest.mark.parametrize("kind", ["UU", "SU", "US", "SS"])
def test_interceptors_of_attempts_run_for_each_attempt(failing: Tuple[Failing, str], kind: str) -> None:
    handler, target = failing
    handler.plan(times=2)
    whole, each = Counting(), Counting(per_attempt=True)
    with ours(target, policy(), interceptors=[whole, each]) as channel:
        assert outcome(channel, kind, [b"abc"]) == ("OK", "abc")
    assert whole.events == ["start", "OK"]
    assert each.events == ["start", "UNAVAILABLE", "start", "UNAVAILABLE", "start", "OK"]
    assert each.attempts == [(0, False), (1, False), (2, False)]


def test_an_interceptor_of_attempts_that_changes_the_code_ends_the_call(failing: Tuple[Failing, str]) -> None:
    handler, target = failing
    handler.plan(times=2)
    each = Counting(per_attempt=True, changed=penstock.StatusCode.ABORTED)
    with ours(target, policy(4, "ABORTED", "UNAVAILABLE"), interceptors=[each]) as channel:
        assert outcome(channel, "UU", [b"x"]) == ("ABORTED", "failure 1")
    assert each.events == ["start", "UNAVAILABLE"]


class Again(Interceptor):
    """Restarts a call whose policy has given up, once."""

    replay_bytes = 1000

    def on_status(self, hop: Hop) -> Optional[Verdict]:
        return Verdict.RESTART if hop.status.code.name == "UNAVAILABLE" and hop.can_restart else None


def test_a_restart_begins_the_policy_anew(failing: Tuple[Failing, str]) -> None:
    handler, target = failing
    handler.plan(times=3)
    with ours(target, policy(3), interceptors=[Again()]) as channel:
        assert outcome(channel, "UU", [b"x"]) == ("OK", "x")
    assert handler.previous == [None, "1", "2", None]


def test_the_option_turns_policies_off(failing: Tuple[Failing, str]) -> None:
    handler, target = failing
    handler.plan(times=1)
    with ours(target, policy(), retries=False) as channel:
        assert outcome(channel, "UU", [b"x"]) == ("UNAVAILABLE", "failure 1")


@pytest.mark.parametrize("limit", ["replay_bytes", "channel_replay_bytes"])
@pytest.mark.parametrize("kind", ["UU", "SS"])
def test_a_request_over_a_limit_is_sent_once(failing: Tuple[Failing, str], kind: str, limit: str) -> None:
    handler, target = failing
    with ours(target, policy(), **{limit: 1000}) as channel:
        for size, attempts in ((1001, 1), (1000, 2), (1001, 1), (1000, 2)):
            handler.plan(times=1)
            outcome(channel, kind, [b"x" * size])
            assert len(handler.previous) == attempts, size


def test_calls_share_the_limit_of_their_channel(failing: Tuple[Failing, str]) -> None:
    """While one call keeps 600 bytes of 1000 in a wait, another with 600 is sent once; then there is room again."""
    handler, target = failing
    with ours(target, policy(2), channel_replay_bytes=1000) as channel:
        handler.plan(times=1, pushback=("60000",))
        waiting = channel.unary_unary("/test.Failing/UU").future(b"x" * 600)
        eventually(lambda: len(handler.previous) == 1)
        handler.plan(times=1)
        assert outcome(channel, "UU", [b"y" * 600])[0] == "UNAVAILABLE"
        waiting.cancel()
        eventually(lambda: waiting.done())
        handler.plan(times=1)
        assert outcome(channel, "UU", [b"y" * 600])[0] == "OK"


def test_messages_that_wait_for_the_next_attempt_take_room(failing: Tuple[Failing, str]) -> None:
    """Also once the call has sent too much to be sent again after that attempt."""
    handler, target = failing
    each = Counting(per_attempt=True)
    with ours(target, policy(2), replay_bytes=600, channel_replay_bytes=1000) as channel:
        registration = channel.add_interceptor(each)
        handler.plan(times=1, pushback=("60000",), reads=False)
        waiting = channel.stream_stream("/test.Failing/SS")()
        waiting.write(b"x" * 500)
        eventually(lambda: "UNAVAILABLE" in each.events)
        waiting.write(b"x" * 500)
        registration.remove()
        handler.plan(times=1)
        assert outcome(channel, "UU", [b"y" * 600])[0] == "UNAVAILABLE"
        waiting.cancel()
        assert waiting.code() is penstock.StatusCode.CANCELLED
        handler.plan(times=1)
        assert outcome(channel, "UU", [b"y" * 600])[0] == "OK"


def test_a_call_says_that_it_waits_for_the_next_attempt(failing: Tuple[Failing, str]) -> None:
    handler, target = failing
    handler.plan(times=1, pushback=("60000",))
    with ours(target, policy()) as channel, pytest.raises(penstock.RpcError) as caught:
        channel.unary_unary("/test.Failing/UU")(b"x", timeout=0.5)
    assert caught.value.code() is penstock.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details().endswith(" ms to send the request again after UNAVAILABLE: failure 1")


@pytest.mark.parametrize("ends", ["cancel", "close"])
def test_a_wait_ends_with_its_call(failing: Tuple[Failing, str], ends: str) -> None:
    handler, target = failing
    handler.plan(times=1, pushback=("60000",))
    with ours(target, policy()) as channel:
        running = channel.unary_unary("/test.Failing/UU").future(b"x")
        eventually(lambda: len(handler.previous) == 1)
        running.cancel() if ends == "cancel" else channel.close()
        with pytest.raises(penstock.RpcError) as caught:
            running.result(timeout=20)
        assert caught.value.code() is penstock.StatusCode.CANCELLED
    assert len(handler.previous) == 1


def test_the_trace_has_each_retry_with_its_wait(failing: Tuple[Failing, str]) -> None:
    handler, target = failing
    handler.plan(times=9, pushback=("7",))
    with ours(target, policy(3), trace=True) as channel, pytest.raises(penstock.RpcError) as caught:
        channel.unary_unary("/test.Failing/UU")(b"x", timeout=60)
    events = [event for event in caught.value.trace["events"] if event["what"] in ("retries", "restarted")]
    assert [(event["what"], event.get("after_us", event.get("restarts"))) for event in events] == [
        ("retries", 7000),
        ("restarted", 1),
        ("retries", 7000),
        ("restarted", 2),
    ]


def test_a_dead_server_is_tried_as_often_as_the_policy_wants(dead_port: int) -> None:
    """Each attempt fails at once, as that of a new call would; the statistics count them."""
    with ours(f"127.0.0.1:{dead_port}", policy(3)) as channel, pytest.raises(penstock.RpcError) as caught:
        channel.unary_unary("/test.Failing/UU")(b"x", timeout=60)
    assert caught.value.code() is penstock.StatusCode.UNAVAILABLE
    assert caught.value.stats["attempts"] == 3


def test_a_later_service_config_brings_the_policy(failing: Tuple[Failing, str]) -> None:
    handler, target = failing
    resolver = penstock.Resolver()

    def snapshot(config: Dict[str, Any]) -> Dict[str, Any]:
        return {"addresses": [{"address": target}], "service_config": config}

    resolver.push(snapshot({}))
    with penstock.Channel("somewhere", tls=False, resolver=resolver) as channel:
        for config, attempts in (({}, 1), (policy(3), 3), ({}, 1)):
            resolver.push(snapshot(config))
            handler.plan(times=0)
            outcome(channel, "UU", [b"x"])
            handler.plan(times=9)
            eventually(partial(is_sent, channel, handler, attempts))


def is_sent(channel: penstock.Channel, handler: Failing, times: int) -> bool:
    """Makes a call, and says whether its request has been sent that often."""
    before = len(handler.previous)
    outcome(channel, "UU", [b"x"])
    return len(handler.previous) - before == times


class ConnectAnswers(http.server.BaseHTTPRequestHandler):
    """Answers each unary call of the Connect protocol in the way that the server says, and counts the calls."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests += 1  # type: ignore[attr-defined]
        code, content_type, body = self.server.answer  # type: ignore[attr-defined]
        self.send_response(code)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


CONNECT_ANSWERS = [
    ("an error", (503, "application/json", b'{"code": "unavailable"}'), "UNAVAILABLE", 3),
    ("a proxy's error", (503, "text/html", b"<html>"), "UNAVAILABLE", 3),
    ("another error", (400, "application/json", b'{"code": "aborted"}'), "ABORTED", 1),
    ("a message over our limit", (200, "application/proto", b"x" * 2000), "RESOURCE_EXHAUSTED", 1),
    ("an answer that is none", (200, "text/html", b"<html>"), "UNKNOWN", 1),
]


@pytest.mark.parametrize(("answer", "code", "requests"), [row[1:] for row in CONNECT_ANSWERS])
def test_over_connect_the_error_decides(answer: Tuple[int, str, bytes], code: str, requests: int) -> None:
    """A fault that the client finds in an answer is no reason to send the request again, although its code is listed:
    the server may have done what it was asked for."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ConnectAnswers)
    server.answer, server.requests = answer, 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    options = {"protocol": "connect", "http": "1.1", "max_receive_message_bytes": 1000}
    config = policy(3, "UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNKNOWN", "INTERNAL")
    try:
        with ours(f"127.0.0.1:{server.server_address[1]}", config, **options) as channel:
            assert outcome(channel, "UU", [b"x"])[0] == code
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert server.requests == requests  # type: ignore[attr-defined]


@pytest.mark.parametrize(("option", "attempts"), [(("grpc.enable_retries", 0), 1), (("grpc.enable_retries", 1), 4)])
def test_grpcio_option(failing: Tuple[Failing, str], option: Tuple[str, int], attempts: int) -> None:
    handler, target = failing
    options = [("grpc.service_config", json.dumps(policy())), option]
    for connect in (grpc.insecure_channel, penstock.grpc.insecure_channel):
        handler.plan(times=9)
        with connect(target, options) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/test.Failing/UU")(b"x", timeout=60)
        assert len(handler.previous) == attempts


def test_a_small_retry_buffer_of_grpcio(failing: Tuple[Failing, str]) -> None:
    handler, target = failing
    handler.plan(times=9)
    options = [("grpc.service_config", json.dumps(policy())), ("grpc.per_rpc_retry_buffer_size", 100)]
    with penstock.grpc.insecure_channel(target, options) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/test.Failing/UU")(b"x" * 101, timeout=60)
    assert len(handler.previous) == 1
