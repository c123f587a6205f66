"""The protocol of a channel, as interceptors and callers see it: its name, the HTTP method, URLs, and codecs."""

from __future__ import annotations

import builtins
import json
import socket
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Tuple, cast

import pytest

import penstock
from helpers import Only, Peer, run
from penstock import (
    Channel,
    Codec,
    Completion,
    CompletionInterceptor,
    Hop,
    Idempotency,
    InterceptedCall,
    InvalidArgumentError,
    JSONCodec,
    Level,
    Metadata,
    ProtobufJSONCodec,
    RpcError,
    StatusCode,
    SyncInterceptor,
    Verdict,
)

ECHO = "/penstock.Echo/"
PROTOCOLS = ("grpc", "grpc-web", "grpc-web-text", "connect")
# These calls do not reach the network, because an interceptor answers them.
NOWHERE = "127.0.0.1:1"


def opened(protocol: str, **options: Any) -> Channel:
    return Channel(NOWHERE, tls=False, options={"protocol": protocol, **options})


# ---- Options ----


def test_options_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="gRPC needs HTTP/2") as raised:
        Channel(NOWHERE, options={"http": "1.1"})
    assert raised.value.path == "$.http"
    with pytest.raises(InvalidArgumentError) as raised:
        opened("Connect")
    assert raised.value.path == "$.protocol"
    for protocol in PROTOCOLS[1:]:
        opened(protocol, http="1.1", http1_max_connections=3, http1_idle_timeout_ms=0, max_get_url_bytes=0).close()


def test_a_url_says_whether_there_is_tls() -> None:
    for target, tls in (("http://localhost:1/a", None), ("HTTP://[::1]", False), ("https://localhost/a/b", True)):
        Channel(target, tls=tls).close()
    with pytest.raises(InvalidArgumentError, match="contradicts the URL"):
        Channel("http://localhost:1", tls=True)
    with pytest.raises(InvalidArgumentError, match="contradicts the URL"):
        Channel("https://localhost:1", tls=False)
    with pytest.raises(InvalidArgumentError, match="query"):
        Channel("https://localhost:1/?a")
    with pytest.raises(InvalidArgumentError, match="user") as raised:
        Channel("https://me:secret@localhost")
    assert "secret" not in str(raised.value)


def test_a_url_is_a_target_like_any_other(server: str) -> None:
    seen: List[Tuple[str, str, str]] = []
    with Channel(f"http://{server}/") as channel:
        channel.add_interceptor(Only(on_start=lambda hop: seen.append((hop.target, hop.authority, hop.method))))
        assert channel.unary_unary(ECHO + "Unary")(b"x") == b"x"
    assert seen == [(f"http://{server}/", server, ECHO + "Unary")]


# ---- What interceptors see ----


def answer(hop: Hop) -> Verdict:
    hop.deliver_message(b"x")
    hop.deliver_status(StatusCode.OK)
    return Verdict.TAKE


def in_callbacks(decide: Callable[[Any], object]) -> penstock.Interceptor:
    def on_start(hop: Hop) -> Verdict:
        decide(hop)
        return answer(hop)

    return Only(on_start=on_start)


def in_completions(decide: Callable[[Any], object]) -> CompletionInterceptor:
    class Decides(CompletionInterceptor):
        def on_start(self, metadata: Metadata, done: Completion) -> None:
            decide(Both(done, done.hop))
            answer(done.hop)
            done.resolve(Verdict.TAKE)

    return Decides()


class Both:
    """A completion, with the protocol that its hop has reported."""

    def __init__(self, done: Completion, hop: Hop) -> None:
        object.__setattr__(self, "done", done)
        object.__setattr__(self, "protocol", hop.protocol)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "done"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "done"), name, value)


def in_synchronous_style(decide: Callable[[Any], object]) -> SyncInterceptor:
    class Decides(SyncInterceptor):
        def intercept(self, call: InterceptedCall) -> None:
            decide(call)
            call.answer(b"x")

    return Decides()


