"""`penstock describe` prints a description as the part of a .proto file that it comes from, to the letter; and
`--msg-template` an example with each field."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from cli_helpers import cli, printed, refused

# Both files are written as the command prints them, so that what it prints can be found in them.
OLD = """syntax = "proto2";
package old.kinds;
import "google/protobuf/any.proto";

// A message
//
//   with all that can be in one.
message All {
  option deprecated = true;
  // Of Inner.
  message Inner {
    message Deep {
      // Of Kind.
      enum Kind {
        DEEP = 0;
      }
      optional string text = 1;
    }
    optional old.kinds.All.Inner.Deep deep = 1;
    repeated old.kinds.All.Inner.Deep deeps = 2;
    extend old.kinds.Open {
      repeated int32 inmost = 120;
    }
  }
  // Of Colour.
  enum Colour {
    option allow_alias = true;
    // Of RED.
    RED = 0;
    ROUGE = 0 [deprecated = true];
    LAST = -3;
    reserved 5, 7 to 9, 100 to max;
    reserved "GREEN", "BLUE";
  }
  enum Bare {
    NONE = 0;
  }
  // Of double_.
  required double double_ = 1 [default = 1.5];
  optional float float_ = 2;
  optional int64 int64_ = 3 [default = -7];
  optional uint64 uint64_ = 4;
  optional int32 int32_ = 5 [deprecated = true];
  optional fixed64 fixed64_ = 6;
  optional fixed32 fixed32_ = 7;
  optional bool bool_ = 8 [default = true];
  optional string string_ = 9 [default = "x y"];
  optional bytes bytes_ = 12 [default = "z"];
  optional uint32 uint32_ = 13;
  optional old.kinds.All.Colour enum_ = 14 [default = ROUGE];
  optional sfixed32 sfixed32_ = 15;
  optional sfixed64 sfixed64_ = 16;
  optional sint32 sint32_ = 17 [default = 4, deprecated = true];
  optional sint64 sint64_ = 18;
  repeated int32 packed = 19 [packed = true];
  repeated int32 loose = 20 [deprecated = true, packed = false];
  repeated string repeated_ = 21;
  map<string, old.kinds.All.Inner> named = 22;
  map<int32, old.kinds.All.Colour> coloured = 23;
  map<bool, bytes> plain = 24;
  oneof way {
    // Of left.
    bool left = 31;
    google.protobuf.Any right = 32;
  }
  optional int32 between = 33;
  oneof other {
    string only = 34;
  }
  extend old.kinds.Open {
    optional string nested = 110;
  }
  extensions 100 to 199;
  extensions 300;
  extensions 1000 to max;
  reserved 40, 50 to 52;
  reserved "gone", "past";
}

message Open {
  extensions 100 to max;
}

message Empty {
}

message Ends {
  reserved 7 to max;
}

message NearlyOpen {
  extensions 7 to 536870910;
}

message NearlyEnds {
  reserved 7 to 536870910;
}

enum Top {
  ZERO = 0;
  ONE = 1;
  reserved 7 to 2147483646;
}

extend old.kinds.Open {
  optional bytes outside = 101 [default = "o"];
}

// Of Calls.
service Calls {
  // Of Get.
  rpc Get(old.kinds.All) returns (old.kinds.Open);
  rpc Put(stream old.kinds.All) returns (old.kinds.Open) { option deprecated = true; }
  rpc List(old.kinds.All) returns (stream old.kinds.Open);
  rpc Talk(stream old.kinds.All) returns (stream old.kinds.Open);
}

service Bare {
}
"""
NEW = """syntax = "proto3";

message New {
  enum Kind {
    NONE = 0;
    SOME = 1;
  }
  int32 bare = 1;
  optional int32 known = 2;
  repeated int64 many = 3 [packed = false];
  oneof way {
    New.Kind kind = 4;
    New inner = 5;
  }
  map<string, int32> counts = 6;
}

enum Loose {
  option allow_alias = true;
  NO = 0;
  NEVER = 0;
}

