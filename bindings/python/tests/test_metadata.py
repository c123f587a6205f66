"""Metadata by name and as JSON: made by the test, from the caller, in hops, and as grpcio's server saw it."""

from __future__ import annotations

import json
from typing import Any, Callable, List, Optional

import pytest

import penstock
from penstock import Channel, Hop, Interceptor, InvalidArgumentError, Metadata, Verdict

Probe = Callable[..., Any]

# For each case: its name, the pairs given to `Metadata`, the expected JSON, and the [name, text or hex] pairs that a
# gRPC server sees.
GOLDEN: List[Any] = [
    ("one", [("a", "1")], {"a": ["1"]}, [["a", "1"]]),
    ("repeated", [("a", "1"), ("a", "2"), ("a", "1")], {"a": ["1", "2", "1"]}, [["a", "1"], ["a", "2"], ["a", "1"]]),
    ("upper-case name", [("X-Mixed", "v")], {"x-mixed": ["v"]}, [["x-mixed", "v"]]),
    ("empty text", [("a", "")], {"a": [""]}, [["a", ""]]),
    ("spaces inside", [("a", "b c  d")], {"a": ["b c  d"]}, [["a", "b c  d"]]),
    ("visible ASCII", [("a", '!"#$%&()~{}\\')], {"a": ['!"#$%&()~{}\\']}, [["a", '!"#$%&()~{}\\']]),
    ("comma in text", [("a", "x,y")], {"a": ["x,y"]}, [["a", "x,y"]]),
    ("bytes", [("a-bin", b"\x00\x01\xff")], {"a-bin": ["AAH/"]}, [["a-bin", "0001ff"]]),
    ("bytes that need padding", [("a-bin", b"\x00")], {"a-bin": ["AA=="]}, [["a-bin", "00"]]),
    ("no bytes", [("a-bin", b"")], {"a-bin": [""]}, [["a-bin", ""]]),
    (
        "repeated bytes",
        [("a-bin", b"a"), ("a-bin", b"b")],
        {"a-bin": ["YQ==", "Yg=="]},
        [["a-bin", "61"], ["a-bin", "62"]],
    ),
    ("names keep order", [("z", "1"), ("a", "2")], {"z": ["1"], "a": ["2"]}, [["z", "1"], ["a", "2"]]),
]
IDS = [case[0] for case in GOLDEN]
REFUSED: List[Any] = [
    ("", "v"),
    ("sp ace", "v"),
    ("umläut", "v"),
    (":authority", "v"),
    ("grpc-timeout", "1S"),
    ("grpc-anything", "v"),
    ("te", "trailers"),
    ("content-type", "v"),
    ("connection", "close"),
    ("a", "line\nbreak"),
    ("a", "tab\t"),
    ("a", "ümläut"),
    ("a", b"\xff"),
]


class OnStart(Interceptor):
    """Runs a function on the hop before the call starts."""

    def __init__(self, action: Callable[[Hop], Optional[Verdict]]) -> None:
        self.action = action

    def on_start(self, hop: Hop) -> Optional[Verdict]:
        return self.action(hop)


@pytest.mark.parametrize(("_", "given", "as_json", "seen"), GOLDEN, ids=IDS)
def test_by_name_and_as_json(_: str, given: Any, as_json: Any, seen: Any) -> None:
    metadata = Metadata(given)
    lowered = [(name.lower(), value) for name, value in given]
    assert [tuple(pair) for pair in metadata.pairs()] == lowered
    assert json.loads(metadata.json) == as_json
    again = Metadata(json.dumps(as_json))
    assert sorted(again.pairs()) == sorted(metadata.pairs())
    assert json.loads(again.json) == as_json
    for name, _value in lowered:
        assert metadata.get_all(name) == [value for other, value in lowered if other == name]
        assert metadata.get_all(name.upper()) == metadata.get_all(name)


