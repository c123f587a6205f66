"""`penstock describe`: services, methods and types as the text of a .proto file."""

from __future__ import annotations

import argparse
import json
from typing import Any, Dict

from . import protobuf
from .failure import CommandError, Exit, wrong
from .flags import add_connection, add_output, add_schema, flag
from .listing import add_place, looked_up
from .output import Output
from .prototext import FileText
from .schema import Schema
from .template import template

HELP = "describe services, methods and types as in a .proto file"


def add(parser: argparse.ArgumentParser) -> None:
    add_place(parser, "SYMBOL", "a service, method, message, enum or field (default: each service)")
    flag(parser, "msg-template", action="store_true", help="print an example of the message in JSON, too")
    add_connection(parser)
    add_schema(parser)
    add_output(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    def look(schema: Schema) -> int:
        if args.symbol is not None:
            _describe(schema, args.symbol, output, args.msg_template)
            return Exit.OK
        for name in schema.services():
            try:
                _describe(schema, name, output, False)
            except CommandError as error:
                # A server may list more than it describes.
                output.note(str(error))
        return Exit.OK

    return looked_up(args, look)


def _describe(schema: Schema, name: str, output: Output, with_template: bool) -> None:
    found = schema.symbol(name)
    text = FileText(schema.source.FindFileByName(_file(found).name))
    message = found if _what(found) == "message" else None
    if with_template and message is None:
        raise wrong(f"--msg-template: {found.full_name} is no message, but {_what(found)}")
    if output.machine:
        google = protobuf.runtime()
        view: Dict[str, Any] = {"name": found.full_name, "kind": _what(found), "file": _file(found).name}
        view["text"] = text.text(found.full_name)
        view["descriptor"] = google.json_format.MessageToDict(text.proto(found.full_name))
        if with_template:
            view["template"] = template(message)
        output.record(**view)
        return
    output.line(f"// {found.full_name}, {_what(found)} in {_file(found).name}")
    output.line(text.text(found.full_name))
    if with_template:
        output.line("")
        output.message(json.dumps(template(message), indent=2, ensure_ascii=False))


def _file(found: Any) -> Any:
    """The file of a description; a method has that of its service."""
    return found.containing_service.file if _what(found) == "method" else found.file


def _what(found: Any) -> str:
    """The kind of a description."""
    if hasattr(found, "methods"):
        return "service"
    if hasattr(found, "containing_service"):
        return "method"
    if hasattr(found, "fields_by_name"):
        return "message"
    if hasattr(found, "values_by_name"):
        return "enum"
    return "extension" if found.is_extension else "field"