service Root {
  rpc Call(New) returns (New);
}
"""
KINDS = [
    ("old.kinds.All", "message"),
    ("old.kinds.Open", "message"),
    ("old.kinds.Empty", "message"),
    ("old.kinds.Ends", "message"),
    ("old.kinds.NearlyOpen", "message"),
    ("old.kinds.NearlyEnds", "message"),
    ("old.kinds.Top", "enum"),
    ("old.kinds.outside", "extension"),
    ("old.kinds.Calls", "service"),
    ("old.kinds.Bare", "service"),
    ("old.kinds.All.Inner", "message"),
    ("old.kinds.All.Inner.Deep", "message"),
    ("old.kinds.All.Inner.Deep.Kind", "enum"),
    ("old.kinds.All.Colour", "enum"),
    ("old.kinds.All.Bare", "enum"),
    ("old.kinds.All.nested", "extension"),
    ("old.kinds.All.Inner.inmost", "extension"),
    ("old.kinds.Calls.Get", "method"),
    ("old.kinds.Calls.Put", "method"),
    ("old.kinds.Calls.List", "method"),
    ("old.kinds.Calls.Talk", "method"),
    ("New", "message"),
    ("New.Kind", "enum"),
    ("Loose", "enum"),
    ("Root", "service"),
    ("Root.Call", "method"),
]
# How each begins in its file.
WORDS = {"message": "message", "enum": "enum", "service": "service", "method": "rpc"}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Tuple[str, ...]:
    """The flags that name a set with both files."""
    folder = tmp_path_factory.mktemp("described")
    (folder / "old.proto").write_text(OLD)
    (folder / "new.proto").write_text(NEW)
    made = str(folder / "set")
    command = (sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={made}")
    wanted = ("--include_source_info", "--include_imports", "old.proto", "new.proto")
    subprocess.run([*command, *wanted], check=True)
    return ("--descriptor-set", made)


def part(name: str, kind: str) -> str:
    """The part of a file that describes ``name``, with the comment before it."""
    lines = (OLD if name.startswith("old.") else NEW).split("\n")
    short = name.rpartition(".")[2]
    if kind == "extension":
        (field,) = (at for at, line in enumerate(lines) if f" {short} = " in line)
        begin, end = field - 1, field + 1
    else:
        words = (f"{WORDS[kind]} {short} ", f"{WORDS[kind]} {short}(")
        begin = next(at for at, line in enumerate(lines) if line.lstrip().startswith(words))
        indent = len(lines[begin]) - len(lines[begin].lstrip())
        end = begin if kind == "method" else lines.index(" " * indent + "}", begin)
    while begin and lines[begin - 1].lstrip().startswith("//"):
        begin -= 1
    return textwrap.dedent("\n".join(lines[begin : end + 1]))


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_text_is_that_of_the_file(described: Tuple[str, ...], name: str, kind: str) -> None:
    file = "old.proto" if name.startswith("old.") else "new.proto"
    text = part(name, kind)
    assert printed("describe", *described, name) == f"// {name}, {kind} in {file}\n{text}\n"
    (view,) = cli("describe", "--json", *described, name).records
    descriptor = view.pop("descriptor")
    assert view == {"name": name, "kind": kind, "file": file, "text": text}
    assert descriptor.get("name") == name.rpartition(".")[2]


def test_the_text_of_each_field_is_its_line(described: Tuple[str, ...]) -> None:
    lines = [line.strip() for line in part("old.kinds.All", "message").split("\n")]
    fields = [line for line in lines if " = " in line and line.startswith(("optional ", "required "))]
    fields = [line for line in fields if line.split()[2] not in ("text", "deep", "inmost", "nested")]
    assert len(fields) == 17
    for line in fields:
        name = line.split()[2]
        comment = ["// Of double_."] if name == "double_" else []
        said = [f"// old.kinds.All.{name}, field in old.proto", *comment, line]
        assert printed("describe", *described, f"old.kinds.All.{name}").splitlines() == said
    left = printed("describe", *described, "old.kinds.All.left").splitlines()
    assert left == ["// old.kinds.All.left, field in old.proto", "// Of left.", "bool left = 31;"]
    known = printed("describe", *described, "New.known").splitlines()
    assert known == ["// New.known, field in new.proto", "optional int32 known = 2;"]
    assert printed("describe", *described, "New.kind").splitlines()[1] == "New.Kind kind = 4;"


def test_without_a_symbol_each_service_is_told(described: Tuple[str, ...]) -> None:
    names = ("Root", "old.kinds.Bare", "old.kinds.Calls")
    files = ("new.proto", "old.proto", "old.proto")
    texts = [f"// {name}, service in {file}\n{part(name, 'service')}\n" for name, file in zip(names, files)]
    assert printed("describe", *described) == "".join(texts)
    # A word with a colon is an address, which nobody asks.
    assert printed("describe", *described, "localhost:1") == "".join(texts)
    assert printed("list", *described) == "".join(f"{name}\n" for name in names)
    assert printed("list", *described, "localhost:1") == "".join(f"{name}\n" for name in names)
    # None of them is a message.
    assert printed("describe", "--msg-template", *described) == "".join(texts)


def test_the_methods_of_each_kind(described: Tuple[str, ...]) -> None:
    kinds = {"Get": "unary", "Put": "client stream", "List": "server stream", "Talk": "bidi"}
    (view,) = cli("list", "--json", *described, "old.kinds.Calls").records
    assert view == {
        "service": "old.kinds.Calls",
        "methods": [
            {
                "name": name,
                "path": f"/old.kinds.Calls/{name}",
                "kind": kind,
                "request": "old.kinds.All",
                "response": "old.kinds.Open",
            }
            for name, kind in kinds.items()
        ],
    }
    assert printed("list", *described, "old.kinds.Calls") == "".join(f"old.kinds.Calls/{name}\n" for name in kinds)
    assert printed("list", "-v", *described, "old.kinds.Calls") == (
        "method                kind           request        response\n"
        "old.kinds.Calls/Get   unary          old.kinds.All  old.kinds.Open\n"
        "old.kinds.Calls/Put   client stream  old.kinds.All  old.kinds.Open\n"
        "old.kinds.Calls/List  server stream  old.kinds.All  old.kinds.Open\n"
        "old.kinds.Calls/Talk  bidi           old.kinds.All  old.kinds.Open\n"
    )
    assert printed("list", *described, "old.kinds.Bare") == ""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("old.kinds.Top", "enum"),
        ("old.kinds.Calls", "service"),
        ("old.kinds.Calls.Get", "method"),
        ("old.kinds.outside", "extension"),
        ("old.kinds.All.left", "field"),
    ],
)
def test_only_a_message_has_an_example(described: Tuple[str, ...], name: str, kind: str) -> None:
    said = refused(2, "describe", "--msg-template", *described, name)
    assert said == f"--msg-template: {name} is no message, but {kind}"


EXAMPLE: Dict[str, Any] = {
    "double": 0,
    "float": 0,
    "int64": "0",
    "uint64": "0",
    "int32": 0,
    "fixed64": "0",
    "fixed32": 0,
    "bool": False,
    "string": "",
    "bytes": "",
    "uint32": 0,
    "enum": "RED",
    "sfixed32": 0,
    "sfixed64": "0",
    "sint32": 0,
    "sint64": "0",
    "packed": [0],
    "loose": [0],
    "repeated": [""],
    "named": {"": {"deep": {"text": ""}, "deeps": [{"text": ""}]}},
    "coloured": {"0": "RED"},
    "plain": {"false": ""},
    "left": False,
    "right": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}},
    "between": 0,
    "only": "",
}


def test_an_example_has_each_field(described: Tuple[str, ...]) -> None:
    (view,) = cli("describe", "--json", "--msg-template", *described, "old.kinds.All").records
    assert view["template"] == EXAMPLE
    said = printed("describe", "--msg-template", *described, "old.kinds.All")
    begin = f"// old.kinds.All, message in old.proto\n{part('old.kinds.All', 'message')}\n"
    assert said == f"{begin}\n{json.dumps(EXAMPLE, indent=2)}\n"
    # A message within itself is empty.
    (view,) = cli("describe", "--json", "--msg-template", *described, "New").records
    assert view["template"] == {"bare": 0, "known": 0, "many": ["0"], "kind": "NONE", "inner": {}, "counts": {"": 0}}


SPECIAL = {
    "Any": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}},
    "Duration": "0s",
    "FieldMask": "",
    "ListValue": [],
    "Struct": {},
    "Timestamp": "1970-01-01T00:00:00Z",
    "Value": None,
    "BoolValue": False,
    "BytesValue": "",
    "DoubleValue": 0,
    "FloatValue": 0,
    "Int32Value": 0,
    "Int64Value": "0",
    "StringValue": "",
    "UInt32Value": 0,
    "UInt64Value": "0",
    "Empty": {},
}


def test_the_types_with_a_form_of_their_own(tmp_path: Path) -> None:
    names = ("any", "duration", "field_mask", "struct", "timestamp", "wrappers", "empty")
    imports = "".join(f'import "google/protobuf/{name}.proto";\n' for name in names)
    fields = "".join(f"google.protobuf.{name} f{at} = {at};\n" for at, name in enumerate(SPECIAL, 1))
    (tmp_path / "special.proto").write_text(f'syntax = "proto3";\n{imports}message Special {{\n{fields}}}\n')
    flags = ("--import-path", str(tmp_path), "--proto", "special.proto")
    (view,) = cli("describe", "--json", "--msg-template", *flags, "Special").records
    assert view["template"] == {f"f{at}": value for at, value in enumerate(SPECIAL.values(), 1)}


NEAR: List[Tuple[Tuple[str, ...], str]] = [
    (("list", "old.kinds.Cals"), "no service 'old.kinds.Cals'; did you mean 'old.kinds.Calls'?"),
    (("list", "Bare"), "no service 'Bare'; did you mean 'old.kinds.Bare'?"),
    (("list", "x"), "no service 'x'; there are Root, old.kinds.Bare, old.kinds.Calls"),
    (("describe", "old.kinds.Nothing"), "nothing has the name 'old.kinds.Nothing'; did you mean 'old.kinds.Bare'?"),
    (("describe", "old.kinds.Top.No"), "nothing has the name 'old.kinds.Top.No'; did you mean 'old.kinds.Bare'?"),
    (("describe", "qqqq"), "nothing has the name 'qqqq'; there are Root, old.kinds.Bare, old.kinds.Calls"),
]


@pytest.mark.parametrize(("words", "said"), NEAR)
def test_a_name_that_nothing_has(described: Tuple[str, ...], words: Tuple[str, ...], said: str) -> None:
    assert refused(1, words[0], *described, words[1]) == f"{described[1]}: {said}"