@pytest.mark.parametrize(("_", "given", "as_json", "seen"), GOLDEN, ids=IDS)
def test_what_a_server_sees_of_a_caller_s(_: str, given: Any, as_json: Any, seen: Any, probe: Probe) -> None:
    for metadata in (given, tuple(given), Metadata(given), json.dumps(as_json), iter(given)):
        assert sorted(probe(metadata=metadata)["metadata"]) == sorted(seen)
    values = {name: [value for other, value in given if other == name] for name, _ in given}
    assert sorted(probe(metadata=values)["metadata"]) == sorted(seen)


@pytest.mark.parametrize(("_", "given", "as_json", "seen"), GOLDEN, ids=IDS)
def test_what_a_server_sees_of_a_hop_s(
    _: str, given: Any, as_json: Any, seen: Any, channel: Channel, probe: Probe
) -> None:
    def by_name(hop: Hop) -> None:
        for name, value in given:
            hop.metadata.add(name, value)
        assert json.loads(hop.metadata.json) == as_json

    def by_json(hop: Hop) -> None:
        hop.metadata.json = json.dumps(as_json)
        assert sorted(hop.metadata.pairs()) == sorted((name.lower(), value) for name, value in given)

    token = channel.add_interceptor(OnStart(by_name))
    assert probe()["metadata"] == seen
    token.remove()
    channel.add_interceptor(OnStart(by_json))
    assert sorted(probe()["metadata"]) == sorted(seen)


@pytest.mark.parametrize(("_", "given", "as_json", "seen"), GOLDEN, ids=IDS)
def test_what_a_caller_gets_of_a_server_s(_: str, given: Any, as_json: Any, seen: Any, channel: Channel) -> None:
    call = channel.unary_unary("/penstock.Probe/Unary")
    pairs = [[name.lower(), value] for name, value in seen]
    _response, outcome = call.with_call(json.dumps({"initial": pairs, "trailing": pairs}).encode())
    expected = [(name.lower(), value) for name, value in given]
    for received in (outcome.initial_metadata(), outcome.trailing_metadata()):
        assert sorted(pair for pair in received if pair.key in as_json) == sorted(expected)
        assert {name: json.loads(received.json)[name] for name in as_json} == as_json
        for name, _value in expected:
            assert received.get_all(name) == [value for other, value in expected if other == name]
            assert received.get(name.upper()) == received.get_all(name)[0]


def test_a_value_that_is_refused_is_not_told() -> None:
    metadata = Metadata()
    for change in (metadata.add, metadata.__setitem__):
        with pytest.raises(InvalidArgumentError) as raised:
            change("authorization", "Bearer s3cret\n")
        assert "authorization" in str(raised.value)
        assert "without a space at its ends" in str(raised.value)
        assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_not_allowed_is_refused_everywhere(name: str, value: Any, probe: Probe, channel: Channel) -> None:
    metadata = Metadata([("kept", "1")])
    with pytest.raises(InvalidArgumentError):
        metadata.add(name, value)
    with pytest.raises(InvalidArgumentError):
        metadata[name] = value
    with pytest.raises(InvalidArgumentError):
        probe(metadata=[(name, value)])
    if isinstance(value, str):
        with pytest.raises(InvalidArgumentError):
            metadata.json = json.dumps({"kept": ["2"], name: [value]})
    assert metadata.json == '{"kept": ["1"]}' or json.loads(metadata.json) == {"kept": ["1"]}
    refused: List[Exception] = []

    def add(hop: Hop) -> None:
        try:
            hop.metadata.add(name, value)
        except InvalidArgumentError as error:
            refused.append(error)

    channel.add_interceptor(OnStart(add))
    assert probe()["metadata"] == []
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", None),
        ("[]", None),
        ("{", None),
        ('{"a": 1}', "a"),
        ('{"a": [1]}', "a"),
        ('{"a": null}', "a"),
        ('{"a": {"b": 1}}', "a"),
        ('{"a-bin": ["!"]}', "a-bin"),
        ('{"a": ["1"], "a": ["2"]}', None),
        ('{"grpc-status": ["0"]}', "grpc-status"),
    ],
)
def test_malformed_json_is_refused_and_its_path_named(text: str, path: Optional[str], probe: Probe) -> None:
    metadata = Metadata({"kept": "1"})
    with pytest.raises(InvalidArgumentError) as caught:
        metadata.json = text
    if path is not None:
        assert caught.value.path is not None
        assert path in caught.value.path
    assert metadata.pairs() == [("kept", "1")]
    with pytest.raises(InvalidArgumentError):
        probe(metadata=text)


