"""What programs written for grpcio do. Each scenario gets grpcio's module or penstock.grpc, and a channel of it, and
returns what its user sees, in values that can be compared."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Dict, Iterator, List, Tuple

SCENARIOS: Dict[str, Callable[[Any, Any], Any]] = {}
REFUSAL = json.dumps(
    {
        "code": 9,
        "message": "not like this",
        "initial": [["x-first", "1"]],
        "trailing": [["x-why", "because"], ["x-data-bin", "00ff"], ["x-why", "so"]],
    }
).encode()
BAD_METADATA: Any = (("Key", "v"),)


def scenario(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    SCENARIOS[function.__name__] = function
    return function


def methods(channel: Any) -> Dict[str, Any]:
    return {
        "unary_unary": channel.unary_unary("/penstock.Echo/Unary"),
        "unary_stream": channel.unary_stream("/penstock.Echo/ServerStream"),
        "stream_unary": channel.stream_unary("/penstock.Echo/ClientStream"),
        "stream_stream": channel.stream_stream("/penstock.Echo/Bidi"),
    }


def raised(grpc: Any, act: Callable[[], Any], words: bool = True) -> Any:
    """What ``act`` raises: its class, whose it is, and all that it tells. ``words``: also the words of it."""
    try:
        return "returned", act()
    except Exception as error:
        if not isinstance(error, grpc.RpcError):
            return type(error).__name__, str(error) if words else ""
        return (*ended(error, words), isinstance(error, grpc.Call), isinstance(error, grpc.Future))


def ended(call: Any, words: bool = True) -> Tuple[Any, ...]:
    """All that a call tells of its end."""
    return (
        *(type(call).__name__, call.code(), call.details() if words else "", repr(call) if words else ""),
        *(call.initial_metadata(), call.trailing_metadata()),
    )


def tellings(call: Any) -> List[Any]:
    """What the methods of grpc.Future say; exceptions by their class, or as the call itself."""
    told: List[Any] = [call.done(), call.running(), call.cancelled()]
    for name in ("result", "exception", "traceback"):
        try:
            value = getattr(call, name)()
            told.append("itself" if value is call else "a traceback" if name == "traceback" and value else value)
        except Exception as error:
            told.append("itself raised" if error is call else type(error).__name__)
    return told


def requests(*messages: bytes) -> Iterator[bytes]:
    return iter(messages)


@scenario
def values_of_each_kind(grpc: Any, channel: Any) -> Any:
    made = methods(channel)
    return (
        made["unary_unary"](b"a", timeout=20),
        made["unary_unary"](request=b"a", timeout=20, metadata=None, credentials=None, wait_for_ready=True),
        list(made["unary_stream"](b"a", metadata=(("x-repeat", "3"),))),
        made["stream_unary"](requests(b"a", b"b")),
        made["stream_unary"](request_iterator=requests(b"a"), timeout=20),
        list(made["stream_stream"](requests(b"a", b"b"), timeout=20)),
        [made[kind](b"a", compression=grpc.Compression.Gzip) for kind in ("unary_unary",)],
    )


@scenario
def types(grpc: Any, channel: Any) -> Any:
    made = methods(channel)
    calls = [
        made["unary_unary"].future(b"a"),
        made["unary_stream"](b"a"),
        made["stream_unary"].future(requests(b"a")),
        made["stream_stream"](requests(b"a")),
        made["unary_unary"].with_call(b"a")[1],
    ]
    classes = (grpc.Call, grpc.Future, grpc.RpcContext, grpc.RpcError, Exception)
    seen = [[isinstance(call, one) for one in classes] for call in calls]
    for call in calls[:4]:
        call.cancel()
    bases = (
        (made["unary_unary"], grpc.UnaryUnaryMultiCallable),
        (made["unary_stream"], grpc.UnaryStreamMultiCallable),
        (made["stream_unary"], grpc.StreamUnaryMultiCallable),
        (made["stream_stream"], grpc.StreamStreamMultiCallable),
        (channel, grpc.Channel),
    )
    return seen, [isinstance(one, base) for one, base in bases], [type(call).__name__ for call in calls]


@scenario
def with_call(grpc: Any, channel: Any) -> Any:
    seen = []
    probe = json.dumps({"initial": [["x-first", "1"]], "trailing": [["x-last", "2"]]}).encode()
    for response, call in (
        channel.unary_unary("/penstock.Probe/Unary", None, bytes).with_call(probe, timeout=20),
        channel.stream_unary("/penstock.Echo/ClientStream").with_call(requests(b"a", b"b")),
    ):
        seen.append((response == call.result(), call.code() is grpc.StatusCode.OK, *ended(call)))
        seen.append((call.add_callback(print), call.cancel(), call.done(), call.is_active(), call.exception()))
    return seen


@scenario
def refusals(grpc: Any, channel: Any) -> Any:
    unary = channel.unary_unary("/penstock.Probe/Unary")
    seen = [raised(grpc, lambda: unary(REFUSAL)), raised(grpc, lambda: unary.with_call(REFUSAL))]
    seen.append(raised(grpc, lambda: channel.stream_unary("/penstock.Probe/Early")(requests(b"a"))))
    seen.append(raised(grpc, lambda: channel.unary_unary("/penstock.Nobody/None")(b"a")))
    return seen


@scenario
def an_error_is_a_call_and_a_future(grpc: Any, channel: Any) -> Any:
    told: List[Any] = []
    try:
        channel.unary_unary("/penstock.Probe/Unary")(REFUSAL)
    except grpc.RpcError as error:
        failure = error
    failure.add_done_callback(lambda one: told.append(one is failure))
    return told, tellings(failure), failure.code() is grpc.StatusCode.FAILED_PRECONDITION


@scenario
def a_future_that_succeeds(grpc: Any, channel: Any) -> Any:
    told: List[Any] = []
    over = threading.Event()
    call = channel.unary_unary("/penstock.Echo/Unary", None, lambda data: [data]).future(b"a", timeout=20)
    call.add_done_callback(lambda one: (told.append((one is call, one.done())), over.set()))
    result = call.result(timeout=20)
    assert over.wait(20)
    call.add_done_callback(lambda one: told.append(threading.current_thread() is threading.main_thread()))
    return result, call.result() is result, told, call.add_callback(print), ended(call), tellings(call), call.cancel()


@scenario
def a_future_that_fails(grpc: Any, channel: Any) -> Any:
    call = channel.unary_unary("/penstock.Probe/Unary").future(REFUSAL)
    failure = call.exception(timeout=20)
    upload = channel.stream_unary("/penstock.Probe/Early").future(requests(b"a"))
    return failure is call, ended(call), tellings(call), raised(grpc, upload.result), tellings(upload)


@scenario
def a_future_that_is_cancelled(grpc: Any, channel: Any) -> Any:
    told: List[Any] = []
    over = threading.Event()
    call = channel.unary_unary("/penstock.Probe/Hang").future(b"")
    call.add_done_callback(lambda one: told.append(("done", one is call, one.cancelled())))
    registered = call.add_callback(lambda: (told.append("callback"), over.set()))
    cancelled = call.cancel(), call.cancel()
    assert over.wait(20)
    return registered, cancelled, told, ended(call), tellings(call), call.initial_metadata()


@scenario
def a_wait_with_a_limit(grpc: Any, channel: Any) -> Any:
    call = channel.unary_unary("/penstock.Probe/Hang").future(b"", timeout=0.3)
    seen = [raised(grpc, lambda ask=ask: ask(timeout=0.01)) for ask in (call.result, call.exception, call.traceback)]
    try:
        call.result()
    except grpc.RpcError as error:
        seen.append((error is call, error.code()))
    return seen, call.cancelled(), call.time_remaining()


@scenario
def deadlines(grpc: Any, channel: Any) -> Any:
    unary = channel.unary_unary("/penstock.Probe/Hang")
    seen = [raised(grpc, lambda limit=limit: unary(b"", timeout=limit), words=False) for limit in (0.05, 0, -1)]
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"", timeout=0.3)
    remaining = 0 < call.time_remaining() <= 0.3
    seen.append(raised(grpc, lambda: list(call), words=False))
    return seen, remaining, channel.unary_unary("/penstock.Echo/Unary").future(b"").time_remaining()


@scenario
def a_stream_to_its_end(grpc: Any, channel: Any) -> Any:
    told = threading.Event()
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"a", metadata=[("x-repeat", "2")])
    registered = call.add_callback(told.set)
    first = next(call)
    initial = call.initial_metadata()
    rest = list(call)
    again = list(call)
    assert told.wait(20) or not registered
    return first, initial, rest, again, ended(call), tellings(call), call.cancel(), iter(call) is call, call.done()


@scenario
def a_stream_that_fails(grpc: Any, channel: Any) -> Any:
    wish = json.dumps({"count": 2, "code": 10, "message": "enough"}).encode()
    call = channel.unary_stream("/penstock.Probe/Stream")(wish)
    got = []
    try:
        for message in call:
            got.append(len(message))
    except grpc.RpcError as error:
        identity = error is call
    again = raised(grpc, lambda: next(call))
    return got, identity, again, ended(call), tellings(call), call.code() is grpc.StatusCode.ABORTED


@scenario
def a_stream_that_is_cancelled(grpc: Any, channel: Any) -> Any:
    over = threading.Event()
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    first = next(call)
    call.add_done_callback(lambda one: over.set())
    active = call.is_active()
    seen = first, active, call.cancel(), call.is_active(), raised(grpc, lambda: next(call)), tellings(call)
    assert over.wait(20)
    return seen, ended(call)


@scenario
def a_stream_cancelled_from_another_thread(grpc: Any, channel: Any) -> Any:
    call = channel.stream_stream("/penstock.Probe/HangBidi")(requests(b"a"))
    call.initial_metadata()
    threading.Timer(0.05, call.cancel).start()
    return raised(grpc, lambda: next(call)), call.cancelled()


@scenario
def a_conversation(grpc: Any, channel: Any) -> Any:
    """Each request is made of the response before, as a program with a queue does."""
    ready = threading.Semaphore(1)
    last = [b"a"]

    def each() -> Iterator[bytes]:
        for _ in range(5):
            assert ready.acquire(timeout=20)
            yield last[0]

    got = []
    for response in channel.stream_stream("/penstock.Echo/Bidi")(each()):
        got.append(response)
        last[0] = response + b"a"
        ready.release()
    return got


@scenario
def iterators_that_fail(grpc: Any, channel: Any) -> Any:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ZeroDivisionError("in an iterator")

    made = methods(channel)
    call = made["stream_stream"](broken())
    try:
        list(call)
    except grpc.RpcError as error:
        identity = error is call
    return (
        *(identity, ended(call), tellings(call)),
        raised(grpc, lambda: made["stream_unary"](broken())),
        [raised(grpc, lambda given=given: made["stream_unary"](given)) for given in ([b"a"], 3, None)],
        raised(grpc, lambda: list(made["stream_stream"]([b"a"]))),
    )


def broken(_: Any) -> Any:
    raise ZeroDivisionError("broken")


@scenario
def serializers_that_fail(grpc: Any, channel: Any) -> Any:
    return (
        raised(grpc, lambda: channel.unary_unary("/penstock.Echo/Unary", broken)(b"a")),
        raised(grpc, lambda: channel.unary_unary("/penstock.Echo/Unary", broken).future(b"a")),
        raised(grpc, lambda: channel.unary_stream("/penstock.Echo/ServerStream", broken)(b"a")),
        raised(grpc, lambda: channel.stream_unary("/penstock.Echo/ClientStream", broken)(requests(b"a"))),
        raised(grpc, lambda: channel.unary_unary("/penstock.Echo/Unary", None, broken)(b"a")),
        raised(grpc, lambda: channel.unary_unary("/penstock.Echo/Unary", None, lambda data: None)(b"a")),
        raised(grpc, lambda: channel.unary_unary("/penstock.Echo/Unary", None, broken).future(b"a").result()),
        raised(grpc, lambda: list(channel.unary_stream("/penstock.Echo/ServerStream", None, broken)(b"a"))),
    )


@scenario
def wrong_arguments(grpc: Any, channel: Any) -> Any:
    unary = channel.unary_unary("/penstock.Echo/Unary")
    return (
        [raised(grpc, lambda request=request: unary(request)) for request in (None, "a", 3)],
        raised(grpc, lambda: unary.future("a")),
        raised(grpc, lambda: channel.unary_stream("/penstock.Echo/ServerStream")("a")),
        raised(grpc, lambda: unary(b"a", timeout="a"), words=False),
        raised(grpc, lambda: unary(b"a", credentials="a")),
        raised(grpc, lambda: unary(b"a", compression="gzip")),
        raised(grpc, lambda: unary(), words=False),
        raised(grpc, lambda: unary(b"a", nonsense=1), words=False),
        raised(grpc, lambda: channel.unary_unary(None)(b"a")),
        raised(grpc, lambda: grpc.insecure_channel(None)),
        raised(grpc, lambda: grpc.secure_channel("localhost:1", None)),
        raised(grpc, lambda: grpc.intercept_channel(channel, object()), words=False),
        channel.unary_unary(b"/penstock.Echo/Unary")(b"a"),
    )


METADATA: Tuple[Any, ...] = (
    (("key", "é"),),
    (("key", b"v"),),
    ((b"key", "v"),),
    (("key-bin", "text"),),
    (("key-bin", b"\0\xff"),),
    (("key", 3),),
    ((3, "v"),),
    (("key", None),),
    [("key", "v")],
    [["key", "v"]],
    (("te", "x"),),
    (("content-type", "x"),),
    (("user-agent", "me"),),
    (("grpc-timeout", "1S"),),
    ((":path", "/x"),),
    (("", ""),),
    (("key", ""),),
    (("key", "a\tb"),),
    (("key", "a\nb"),),
    (("key", "a\0b"),),
    (("key", "a b"),),
    (("content-length", "3"),),
    (("a key", "v"),),
    (("key!", "v"),),
    (("a", "1"), ("b", "2"), ("a", "3")),
    (("key", b"\xff"),),
    (("key", b"a b"),),
    (("key", bytearray(b"v")),),
    (("a.b_c-d", "v"),),
    ("ab",),
    (("a",),),
    (("a", "b", "c"),),
    5,
)


@scenario
def metadata(grpc: Any, channel: Any) -> Any:
    probe = channel.unary_unary("/penstock.Probe/Unary", None, json.loads)
    seen = [raised(grpc, lambda given=given: probe(b"", metadata=given)["metadata"], False) for given in METADATA]
    seen.append(probe(b"", metadata=(pair for pair in (("a", "1"),)))["metadata"])
    return seen


@scenario
def refused_metadata_in_each_kind(grpc: Any, channel: Any) -> Any:
    made = methods(channel)
    future = made["unary_unary"].future(b"", metadata=BAD_METADATA)
    return (
        *(future.exception(timeout=20) is future, ended(future), tellings(future)),
        raised(grpc, lambda: made["unary_unary"].with_call(b"", metadata=BAD_METADATA)),
        raised(grpc, lambda: list(made["unary_stream"](b"", metadata=BAD_METADATA))),
        raised(grpc, lambda: made["stream_unary"](requests(), metadata=BAD_METADATA)),
        raised(grpc, lambda: list(made["stream_stream"](requests(), metadata=BAD_METADATA))),
    )


@scenario
def credentials_in_cleartext(grpc: Any, channel: Any) -> Any:
    unary = channel.unary_unary("/penstock.Echo/Unary")
    token = grpc.access_token_call_credentials("secret")
    future = unary.future(b"", credentials=token)
    return raised(grpc, lambda: unary(b"", credentials=token)), future.exception() is future, ended(future)


@scenario
def sizes(grpc: Any, channel: Any) -> Any:
    unary = channel.unary_unary("/penstock.Echo/Unary")
    large = bytes(4 * 1024 * 1024 - 10)
    return unary(large) == large, raised(grpc, lambda: unary(bytes(4 * 1024 * 1024 + 1)), words=False)


@scenario
def two_calls_at_once(grpc: Any, channel: Any) -> Any:
    unary = channel.unary_unary("/penstock.Echo/Unary")
    calls = [unary.future(b"%d" % number) for number in range(20)]
    return [call.result(timeout=20) for call in calls]


# ---- Interceptors ----


def interceptor(grpc: Any, log: List[Any], name: str) -> Any:
    class Details(grpc.ClientCallDetails):  # type: ignore[misc]
        """Some of the details: what is missing is as it was."""

        def __init__(self, method: str, metadata: Any) -> None:
            self.method = method
            self.metadata = metadata

    class Look(
        *(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor),  # type: ignore[misc]
        *(grpc.StreamUnaryClientInterceptor, grpc.StreamStreamClientInterceptor),
    ):
        def look(self, continuation: Any, details: Any, request: Any) -> Any:
            log.append((name, details.method, details.timeout, details.metadata))
            changed = Details(details.method, (*(details.metadata or ()), (f"x-{name}", "1")))
            call = continuation(changed, request)
            log.append((name, isinstance(call, grpc.Call), isinstance(call, grpc.Future)))
            return call

        intercept_unary_unary = look
        intercept_unary_stream = look
        intercept_stream_unary = look
        intercept_stream_stream = look

    return Look()


@scenario
def intercepted(grpc: Any, channel: Any) -> Any:
    log: List[Any] = []
    front = grpc.intercept_channel(channel, interceptor(grpc, log, "a"), interceptor(grpc, log, "b"))
    made = methods(front)
    probe = front.unary_unary("/penstock.Probe/Unary", None, json.loads)
    response, call = made["unary_unary"].with_call(b"a", timeout=20)
    seen = [
        *(probe(b"")["metadata"], response, call.result(), call.code(), isinstance(call, grpc.Call)),
        list(made["unary_stream"](b"a")),
        made["stream_unary"](requests(b"a", b"b")),
        list(made["stream_stream"](requests(b"a"))),
        made["unary_unary"].future(b"a").result(timeout=20),
        raised(grpc, lambda: front.unary_unary("/penstock.Probe/Unary")(REFUSAL)),
        isinstance(front, grpc.Channel),
    ]
    return seen, log


@scenario
def an_interceptor_that_raises(grpc: Any, channel: Any) -> Any:
    class Broken(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            raise ZeroDivisionError("in an interceptor")

        intercept_unary_stream = intercept_unary_unary

    made = methods(grpc.intercept_channel(channel, Broken()))
    future = made["unary_unary"].future(b"a")
    stream = made["unary_stream"](b"a")
    return (
        raised(grpc, lambda: made["unary_unary"](b"a")),
        *(future.code(), future.details(), tellings(future)[:3], raised(grpc, future.result)),
        *(stream.code(), raised(grpc, lambda: next(stream))),
    )


@scenario
def an_interceptor_that_tries_again(grpc: Any, channel: Any) -> Any:
    codes = []

    class Retry(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            call = continuation(details, request)
            codes.append(call.code())
            if isinstance(call, grpc.RpcError):
                call = continuation(details, b"{}")
                codes.append(call.code())
            return call

    front = grpc.intercept_channel(channel, Retry())
    return isinstance(front.unary_unary("/penstock.Probe/Unary")(REFUSAL), bytes), codes


# ---- Channels ----


@scenario
def a_channel_that_gets_ready(grpc: Any, channel: Any) -> Any:
    told: List[Any] = []
    over = threading.Event()
    future = grpc.channel_ready_future(channel)
    future.add_done_callback(lambda one: (told.append(one is future), over.set()))
    seen = future.result(timeout=20), future.done(), future.cancelled(), future.running(), future.cancel()
    assert over.wait(20)
    future.add_done_callback(lambda one: told.append("late"))
    return seen, told, isinstance(future, grpc.Future), future.exception(), future.traceback()
