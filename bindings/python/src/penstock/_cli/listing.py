"""`penstock list`: the services of a server, or the methods of a service."""

from __future__ import annotations

import argparse
from typing import Any, Dict

from . import schema as schemas
from .connection import opened
from .failure import Exit, wrong
from .flags import add_connection, add_output, add_schema
from .output import Output
from .schema import Schema

HELP = "list the services of a server, or the methods of a service"


def add(parser: argparse.ArgumentParser) -> None:
    add_place(parser, "SERVICE", "list the methods of this service (default: the services)")
    add_connection(parser)
    add_schema(parser)
    add_output(parser)


def add_place(parser: argparse.ArgumentParser, symbol: str, meaning: str) -> None:
    """The words of a command that looks at a schema."""
    parser.add_argument(
        "address", nargs="?", metavar="ADDRESS", help="the server; not needed with --proto and --descriptor-set"
    )
    parser.add_argument("symbol", nargs="?", metavar=symbol, help=meaning)


def looked_up(args: argparse.Namespace, look: Any) -> int:
    """Calls ``look`` with the schema of the words and flags."""
    if schemas.has_files(args):
        if args.symbol is None and args.address is not None and ":" not in args.address:
            args.symbol, args.address = args.address, None
        return int(look(schemas.from_files(args)))
    if args.address is None:
        raise wrong("ADDRESS is missing; it can be left out with --proto and --descriptor-set only")
    with opened(args) as channel:
        return int(look(schemas.from_server(args, channel)))


def run(args: argparse.Namespace, output: Output) -> int:
    def look(schema: Schema) -> int:
        if args.symbol is None:
            _services(schema, output)
        else:
            _methods(schema.service(args.symbol), output, args.verbose)
        return Exit.OK

    return looked_up(args, look)


def _services(schema: Schema, output: Output) -> None:
    if output.machine:
        output.record(services=schema.services())
        return
    for name in schema.services():
        output.line(name)


def _methods(service: Any, output: Output, verbose: bool) -> None:
    if output.machine:
        output.record(service=service.full_name, methods=[view(method) for method in service.methods])
    elif verbose:
        views = [view(method) for method in service.methods]
        rows = [[one["path"][1:], one["kind"], one["request"], one["response"]] for one in views]
        output.table(["method", "kind", "request", "response"], rows)
    else:
        for method in service.methods:
            output.line(schemas.path(method)[1:])


def view(method: Any) -> Dict[str, str]:
    return {
        "name": method.name,
        "path": schemas.path(method),
        "kind": schemas.kind(method),
        "request": method.input_type.full_name,
        "response": method.output_type.full_name,
    }