STYLES = [in_callbacks, in_completions, in_synchronous_style]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_interceptors_see_protocol_and_method(style: Callable[..., Any], protocol: str) -> None:
    seen: List[Tuple[str, str, bool]] = []

    def decide(call: Any) -> None:
        seen.append((call.protocol, call.http_method, call.allows_get))
        call.allows_get = False
        seen.append((call.protocol, call.http_method, call.allows_get))
        call.allows_get = True
        call.idempotency = Idempotency.IDEMPOTENT
        seen.append((call.protocol, call.http_method, call.allows_get))

    with opened(protocol) as channel:
        channel.add_interceptor(style(decide))
        safe = Idempotency.NO_SIDE_EFFECTS
        assert channel.unary_unary(ECHO + "Unary")(b"x", idempotency=safe) == b"x"
    method = "GET" if protocol == "connect" else "POST"
    assert seen == [(protocol, method, True), (protocol, "POST", False), (protocol, "POST", True)]


def test_the_method_is_exact_when_the_message_is_known(peer: Peer) -> None:
    seen: List[Tuple[str, str]] = []

    def note(hop: Hop) -> None:
        seen.append((hop.event.name, hop.http_method))

    def call(size: int, **options: Any) -> List[str]:
        seen.clear()
        safe = Idempotency.NO_SIDE_EFFECTS
        with Channel(peer.target, tls=False, options={"protocol": "connect", **options}) as channel:
            channel.add_interceptor(Only(on_start=note, on_send=note, on_headers=note))
            channel.unary_unary(ECHO + "Unary")(b"x" * size, idempotency=safe)
        assert [name for name, _ in seen] == ["START", "SEND", "HEADERS"]
        return [method for _, method in seen]

    assert call(3) == ["GET", "GET", "GET"]
    assert call(9000) == ["GET", "POST", "POST"]
    path = len(ECHO + "Unary") + len("?connect=v1&base64=1&encoding=proto&message=")
    assert call(3, max_get_url_bytes=path + 4) == ["GET", "GET", "GET"]
    assert call(4, max_get_url_bytes=path + 4) == ["GET", "POST", "POST"]
    # Before the message is compressed, it is not known whether it will fit.
    assert call(9000, compression="gzip") == ["GET", "GET", "GET"]


def test_protocol_and_method_follow_a_redirect() -> None:
    seen: List[Tuple[str, str]] = []

    def redirect(hop: Hop) -> None:
        seen.append((hop.protocol, hop.http_method))
        hop.set_channel(other)
        seen.append((hop.protocol, hop.http_method))

    with opened("grpc") as channel, opened("connect") as other:
        channel.add_interceptor(in_callbacks(redirect))
        channel.unary_unary(ECHO + "Unary")(b"x", idempotency=Idempotency.NO_SIDE_EFFECTS)
    assert seen == [("grpc", "POST"), ("connect", "GET")]


# ---- The name of the encoding ----


def sent_type(channel: Channel, request: Any = b"x", **options: Any) -> Any:
    """Makes a call, and returns the content-type that the peer has seen."""
    _, call = channel.unary_unary(ECHO + "Unary").with_call(request, metadata={"x-echo-metadata": "1"}, **options)
    return dict(call.trailing_metadata())["seen-content-type"]


def test_content_subtype_is_a_keyword_and_an_option(peer: Peer) -> None:
    with Channel(peer.target, tls=False) as channel:
        assert sent_type(channel) == "application/grpc"
        assert sent_type(channel, content_subtype="json") == "application/grpc+json"
        with pytest.raises(InvalidArgumentError, match="encoding"):
            sent_type(channel, content_subtype="No")
    with Channel(peer.target, tls=False, options={"content_subtype": "cbor"}) as channel:
        assert sent_type(channel) == "application/grpc+cbor"
        assert sent_type(channel, content_subtype="json") == "application/grpc+json"
        channel.add_interceptor(Only(on_start=lambda hop: setattr(hop, "content_subtype", "other")))
        assert sent_type(channel, content_subtype="json") == "application/grpc+other"


class Reversed(Codec):
    """An application's own encoding: the letters of a string in reverse order."""

    name = "reversed"

    def encode(self, message: str) -> bytes:
        return message[::-1].encode()

    def decode(self, data: bytes, deserializer: Any) -> str:
        return data.decode()[::-1]


