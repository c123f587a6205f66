"""`penstock call`, against grpcio's server with reflection: docs/cli.md."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
from grpc_tools import protoc

import penstock
from cli_helpers import GREETER, HELLO, PROTOS, cli, printed, refused, started
from conftest import PROTO

TESTS = "grpc.testing.TestService"
YOU = ("-d", '{"name": "you"}')


@pytest.fixture
def plain(servers: Dict[str, str]) -> str:
    return servers["command_plain"]


# ---- The four kinds, as a person sees them and as JSON ----


def test_a_unary_call(plain: str) -> None:
    assert printed("call", "--plaintext", *YOU, plain, HELLO) == '{"message": "Hello, you!"}\n'


@pytest.mark.parametrize("method", [f"/{HELLO}", f"{GREETER}.SayHello"])
def test_names_of_a_method(plain: str, method: str) -> None:
    assert printed("call", "-plaintext", *YOU, plain, method) == '{"message": "Hello, you!"}\n'


def test_flags_may_stand_anywhere_with_one_dash_or_two(plain: str) -> None:
    assert (
        printed("call", plain, "-plaintext", HELLO, "--data", "{}", "-max-time", "20") == '{"message": "Hello, !"}\n'
    )


def test_no_request_is_an_empty_message(plain: str) -> None:
    assert printed("call", "--plaintext", plain, HELLO, stdin="not read") == '{"message": "Hello, !"}\n'


def test_a_stream_of_responses_is_a_line_each(plain: str) -> None:
    lines = printed("call", "--plaintext", *YOU, plain, f"{GREETER}/SayHelloStreamReply").splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["Hello, you!", "Servus, you!", "Salut, you!"]


def test_a_stream_of_requests_comes_from_the_standard_input(plain: str) -> None:
    requests = '{"payload": {"body": "AAAA"}}\n\n{"payload":\n  {"body": "AAAA"}} {"payload": {"body": ""}}'
    out = printed("call", "--plaintext", plain, f"{TESTS}/StreamingInputCall", stdin=requests)
    assert json.loads(out) == {"aggregatedPayloadSize": 6}


def test_both_streams(plain: str) -> None:
    out = printed("call", "--plaintext", plain, f"{GREETER}/SayHelloBidiStream", stdin='{"name": "a"}\n{"name": "b"}')
    assert out == '{"message": "Hello, a!"}\n{"message": "Hello, b!"}\n'


@pytest.mark.parametrize("command", [("call", "-d", '{"name": "you"}'), ("describe", "--json"), ("list", "-v")])
def test_protobuf_in_pure_python(plain: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where protobuf has no compiled part, as in Alpine."""
    monkeypatch.setenv("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
    method = HELLO if command[0] == "call" else GREETER
    with started(*command, "-plaintext", plain, method, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "you" in out if command[0] == "call" else "HelloRequest" in out


def test_requests_from_a_file(plain: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.json"
    file.write_text('{"name": "filed"}')
    assert printed("call", "--plaintext", "-d", f"@{file}", plain, HELLO) == '{"message": "Hello, filed!"}\n'
    assert "no.json: No such file" in refused(1, "call", "--plaintext", "-d", "@no.json", plain, HELLO)


def test_several_requests_in_the_flag(plain: str) -> None:
    out = printed("call", "--plaintext", "-d", '{"name":"a"}{"name":"b"}', plain, f"{GREETER}/SayHelloBidiStream")
    assert out == '{"message": "Hello, a!"}\n{"message": "Hello, b!"}\n'


def test_records(plain: str) -> None:
    headers, message, end = cli("call", "--json", "--plaintext", *YOU, plain, HELLO).records
    assert headers == {"headers": {}}
    assert message == {"message": {"message": "Hello, you!"}}
    assert end["status"] == {"code": 0, "name": "OK", "message": "", "details": [], "trailers": {}}
    assert end["stats"]["received"]["messages"] == 1
    assert "trace" not in end


def test_bytes_enumerations_and_defaults(plain: str) -> None:
    request = '{"responseSize": 3, "payload": {"body": "aGk="}}'
    assert json.loads(printed("call", "--plaintext", "-d", request, plain, f"{TESTS}/UnaryCall")) == {
        "payload": {"body": "AAAA"}
    }
    full = printed("call", "--plaintext", "--emit-defaults", "-d", request, plain, f"{TESTS}/UnaryCall")
    assert json.loads(full) == {"payload": {"type": "COMPRESSABLE", "body": "AAAA"}, "username": ""}


# ---- Statuses ----


def test_a_status_with_details(plain: str) -> None:
    said = refused(64 + 9, "call", "--plaintext", "-d", '{"name": "nobody"}', plain, HELLO).split("\n")
    assert said[0] == f"/{HELLO}: FAILED_PRECONDITION: not so"
    assert json.loads(said[1]) == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "BECAUSE",
        "domain": "example.org",
    }


def test_a_status_as_a_record(plain: str) -> None:
    ran = cli("call", "--json", "--plaintext", "-d", '{"name": "nobody"}', plain, HELLO)
    end = ran.records[-1]
    assert ran.code == 73
    assert (end["status"]["name"], end["status"]["message"]) == ("FAILED_PRECONDITION", "not so")
    assert [detail["reason"] for detail in end["status"]["details"]] == ["BECAUSE"]


def test_the_deadline(peer: Any) -> None:
    slow = ("call", "--plaintext", "-max-time", "0.05", "-H", "x-delay-ms: 60000", *YOU, *PROTOS, peer.target, HELLO)
    said = refused(64 + 4, *slow)
    # The server may say it first.
    assert said.startswith(f"/{HELLO}: DEADLINE_EXCEEDED: ")


def test_nobody_listens(plain: str) -> None:
    said = refused(64 + 14, "call", "--plaintext", *YOU, "127.0.0.1:1", HELLO)
    assert said.startswith("UNAVAILABLE: could not connect to 127.0.0.1:1: Connection refused")


def test_the_time_for_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        limits = ("-connect-timeout", "0.2", "-max-time", "20")
        said = refused(64 + 14, "call", "--plaintext", *limits, *YOU, *PROTOS, address, HELLO)
    assert said.startswith(f"/{HELLO}: UNAVAILABLE: could not connect to {address}: connect timeout")


def test_messages_that_are_too_large(plain: str) -> None:
    call = (
        "call",
        "--plaintext",
        "--max-msg-sz",
        "2000",
        "-d",
        '{"responseSize": 3000}',
        plain,
        f"{TESTS}/UnaryCall",
    )
    assert "RESOURCE_EXHAUSTED" in refused(64 + 8, *call)


# ---- Requests that are wrong ----


@pytest.mark.parametrize(
    ("request_text", "said"),
    [
        (
            '{"nam": "x"}',
            'line 1 is no helloworld.HelloRequest: Message type "helloworld.HelloRequest" has no field',
        ),
        ('{"name": 5}', "line 1 is no helloworld.HelloRequest: Failed to parse name field"),
        ('{"name": ', "line 1 is no JSON: Expecting value (line 1, column 9)"),
        ("{}\n{}", f"/{HELLO} (unary) takes one request, and there is another in line 2"),
        ("{}\nx", "the request in line 2 is no JSON: Expecting value (line 2, column 1)"),
    ],
)
def test_a_request_that_is_wrong(plain: str, request_text: str, said: str) -> None:
    assert said in refused(2, "call", "--plaintext", "-d", request_text, plain, HELLO)


def test_a_wrong_request_in_a_stream_ends_the_call(plain: str) -> None:
    ran = cli("call", "--plaintext", plain, f"{GREETER}/SayHelloBidiStream", stdin='{"name": "a"}\n{"nam": "b"}\n')
    assert ran.code == 2
    assert "the request in line 2 is no helloworld.HelloRequest" in ran.err
    assert "it has name" in ran.err


def test_unknown_fields_may_be_allowed(plain: str) -> None:
    call = ("call", "--plaintext", "--allow-unknown-fields", "-d", '{"nam": "x", "name": "y"}', plain, HELLO)
    assert printed(*call) == '{"message": "Hello, y!"}\n'


# ---- Metadata ----


def test_metadata(plain: str, peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLI_TOKEN", "s3cret")
    flags = ["-H", "X-One: 1", "-H", "x-one:2", "--rpc-header", "authorization: Bearer ${CLI_TOKEN}"]
    flags += ["-H", "x-raw-bin: AAEC", "--expand-headers"]
    ran = cli("call", "--plaintext", "-v", *flags, *YOU, *PROTOS, plain, HELLO)
    assert ran.code == 0
    for line in ("x-one: 1", "x-one: 2", "authorization: Bearer s3cret", "x-raw-bin: AAEC"):
        assert f"   {line}\n" in ran.err
    assert f"-> /{HELLO} (unary) to {plain}\n" in ran.err
    assert "<- OK\n" in ran.err
    assert ", 1 attempt, messages: 1 out, 1 in, peer 127.0.0.1:" in ran.err


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("nonsense", "header 'nonsense': expected 'NAME: VALUE'"),
        ("x-bin: §", "header 'x-bin: §': the value of a -bin name is base64"),
        ("x: ${CLI_UNSET}", "header 'x: ${CLI_UNSET}': the environment has no CLI_UNSET"),
        ("bad name: x", "metadata 'bad name' can't get a value"),
    ],
)
def test_metadata_that_is_wrong(plain: str, header: str, said: str) -> None:
    assert said in refused(2, "call", "--plaintext", "--expand-headers", "-H", header, *PROTOS, plain, HELLO)


# ---- TLS ----


def test_tls(servers: Dict[str, str], certificates: Path) -> None:
    target, roots = servers["command_tls"], str(certificates / "ca.pem")
    assert printed("call", "-cacert", roots, *YOU, target, HELLO) == '{"message": "Hello, you!"}\n'
    assert printed("call", "-insecure", *YOU, target, HELLO) == '{"message": "Hello, you!"}\n'
    named = ("-cacert", roots, "-servername", "localhost", *YOU, target, HELLO)
    assert printed("call", *named) == '{"message": "Hello, you!"}\n'


def test_a_client_certificate(servers: Dict[str, str], certificates: Path) -> None:
    files = ("--cert", str(certificates / "client.pem"), "--key", str(certificates / "client.key"))
    flags = ("--cacert", str(certificates / "ca.pem"), *YOU, servers["command_mtls"], HELLO)
    assert printed("call", *files, *flags) == '{"message": "Hello, you!"}\n'
    assert "(its own certificate: --cert and --key)" in refused(64 + 14, "call", *flags)


def test_tls_that_fails_says_what_to_do(servers: Dict[str, str], certificates: Path) -> None:
    plain, tls = servers["command_plain"], servers["command_tls"]
    roots = ("--cacert", str(certificates / "ca.pem"))
    assert refused(64 + 14, "call", plain, HELLO).endswith("(for a server without TLS: --plaintext)")
    assert refused(64 + 14, "call", "--plaintext", tls, HELLO).endswith("(for a server with TLS: no --plaintext)")
    assert refused(64 + 14, "call", tls, HELLO).endswith("(for a private authority: --cacert)")
    other = refused(64 + 14, "call", *roots, "--servername", "shop.example", tls, HELLO)
    assert other.endswith("(the name in the certificate: --servername)")


def test_flags_of_tls_that_are_wrong(servers: Dict[str, str], tmp_path: Path) -> None:
    target = servers["command_tls"]
    missing = refused(2, "call", "--cacert", "no.pem", target, HELLO)
    assert missing == "--cacert no.pem: cannot read the file: No such file or directory"
    assert "only one of them is given" in refused(2, "call", "--cert", "x", target, HELLO)
    assert "--plaintext is given together" in refused(2, "call", "--plaintext", "--insecure", target, HELLO)


# ---- Protocols and addresses ----


@pytest.mark.parametrize("protocol", ["grpc", "grpc-web", "grpc-web-text", "connect"])
def test_protocols(peer: Any, protocol: str) -> None:
    call = ("call", "--plaintext", "--protocol", protocol, *YOU, *PROTOS)
    assert printed(*call, peer.target, HELLO) == '{"message": "Hello, you!"}\n'
    streamed = printed(*call, peer.target, f"{GREETER}/SayHelloStreamReply")
    assert len(streamed.splitlines()) == 3


def test_a_url_and_http2(peer: Any) -> None:
    call = ("call", "--protocol", "connect", "--http", "2", *YOU, *PROTOS, f"http://{peer.target}", HELLO)
    assert printed(*call) == '{"message": "Hello, you!"}\n'


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression(plain: str, compression: str) -> None:
    name = "x" * 2000
    flags = ("call", "--json", "--plaintext", "--compression", compression, "-d", f'{{"name": "{name}"}}')
    (*_, message, end) = cli(*flags, plain, HELLO).records
    assert message["message"]["message"] == f"Hello, {name}!"
    assert end["stats"]["sent"]["compressed_bytes"] < 1000


def test_a_proxy_that_is_not_there(plain: str) -> None:
    flags = ("call", "--plaintext", *YOU, *PROTOS)
    said = refused(64 + 14, *flags, "--proxy", "http://127.0.0.1:1", plain, HELLO)
    assert "127.0.0.1:1" in said
    assert "--proxy ftp://x: " in refused(2, *flags, "--proxy", "ftp://x", plain, HELLO)


def test_a_unix_socket(tmp_path: Path) -> None:
    from helpers import Peer

    peer = Peer(f"unix:{tmp_path}/socket")
    try:
        assert printed("call", "-unix", *YOU, *PROTOS, f"{tmp_path}/socket", HELLO) == '{"message": "Hello, you!"}\n'
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("127.1:5", HELLO), 'the target "127.1:5": its host name is wrong'),
        (("localhost:1", "SayHello"), "method 'SayHello': expected package.Service/Method"),
        (("localhost:1",), "the following arguments are required: METHOD"),
        (("--max-time", "soon", "localhost:1", HELLO), "invalid number of seconds value: 'soon'"),
        (("--max-time", "-1", "localhost:1", HELLO), "argument --max-time"),
        (("--protocol", "soap", "localhost:1", HELLO), "invalid choice: 'soap'"),
        (("--nonsense", "localhost:1", HELLO), "unrecognized arguments: --nonsense"),
        (("--http", "1.1", "localhost:1", HELLO), "--http 1.1: "),
        (("a", HELLO, "c"), "unrecognized arguments: c"),
    ],
)
def test_a_command_line_that_is_wrong(argv: List[str], said: str) -> None:
    assert said in refused(2, "call", "--plaintext", *PROTOS, *argv)


