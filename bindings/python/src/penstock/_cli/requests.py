"""Requests in JSON: from the command line, a file or the standard input, one after the other as they come."""

from __future__ import annotations

import io
import json
import re
import sys
from typing import Iterable, Iterator, Optional, Tuple

from .failure import CommandError, wrong

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DECODER = json.JSONDecoder()


def standard_input() -> Iterator[str]:
    """The lines of the standard input, each as soon as it has come. A thread that waits in here holds no lock, so
    that the program can end meanwhile."""
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, ValueError, io.UnsupportedOperation) as error:
        raise CommandError("the standard input is closed, and requests are read from it") from error
    rest = b""
    with open(descriptor, "rb", buffering=0, closefd=False) as raw:
        while True:
            try:
                data = raw.read(65536)
            except OSError as error:
                raise CommandError(f"the standard input can't be read: {error.strerror}") from error
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            yield from map(_text, lines)
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"the standard input is no UTF-8: {error}") from error


def lines_of(data: Optional[str]) -> Iterable[str]:
    """The lines of ``-d``: its text, the standard input for ``@``, or a file for ``@FILE``."""
    if data is None:
        return ()
    if data == "@":
        return standard_input()
    if not data.startswith("@"):
        return data.split("\n")
    try:
        with open(data[1:], encoding="utf-8") as file:
            return file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"-d {data}: {getattr(error, 'strerror', None) or error}") from error


def values(lines: Iterable[str]) -> Iterator[Tuple[int, str]]:
    """The JSON values in ``lines``, each with the number of its first line. A value may be longer than a line, and a
    line may have several; it is given as soon as its last line has come. CommandError: something is no JSON."""
    kept, begins, depth = "", 1, 0
    number = 0
    for number, line in enumerate(lines, 1):
        if not kept:
            begins = number
        kept += line + "\n"
        bare = _STRING.sub("", line)
        depth += sum(map(bare.count, "{[")) - sum(map(bare.count, "}]"))
        if depth <= 0:
            yield from _parsed(kept, begins)
            kept, depth = "", 0
    if kept:
        yield from _parsed(kept, begins)


def _parsed(text: str, begins: int) -> Iterator[Tuple[int, str]]:
    text = text.rstrip()
    at = _skipped(text, 0)
    while at < len(text):
        try:
            _, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise wrong(
                f"the request in line {begins + text.count(chr(10), 0, at)} is no JSON: {error.msg} "
                f"(line {begins + error.lineno - 1}, column {error.colno})"
            ) from error
        yield begins + text.count("\n", 0, at), text[at:end]
        at = _skipped(text, end)


def _skipped(text: str, at: int) -> int:
    """The place of the next character that is no blank."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at