@pytest.mark.parametrize("level", Level)
def test_objects_pass_whichever_codec_it_is(peer: Peer, level: Level) -> None:
    sees: List[Any] = []
    watch = Only(on_send=lambda hop: sees.append(hop.message), on_receive=lambda hop: sees.append(hop.message))
    watch.level = level
    with Channel(peer.target, tls=False, codec=Reversed()) as channel:
        channel.add_interceptor(watch)
        assert sent_type(channel, "abc") == "application/grpc+reversed"
        # The keyword overrides the codec's name.
        assert sent_type(channel, "abc", content_subtype="x") == "application/grpc+x"
        assert list(channel.stream_stream(ECHO + "Bidi")(["abc", "de"])) == ["abc", "de"]
    assert set(map(type, sees)) == {Level.OBJECT: {str}, Level.BYTES: {bytes}, Level.BOTH: {str, bytes}}[level]
    expected = {"abc", "de", b"cba", b"ed"}
    assert set(sees) == {seen for seen in expected if type(seen) in map(type, sees)}


def test_plain_objects_as_json(peer: Peer) -> None:
    with Channel(peer.target, tls=False, codec=JSONCodec()) as channel:
        given = {"text": "\u00e4", "list": [1, None, True]}
        assert channel.unary_unary(ECHO + "Unary")(given) == given
        assert sent_type(channel, given) == "application/grpc+json"
        with pytest.raises(RpcError) as raised:
            channel.unary_unary(ECHO + "Unary")(object())
        assert raised.value.code() is StatusCode.INTERNAL


# ---- Generated messages as JSON ----


def test_messages_as_json_with_protobuf_in_pure_python(peer: Peer, stubs: str) -> None:
    first = f"""
import os, sys
os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
sys.path.insert(0, {stubs!r})
"""
    text = f"""
import helloworld_pb2 as hello
with penstock.Channel(target, tls=False, codec=penstock.ProtobufJSONCodec()) as channel:
    call = channel.unary_unary("{ECHO}Unary", None, hello.HelloRequest.FromString)
    print(call(hello.HelloRequest(name="you"), timeout=60).name)
"""
    assert run(text, peer.target, first) == "you\n"


@pytest.mark.parametrize("level", [None, Level.OBJECT])
def test_generated_messages_as_json(peer: Peer, stubs: str, level: Any) -> None:
    import helloworld_pb2 as hello
    import testing_pb2

    objects: List[Any] = []
    data: List[bytes] = []
    below = Only(on_send=lambda hop: data.append(cast(bytes, hop.message)))
    with Channel(peer.target, tls=False, codec=ProtobufJSONCodec()) as channel:
        channel.add_interceptor(below)
        if level is not None:
            above = Only(on_send=lambda hop: objects.append(hop.message))
            above.level = level
            channel.add_interceptor(above)
        request = hello.HelloRequest(name="\u00e4")
        call = channel.unary_unary(ECHO + "Unary", None, hello.HelloRequest.FromString)
        assert call(request) == request
        # The server sends a field that the generated class does not have.
        call = channel.unary_unary(
            ECHO + "Unary", testing_pb2.Payload.SerializeToString, hello.HelloRequest.FromString
        )
        assert call(testing_pb2.Payload(body=b"\xff\x00")) == hello.HelloRequest()
        stream = channel.stream_stream(ECHO + "Bidi", hello.HelloReply.SerializeToString, hello.HelloReply.FromString)
        messages = [hello.HelloReply(message=str(i)) for i in range(20)]
        assert list(stream(iter(messages))) == messages
    assert json.loads(data[0]) == {"name": "\u00e4"}
    assert json.loads(data[1]) == {"body": "/wA="}
    assert objects == ([] if level is None else [request, testing_pb2.Payload(body=b"\xff\x00"), *messages])


def test_equal_messages_have_equal_json() -> None:
    struct = pytest.importorskip("google.protobuf.struct_pb2")
    names = [f"k{number}" for number in range(20)]
    one, other = struct.Struct(), struct.Struct()
    for name in names:
        one[name] = 1
    for name in reversed(names):
        other[name] = 1
    codec = ProtobufJSONCodec()
    assert one == other
    assert codec.encode(one) == codec.encode(other)


