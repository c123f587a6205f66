"""The command line: `penstock COMMAND [flags] ADDRESS [METHOD]`."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from typing import Any, Dict, List, Optional

from .. import Error, InvalidArgumentError, RpcError, library_version
from .. import __version__ as package_version
from . import bench, call, completion, describe, doctor, health, listing, manual
from .call import said
from .failure import CommandError, Exit, wrong
from .flags import Parser, Plain, flag
from .output import Output

COMMANDS: Dict[str, Any] = {
    "call": call,
    "list": listing,
    "describe": describe,
    "health": health,
    "bench": bench,
    "doctor": doctor,
    "completion": completion,
    "manual": manual,
}
_EPILOG = "Flags may begin with one dash or two. Exit codes, examples and everything else: docs/cli.md."


def parsers() -> Dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    made: Dict[str, argparse.ArgumentParser] = {}
    for name, command in COMMANDS.items():
        made[name] = Parser(prog=f"penstock {name}", description=command.HELP, epilog=_EPILOG)
        command.add(made[name])
        words = [action.metavar if action.required else f"[{action.metavar}]" for action in _positionals(made[name])]
        made[name].usage = " ".join([f"penstock {name} [flags]", *map(str, words)])
    return made


def _positionals(parser: argparse.ArgumentParser) -> List[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]


def _listed() -> str:
    return f"there are {', '.join(COMMANDS)}"


def _overview() -> argparse.ArgumentParser:
    """The parser of a command line that begins with no command."""
    listed = "\n".join(f"  {name:12}{command.HELP}" for name, command in COMMANDS.items())
    parser = Parser(
        prog="penstock",
        usage="penstock COMMAND [flags] ADDRESS [METHOD]",
        description=f"Calls gRPC, gRPC-Web and Connect servers.\n\ncommands:\n{listed}",
        epilog="penstock COMMAND --help lists the flags of a command.",
    )
    parser.formatter_class = Plain
    flag(parser, "version", action="store_true", help="print the versions")
    return parser


def main(argv: Optional[List[str]] = None) -> int:
    """Runs the command line, and returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    output = Output("--json" in words or "-json" in words)
    try:
        return _run(words, output)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return Exit.CLOSED


def _run(words: List[str], output: Output) -> int:
    try:
        if words and words[0] in COMMANDS:
            known = parsers()
            args = known[words[0]].parse_intermixed_args(words[1:])
            args.parsers = known
            return int(COMMANDS[words[0]].run(args, output))
        overview = _overview()
        if words and not words[0].startswith("-"):
            near = difflib.get_close_matches(words[0], COMMANDS, 1)
            raise wrong(f"no command {words[0]!r}; {f'did you mean {near[0]}?' if near else _listed()}")
        if overview.parse_args(words).version:
            output.line(f"penstock {package_version}, libpenstock {library_version()}")
            return Exit.OK
        output.line(overview.format_help().rstrip())
        return Exit.USAGE
    except SystemExit as end:
        # --help has been printed.
        return int(end.code or 0)
    except CommandError as failure:
        return _failed(output, str(failure), failure.exit_code)
    except RpcError as error:
        return _failed(output, said(error), Exit.STATUS + error.code().number)
    except InvalidArgumentError as error:
        return _failed(output, error.message, Exit.USAGE)
    except (Error, ImportError) as error:
        return _failed(output, str(error), Exit.FAILED)


def _failed(output: Output, message: str, exit_code: int) -> int:
    if output.machine:
        output.record(error={"message": message, "exit": int(exit_code)})
    else:
        output.note(f"penstock: {message}")
    return int(exit_code)


def _close_output() -> None:
    """Lets what is still to be written, to a pipe that nobody reads, go nowhere: Python would complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
