"""The sessions of docs/cli.md: each command is run, and prints what the page says, but for numbers."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import pytest

from conftest import PROTO, REPOSITORY
from penstock._cli.main import main

PAGE = (REPOSITORY / "docs/cli.md").read_text()
SESSIONS = re.findall(r"```console\n(.*?)```", PAGE, re.S)
FILES = re.findall(r"<!-- file: (\S+) -->\s*```\w+\n(.*?)```", PAGE, re.S)


def commands(session: str) -> Iterator[Tuple[str, List[str]]]:
    """Each command of a session, and the lines that it has printed."""
    for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
        command, _, printed = re.sub(r"(\\|\|)\n +", _joined, part).partition("\n")
        yield command, printed.rstrip("\n").split("\n")


def _joined(match: re.Match[str]) -> str:
    """The text that joins a command's line with the next one: nothing, or a pipe."""
    return " | " if match[1] == "|" else " "


class Shell:
    """Runs the commands of a session, as far as the page uses a shell."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._code = 0

    def run(self, command: str) -> str:
        if command == "echo $?":
            return str(self._code)
        given, _, command = command.rpartition("| ")
        words = shlex.split(command.replace("localhost:50051", self._target))
        assert words[0] == "penstock"
        out = io.StringIO()
        with tempfile.TemporaryFile("w+") as stdin:
            if given:
                name, text = shlex.split(given)
                assert name == "printf"
                stdin.write(text.replace("\\n", "\n"))
                stdin.seek(0)
            before, sys.stdin = sys.stdin, stdin
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                    self._code = main(words[1:])
            finally:
                sys.stdin = before
        return out.getvalue()


def same(text: str) -> List[str]:
    """The part that each run has in common: no numbers, and of blanks one where there are several."""
    return [re.sub(r" +", " ", re.sub(r"[\d,.]*\d", "N", line)).strip() for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize("session", SESSIONS, ids=range(len(SESSIONS)))
def test_a_session(servers: Dict[str, str], session: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    for proto in PROTO.glob("*.proto"):
        (tmp_path / proto.name).write_bytes(proto.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hooks", raising=False)
    shell = Shell(servers["command_plain"])
    for command, lines in commands(session):
        assert same(shell.run(command)) == same("\n".join(lines)), command


def test_the_page_has_sessions() -> None:
    assert len(SESSIONS) > 6
    assert {name for name, _ in FILES} == {"hooks.py"}
