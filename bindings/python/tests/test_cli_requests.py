"""Requests in JSON, descriptions in files, and what a server's reflection may answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List, Tuple

import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2

import penstock
from cli_helpers import GREETER, PROTOS, printed, refused
from helpers import Only
from penstock import Channel, Detail, Hop, RpcError, StatusCode, Verdict
from penstock._cli import files, messages, protobuf, reflection, requests
from penstock._cli.failure import CommandError
from penstock._cli.schema import Schema

# ---- Values in JSON ----


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], []),
        (["", "  ", "\t"], []),
        (["{}"], [(1, "{}")]),
        (["", "{}", "", " {} "], [(2, "{}"), (4, "{}")]),
        (['{"a": 1}{"b": 2}  {}'], [(1, '{"a": 1}'), (1, '{"b": 2}'), (1, "{}")]),
        (["{", '"a": [', "1]", "}", "{}"], [(1, '{\n"a": [\n1]\n}'), (5, "{}")]),
        (["{} {", "} {}", "{}"], [(1, "{}"), (1, "{\n}"), (2, "{}"), (3, "{}")]),
        # Brackets within strings are text, and so is a quote behind a backslash.
        (['{"a": "{["}', "{}"], [(1, '{"a": "{["}'), (2, "{}")]),
        (['{"a": "\\"{"}', "{}"], [(1, '{"a": "\\"{"}'), (2, "{}")]),
        (["1", '"a"', "null"], [(1, "1"), (2, '"a"'), (3, "null")]),
        (["[[1],", "[2]]", "[3]"], [(1, "[[1],\n[2]]"), (3, "[3]")]),
    ],
)
def test_values_and_the_lines_where_they_begin(lines: List[str], found: List[Tuple[int, str]]) -> None:
    assert list(requests.values(lines)) == found


def test_a_value_is_given_as_soon_as_its_last_line_has_come() -> None:
    read: List[str] = []

    def lines() -> Iterator[str]:
        for line in ("{", "}", "{}", "[1]"):
            read.append(line)
            yield line

    given = requests.values(lines())
    assert next(given) == (1, "{\n}")
    assert read == ["{", "}"]
    assert next(given) == (3, "{}")
    assert read == ["{", "}", "{}"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["x"], "line 1 is no JSON: Expecting value (line 1, column 1)"),
        (["{}", "", "{} x"], "line 3 is no JSON: Expecting value (line 3, column 4)"),
        (["{}", "{", '"a": x', "}"], "line 2 is no JSON: Expecting value (line 3, column 6)"),
        (["{}", "[1,", "2"], "line 2 is no JSON: Expecting ',' delimiter (line 3, column 2)"),
        (["{", "} [", "", "x"], "line 2 is no JSON: Expecting value (line 4, column 1)"),
        (["{}", "]"], "line 2 is no JSON: Expecting value (line 2, column 1)"),
    ],
)
def test_text_that_is_no_json(lines: List[str], said: str) -> None:
    with pytest.raises(CommandError) as raised:
        list(requests.values(lines))
    assert (str(raised.value), raised.value.exit_code) == (f"the request in {said}", 2)


def test_lines_of_the_flag(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("{}\n\n[ü]", encoding="utf-8")
    assert requests.lines_of(None) == ()
    assert requests.lines_of("{}\nx") == ["{}", "x"]
    assert requests.lines_of(f"@{file}") == ["{}", "", "[ü]"]
    file.write_bytes(b"\xff")
    with pytest.raises(CommandError, match=r"^-d @.*/file: 'utf-8' codec can't decode byte 0xff in position 0"):
        requests.lines_of(f"@{file}")
    with pytest.raises(CommandError, match=r"^-d @.*/none: No such file or directory$"):
        requests.lines_of(f"@{tmp_path}/none")


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        # A mark of the byte order, as some programs write it.
        (b"\xef\xbb\xbf{}\n", ["{}"]),
        ("ü\n".encode(), ["ü"]),
        (b"x" * 70_000 + b"\ny", ["x" * 70_000, "y"]),
    ],
)
def test_the_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: bytes, lines: List[str]) -> None:
    (tmp_path / "in").write_bytes(given)
    with (tmp_path / "in").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert list(requests.lines_of("@")) == lines


def test_a_standard_input_that_can_not_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\n\xff\n")
    with (tmp_path / "in").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        lines = iter(requests.standard_input())
        assert next(lines) == "a"
        with pytest.raises(CommandError, match=r"^the standard input is no UTF-8: 'utf-8' codec can't decode"):
            next(lines)
    closed = os.open(tmp_path / "in", os.O_WRONLY)
    try:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: closed))
        with pytest.raises(CommandError, match=r"^the standard input can't be read: Bad file descriptor$"):
            list(requests.standard_input())
    finally:
        os.close(closed)


# ---- Files ----


def described(name: str, package: str = "", **parts: Any) -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, **parts)


NESTED: Any = {
    "name": "Outer",
    "nested_type": [{"name": "Inner", "enum_type": [{"name": "Deep"}], "extension": [{"name": "hidden"}]}],
    "enum_type": [{"name": "Kind"}],
    "extension": [{"name": "inside"}],
}


def test_each_symbol_of_a_file_is_found() -> None:
    parts: Any = {
        "message_type": [NESTED],
        "enum_type": [{"name": "Top"}],
        "extension": [{"name": "outside"}],
        "service": [{"name": "Calls", "method": [{"name": "One"}, {"name": "Two"}]}],
    }
    both = [described("a", "p.q", **parts), described("b", **parts)]
    made = files.Files("a set", [descriptor_pb2.FileDescriptorSet(file=both)])
    names = [
        *("Outer", "Outer.Inner", "Outer.Inner.Deep", "Outer.Inner.hidden", "Outer.Kind", "Outer.inside", "Top"),
        *("outside", "Calls", "Calls.One", "Calls.Two"),
    ]
    assert made._homes == {**{f"p.q.{name}": "a" for name in names}, **dict.fromkeys(names, "b")}
    assert made.services() == ["p.q.Calls", "Calls"]
    assert made.name == "a set"
    assert made.FindFileContainingSymbol("p.q.Outer.Inner.Deep").name == "a"
    assert made.FindFileByName("b").name == "b"
    with pytest.raises(KeyError):
        made.FindFileContainingSymbol("p.q.None")
    with pytest.raises(KeyError):
        made.FindFileByName("c")
    assert made.FindFileByName("google/protobuf/any.proto").package == "google.protobuf"


@pytest.mark.parametrize(
    "name", ["any.proto", "google/protobuf/any", "google/protobuf/none.proto", "google/rpc/status.proto"]
)
def test_a_file_that_does_not_come_with_protobuf(name: str) -> None:
    with pytest.raises(KeyError):
        protobuf.well_known_file(name)


def test_where_files_are_looked_for() -> None:
    assert files._homes(["a.proto", "b/c.proto"]) == ["."]
    assert files._homes(["/x/a.proto", "b.proto", "/y/c.proto"]) == [".", "/x", "/y"]


def test_several_files_of_descriptions(tmp_path: Path) -> None:
    paths = []
    for name in ("one", "two"):
        parts: Any = {"service": [{"name": name.capitalize()}]}
        made = descriptor_pb2.FileDescriptorSet(file=[described(f"{name}.proto", "p", syntax="proto3", **parts)])
        paths.append(str(tmp_path / name))
        Path(paths[-1]).write_bytes(made.SerializeToString())
    flags = [word for path in paths for word in ("--protoset", path)]
    assert printed("list", *flags) == "p.One\np.Two\n"
    said = refused(1, "list", *flags, "p.None")
    assert said.startswith(f"{paths[0]}, {paths[1]}: no service 'p.None'")


def test_a_compiler_that_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "protoc"
    compiler.write_text("#!/bin/sh\nexit 7\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert refused(1, "list", "--proto", "a.proto", "--proto", "b.proto") == "--proto a.proto, b.proto: protoc gave 7"
    compiler.write_text("#!/bin/sh\necho 'it is wrong' >&2\nexit 1\n")
    assert refused(1, "list", "--proto", "a.proto") == "--proto a.proto: it is wrong"


# ---- Names of methods ----


@pytest.mark.parametrize(
    "text", ["SayHello", "/SayHello", "helloworld.Greeter/", "/", "", ".SayHello", f"{GREETER}."]
)
def test_a_method_has_a_service_and_a_name(text: str) -> None:
    said = refused(2, "call", "--plaintext", *PROTOS, "localhost:1", text)
    assert said == f"method {text!r}: expected package.Service/Method"


def test_a_method_that_may_have_been_meant() -> None:
    said = refused(1, "call", "--plaintext", *PROTOS, "localhost:1", f"{GREETER}/SayHelo")
    assert said == f"{GREETER} has no method 'SayHelo'; did you mean 'SayHello'?"
    said = refused(1, "call", "--plaintext", *PROTOS, "localhost:1", f"{GREETER}/X")
    assert said == f"{GREETER} has no method 'X'; there are SayHello, SayHelloBidiStream, SayHelloStreamReply"


# ---- Reflection ----

DESCRIBED = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
DESCRIBED.message_type.add(name="M")
OTHER = descriptor_pb2.FileDescriptorProto(name="b.proto", package="p", syntax="proto3")


def with_files(*found: Any) -> Any:
    answer = reflection_pb2.ServerReflectionResponse()
    answer.file_descriptor_response.file_descriptor_proto.extend(file.SerializeToString() for file in found)
    return answer


def with_services(*names: str) -> Any:
    answer = reflection_pb2.ServerReflectionResponse()
    for name in names:
        answer.list_services_response.service.add(name=name)
    return answer


class Server(penstock.Interceptor):
    """Answers each question of reflection in the place of a server, which has one version of it, and keeps it."""

    def __init__(self, *answers: Any, version: str = "grpc.reflection.v1") -> None:
        self.answers, self.version = answers, version
        self.asked: List[Tuple[str, str]] = []

    def on_start(self, hop: Hop) -> Verdict:
        return Verdict.TAKE

    def on_send(self, hop: Hop) -> None:
        question = reflection_pb2.ServerReflectionRequest.FromString(bytes(hop.message))
        kind = question.WhichOneof("message_request")
        service = hop.method.split("/")[1]
        self.asked.append((service.rpartition(".")[0], f"{kind}: {getattr(question, kind)}"))
        if service != f"{self.version}.ServerReflection":
            hop.end(StatusCode.UNIMPLEMENTED, "not this version")
            return
        hop.deliver_headers({})
        for answer in self.answers:
            hop.deliver_message(answer.SerializeToString())
        hop.deliver_status(StatusCode.OK)


def asking(server: Server) -> Any:
    """A channel to ``server``, which is closed at the end of a block, and its reflection."""
    channel = Channel("localhost:1", tls=False, interceptors=[server])
    return channel, reflection.Reflection(channel, [], None)


def test_the_version_that_a_server_has_is_asked_for_once() -> None:
    server = Server(with_services("b.B", "a.A"), version="grpc.reflection.v1alpha")
    channel, asked = asking(server)
    with channel:
        assert asked.version is None
        assert asked.services() == ["b.B", "a.A"]
        assert asked.version == "grpc.reflection.v1alpha"
        assert Schema(asked).services() == ["a.A", "b.B"]
    assert server.asked == [
        ("grpc.reflection.v1", "list_services: *"),
        ("grpc.reflection.v1alpha", "list_services: *"),
        ("grpc.reflection.v1alpha", "list_services: *"),
    ]
    assert asked.name == "the reflection of localhost:1"


def test_a_server_that_has_no_reflection() -> None:
    channel, asked = asking(Server(version="none"))
    with channel, pytest.raises(CommandError) as raised:
        asked.services()
    assert str(raised.value) == (
        "localhost:1 has no reflection (neither grpc.reflection.v1 nor grpc.reflection.v1alpha): "
        "give --proto or --descriptor-set"
    )
    assert asked.version is None


def test_a_file_is_asked_for_once() -> None:
    server = Server(with_files(DESCRIBED, OTHER))
    channel, asked = asking(server)
    with channel:
        assert asked.FindFileByName("a.proto") == DESCRIBED
        assert asked.FindFileByName("a.proto") is asked.FindFileByName("a.proto")
        # It has come with the first.
        assert asked.FindFileByName("b.proto") == OTHER
        assert server.asked == [("grpc.reflection.v1", "file_by_filename: a.proto")]
        assert asked.FindFileContainingSymbol("p.M") == DESCRIBED
        assert server.asked[1:] == [("grpc.reflection.v1", "file_containing_symbol: p.M")]


def test_a_file_of_protobuf_that_a_server_does_not_know() -> None:
    failed = reflection_pb2.ServerReflectionResponse()
    failed.error_response.error_message = "not found"
    server = Server(failed)
    channel, asked = asking(server)
    with channel:
        for _ in range(2):
            assert asked.FindFileByName("google/protobuf/any.proto").package == "google.protobuf"
        assert len(server.asked) == 1
        with pytest.raises(KeyError):
            asked.FindFileByName("c.proto")
        with pytest.raises(KeyError, match="not found"):
            asked.FindFileContainingSymbol("google.protobuf.Any")


@pytest.mark.parametrize("count", [0, 2])
def test_one_question_has_one_answer(count: int) -> None:
    channel, asked = asking(Server(*[with_services("a.A")] * count))
    with channel, pytest.raises(CommandError) as raised:
        asked.services()
    assert str(raised.value) == f"the reflection of localhost:1 has sent {count} answers to one question"


def test_an_answer_without_a_file() -> None:
    channel, asked = asking(Server(with_files()))
    with channel, pytest.raises(KeyError, match="no file"):
        asked.FindFileContainingSymbol("p.M")


def test_another_status_of_reflection_is_told() -> None:
    def refuse(hop: Hop) -> None:
        hop.end(StatusCode.PERMISSION_DENIED, "not you")

    with Channel("localhost:1", tls=False, interceptors=[Only(on_start=refuse)]) as channel:
        asked = reflection.Reflection(channel, [], None)
        with pytest.raises(RpcError, match="not you"):
            asked.services()
        assert asked.version is None


# ---- Messages ----


@pytest.fixture
def known() -> Schema:
    """A schema with p.M, which has the fields "name" and "any"."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    file.dependency.append("google/protobuf/any.proto")
    message = file.message_type.add(name="M")
    message.field.add(name="name", number=1, type=9, label=1)
    message.field.add(name="any", number=2, type=11, label=1, type_name=".google.protobuf.Any")
    file.service.add(name="S").method.add(name="C", input_type=".p.M", output_type=".p.M")
    return Schema(files.Files("m", [descriptor_pb2.FileDescriptorSet(file=[file])]))


