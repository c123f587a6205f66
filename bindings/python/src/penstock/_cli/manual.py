"""`penstock manual`: the page penstock(1), from the commands and their flags."""

from __future__ import annotations

import argparse
from typing import Iterator, Mapping

from .. import __version__
from .failure import Exit
from .flags import shown
from .output import Output

HELP = "print the manual page penstock(1), for man -l"
_CODES = (
    ("0", "It went well: a call has ended with OK, a server serves."),
    ("1", "It could not be done: a file, a package, a service or a method is not there."),
    ("2", "The command line, or a request in JSON, is wrong."),
    ("3", "The answer is no: a server does not serve, calls of bench have failed, doctor can't connect."),
    ("64 to 80", "A call has ended with another status: 64 and the number of its code."),
    ("130", "Ctrl-C."),
    ("141", "Nobody reads the output any more."),
)


def add(parser: argparse.ArgumentParser) -> None:
    """It has no flags of its own."""


def run(args: argparse.Namespace, output: Output) -> int:
    output.line("\n".join(_lines(args.parsers)))
    return Exit.OK


def _lines(parsers: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield f'.TH PENSTOCK 1 "" "penstock {__version__}"'
    yield from (".SH NAME", r"penstock \- call gRPC, gRPC\-Web and Connect servers", ".SH SYNOPSIS")
    for parser in parsers.values():
        yield f".B {_text(parser.usage or parser.prog)}\n.br"
    yield ".SH DESCRIPTION"
    yield "Flags may begin with one dash or two, and stand anywhere behind the command."
    for name, parser in parsers.items():
        yield f".SH {name.upper()}"
        meaning = parser.description or ""
        yield _text(f"{meaning[:1].upper()}{meaning[1:]}.")
        for action in parser._actions:
            words = ", ".join(shown(action)) or str(action.metavar)
            value = "" if not action.option_strings or action.nargs == 0 else f" {_value(action)}"
            yield f".TP\n.B {_text(words + value)}\n{_text(action.help or '')}"
    yield ".SH EXIT STATUS"
    for code, meaning in _CODES:
        yield f".TP\n.B {code}\n{_text(meaning)}"


def _value(action: argparse.Action) -> str:
    if action.choices:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _text(text: str) -> str:
    """Words as roff takes them."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
