"""The flags of the commands. Those that grpcurl has, too, have its names; each may begin with one dash or two."""

from __future__ import annotations

import argparse
from typing import Any

from .failure import wrong


class Help(argparse.HelpFormatter):
    """Shows a flag once, with two dashes, although it may begin with one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        names = ", ".join(shown(action))
        return names if action.nargs == 0 else f"{names} {self._format_args(action, action.dest.upper())}"


class Plain(Help, argparse.RawDescriptionHelpFormatter):
    """Leaves the lines of a description as they are."""


def shown(action: argparse.Action) -> list[str]:
    """The names of a flag, without those that only lack a dash."""
    return [name for name in action.option_strings if len(name) == 2 or name.startswith("--")]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are failures of the command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=Help, allow_abbrev=False, add_help=False, **options)
        flag(self, "h", "help", action="help", help="print this help")

    def error(self, message: str) -> Any:
        raise wrong(f"{message}\n{self.format_usage().strip()}\nTry: {self.prog} --help")


def flag(group: Any, *names: str, **options: Any) -> None:
    """Adds a flag: a name of one letter has one dash, a longer one begins with one or two."""
    strings = [f"-{name}" for name in names if len(name) == 1]
    for name in names:
        if len(name) > 1:
            strings += [f"--{name}", f"-{name}"]
    group.add_argument(*strings, **options)


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value


def whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


# The names of values in argparse's errors.
seconds.__name__ = "number of seconds"
whole.__name__ = "whole number above 0"


def add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    flag(group, "json", action="store_true", help="print lines of JSON, for programs")
    flag(group, "v", "verbose", action="store_true", help="print headers, trailers and times, too")


def add_method(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="ADDRESS", help="host:port, unix:/path or a URL: docs/channel.md")
    parser.add_argument("method", metavar="METHOD", help="package.Service/Method")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """The flags of a command that connects."""
    group = parser.add_argument_group("connection")
    flag(group, "plaintext", action="store_true", help="no TLS")
    flag(group, "cacert", metavar="FILE", help="the roots that are trusted, in PEM form (default: the system's)")
    flag(group, "cert", metavar="FILE", help="the client's certificate with its chain, in PEM form")
    flag(group, "key", metavar="FILE", help="the key of --cert, in PEM form")
    flag(group, "servername", metavar="NAME", help="the name for which the server's certificate has to be")
    flag(group, "insecure", action="store_true", help="don't check the server's certificate: for experiments only")
    flag(group, "authority", metavar="NAME", help="the authority of the requests (default: that of ADDRESS)")
    flag(group, "unix", action="store_true", help="ADDRESS is the path of a unix socket")
    flag(
        group,
        "protocol",
        choices=("grpc", "grpc-web", "grpc-web-text", "connect"),
        help="the protocol of the calls (default: grpc)",
    )
    flag(group, "http", choices=("auto", "2", "1.1"), help="the version of HTTP (default: auto)")
    flag(
        group,
        "proxy",
        metavar="URL",
        help="http://, socks5:// or socks5h:// and the proxy that connects; environment: the one that it names",
    )
    flag(group, "user-agent", metavar="TEXT", help="the text before penstock/VERSION in the user agent")
    flag(
        group,
        "connect-timeout",
        type=seconds,
        metavar="SECONDS",
        help="how long one attempt to connect may take (default: 20)",
    )
    flag(
        group,
        "keepalive-time",
        type=seconds,
        metavar="SECONDS",
        help="how long a connection with calls may be silent before it is pinged",
    )
    flag(group, "max-msg-sz", type=whole, metavar="BYTES", help="the largest response (default: 4 MiB)")
    group = parser.add_argument_group("calls")
    flag(
        group,
        "H",
        "header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="metadata of each request; the value of a name that ends with -bin is base64",
    )
    flag(group, "expand-headers", action="store_true", help="replace ${NAME} in headers by the environment's value")
    flag(
        group,
        "max-time",
        "timeout",
        type=seconds,
        metavar="SECONDS",
        help="the deadline of each call (default: none)",
    )


def add_schema(parser: argparse.ArgumentParser) -> None:
    """The flags that say where the descriptions of services and messages come from."""
    group = parser.add_argument_group("schema (default: the server's reflection)")
    flag(
        group,
        "proto",
        action="append",
        default=[],
        metavar="FILE",
        help="a .proto file, for which protoc or grpcio-tools has to be installed",
    )
    flag(
        group,
        "import-path",
        action="append",
        default=[],
        metavar="FOLDER",
        help="where --proto and what it imports are looked for (default: the working directory)",
    )
    flag(
        group,
        "descriptor-set",
        "protoset",
        action="append",
        default=[],
        metavar="FILE",
        help="a FileDescriptorSet, as protoc --descriptor_set_out --include_imports writes it",
    )
    flag(
        group,
        "reflect-header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="metadata of the calls for reflection only",
    )


def add_rpc_header(parser: argparse.ArgumentParser) -> None:
    flag(
        parser,
        "rpc-header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="metadata of the call itself, and not of the calls for reflection",
    )