def test_messages_and_json(known: Schema) -> None:
    descriptor = known.method("p.S/C").input_type
    made = messages.Messages(known)
    message = made.parser(descriptor)((1, '{"name": "ü"}'))
    assert message.SerializeToString() == b"\x0a\x02\xc3\xbc"
    assert made.text(message) == '{"name": "ü"}'
    assert made.text(message, 2) == '{\n  "name": "ü"\n}'
    empty = made.decoder(descriptor)(b"")
    assert made.text(empty) == "{}"
    assert messages.Messages(known, defaults=True).text(empty) == '{"name": ""}'
    said = r"^the request in line 3 is no p\.M: .* no field named .*; it has name, any$"
    with pytest.raises(CommandError, match=said):
        made.parser(descriptor)((3, '{"nam": ""}'))
    allowing = messages.Messages(known, unknown=True)
    assert allowing.parser(descriptor)((1, '{"nam": ""}')) == empty


def test_a_message_that_json_has_no_form_for(known: Schema) -> None:
    made = messages.Messages(known)
    message = made.parser(known.method("p.S/C").input_type)((1, "{}"))
    message.any.type_url = "type.googleapis.com/no.Such"
    message.any.value = b"x"
    with pytest.raises(CommandError, match=r"^a p\.M can't be shown as JSON: "):
        made.text(message)


def test_details_as_json(known: Schema) -> None:
    made = messages.Messages(known)
    # One that the package knows, one of the schema, and one that nothing describes.
    info = Detail("type.googleapis.com/google.rpc.ErrorInfo", b"", {"reason": "R"})
    assert made.detail(info) == {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "R"}
    own = Detail("type.googleapis.com/p.M", b"\x0a\x01x")
    assert made.detail(own) == {"@type": "type.googleapis.com/p.M", "name": "x"}
    other = Detail("type.googleapis.com/p.None", b"\x00\xff")
    assert made.detail(other) == {"@type": "type.googleapis.com/p.None", "base64": "AP8="}
    wrong = Detail("type.googleapis.com/p.M", b"\xff")
    assert made.detail(wrong) == {"@type": "type.googleapis.com/p.M", "base64": "/w=="}
