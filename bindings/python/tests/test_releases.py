"""Messages and calls that Python code has made in C are released, each once: nothing else counts them."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List

import pytest

import penstock
from helpers import Only, eventually, unary
from penstock import Channel, Hop, StatusCode, Uncompressed, Verdict, _raw

ECHO = "/penstock.Echo/"
LARGE = bytes(200_000)
# The functions that give something which their caller releases, with the place of the argument in which it is given.
MAKERS = {
    "penstock_message_new": ("message", -1),
    "penstock_message_new_object": ("message", -1),
    "penstock_call_receive": ("message", -1),
    "penstock_request_message": ("message", -1),
    "penstock_hop_start_side_call": ("call", -2),
    "penstock_call_reply": ("reply", -1),
}
RELEASES = {name: f"penstock_{name}_release" for name in ("message", "call", "reply")}


class Counted:
    """What was made, and what was released, by kind: as numbers of handles."""

    def __init__(self) -> None:
        self.made: Dict[str, List[int]] = {name: [] for name in RELEASES}
        self.released: Dict[str, List[int]] = {name: [] for name in RELEASES}

    def balanced(self, *kinds: str) -> bool:
        return all(sorted(self.made[kind]) == sorted(self.released[kind]) for kind in kinds)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()

    def maker(name: str) -> Callable[..., Any]:
        function, (kind, place) = getattr(_raw, name), MAKERS[name]

        def wrapped(*arguments: Any) -> Any:
            result = function(*arguments)
            given = arguments[place]._obj.value
            if given:
                found.made[kind].append(given)
            return result

        return wrapped

    def release(kind: str) -> Callable[..., Any]:
        function = getattr(_raw, RELEASES[kind])

        def wrapped(handle: Any) -> Any:
            number = getattr(handle, "value", handle)
            if number:
                found.released[kind].append(number)
            return function(handle)

        return wrapped

    for name in MAKERS:
        monkeypatch.setattr(_raw, name, maker(name))
    for kind, name in RELEASES.items():
        monkeypatch.setattr(_raw, name, release(kind))
    return found


def test_messages_that_are_sent(channel: Channel, counted: Counted) -> None:
    plain = Uncompressed(b"x")
    assert unary(channel, plain) == b"x"
    assert channel.unary_unary(f"{ECHO}Unary").future(plain).result() == b"x"
    assert channel.stream_unary(f"{ECHO}ClientStream")([plain, b"y", plain]) == b"xyx"
    assert list(channel.stream_stream(f"{ECHO}Bidi")(iter([plain, b"y"]))) == [b"x", b"y"]
    call = channel.stream_stream(f"{ECHO}Bidi")()
    assert call.write(plain)
    assert next(call) == b"x"
    call.done_writing()
    assert list(call) == []
    assert len(counted.made["message"]) == 6
    eventually(lambda: counted.balanced("message"))


def test_messages_that_are_refused(channel: Channel, counted: Counted) -> None:
    for send in (
        lambda: unary(channel, Uncompressed(b"abc"), max_send_message_bytes=2),
        lambda: channel.stream_unary(f"{ECHO}ClientStream")([Uncompressed(b"abc")], max_send_message_bytes=2),
    ):
        with pytest.raises(penstock.RpcError):
            send()
    assert len(counted.made["message"]) == 2
    eventually(lambda: counted.balanced("message"))


def test_messages_that_are_received(channel: Channel, counted: Counted) -> None:
    assert list(channel.stream_stream(f"{ECHO}Bidi")([LARGE, b"x", LARGE])) == [LARGE, b"x", LARGE]
    assert len(counted.made["message"]) >= 2
    eventually(lambda: counted.balanced("message"))


def test_messages_of_hops(channel: Channel, counted: Counted) -> None:
    def send(hop: Hop) -> None:
        hop.message = b"mine"

    def receive(hop: Hop) -> None:
        hop.message = Uncompressed(hop.message)

    channel.add_interceptor(Only(on_send=send, on_receive=receive))
    assert unary(channel) == b"mine"
    assert list(channel.stream_stream(f"{ECHO}Bidi")([b"a", b"b"])) == [b"mine"] * 2
    assert counted.made["message"]
    eventually(lambda: counted.balanced("message"))


def test_messages_that_hops_inject(channel: Channel, counted: Counted) -> None:
    def start(hop: Hop) -> Verdict:
        hop.deliver_headers({})
        hop.deliver_message(Uncompressed(b"mine"))
        hop.deliver_status(StatusCode.OK)
        return Verdict.TAKE

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"mine"
    assert len(counted.made["message"]) == 1
    eventually(lambda: counted.balanced("message"))


def test_objects(channel: Channel, counted: Counted) -> None:
    class Sees(penstock.Interceptor):
        level = penstock.Level.OBJECT

        def on_send(self, hop: Hop) -> None:
            hop.message = hop.message + 1

        def on_receive(self, hop: Hop) -> None:
            hop.message = hop.message * 2

    channel.add_interceptor(Sees())
    codec = (lambda number: str(number).encode(), int)
    assert channel.unary_unary(f"{ECHO}Unary", *codec)(4) == 10
    assert list(channel.stream_stream(f"{ECHO}Bidi", *codec)([1, 2])) == [4, 6]
    assert counted.made["message"]
    eventually(lambda: counted.balanced("message"))


def test_messages_of_a_request_that_is_sent_again(channel: Channel, counted: Counted) -> None:
    seen: List[Any] = []

    class Again(Only):
        replay_bytes = 1000

    def status(hop: Hop) -> Any:
        if hop.method.endswith("Refuse"):
            seen.append(hop.request_messages)
            hop.set_request_message(0, b"again")
            hop.method = f"{ECHO}Unary"
            return Verdict.RESTART
        return None

    channel.add_interceptor(Again(on_status=status))
    assert channel.unary_unary("/penstock.Probe/Refuse")(b"x") == b"again"
    assert seen == [[b"x"]]
    assert len(counted.made["message"]) >= 2
    eventually(lambda: counted.balanced("message"))


@pytest.mark.parametrize("fails", [False, True])
def test_side_calls(channel: Channel, counted: Counted, fails: bool) -> None:
    ended = threading.Event()

    def start(hop: Hop) -> None:
        if hop.method.endswith("Unary"):
            method = "/penstock.Probe/Refuse" if fails else f"{ECHO}ClientStream"
            hop.unary(method, b"side", lambda response, outcome: ended.set(), detached=True)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert ended.wait(60)
    assert (len(counted.made["call"]), len(counted.made["message"])) == (1, 1)
    eventually(lambda: counted.balanced("message"))
    eventually(lambda: counted.made["call"][0] in counted.released["call"])


def test_a_side_call_whose_request_is_too_large(channel: Channel, counted: Counted) -> None:
    raised: List[Any] = []

    def start(hop: Hop) -> None:
        if hop.method.endswith("Unary"):
            with pytest.raises(penstock.LibraryError) as caught:
                hop.unary(f"{ECHO}ClientStream", b"side", lambda *_: None, max_send_message_bytes=2)
            raised.append(caught.value.message)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert raised == ["the request can't be sent"]
    eventually(lambda: counted.balanced("message"))
    eventually(lambda: counted.made["call"][0] in counted.released["call"])


def test_asking_whether_a_call_has_ended(channel: Channel, counted: Counted) -> None:
    call = channel.unary_unary(f"{ECHO}Unary").future(b"x")
    eventually(call.done)
    assert call.is_active() is False
    assert counted.made["reply"] == [] or all(one in counted.released["reply"] for one in counted.made["reply"])
    assert call.result() == b"x"
