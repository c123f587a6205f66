"""`penstock list`, `describe` and `health`, and where descriptions come from: reflection, .proto files, sets."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2

import penstock
from cli_helpers import GREETER, PROTOS, cli, printed, refused
from conftest import PROTO
from penstock._cli import health, reflection

METHODS = [f"{GREETER}/{name}" for name in ("SayHello", "SayHelloStreamReply", "SayHelloBidiStream")]


@pytest.fixture
def plain(servers: Dict[str, str]) -> str:
    return servers["command_plain"]


# ---- list ----


def test_the_services(plain: str) -> None:
    names = ["grpc.reflection.v1.ServerReflection", "grpc.testing.TestService", GREETER, "penstock.Echo"]
    assert printed("list", "--plaintext", plain).split() == names
    assert cli("list", "--json", "--plaintext", plain).records == [{"services": names}]


def test_the_services_of_a_server_that_has_v1alpha_only(servers: Dict[str, str]) -> None:
    names = ["grpc.reflection.v1alpha.ServerReflection", GREETER]
    assert printed("list", "--plaintext", servers["packages"]).split() == names


def test_the_methods_of_a_service(plain: str) -> None:
    assert printed("list", "--plaintext", plain, GREETER).split() == METHODS
    (view,) = cli("list", "--json", "--plaintext", plain, GREETER).records
    assert view["service"] == GREETER
    assert view["methods"][2] == {
        "name": "SayHelloBidiStream",
        "path": f"/{METHODS[2]}",
        "kind": "bidi",
        "request": "helloworld.HelloRequest",
        "response": "helloworld.HelloReply",
    }
    title, *rows = printed("list", "-v", "--plaintext", plain, GREETER).splitlines()
    assert title.split() == ["method", "kind", "request", "response"]
    assert rows[0].split() == [METHODS[0], "unary", "helloworld.HelloRequest", "helloworld.HelloReply"]


def test_reflection_over_tls(servers: Dict[str, str], certificates: Path) -> None:
    roots = ("--cacert", str(certificates / "ca.pem"))
    assert GREETER in printed("list", *roots, servers["command_tls"])
    files = ("--cert", str(certificates / "client.pem"), "--key", str(certificates / "client.key"))
    assert "rpc SayHello" in printed("describe", *roots, *files, servers["command_mtls"], GREETER)


def test_without_an_address() -> None:
    assert printed("list", *PROTOS) == f"{GREETER}\n"
    assert printed("list", *PROTOS, GREETER).split() == METHODS
    assert printed("list", *PROTOS, "localhost:1", GREETER).split() == METHODS
    assert "ADDRESS is missing" in refused(2, "list")


def test_names_that_nothing_has(plain: str) -> None:
    said = refused(1, "list", "--plaintext", plain, "helloworld.Greeted")
    assert said == f"the reflection of {plain}: no service 'helloworld.Greeted'; did you mean 'helloworld.Greeter'?"
    assert "; there are grpc.reflection.v1" in refused(1, "list", "--plaintext", plain, "x")
    assert "nothing has the name 'no.Thing'" in refused(1, "describe", "--plaintext", plain, "no.Thing")


def test_a_server_without_reflection(server: str) -> None:
    said = refused(1, "list", "--plaintext", server)
    assert said.startswith(f"{server} has no reflection (neither grpc.reflection.v1 nor grpc.reflection.v1alpha)")


def test_reflection_with_metadata_of_its_own(peer: Any) -> None:
    refused(1, "list", "--plaintext", "--reflect-header", "x-why: reflection", peer.target)
    assert peer.saw()["path"].startswith("/grpc.reflection.v1.")


# ---- describe ----


def test_a_service_as_text(plain: str) -> None:
    assert printed("describe", "--plaintext", plain, GREETER).splitlines() == [
        f"// {GREETER}, service in helloworld.proto",
        "service Greeter {",
        "  rpc SayHello(helloworld.HelloRequest) returns (helloworld.HelloReply);",
        "  rpc SayHelloStreamReply(helloworld.HelloRequest) returns (stream helloworld.HelloReply);",
        "  rpc SayHelloBidiStream(stream helloworld.HelloRequest) returns (stream helloworld.HelloReply);",
        "}",
    ]


def test_everything(plain: str) -> None:
    ran = cli("describe", "--plaintext", plain)
    assert [line for line in ran.out.splitlines() if line.startswith("service")] == [
        "service TestService {",
        "service Greeter {",
        "service Echo {",
    ]
    assert (ran.code, ran.err.count("\n")) == (0, 1)
    assert "'grpc.reflection.v1.ServerReflection', which it lists, but does not describe" in ran.err


@pytest.mark.parametrize(
    ("symbol", "kind", "text"),
    [
        (f"{GREETER}.SayHello", "method", "rpc SayHello(helloworld.HelloRequest) returns (helloworld.HelloReply);"),
        (f"{GREETER}/SayHello", "method", "rpc SayHello(helloworld.HelloRequest) returns (helloworld.HelloReply);"),
        (".helloworld.HelloRequest.name", "field", "string name = 1;"),
        ("grpc.testing.PayloadType", "enum", "enum PayloadType {\n  COMPRESSABLE = 0;\n}"),
    ],
)
def test_symbols(plain: str, symbol: str, kind: str, text: str) -> None:
    (view,) = cli("describe", "--json", "--plaintext", plain, symbol).records
    assert (view["kind"], view["text"]) == (kind, text)
    assert view["descriptor"]["name"] == view["name"].rpartition(".")[2]


def test_an_example_of_a_message(plain: str) -> None:
    flags = ("describe", "--plaintext", "--msg-template", plain)
    out = printed(*flags, "grpc.testing.StreamingOutputCallRequest")
    assert "\n}\n\n{\n" in out
    example = json.loads(out[out.index("\n{\n") :])
    assert example["responseParameters"] == [{"size": 0, "intervalUs": 0, "compressed": {"value": False}}]
    (view,) = cli(*flags, "--json", "helloworld.HelloRequest").records
    assert view["template"] == {"name": ""}
    assert "is no message, but service" in refused(2, *flags, GREETER)


EVERYTHING = """// What a .proto file can have.
syntax = "proto2";
package all.of;
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";