def test_an_error_as_a_record() -> None:
    ran = cli("call", "--json", "--plaintext", *PROTOS, "localhost:1", "helloworld.Greeter/None")
    assert ran.code == 1
    assert ran.records == [{"error": {"message": ran.records[0]["error"]["message"], "exit": 1}}]
    assert ran.records[0]["error"]["message"].startswith("helloworld.Greeter has no method 'None'")


# ---- Interceptors and the trace ----


def test_interceptors_stand_in_the_order_of_their_flags(plain: str) -> None:
    flags = ("--interceptor", "cli_interceptors:Mark", "--interceptor", "penstock.ready:TraceContext", "--trace")
    ran = cli("call", "--plaintext", *flags, *YOU, plain, HELLO)
    assert (ran.code, ran.out) == (0, '{"message": "Hello, you!"}\n')
    title, *rows = ran.err.rstrip("\n").split("\n")
    assert title.split() == ["ms", "caller", "Mark", "TraceContext", "server"]
    # The way out: each place is further to the right than the one before.
    places = [row.index("start") for row in rows if "start" in row]
    assert places[:4] == [title.index(name) for name in ("caller", "Mark", "TraceContext", "server")]
    assert any(row.endswith("waits for a connection") for row in rows)
    assert rows[-1].split()[1:] == ["<-", "ended:", "OK"]