def test_json_takes_a_bare_string_and_unpadded_and_joined_base64() -> None:
    metadata = Metadata('{"a": "1", "b-bin": "AA", "c-bin": ["AA,AQ"]}')
    assert metadata.get_all("a") == ["1"]
    assert metadata.get_all("b-bin") == [b"\x00"]
    assert metadata.get_all("c-bin") == [b"\x00", b"\x01"]


def test_it_is_a_mapping() -> None:
    metadata = Metadata({"a": ["1", "2"], "b": "3"})
    assert (len(metadata), list(metadata), metadata["A"]) == (2, ["a", "b"], "1")
    assert "a" in metadata
    assert "c" not in metadata
    assert 5 not in metadata  # type: ignore[comparison-overlap]
    assert dict(metadata) == {"a": "1", "b": "3"}
    assert metadata.get("c", "none") == "none"
    metadata["a"] = "9"
    assert metadata.get_all("a") == ["9"]
    del metadata["a"]
    assert metadata.pairs() == [("b", "3")]
    with pytest.raises(KeyError):
        del metadata["a"]
    with pytest.raises(KeyError):
        metadata["a"]
    metadata.update({"c": "4"})
    assert metadata.pop("c") == "4"
    metadata.replace([("d", "5"), ("D", "6")])
    assert repr(metadata) == "Metadata([('d', '5'), ('d', '6')])"


def test_values_of_the_wrong_type_are_type_errors(probe: Probe) -> None:
    metadata = Metadata()
    wrong: List[Any] = [("a", 1), ("a-bin", "text"), ("a", None), (5, "a"), (b"a", "a")]
    for name, value in wrong:
        with pytest.raises(TypeError):
            metadata[name] = value
        with pytest.raises(TypeError):
            probe(metadata=[(name, value)])
    with pytest.raises(InvalidArgumentError, match="NUL"):
        metadata["a\0b"] = "v"


def test_changes_of_response_metadata_reach_the_caller(channel: Channel) -> None:
    class Change(Interceptor):
        def on_headers(self, hop: Hop) -> None:
            hop.metadata["x-seen"] = "headers"
            del hop.metadata["x-secret"]

        def on_status(self, hop: Hop) -> None:
            hop.metadata.add("x-seen", "trailers")
            hop.status.trailers.add("x-twice-bin", b"\x02")

    channel.add_interceptor(Change())
    wish = {"initial": [["x-secret", "s"]], "trailing": [["x-seen", "server"]]}
    _, outcome = channel.unary_unary("/penstock.Probe/Unary").with_call(json.dumps(wish).encode())
    assert outcome.initial_metadata().get("x-secret") is None
    assert outcome.initial_metadata().get_all("x-seen") == ["headers"]
    assert outcome.trailing_metadata().get_all("x-seen") == ["server", "trailers"]
    assert outcome.trailing_metadata().get_all("x-twice-bin") == [b"\x02"]


def test_a_hop_s_metadata_is_for_its_callback_only(channel: Channel, probe: Probe) -> None:
    kept: List[Metadata] = []
    channel.add_interceptor(OnStart(lambda hop: kept.append(hop.metadata)))
    probe()
    for use in (lambda: kept[0]["a"], lambda: kept[0].json, lambda: kept[0].pairs(), lambda: kept[0].add("a", "b")):
        with pytest.raises(penstock.StateError):
            use()