// A node.
message Node {
  // Its name.
  required string name = 1 [default = "x"];
  optional int64 count = 2 [deprecated = true];
  repeated Node children = 3;
  map<string, Node> named = 4;
  oneof way {
    // One way.
    bool left = 5;
    google.protobuf.Any right = 6;
  }
  optional google.protobuf.Timestamp at = 7;
  enum Colour {
    option allow_alias = true;
    RED = 0;
    ROUGE = 0;
    reserved 5, 7 to 9;
    reserved "GREEN";
  }
  message Inner {
    repeated fixed32 bits = 1 [packed = true];
  }
  optional Inner inner = 8;
  extensions 100 to max;
  reserved 20, 30 to 40;
  reserved "old";
  optional Colour colour = 9 [default = RED];
}

extend Node {
  optional string note = 100;
}

service Nodes {
  rpc Old(Node) returns (stream Node) { option deprecated = true; }
}
"""


@pytest.fixture
def everything(tmp_path: Path) -> List[str]:
    (tmp_path / "all.proto").write_text(EVERYTHING)
    return ["--import-path", str(tmp_path), "--proto", "all.proto"]


def test_a_text_is_parsed_to_the_same_description(everything: List[str], tmp_path: Path) -> None:
    """The output of describe is a .proto file again, with the same description."""
    parts = ["all.of.Node", "all.of.note", "all.of.Nodes"]
    texts = [printed("describe", *everything, part) for part in parts]
    again = tmp_path / "again"
    again.mkdir()
    head = EVERYTHING[: EVERYTHING.index("// A node.")]
    (again / "all.proto").write_text(head + "\n".join(text.partition("\n")[2] for text in texts))
    flags = ("--import-path", str(again), "--proto", "all.proto")
    for part in parts:
        (one,), (other,) = (cli("describe", "--json", *given, part).records for given in (everything, flags))
        for view in (one, other):
            # The order of these does not matter.
            view["descriptor"].get("nestedType", []).sort(key=lambda nested: nested["name"])
        assert one == other
    assert "  // Its name.\n" in texts[0]
    assert "    // One way.\n" in texts[0]


COMMENTED = """syntax = "proto2";
package said;
// Of said.A.
message A {
  // Of said.A.field.
  optional int32 field = 1;
  oneof way {
    // Of said.A.left.
    int32 left = 2;
  }
  // Of said.A.Inner.
  message Inner {
    optional int32 bare = 1;
    // Of said.A.Inner.deep.
    optional int32 deep = 2;
  }
  // Of said.A.Kind.
  enum Kind { NONE = 0; }
  extend Open {
    // Of said.A.inside.
    optional int32 inside = 100;
  }
}
message Open { extensions 100 to max; }
// Of said.Colour.
enum Colour { RED = 0; }
extend Open {
  // Of said.outside.
  optional int32 outside = 101;
}
// Of said.S.
service S {
  // Of said.S.Call.
  rpc Call(A) returns (A);
}
"""


def test_each_symbol_has_its_comment(tmp_path: Path) -> None:
    (tmp_path / "said.proto").write_text(COMMENTED)
    symbols = re.findall(r"// Of ([\w.]+\w)\.\n", COMMENTED)
    assert len(symbols) == 11
    for symbol in symbols:
        text = printed("describe", "--import-path", str(tmp_path), "--proto", "said.proto", symbol)
        assert text.splitlines()[1] == f"// Of {symbol}.", text
    assert "//" not in printed("describe", "--import-path", str(tmp_path), "--proto", "said.proto", "said.Open")[2:]
    # A message, and a service, has the comments of all that is in it.
    for whole in ("said.A", "said.S"):
        text = printed("describe", "--import-path", str(tmp_path), "--proto", "said.proto", whole)
        assert sorted(re.findall(r"// Of ([\w.]+\w)\.\n", text)) == sorted(
            symbol for symbol in symbols if symbol == whole or symbol.startswith(f"{whole}.")
        )


def test_an_example_with_special_types(everything: List[str]) -> None:
    (view,) = cli("describe", "--json", "--msg-template", *everything, "all.of.Node").records
    example = view["template"]
    assert example["at"] == "1970-01-01T00:00:00Z"
    assert example["children"] == [{}]
    assert example["named"] == {"": {}}
    assert (example["count"], example["colour"], example["left"]) == ("0", "RED", False)


# ---- Files ----


def test_a_proto_file_by_its_whole_path() -> None:
    assert printed("list", "--proto", str(PROTO / "helloworld.proto")) == f"{GREETER}\n"


@pytest.mark.parametrize("with_protoc", [True, False])
def test_either_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_protoc: bool) -> None:
    """protoc on PATH, or that of grpcio-tools; both name the file and the line of an error."""
    if with_protoc:
        compiler = tmp_path / "protoc"
        found = shutil.which("protoc")
        assert found is not None
        compiler.symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "wrong.proto").write_text('syntax = "proto3";\nmessage {}\n')
    assert printed("list", *PROTOS) == f"{GREETER}\n"
    assert "wrong.proto:2:9: Expected message name." in refused(1, "list", "--proto", str(tmp_path / "wrong.proto"))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    said = refused(1, "list", *PROTOS)
    assert said.startswith("--proto needs protoc, which is not on PATH, or the package grpcio-tools")


def test_a_protobuf_that_is_too_old(monkeypatch: pytest.MonkeyPatch, plain: str) -> None:
    monkeypatch.delattr(message_factory, "GetMessageClass")
    said = refused(1, "call", "-plaintext", "-d", "{}", plain, f"{GREETER}/SayHello")
    assert "is too old: 4.22 or later is needed" in said


def test_files_that_are_wrong(tmp_path: Path) -> None:
    assert "no.proto: No such file" in refused(1, "list", "--proto", "no.proto")
    assert "--descriptor-set no.set: No such file" in refused(1, "list", "--descriptor-set", "no.set")
    wrong = tmp_path / "wrong.set"
    wrong.write_bytes(b"\xff")
    assert "no FileDescriptorSet" in refused(1, "list", "--descriptor-set", str(wrong))
    wrong.write_bytes(b"")
    assert "it has no file" in refused(1, "list", "--descriptor-set", str(wrong))
    assert "one of them is enough" in refused(2, "list", "--descriptor-set", str(wrong), *PROTOS)


def test_without_protobuf(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    said = refused(1, "list", "--plaintext", server)
    assert said.startswith("messages in JSON need the package protobuf, and ")
    assert said.endswith("; install it: pip install protobuf")


# ---- Reflection's messages ----


def test_the_messages_of_reflection_are_grpc_s() -> None:
    """The description in the package has the numbers and types of gRPC's own."""
    made = reflection._description()
    theirs = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(theirs)
    for message in made.message_type:
        (other,) = (one for one in theirs.message_type if one.name == message.name)
        known = {field.name: (field.number, field.type, field.label) for field in other.field}
        assert {field.name: known[field.name] for field in message.field} == {
            field.name: (field.number, field.type, field.label) for field in message.field
        }


