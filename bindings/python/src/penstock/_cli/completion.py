"""`penstock completion`: what a shell completes, from the commands and their flags."""

from __future__ import annotations

import argparse
from typing import List, Mapping

from .failure import Exit
from .flags import shown
from .output import Output

HELP = "print what a shell needs to complete commands and flags"
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
_SCRIPT = """_penstock() {{
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
      -*) ;;
      *) words= ;;
      esac ;;
    esac
  fi
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); fi
}}
complete -o default -F _penstock penstock
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")


def run(args: argparse.Namespace, output: Output) -> int:
    output.line(((_ZSH if args.shell == "zsh" else "") + script(args.parsers)).rstrip())
    return Exit.OK


def script(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """The script for bash, with which zsh has a way to live, too."""
    choices: List[str] = []
    flags: List[str] = []
    for command, parser in parsers.items():
        actions = [action for action in parser._actions if action.option_strings]
        names = " ".join(name for action in actions for name in shown(action))
        flags.append(f'      {command}) words="{names}" ;;')
        for action in parser._actions:
            if action.choices:
                # Behind a flag its values, and behind the command those of its first word.
                before = "|".join(f"{command}:{name}" for name in action.option_strings or [command])
                choices.append(f'    {before}) words="{" ".join(action.choices)}" ;;')
    return _SCRIPT.format(commands=" ".join(parsers), choices="\n".join(choices), flags="\n".join(flags))
