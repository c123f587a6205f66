"""`penstock health`: whether a server, or one of its services, serves (grpc.health.v1). It needs no protobuf, because
request and response have one field each."""

from __future__ import annotations

import argparse

from .. import RpcError, StatusCode
from .connection import metadata, opened
from .failure import CommandError, Exit
from .flags import add_connection, add_output, flag
from .output import Output

HELP = "ask whether a server, or one of its services, serves"
SERVICE = "/grpc.health.v1.Health"
_NAMES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="ADDRESS", help="host:port, unix:/path or a URL: docs/channel.md")
    parser.add_argument("service", nargs="?", default="", metavar="SERVICE", help="(default: the server as a whole)")
    flag(parser, "watch", action="store_true", help="print each change, until Ctrl-C or the deadline")
    add_connection(parser)
    add_output(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    pairs = metadata(args.header, args.expand_headers)
    with opened(args) as channel:
        try:
            if args.watch:
                watch = channel.unary_stream(f"{SERVICE}/Watch", request, status)
                for name in watch(args.service, timeout=args.max_time, metadata=pairs):
                    _show(args.service, name, output)
                raise CommandError("the server has ended the watch")
            check = channel.unary_unary(f"{SERVICE}/Check", request, status)
            found = check(args.service, timeout=args.max_time, metadata=pairs)
        except RpcError as error:
            if error.code() is StatusCode.UNIMPLEMENTED:
                raise CommandError(f"{channel.target} has no {SERVICE[1:]}: it can't be asked") from error
            if error.code() is not StatusCode.NOT_FOUND or args.watch:
                raise
            found = "SERVICE_UNKNOWN"
    _show(args.service, found, output)
    return Exit.OK if found == "SERVING" else Exit.NO


def _show(service: str, status: str, output: Output) -> None:
    if output.machine:
        output.record(service=service, status=status)
    else:
        output.line(status)


def request(service: str) -> bytes:
    """A HealthCheckRequest: field 1, the service."""
    name = service.encode()
    return b"\x0a" + _varint(len(name)) + name if name else b""


def _varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def status(response: bytes) -> str:
    """The name of the status in a HealthCheckResponse: field 1, an enum. Without it the status is UNKNOWN."""
    if response[:1] != b"\x08" or len(response) < 2:
        return _NAMES[0]
    return _NAMES[response[1]] if response[1] < len(_NAMES) else f"status {response[1]}"
