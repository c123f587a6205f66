"""The flags of the command: each one with its names and its default, and the channel, metadata and advice that come
of them."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from typing import Any, Dict, List, Optional, Tuple

import pytest

import cli_interceptors
import penstock
from cli_helpers import HELLO, PROTOS, cli, printed, refused
from helpers import Only
from penstock import InvalidArgumentError, LibraryError, RpcError, StatusCode
from penstock._cli import call, connection, interceptors, main, manual
from penstock._cli.failure import CommandError, Exit
from penstock._cli.flags import Parser, flag
from penstock._cli.schema import _near

OUTPUT = ["json", "v|verbose"]
CONNECTION = [
    *("plaintext", "cacert=", "cert=", "key=", "servername=", "insecure", "authority=", "unix", "protocol=", "http="),
    *("proxy=", "user-agent=", "connect-timeout=", "keepalive-time=", "max-msg-sz=", "H|header*", "expand-headers"),
    "max-time|timeout=",
]
SCHEMA = ["proto*", "import-path*", "descriptor-set|protoset*", "reflect-header*"]
# The words and flags of each command. A flag with "=" takes a value, one with "*" may be given several times.
FLAGS: Dict[str, List[str]] = {
    "call": [
        *("ADDRESS", "METHOD", "d|data=", "trace", "interceptor*", "emit-defaults", "allow-unknown-fields"),
        *("compression=", "wait-for-ready", "rpc-header*", *CONNECTION, *SCHEMA, *OUTPUT),
    ],
    "list": ["[ADDRESS]", "[SERVICE]", *CONNECTION, *SCHEMA, *OUTPUT],
    "describe": ["[ADDRESS]", "[SYMBOL]", "msg-template", *CONNECTION, *SCHEMA, *OUTPUT],
    "health": ["ADDRESS", "[SERVICE]", "watch", *CONNECTION, *OUTPUT],
    "bench": [
        *("ADDRESS", "METHOD", "d|data=", "c|concurrency=10", "n|requests=", "duration=", "rate=", "html="),
        *("rpc-header*", *CONNECTION, *SCHEMA, *OUTPUT),
    ],
    "doctor": ["[ADDRESS]", *CONNECTION, *OUTPUT],
    "completion": ["SHELL"],
    "manual": [],
}


def written(action: argparse.Action) -> str:
    """A flag as the table above has it."""
    if not action.option_strings:
        return str(action.metavar) if action.required else f"[{action.metavar}]"
    names = [name.lstrip("-") for name in action.option_strings if len(name) == 2 or name.startswith("--")]
    # Each may begin with one dash, too.
    assert all(f"-{name}" in action.option_strings for name in names)
    if action.nargs == 0:
        assert action.default in (False, argparse.SUPPRESS)
        return "|".join(names)
    if action.default == []:
        return f"{'|'.join(names)}*"
    return f"{'|'.join(names)}={'' if action.default is None else action.default}"


@pytest.mark.parametrize("command", FLAGS)
def test_the_flags_of_a_command(command: str) -> None:
    parser = main.parsers()[command]
    assert list(map(written, parser._actions)) == ["h|help", *FLAGS[command]]
    assert parser.prog == f"penstock {command}"
    words = [word for word in FLAGS[command] if word.strip("[]").isupper() and len(word) > 1]
    usage = " ".join([f"penstock {command} [flags]", *words])
    shown = printed(command, "--help")
    assert shown.startswith(f"usage: {usage}\n\n{main.COMMANDS[command].HELP}\n")
    end = "Flags may begin with one dash or two. Exit codes, examples and everything else: docs/cli.md."
    assert shown.endswith(f"\n{end}\n")
    lines = shown.split("\n")
    assert all(len(line) <= 100 for line in lines)
    for action in parser._actions:
        if action.option_strings:
            names = ", ".join(name for name in action.option_strings if len(name) == 2 or name.startswith("--"))
            choices = "{" + ",".join(action.choices) + "}" if action.choices else None
            value = "" if action.nargs == 0 else f" {choices or action.metavar or action.dest.upper()}"
            assert any(line == f"  {names}{value}" or line.startswith(f"  {names}{value}  ") for line in lines), names
            # The meanings begin in one column.
            assert str(action.help).split()[0] in shown


def test_the_commands() -> None:
    assert list(main.COMMANDS) == list(FLAGS)
    lines = printed("--help").split("\n")
    assert lines[:4] == [
        "usage: penstock COMMAND [flags] ADDRESS [METHOD]",
        "",
        "Calls gRPC, gRPC-Web and Connect servers.",
        "",
    ]
    assert lines[4:13] == ["commands:", *(f"  {name:12}{command.HELP}" for name, command in main.COMMANDS.items())]
    assert lines[-2] == "penstock COMMAND --help lists the flags of a command."
    without = cli()
    assert (without.code, without.out, without.err) == (2, printed("--help"), "")
    versions = f"penstock {penstock.__version__}, libpenstock {penstock.library_version()}\n"
    assert printed("-version") == printed("--version") == versions


TIME = "argument --max-time/-max-time/--timeout/-timeout: invalid number of seconds value"
SIZE = "argument --max-msg-sz/-max-msg-sz: invalid whole number above 0 value"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("call", "--max-time", "0", "a", "b"), f"{TIME}: '0'"),
        (("call", "--max-time", "1e9", "a", "b"), f"{TIME}: '1e9'"),
        (("call", "--max-msg-sz", "0", "a", "b"), f"{SIZE}: '0'"),
        (("call", "--max-msg-sz", "1.5", "a", "b"), f"{SIZE}: '1.5'"),
        (("call",), "the following arguments are required: ADDRESS, METHOD"),
        (("health",), "the following arguments are required: ADDRESS"),
        (("bench", "a"), "the following arguments are required: METHOD"),
        (("doctor", "a", "b"), "unrecognized arguments: b"),
        # No flag can be cut short.
        (("call", "--plain", "a", "b"), "unrecognized arguments: --plain"),
    ],
)
def test_a_command_line_that_can_not_be_meant(words: Tuple[str, ...], said: str) -> None:
    usage = main.parsers()[words[0]].usage
    assert refused(2, *words) == f"{said}\nusage: {usage}\nTry: penstock {words[0]} --help"
    (view,) = cli(*words, "-json").records
    assert view == {"error": {"message": f"{said}\nusage: {usage}\nTry: penstock {words[0]} --help", "exit": 2}}


def test_words_that_are_no_command() -> None:
    listed = "call, list, describe, health, bench, doctor, completion, manual"
    assert refused(2, "xyz") == f"no command 'xyz'; there are {listed}"
    assert refused(2, "benhc") == "no command 'benhc'; did you mean bench?"
    usage = "usage: penstock COMMAND [flags] ADDRESS [METHOD]\nTry: penstock --help"
    assert refused(2, "--nothing") == f"unrecognized arguments: --nothing\n{usage}"


@pytest.mark.parametrize(
    ("raised", "exit_code", "said"),
    [
        (CommandError("a"), 1, "penstock: a\n"),
        (CommandError("a", Exit.NO), 3, "penstock: a\n"),
        (InvalidArgumentError(1, "b"), 2, "penstock: b\n"),
        (LibraryError(1, "c"), 1, f"penstock: {LibraryError(1, 'c')}\n"),
        (ImportError("no module"), 1, "penstock: no module\n"),
        (RpcError(StatusCode.ABORTED, "d"), 74, "penstock: ABORTED: d\n"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(5), 5, ""),
        (SystemExit(None), 0, ""),
    ],
)
def test_the_exit_codes(monkeypatch: pytest.MonkeyPatch, raised: BaseException, exit_code: int, said: str) -> None:
    def run(args: Any, output: Any) -> int:
        raise raised

    monkeypatch.setattr(manual, "run", run)
    assert cli("manual") == (exit_code, "", said)


def test_the_words_of_the_process_are_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["penstock", "--version"])
    assert main.main() == 0
    assert capsys.readouterr().out == printed("--version")


# ---- The channel of the flags ----


def settings(*words: str) -> Any:
    return connection.settings(main.parsers()["health"].parse_intermixed_args(words))


@pytest.mark.parametrize(
    ("words", "target", "tls", "options"),
    [
        (("a:1",), "a:1", None, {}),
        (("--plaintext", "a:1"), "a:1", False, {}),
        (("--unix", "/s"), "unix:/s", None, {}),
        (("--unix", "unix:/s"), "unix:/s", None, {}),
        (("unix:/s",), "unix:/s", None, {}),
        (("--insecure", "a"), "a", {"verify": False}, {}),
        (("--cacert", "r", "a"), "a", {"roots_file": "r"}, {}),
        (("--servername", "n", "a"), "a", {"server_name": "n"}, {}),
        (
            ("--cert", "c", "--key", "k", "a"),
            "a",
            {"certificate_chain_file": "c", "private_key_file": "k"},
            {},
        ),
        (("--protocol", "connect", "--http", "2", "a"), "a", None, {"protocol": "connect", "http": "2"}),
        (("--authority", "n", "--proxy", "http://p", "a"), "a", None, {"authority": "n", "proxy": "http://p"}),
        (("--user-agent", "u", "a"), "a", None, {"user_agent": "u"}),
        (("--connect-timeout", "1.5", "a"), "a", None, {"connect_timeout_ms": 1500}),
        (("--keepalive-time", "0.0001", "a"), "a", None, {"keepalive_time_ms": 1}),
        (("--keepalive-time", "0.0026", "a"), "a", None, {"keepalive_time_ms": 3}),
        (("--max-msg-sz", "1", "a"), "a", None, {"max_receive_message_bytes": 1}),
    ],
)
def test_the_arguments_of_the_channel(words: Tuple[str, ...], target: str, tls: Any, options: Dict[str, Any]) -> None:
    assert settings(*words) == (target, {"tls": tls, "options": options})


@pytest.mark.parametrize("words", ["--cacert x", "--cert x", "--key x", "--servername x", "--insecure"])
def test_no_flag_of_tls_goes_with_plaintext(words: str) -> None:
    said = "--plaintext is given together with --cacert, --cert, --key, --servername or --insecure"
    assert refused(2, "health", "--plaintext", *words.split(), "a:1") == said


@pytest.mark.parametrize("name", ["--cert", "--key"])
def test_a_certificate_needs_a_key(name: str) -> None:
    assert refused(2, "health", name, "x", "a:1") == "--cert and --key belong together, and only one of them is given"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("$.tls.roots_file", "--cacert R: wrong"),
        ("$.tls.certificate_chain_file", "--cert C: wrong"),
        ("$.tls.private_key_file", "--key K: wrong"),
        ("$.tls.server_name", "--servername S: wrong"),
        ("$.authority", "--authority A: wrong"),
        ("$.user_agent", "--user-agent U: wrong"),
        ("$.http", "--http H: wrong"),
        ("$.proxy", "--proxy P: wrong"),
        ("$.other", "$.other: wrong"),
    ],
)
def test_a_wrong_option_is_told_by_its_flag(path: str, said: str) -> None:
    names = ("cacert", "cert", "key", "servername", "authority", "user_agent", "http", "proxy")
    args = argparse.Namespace(**dict(zip(names, "RCKSAUHP")))
    assert connection._named(InvalidArgumentError(1, f"{path}: wrong", path), args) == said
    assert connection._named(InvalidArgumentError(1, "wrong"), args) == "wrong"


def test_a_file_that_can_not_be_read_and_one_that_is_wrong(tmp_path: Any) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nonsense")
    said = refused(2, "health", "--cacert", str(wrong), "a:1")
    assert said.startswith(f"--cacert {wrong}: ")
    assert refused(2, "health", "a b:1").startswith('the target "a b:1"')


# ---- Metadata ----


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ("a: b", ("a", "b")),
        ("A:b", ("a", "b")),
        (" a : b:c ", ("a", "b:c")),
        ("a:", ("a", "")),
        ("a-bin: AAEC", ("a-bin", b"\x00\x01\x02")),
        ("A-Bin: AAE=", ("a-bin", b"\x00\x01")),
        ("a-bin: AAE", ("a-bin", b"\x00\x01")),
        ("a-bin: AA", ("a-bin", b"\x00")),
        ("a-bin:", ("a-bin", b"")),
        ("a: ${X}", ("a", "${X}")),
    ],
)
def test_a_header(line: str, pair: Any) -> None:
    assert connection.metadata([line], False) == [pair]


@pytest.mark.parametrize("line", ["a", "", ": b", " : b"])
def test_a_header_that_is_wrong(line: str) -> None:
    with pytest.raises(CommandError) as raised:
        connection.metadata([line], False)
    assert (str(raised.value), raised.value.exit_code) == (f"header {line!r}: expected 'NAME: VALUE'", 2)


def test_the_environment_in_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "1")
    monkeypatch.setenv("TWO", "2: ${ONE}")
    monkeypatch.delenv("NONE", raising=False)
    lines = ["x-${ONE}: a${ONE}b${TWO}$ONE"]
    assert connection.metadata(lines, True) == [("x-1", "a1b2: ${ONE}$ONE")]
    with pytest.raises(CommandError, match=r"^header 'a: \$\{NONE\}': the environment has no NONE$"):
        connection.metadata(["a: ${NONE}"], True)


def test_metadata_as_json_has_it() -> None:
    pairs = [("a", "1"), ("b-bin", b"\x00\xff"), ("a", "2")]
    assert connection.shown_pairs(pairs) == {"a": ["1", "2"], "b-bin": [base64.b64encode(b"\x00\xff").decode()]}
    assert connection.shown_pairs([]) == {}


# ---- Statuses in words ----

ADVICE = {
    "x: the peer does not speak TLS": "for a server without TLS: --plaintext",
    "it may want TLS": "for a server with TLS: no --plaintext",
    "self-signed certificate in chain": "for a private authority: --cacert",
    "unable to get local issuer certificate": "for a private authority: --cacert",
    "the server has asked for a client certificate": "its own certificate: --cert and --key",
    "hostname mismatch": "the name in the certificate: --servername",
    "IP address mismatch": "the name in the certificate: --servername",
}


@pytest.mark.parametrize("message", ADVICE)
def test_advice_stands_behind_the_status(message: str) -> None:
    assert connection.advice(message) == ADVICE[message]
    assert call.said(RpcError(StatusCode.UNAVAILABLE, message)) == f"UNAVAILABLE: {message} ({ADVICE[message]})"
    # Other statuses are not about connecting.
    assert call.said(RpcError(StatusCode.INTERNAL, message)) == f"INTERNAL: {message}"


def test_a_status_in_one_line() -> None:
    assert connection.advice("Connection refused") is None
    assert call.said(RpcError(StatusCode.UNAVAILABLE, "Connection refused")) == "UNAVAILABLE: Connection refused"
    assert call.said(RpcError(StatusCode.INTERNAL, "")) == "INTERNAL"
    caused = RpcError(StatusCode.INTERNAL, "oh")
    caused.__cause__ = ValueError("no")
    assert call.said(caused) == "INTERNAL: oh (ValueError: no)"


STATS: Dict[str, Any] = {
    "duration_us": 12340,
    "headers_us": 1550,
    "waited": {"name_us": 200, "connection_us": 3100},
    "attempts": 1,
    "sent": {"messages": 2},
    "received": {"messages": 3},
    "peer": "192.0.2.1:1",
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "headers after 1.6 ms, 1 attempt, messages: 2 out, 3 in, peer 192.0.2.1:1"),
        (
            {"headers_us": None, "attempts": 2, "peer": None},
            "no headers, 2 attempts, messages: 2 out, 3 in, peer none",
        ),
        (
            {"headers_us": 0, "attempts": 0},
            "headers after 0.0 ms, 0 attempts, messages: 2 out, 3 in, peer 192.0.2.1:1",
        ),
    ],
)
def test_the_times_of_a_call(changed: Dict[str, Any], said: str) -> None:
    assert call._times({**STATS, **changed}) == f"12.3 ms, 3.3 ms for the connection, {said}"


# ---- Interceptors ----


def test_the_first_interceptor_is_next_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/somewhere"])
    # They are loaded already, as the path no longer names their folder.
    assert cli_interceptors.TEXT
    found = interceptors.loaded(["helpers:Only", "cli_interceptors:Mark", "cli_interceptors:TEXT"])
    assert [(type(one).__name__, priority) for one, priority in found] == [("Only", 300), ("Mark", 200), ("str", 100)]
    assert sys.path == ["", "/somewhere"]
    interceptors.loaded(["helpers:Only"])
    assert sys.path == ["", "/somewhere"]
    monkeypatch.setattr(sys, "path", ["/somewhere"])
    assert interceptors.loaded([]) == []
    assert sys.path == ["/somewhere"]


@pytest.mark.parametrize("name", ["module", ":Class", "module:", ":"])
def test_an_interceptor_has_a_module_and_a_class(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(CommandError) as raised:
        interceptors.loaded([name])
    said = f"--interceptor {name}: expected module:Class, such as penstock.ready:TraceContext"
    assert (str(raised.value), raised.value.exit_code) == (said, 2)


def test_an_interceptor_within_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    ((found, _),) = interceptors.loaded(["penstock:StatusCode.OK"])
    assert found is StatusCode.OK
    with pytest.raises(CommandError) as raised:
        interceptors.loaded(["penstock:StatusCode.NOTHING"])
    assert raised.value.exit_code == 1


# ---- Names that may have been meant ----


def test_names_that_may_have_been_meant() -> None:
    assert _near("a", []) == "; it has none"
    assert _near("a", ["a"]) == ", which it lists, but does not describe"
    assert _near("pen", ["pencil", "x"]) == "; did you mean 'pencil'?"
    assert _near("C", ["long.package.name.C", "x"]) == "; did you mean 'long.package.name.C'?"
    many = [f"{letter}{letter}" for letter in "mlkjihgfedcba"]
    assert _near("zz", many[1:]) == f"; there are {', '.join(sorted(many[1:]))}"
    assert _near("zz", many) == f"; there are {', '.join(sorted(many)[:12])}, ..."


# ---- The manual ----


def test_the_page_of_the_manual() -> None:
    parser = Parser(prog="penstock do", description="do -it")
    parser.usage = "penstock do [flags] WHAT"
    parser.add_argument("what", metavar="WHAT", help=".begins with a dot")
    flag(parser, "x", "long-name", metavar="N", help="'quoted' \\")
    flag(parser, "pick", choices=("a", "b-c"), help="one of them")
    flag(parser, "bare")
    flag(parser, "on", action="store_true")
    codes = [line for code, meaning in manual._CODES for line in (".TP", f".B {code}", meaning.replace("-", "\\-"))]
    assert "\n".join(manual._lines({"do": parser})).split("\n") == [
        f'.TH PENSTOCK 1 "" "penstock {penstock.__version__}"',
        ".SH NAME",
        "penstock \\- call gRPC, gRPC\\-Web and Connect servers",
        ".SH SYNOPSIS",
        ".B penstock do [flags] WHAT",
        ".br",
        ".SH DESCRIPTION",
        "Flags may begin with one dash or two, and stand anywhere behind the command.",
        ".SH DO",
        "Do \\-it.",
        *(".TP", ".B \\-h, \\-\\-help", "print this help"),
        *(".TP", ".B WHAT", "\\&.begins with a dot"),
        *(".TP", ".B \\-x, \\-\\-long\\-name N", "\\&'quoted' \\e"),
        *(".TP", ".B \\-\\-pick a|b\\-c", "one of them"),
        *(".TP", ".B \\-\\-bare BARE", ""),
        *(".TP", ".B \\-\\-on", ""),
        ".SH EXIT STATUS",
        *codes,
    ]


def test_the_exit_codes_of_the_manual() -> None:
    assert [code for code, _ in manual._CODES] == ["0", "1", "2", "3", "64 to 80", "130", "141"]
    assert [int(code) for code in Exit] == [0, 1, 2, 3, 64, 130, 141]
    assert 64 + max(code.number for code in StatusCode) == 80


# ---- Flags of a call ----


def test_the_flags_of_a_call_reach_it(monkeypatch: pytest.MonkeyPatch, peer: Any) -> None:
    seen: List[Tuple[Optional[bool], bool, str, Any]] = []
    opened = connection.opened

    def opens(args: Any, *rest: Any) -> Any:
        channel = opened(args, *rest)
        channel.add_interceptor(
            Only(on_start=lambda hop: seen.append((hop.wait_for_ready, hop.deadline is None, hop.compression, [])))
        )
        return channel

    monkeypatch.setattr(call, "opened", opens)
    words = ("call", "--plaintext", *PROTOS, "-d", "{}", peer.target, HELLO)
    assert json.loads(printed(*words)) == {"message": "Hello, !"}
    printed(*words, "--wait-for-ready", "--max-time", "30", "--compression", "gzip")
    assert seen == [(False, True, "identity", []), (True, False, "gzip", [])]
