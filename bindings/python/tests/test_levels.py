"""Levels: interceptors that see the caller's own messages, and interceptors that see bytes."""

from __future__ import annotations

import json
from typing import Any, List

import pytest

import penstock
from penstock import Channel, Hop, Interceptor, Level, RpcError, StatusCode, Verdict, _raw

ECHO = "/penstock.Echo/Unary"


class Message:
    """The caller's own message type."""

    def __init__(self, text: str) -> None:
        self.text = text

    @staticmethod
    def parse(data: bytes) -> Message:
        return Message(json.loads(data)["text"])

    def serialized(self) -> bytes:
        counts["serialized"] += 1
        return json.dumps({"text": self.text}).encode()


counts = {"serialized": 0}


class Watch(Interceptor):
    """Keeps the messages that it sees."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.seen: List[Any] = []

    def on_send(self, hop: Hop) -> None:
        self.seen.append((hop.level, "send", hop.message))

    def on_receive(self, hop: Hop) -> None:
        self.seen.append((hop.level, "receive", hop.message))


def unary(channel: Channel) -> Any:
    return channel.unary_unary(ECHO, Message.serialized, Message.parse)


def test_both_levels_in_one_registration(channel: Channel) -> None:
    watch = Watch(Level.BOTH)
    channel.add_interceptor(watch)
    given = Message("hello")
    got = unary(channel)(given)
    assert isinstance(got, Message)
    assert got.text == "hello"
    levels = [(level, event) for level, event, _ in watch.seen]
    assert levels == [
        (Level.OBJECT, "send"),
        (Level.BYTES, "send"),
        (Level.BYTES, "receive"),
        (Level.OBJECT, "receive"),
    ]
    # At the object level the interceptor sees the caller's very object, not a copy, and the caller gets the object
    # that the interceptor saw.
    assert watch.seen[0][2] is given
    assert watch.seen[3][2] is got
    assert json.loads(watch.seen[1][2]) == {"text": "hello"}


def test_an_object_is_replaced(channel: Channel) -> None:
    class Shout(Interceptor):
        level = Level.OBJECT

        def on_send(self, hop: Hop) -> None:
            hop.message = Message(hop.message.text.upper())

        def on_receive(self, hop: Hop) -> None:
            hop.message.text += "!"

    channel.add_interceptor(Shout())
    assert unary(channel)(Message("hello")).text == "HELLO!"


def test_a_call_that_begins_during_the_registration_has_objects(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another thread made the call when C had registered the interceptor, and Python had not noted that yet."""
    seen: List[Any] = []

    class Seeing(Interceptor):
        level = Level.OBJECT

        def on_send(self, hop: Hop) -> None:
            seen.append(hop.message)

    call = channel.unary_unary("/penstock.Echo/Unary", str.encode, bytes.decode)
    add = _raw.penstock_channel_add_interceptor

    def added(*arguments: Any) -> int:
        result: int = add(*arguments)
        assert call("text") == "text"
        return result

    monkeypatch.setattr(_raw, "penstock_channel_add_interceptor", added)
    channel.add_interceptor(Seeing())
    assert seen == ["text"]


def test_streams(channel: Channel) -> None:
    watch = Watch(Level.OBJECT)
    channel.add_interceptor(watch)
    call = channel.stream_stream("/penstock.Echo/Bidi", Message.serialized, Message.parse)
    assert [message.text for message in call(iter([Message("a"), Message("b")]))] == ["a", "b"]
    assert [message.text for message in call([Message("c")])] == ["c"]
    assert sorted(message.text for _, event, message in watch.seen if event == "send") == ["a", "b", "c"]


def test_a_stub_above_the_codec_pays_for_no_serializing(channel: Channel) -> None:
    answer = Message("from the stub")

    class Stub(Interceptor):
        level = Level.OBJECT

        def on_start(self, hop: Hop) -> Verdict:
            return Verdict.TAKE

        def on_half_close(self, hop: Hop) -> None:
            hop.deliver_message(answer)
            hop.deliver_status(StatusCode.OK)

    channel.add_interceptor(Stub())
    before = counts["serialized"]
    assert unary(channel)(Message("x")) is answer
    assert counts["serialized"] == before


@pytest.mark.parametrize("side", ["encode", "decode"])
def test_a_codec_that_fails_is_internal_and_names_the_method(channel: Channel, side: str) -> None:
    def fails(_: Any) -> Any:
        raise ValueError("not today")

    channel.add_interceptor(Watch(Level.OBJECT))
    call = channel.unary_unary(
        ECHO,
        fails if side == "encode" else Message.serialized,
        fails if side == "decode" else Message.parse,
    )
    with pytest.raises(RpcError) as raised:
        call(Message("x"))
    assert raised.value.code() is StatusCode.INTERNAL
    assert ECHO in raised.value.details()
    assert side in raised.value.details()


def test_bytes_stay_bytes_without_serializers(channel: Channel) -> None:
    watch = Watch(Level.BOTH)
    channel.add_interceptor(watch)
    assert channel.unary_unary(ECHO)(b"abc") == b"abc"
    assert {message for _, _, message in watch.seen} == {b"abc"}


def test_an_event_of_a_ticket_has_the_object(channel: Channel) -> None:
    class Later(Interceptor):
        level = Level.OBJECT

        def on_send(self, hop: Hop) -> Verdict:
            ticket = hop.ticket()
            event = ticket.event()
            assert event.message.text == "now"
            event.message = Message("later")
            ticket.resume()
            return Verdict.PAUSE

    channel.add_interceptor(Later())
    assert unary(channel)(Message("now")).text == "later"


def test_the_object_level_has_no_attempts(channel: Channel) -> None:
    class Wrong(Watch):
        per_attempt = True

    with pytest.raises(penstock.InvalidArgumentError):
        channel.add_interceptor(Wrong(Level.OBJECT))


def test_nothing_is_kept(channel: Channel) -> None:
    from penstock._handles.objects import registry

    watch = Watch(Level.OBJECT)
    registration = channel.add_interceptor(watch)
    call = unary(channel)
    call(Message("x"))
    before = len(registry)
    for _ in range(50):
        call(Message("x"))
    assert len(registry) <= before
    registration.remove()