def test_a_response_that_is_not_json_is_internal(peer: Peer, stubs: str) -> None:
    import helloworld_pb2 as hello

    def garble(hop: Hop) -> None:
        hop.set_message(b"{")

    with Channel(peer.target, tls=False, codec=ProtobufJSONCodec()) as channel:
        channel.add_interceptor(Only(on_receive=garble))
        call = channel.unary_unary(ECHO + "Unary", None, hello.HelloRequest.FromString)
        with pytest.raises(RpcError) as raised:
            call(hello.HelloRequest())
        assert raised.value.code() is StatusCode.INTERNAL


def test_json_needs_to_know_the_class() -> None:
    with opened("connect") as channel:
        channel = Channel(NOWHERE, tls=False, codec=ProtobufJSONCodec())
        for deserializer in (None, json.loads, str.upper):
            with pytest.raises(TypeError, match="FromString"):
                channel.unary_unary(ECHO + "Unary", None, cast(Any, deserializer))


def test_without_protobuf_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **keywords: Any) -> Any:
        if name.startswith("google"):
            raise ImportError(name)
        return real(name, *args, **keywords)

    loaded: Dict[str, Any] = {name: module for name, module in sys.modules.items() if name.startswith("google")}
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModuleNotFoundError, match="pip install protobuf"):
        ProtobufJSONCodec()


def test_stubs_of_a_side_channel_keep_their_own_encoding_unless_it_has_a_codec(peer: Peer) -> None:
    types: List[str] = []

    class Asks(SyncInterceptor):
        def intercept(self, call: InterceptedCall) -> None:
            if not types:
                types.append("")
                types[0] = sent_type(cast(Any, call.side_channel()))
                types.append(sent_type(cast(Any, call.side_channel(codec=Reversed())), "abc"))
            call.next()

    with Channel(peer.target, tls=False, codec=Reversed()) as channel:
        channel.add_interceptor(Asks())
        assert sent_type(channel, "abc") == "application/grpc+reversed"
    assert types == ["application/grpc", "application/grpc+reversed"]


# ---- Half duplex ----


@pytest.fixture
def half_duplex(peer: Peer) -> Iterator[Channel]:
    with Channel(f"http://{peer.target}", options={"protocol": "connect", "http": "1.1"}) as channel:
        yield channel


def test_streams_over_http_1(half_duplex: Channel) -> None:
    given = [str(i).encode() * 1000 for i in range(200)]
    bidi = half_duplex.stream_stream(ECHO + "Bidi")
    assert list(bidi(given)) == given
    # The requests of an iterator are sent on another thread, while this thread receives.
    assert list(bidi(iter(given))) == given
    assert half_duplex.stream_unary(ECHO + "ClientStream")(iter(given)) == b"".join(given)
    assert list(half_duplex.unary_stream(ECHO + "ServerStream")(b"x", metadata={"x-count": "3"})) == [b"x"] * 3
    call = bidi(given)
    assert list(call) == given
    assert (call.stats["protocol"], call.stats["http"]) == ("connect", "1.1")


def test_a_list_too_large_to_be_sent_at_once(half_duplex: Channel) -> None:
    given = [bytes([i]) * 300_000 for i in range(8)]
    assert list(half_duplex.stream_stream(ECHO + "Bidi")(given)) == given


def test_an_iterator_that_waits_for_a_response_never_hangs() -> None:
    """The server reads the request and does not answer, as a server that waits for the whole request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Channel(f"http://127.0.0.1:{port}", options={"protocol": "connect"}) as channel:
            answered = threading.Event()

            def requests() -> Iterator[bytes]:
                yield b"first"
                answered.wait()

            call = channel.stream_stream(ECHO + "Bidi")(requests())
            with pytest.raises(RpcError, match="half-close") as raised:
                next(call)
            answered.set()
            assert raised.value.code() is StatusCode.UNIMPLEMENTED


def test_http_versions_in_statistics(peer: Peer) -> None:
    for http in ("1.1", "2"):
        with Channel(f"http://{peer.target}", options={"protocol": "grpc-web", "http": http}) as channel:
            _, call = channel.unary_unary(ECHO + "Unary").with_call(b"x")
            assert (call.stats["protocol"], call.stats["http"]) == ("grpc-web", http)
