"""The output of a command: for people, prettier in a terminal where rich is installed, or as lines of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, List, Optional, Sequence, TextIO


class Output:
    """Results go to the standard output, everything else to the standard error. With ``machine`` (--json) each result
    is one line with one JSON object."""

    def __init__(self, machine: bool = False) -> None:
        self.machine = machine

    @property
    def is_terminal(self) -> bool:
        return is_terminal(sys.stdout)

    def line(self, text: str) -> None:
        """A line of the result, at once, so that the next program of a pipe has it."""
        print(text, flush=True)

    def record(self, **view: Any) -> None:
        """A result for a machine."""
        self.line(json.dumps(view, ensure_ascii=False))

    def message(self, text: str) -> None:
        """A message in JSON."""
        console = _console(sys.stdout)
        if console is None:
            self.line(text)
        else:
            console.print(_coloured(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """A line that is no result, such as an error."""
        print(text, file=sys.stderr, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], result: bool = True) -> None:
        """A table; the standard error gets it if it is no ``result``. Columns whose title begins with a blank are
        aligned to the right."""
        file = sys.stdout if result else sys.stderr
        console = _console(file)
        if console is None:
            print("\n".join(aligned(columns, rows)), file=file, flush=True)
        else:
            console.print(_rich_table(columns, rows))


def is_terminal(stream: Optional[TextIO]) -> bool:
    """Whether a person is at the other end of a stream, which is None if the program was started without it."""
    return stream is not None and stream.isatty()


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> List[str]:
    """The lines of a table, without blanks at their ends."""
    titles = [column.strip() for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows)]
    right = [column.startswith(" ") for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if at_right else cell.ljust(width) for cell, width, at_right in zip(row, widths, right)
        ).rstrip()
        for row in (titles, *rows)
    ]


# ---- rich, which is optional ----


def _console(file: TextIO) -> Any:
    """A console of rich; None where it is not installed, or if nobody looks."""
    if not is_terminal(file):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=file)


def _coloured(text: str) -> Any:
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    coloured = Text(text)
    JSONHighlighter().highlight(coloured)
    return coloured


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.strip(), justify="right" if column.startswith(" ") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