def test_the_trace_as_a_record(plain: str) -> None:
    ran = cli(
        "call", "--json", "--trace", "--interceptor", "cli_interceptors:Mark", "--plaintext", *YOU, plain, HELLO
    )
    trace = ran.records[-1]["trace"]
    assert trace["method"] == f"/{HELLO}"
    assert "Mark" in [event["hop"] for event in trace["events"]]


def test_an_interceptor_of_the_working_directory(plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text((Path(__file__).parent / "cli_interceptors.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    try:
        ran = cli("call", "--plaintext", "--interceptor", "only_here:Refuse", *YOU, plain, HELLO)
    finally:
        sys.modules.pop("only_here", None)
    assert "no calls today" in ran.err


def test_an_interceptor_that_raises(plain: str) -> None:
    ran = cli("call", "--plaintext", "--interceptor", "cli_interceptors:Refuse", "--trace", *YOU, plain, HELLO)
    assert ran.code == 64 + 13
    assert "ends the call: INTERNAL" in ran.err
    assert ran.err.rstrip().endswith("(ValueError: no calls today)")


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("nonsense", 2, "expected module:Class"),
        ("no_such_module:X", 1, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("cli_interceptors:Nobody", 1, "AttributeError: module 'cli_interceptors' has no attribute 'Nobody'"),
        ("cli_interceptors:Needy", 1, "TypeError: "),
        ("cli_interceptors:TEXT", 2, "is no interceptor"),
    ],
)
def test_an_interceptor_that_can_not_be_put_in(plain: str, name: str, code: int, said: str) -> None:
    assert said in refused(code, "call", "--plaintext", "--interceptor", name, *PROTOS, plain, HELLO)


# ---- Schemas from files ----


def test_a_proto_file_and_a_server_without_reflection(server: str, tmp_path: Path) -> None:
    assert printed("call", "--plaintext", *YOU, *PROTOS, server, HELLO) == '{"message": "Hello, you!"}\n'
    made = str(tmp_path / "set")
    assert protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={made}", "helloworld.proto"]) == 0
    for flag in ("--descriptor-set", "-protoset"):
        assert printed("call", "--plaintext", *YOU, flag, made, server, HELLO) == '{"message": "Hello, you!"}\n'
    said = refused(1, "call", "--plaintext", *YOU, server, HELLO)
    assert said.endswith("v1 nor grpc.reflection.v1alpha): give --proto or --descriptor-set")


def test_the_versions() -> None:
    out = printed("--version")
    assert out == f"penstock {penstock.__version__}, libpenstock {penstock.library_version()}\n"