def test_an_answer_that_can_not_be_decoded() -> None:
    class Broken(penstock.Interceptor):
        def on_start(self, hop: penstock.Hop) -> penstock.Verdict:
            answer = reflection_pb2.ServerReflectionResponse()
            answer.file_descriptor_response.file_descriptor_proto.append(b"\xff")
            hop.deliver_headers({})
            hop.deliver_message(answer.SerializeToString())
            hop.deliver_status(penstock.StatusCode.OK)
            return penstock.Verdict.TAKE

    with penstock.Channel("localhost:1", tls=False, interceptors=[Broken()]) as channel:
        asked = reflection.Reflection(channel, [], None)
        with pytest.raises(Exception, match="has sent a description that can't be decoded"):
            asked.FindFileByName("x.proto")


def test_an_error_of_the_server_is_told() -> None:
    class Refuses(penstock.Interceptor):
        def on_start(self, hop: penstock.Hop) -> penstock.Verdict:
            answer = reflection_pb2.ServerReflectionResponse()
            answer.error_response.error_message = "only for friends"
            hop.deliver_headers({})
            hop.deliver_message(answer.SerializeToString())
            hop.deliver_status(penstock.StatusCode.OK)
            return penstock.Verdict.TAKE

    with penstock.Channel("localhost:1", tls=False, interceptors=[Refuses()]) as channel:
        asked = reflection.Reflection(channel, [], None)
        with pytest.raises(KeyError, match="only for friends"):
            asked.FindFileContainingSymbol("x.Y")


