"""`penstock completion`: what a shell completes, from the commands and their flags."""

from __future__ import annotations

import argparse
from typing import Dict, Iterator, Mapping, Optional, Tuple

from .failure import Exit
from .flags import shown
from .output import Output

HELP = "print what a shell needs to complete commands and flags"
_BASH = """_penstock() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case ${{COMP_WORDS[1]}}:$before in
{choices}
    *)
      case ${{COMP_WORDS[1]}} in
{flags}
      esac
      case $word in
      -[!-]*) words=${{words//--/-}} ;;
      -*) ;;
      *) words= ;;
      esac ;;
    esac
  fi
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); fi
}}
complete -o default -F _penstock penstock
"""
# Works as a file of $fpath, whose first call runs it, and where it is read by `source`.
_ZSH = """#compdef penstock
_penstock() {{
  local -a words_here
  if (( CURRENT == 2 )); then
    words_here=({commands})
    _describe -V command words_here
    return
  fi
  case $words[2]:$words[CURRENT-1] in
{choices}
  esac
  if [[ $PREFIX != -* ]]; then
    _default
    return
  fi
  case $words[2] in
{flags}
  esac
  if [[ $PREFIX == -[^-]* ]]; then words_here=("${{(@)words_here/#--/-}}"); fi
  _describe -V -o flag words_here
}}
if [ "$funcstack[1]" = _penstock ]; then _penstock "$@"; else compdef _penstock penstock; fi
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")


def run(args: argparse.Namespace, output: Output) -> int:
    make = zsh if args.shell == "zsh" else bash
    output.line(make(args.parsers).rstrip())
    return Exit.OK


def bash(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    flags = [f'      {command}) words="{" ".join(_flags(parser))}" ;;' for command, parser in parsers.items()]
    choices = [f'    {before}) words="{values}" ;;' for before, values in _choices(parsers)]
    return _BASH.format(commands=" ".join(parsers), choices="\n".join(choices), flags="\n".join(flags))


def zsh(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    commands = _described({name: parser.description for name, parser in parsers.items()})
    flags = [f"  {command}) words_here=({_described(_flags(parser))}) ;;" for command, parser in parsers.items()]
    choices = [f"  {before}) compadd -V value -- {values}; return ;;" for before, values in _choices(parsers)]
    return _ZSH.format(commands=commands, choices="\n".join(choices), flags="\n".join(flags))


def _flags(parser: argparse.ArgumentParser) -> Dict[str, Optional[str]]:
    """The meaning of each flag."""
    return {name: action.help for action in parser._actions for name in shown(action)}


def _choices(parsers: Mapping[str, argparse.ArgumentParser]) -> Iterator[Tuple[str, str]]:
    """The words that may stand behind a flag, or behind a command as its first word."""
    for command, parser in parsers.items():
        for action in parser._actions:
            if action.choices:
                names = action.option_strings or [command]
                yield "|".join(f"{command}:{name}" for name in names), " ".join(action.choices)


def _described(meanings: Mapping[str, Optional[str]]) -> str:
    """Words with their meanings, in single quotes, as zsh's _describe takes them."""
    each = (f"{name}:{meaning}" if meaning else name for name, meaning in meanings.items())
    return " ".join("'" + one.replace("'", "'\\''") + "'" for one in each)
