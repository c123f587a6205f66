"""Each field of a request, as a hop and as a picker see it: its value, what may be set, and where it may not be."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import pytest

import penstock
from helpers import Only, on_thread, unary
from penstock import Channel, Hop, Idempotency, StateError, Verdict

# The fields that can be set: what a call without options has, another value, and the beginning of the message where
# a change is not allowed.
FIELDS: Dict[str, Tuple[Any, Any, str]] = {
    "method": ("/penstock.Echo/Unary", "/penstock.Echo/Bidi", "the method can't be set to '/penstock.Echo/Bidi'"),
    "authority": (None, "shop.example", "authority 'shop.example' can't be set"),
    "deadline": (None, None, "the deadline can't be set"),
    "compression": ("identity", "gzip", "compression 'gzip' can't be set"),
    "max_receive_message_bytes": (4 << 20, 2**31 - 1, "the limit can't be set"),
    "max_send_message_bytes": (2**31 - 1, 0, "the limit can't be set"),
    "idempotency": (Idempotency.UNKNOWN, Idempotency.NO_SIDE_EFFECTS, "the idempotency can't be set"),
    "allows_get": (True, False, "allows_get can't be set"),
    "content_subtype": ("", "json", "the content subtype can't be set to 'json'"),
    "user_agent": ("", "shop", "the user agent can't be set to 'shop'"),
    "wait_for_ready": (False, True, "wait_for_ready can't be set"),
}
# Those that can only be read.
READ: Dict[str, Any] = {
    "previous_attempts": 0,
    "is_transparent_retry": False,
    "http_method": "POST",
    "has_credentials": False,
}


def seen_in_start(channel: Channel, look: Callable[[Hop], Any]) -> Any:
    """The result of ``look(hop)`` in `on_start` of a call that the hop then answers."""
    seen: List[Any] = []

    def start(hop: Hop) -> Verdict:
        seen.append(look(hop))
        hop.deliver_headers({})
        hop.deliver_message(b"")
        hop.deliver_status(penstock.StatusCode.OK)
        return Verdict.TAKE

    token = channel.add_interceptor(Only(on_start=start))
    unary(channel)
    token.remove()
    return seen[0]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_read_as_it_was_set(channel: Channel, server: str, name: str) -> None:
    first, other, _ = FIELDS[name]

    def look(hop: Hop) -> Any:
        before = getattr(hop, name)
        setattr(hop, name, other)
        after = getattr(hop, name)
        setattr(hop, name, before)
        return before, after, getattr(hop, name)

    before, after, again = seen_in_start(channel, look)
    assert before == (server if name == "authority" else first)
    assert type(before) is type(again) is type(after)
    assert before == again
    assert after == (f"shop penstock/{penstock.library_version()}" if name == "user_agent" else other)


def test_what_can_only_be_read(channel: Channel) -> None:
    assert seen_in_start(channel, lambda hop: {name: getattr(hop, name) for name in READ}) == READ


def test_the_deadline_in_seconds(channel: Channel) -> None:
    def look(hop: Hop) -> Any:
        found = []
        for seconds in (1000, 0, None, 1e9):
            hop.deadline = seconds
            found.append(hop.deadline)
        return found

    found = seen_in_start(channel, look)
    # However long the callback has taken.
    assert 0 < found[0] <= 1000
    assert found[1:3] == [0, None]
    assert 1e6 < found[3] <= 1e9


def test_credentials_are_not_shown(channel: Channel) -> None:
    def look(hop: Hop) -> Any:
        found = []
        for value in ("Bearer x", None):
            hop.set_credentials(value)
            found.append(hop.has_credentials)
        return found

    assert seen_in_start(channel, look) == [True, False]


WRONG: List[Tuple[str, Any, Any, str]] = [
    ("method", "nonsense", penstock.InvalidArgumentError, "the method can't be set to 'nonsense'"),
    ("method", "/a/\0", penstock.InvalidArgumentError, "a method contains a NUL character"),
    ("method", b"/a/b", TypeError, "a method must be a str, not bytes"),
    ("authority", "a b", penstock.InvalidArgumentError, "authority 'a b' can't be set"),
    ("authority", 1, TypeError, "an authority must be a str, not int"),
    ("deadline", float("nan"), ValueError, "a time must not be NaN"),
    ("compression", "lzma", penstock.LibraryError, "compression 'lzma' can't be set"),
    ("compression", None, TypeError, "a compression must be a str, not NoneType"),
    ("max_receive_message_bytes", -1, penstock.InvalidArgumentError, "a limit must be from 0 to 2147483647, not -1"),
    ("max_receive_message_bytes", 2**31, penstock.InvalidArgumentError, "a limit must be from 0 to 2147483647"),
    ("max_receive_message_bytes", True, TypeError, "a limit must be an int, not bool"),
    ("max_send_message_bytes", -1, penstock.InvalidArgumentError, "a limit must be from 0 to 2147483647, not -1"),
    ("max_send_message_bytes", 2**31, penstock.InvalidArgumentError, "a limit must be from 0 to 2147483647"),
    ("max_send_message_bytes", 1.5, TypeError, "a limit must be an int, not float"),
    ("idempotency", 7, ValueError, "7 is not a valid Idempotency"),
    ("content_subtype", "a b", penstock.InvalidArgumentError, "the content subtype can't be set to 'a b'"),
    ("content_subtype", 1, TypeError, "a content subtype must be a str, not int"),
    ("user_agent", "a\nb", penstock.InvalidArgumentError, "the user agent can't be set to"),
    ("user_agent", 1, TypeError, "a user agent must be a str, not int"),
]


@pytest.mark.parametrize(("name", "value", "error", "words"), WRONG)
def test_a_value_that_a_field_can_not_have(channel: Channel, name: str, value: Any, error: Any, words: str) -> None:
    def look(hop: Hop) -> Any:
        before = getattr(hop, name)
        with pytest.raises(error) as caught:
            setattr(hop, name, value)
        return str(caught.value), getattr(hop, name) == before

    said, is_kept = seen_in_start(channel, look)
    assert said.startswith(words)
    assert is_kept


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_can_not_be_changed_once_the_request_is_out(channel: Channel, name: str) -> None:
    _, other, words = FIELDS[name]
    seen: List[str] = []

    def change(hop: Hop) -> None:
        with pytest.raises(StateError) as caught:
            setattr(hop, name, other)
        seen.append(str(caught.value))

    channel.add_interceptor(Only(on_headers=change))
    assert unary(channel) == b"x"
    assert seen[0].startswith(f"{words}: ")


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda hop: hop.prefer("zone", "a"), "an address can't be asked for: "),
        (lambda hop: hop.set_credentials("x"), "the credentials can't be set: "),
        (lambda hop: hop.request_metadata, "there is no request metadata here"),
        (lambda hop: hop.request_messages, "the request's messages can't be read here"),
        (lambda hop: hop.set_request_message(0, b""), "the request's message can't be replaced: "),
    ],
)
def test_what_only_an_open_request_can_do(channel: Channel, use: Any, words: str) -> None:
    seen: List[str] = []

    def try_it(hop: Hop) -> None:
        with pytest.raises(StateError) as caught:
            use(hop)
        seen.append(str(caught.value))

    channel.add_interceptor(Only(on_headers=try_it))
    assert unary(channel) == b"x"
    assert seen[0].startswith(words)


def test_wrong_words_for_an_address(channel: Channel) -> None:
    def look(hop: Hop) -> Any:
        hop.prefer("zone", "a", required=True)
        hop.prefer(None)
        said = []
        for given in ((1,), ("a", 1), ("a\0",), ("a", "b\0")):
            with pytest.raises((TypeError, ValueError)) as caught:
                hop.prefer(*given)
            said.append(str(caught.value).partition(" (")[0])
        return said

    assert seen_in_start(channel, look) == [
        "the name of an attribute must be a str, not int",
        "the value of an attribute must be a str, not int",
        "the name of an attribute contains a NUL character",
        "the value of an attribute contains a NUL character",
    ]


# ---- As a picker sees them ----


def picked(server: str, use: Callable[[penstock.Pick], Any]) -> Any:
    """The result of ``use(pick)`` in a picker."""
    seen: List[Any] = []

    def picker(pick: penstock.Pick) -> Any:
        seen.append(use(pick))
        return 0

    with Channel(server, tls=False, picker=picker) as channel:
        assert unary(channel) == b"x"
    return seen[0]


def test_a_picker_reads_each_field(server: str) -> None:
    expected = {name: first for name, (first, _, _) in FIELDS.items()}
    names = (*FIELDS, *READ)
    found = picked(server, lambda pick: {name: getattr(pick, name) for name in names})
    assert found == {**expected, **READ, "authority": server}


@pytest.mark.parametrize("name", FIELDS)
def test_a_picker_changes_no_field(server: str, name: str) -> None:
    before, other, words = FIELDS[name]

    def change(pick: penstock.Pick) -> Any:
        with pytest.raises(StateError) as caught:
            setattr(pick, name, other)
        return str(caught.value), getattr(pick, name)

    said, after = picked(server, change)
    assert said == f"{words}: a picker can't change the request (PENSTOCK_E_STATE)"
    assert after == (server if name == "authority" else before)


USES: List[Any] = [
    *[lambda pick, name=name: getattr(pick, name) for name in (*FIELDS, *READ)],
    *[lambda pick, name=name, other=other: setattr(pick, name, other) for name, (_, other, _) in FIELDS.items()],
    len,
    lambda pick: pick.endpoints,
    lambda pick: pick.metadata,
    lambda pick: pick.request_metadata,
    lambda pick: pick.fail(),
    lambda pick: penstock._channels.picker.Endpoint(pick, 0).address,
    lambda pick: penstock._channels.picker.Endpoint(pick, 0).weight,
    lambda pick: penstock._channels.picker.Endpoint(pick, 0).attribute("zone"),
    lambda pick: pick.set_credentials(None),
]


def test_a_pick_is_of_use_in_its_picker_only(server: str) -> None:
    kept: List[penstock.Pick] = []

    def refusals(pick: penstock.Pick) -> List[str]:
        said = []
        for use in USES:
            with pytest.raises(StateError) as caught:
                use(pick)
            said.append(str(caught.value))
        return said

    def on_another(pick: penstock.Pick) -> List[str]:
        kept.append(pick)
        said: List[str] = []
        on_thread(lambda: said.extend(refusals(pick))).join()
        return said

    words = ["allowed only in the picker, on its thread (PENSTOCK_E_STATE)"] * len(USES)
    assert picked(server, on_another) == words
    assert refusals(kept[0]) == words


def test_a_picker_has_no_wishes(server: str) -> None:
    def wish(pick: penstock.Pick) -> str:
        with pytest.raises(StateError) as caught:
            pick.prefer("zone", "a")
        return str(caught.value)

    assert picked(server, wish) == "a picker can't change the request (PENSTOCK_E_STATE)"


def test_an_endpoint_and_its_index(server: str) -> None:
    def look(pick: penstock.Pick) -> Any:
        (one,) = pick.endpoints
        return one.index, repr(one), one.address, one.weight, one.attribute("zone"), len(pick)

    assert picked(server, look) == (0, "Endpoint(0)", server, 1, None, 1)


@pytest.mark.parametrize("returned", [True, False, 1.0, "first", b"0"])
def test_an_answer_that_is_no_server(server: str, returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    with Channel(server, tls=False, picker=lambda pick: returned) as channel:
        with pytest.raises(penstock.RpcError, match="the picker raised TypeError") as caught:
            unary(channel)
        assert caught.value.code() is penstock.StatusCode.INTERNAL
    said = f"the picker returned {returned!r}, which is neither an Endpoint, an index nor None"
    (record,) = {str(record.exc_info[1]): record for record in caplog.records if record.exc_info}.values()
    assert record.getMessage() == "interceptor 'picker' raised in picker"
    assert str(record.exc_info[1]) == said