def test_descriptions_are_those_of_the_server(plain: str) -> None:
    with penstock.Channel(plain, tls=False) as channel:
        asked = reflection.Reflection(channel, [], 20)
        pool = descriptor_pool.DescriptorPool(asked)
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName("helloworld.HelloRequest"))(name="you")
        assert message.SerializeToString() == b"\x0a\x03you"
        assert asked.version == "grpc.reflection.v1"
        assert asked.FindFileByName("google/protobuf/any.proto").package == "google.protobuf"
        with pytest.raises(KeyError):
            asked.FindFileByName("no.proto")


# ---- health ----


@pytest.mark.parametrize(
    ("service", "status", "code"),
    [
        ("", "SERVING", 0),
        (GREETER, "SERVING", 0),
        ("penstock.Echo", "NOT_SERVING", 3),
        ("none", "SERVICE_UNKNOWN", 3),
    ],
)
def test_health(plain: str, service: str, status: str, code: int) -> None:
    words = ("health", "--plaintext", plain, *([service] if service else []))
    assert cli(*words) == (code, f"{status}\n", "")
    assert cli(*words, "--json").records == [{"service": service, "status": status}]


@pytest.mark.parametrize(
    ("response", "name"),
    [
        # Proto3 does not send a field that is 0.
        (b"", "UNKNOWN"),
        (b"\x08\x00", "UNKNOWN"),
        (b"\x08\x01", "SERVING"),
        (b"\x08\x02", "NOT_SERVING"),
        (b"\x08\x03", "SERVICE_UNKNOWN"),
        (b"\x08\x04", "status 4"),
        (b"\x08", "UNKNOWN"),
    ],
)
def test_names_of_health(response: bytes, name: str) -> None:
    assert health.status(response) == name


def test_health_over_tls(servers: Dict[str, str], certificates: Path) -> None:
    assert printed("health", "-cacert", str(certificates / "ca.pem"), servers["command_tls"]) == "SERVING\n"


def test_health_that_can_not_be_asked(server: str) -> None:
    said = refused(1, "health", "--plaintext", server)
    assert said == f"{server} has no grpc.health.v1.Health: it can't be asked"
    assert "Connection refused" in refused(64 + 14, "health", "--plaintext", "127.0.0.1:1")


def test_health_watched_until_the_deadline(plain: str) -> None:
    ran = cli("health", "--plaintext", "--watch", "-max-time", "0.3", plain, "penstock.Echo")
    assert (ran.code, ran.out) == (64 + 4, "NOT_SERVING\n")


# ---- The command itself ----


def test_help_and_unknown_commands() -> None:
    assert "usage: penstock COMMAND" in printed("--help")
    told = printed("call", "-help")
    assert "usage: penstock call [flags] ADDRESS METHOD" in told
    # A flag that takes a value names it.
    assert re.search(r"^  --plaintext +no TLS$", told, re.MULTILINE)
    assert re.search(r"^  --cacert FILE +the roots", told, re.MULTILINE)
    assert refused(2, "cal") == "no command 'cal'; did you mean call?"
    assert refused(2, "x").startswith("no command 'x'; there are call, list")
    ran = cli()
    assert ran.code == 2
    assert "usage: penstock COMMAND" in ran.out
