"""Runs the command `penstock`, in this process or as a program of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple

import penstock
from conftest import PROTO
from helpers import SOURCES
from penstock._cli.main import main

GREETER = "helloworld.Greeter"
HELLO = f"{GREETER}/SayHello"
PROTOS = ("--import-path", str(PROTO), "--proto", "helloworld.proto")


class Ran(NamedTuple):
    """How a command has ended."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> List[Dict[str, Any]]:
        """The values that it has printed with --json."""
        assert self.err == ""
        return [json.loads(line) for line in self.out.splitlines()]


def cli(*argv: str, stdin: str = "") -> Ran:
    """Runs a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryFile("w+") as given:
        given.write(stdin)
        given.seek(0)
        before, sys.stdin = sys.stdin, given
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(list(argv))
        finally:
            sys.stdin = before
    return Ran(int(code), out.getvalue(), err.getvalue())


def printed(*argv: str, stdin: str = "") -> str:
    """The output of a command that succeeds and complains of nothing."""
    ran = cli(*argv, stdin=stdin)
    assert (ran.code, ran.err) == (0, ""), ran
    return ran.out


def refused(code: int, *argv: str, stdin: str = "") -> str:
    """The complaint of a command, without the name before it, that ends with this exit code and has no result."""
    ran = cli(*argv, stdin=stdin)
    assert (ran.code, ran.out) == (code, ""), ran
    assert ran.err.startswith("penstock: ")
    return ran.err[len("penstock: ") :].rstrip("\n")


def environment() -> Dict[str, str]:
    """The environment in which a program finds the package and its library."""
    folder = os.path.dirname(os.path.realpath(penstock.load()))
    return {
        **os.environ,
        "LD_LIBRARY_PATH": folder,
        "PYTHONPATH": f"{SOURCES}:{os.path.dirname(__file__)}",
        "TERM": "xterm",
        "COLUMNS": "120",
    }


def started(*argv: str, python: Any = ("-X", "dev", "-W", "error"), **pipes: Any) -> subprocess.Popen[str]:
    """Starts a command as a program of its own."""
    command = [sys.executable, *python, "-m", "penstock", *argv]
    return subprocess.Popen(command, env=environment(), text=True, **pipes)
