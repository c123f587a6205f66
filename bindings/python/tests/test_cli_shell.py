"""The parts of the command for a shell: completion, and its manual page."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any, List, Optional

import pytest

from cli_helpers import printed
from penstock._cli.main import COMMANDS, parsers

WORDS = [
    (["penstock", ""], list(COMMANDS)),
    (["penstock", "de"], ["describe"]),
    (["penstock", "call", "--pla"], ["--plaintext"]),
    (["penstock", "call", "-pla"], ["-plaintext"]),
    (["penstock", "call", "-proto"], ["-protocol", "-proto", "-protoset"]),
    (["penstock", "call", "--proto"], ["--protocol", "--proto", "--protoset"]),
    (["penstock", "call", "--protocol", "grpc-"], ["grpc-web", "grpc-web-text"]),
    (["penstock", "call", "-http", ""], ["auto", "2", "1.1"]),
    (["penstock", "completion", ""], ["bash", "zsh"]),
    (["penstock", "call", "local"], []),
]


@pytest.mark.parametrize(("words", "found"), WORDS)
def test_completion(tmp_path: Path, words: List[str], found: List[str]) -> None:
    script = tmp_path / "penstock.bash"
    script.write_text(printed("completion", "bash"))
    given = " ".join(f"'{word}'" for word in words)
    text = f"source {script}; COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _penstock; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-euc", text], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.split() == found


# The beginnings of an interactive zsh: by its folder of functions, and by `source`, as in .zshrc.
AUTOLOAD = "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D"
SOURCE = "autoload -Uz compinit; compinit -u -D; source ./_penstock"
# Tab puts in all words that are found, and Ctrl-X prints the line.
KEYS = """
unset zle_bracketed_paste; PS1="ready "; unsetopt prompt_sp
all() { _main_complete; compstate[insert]=all; compstate[list]= }
show() { print -r -- "<$BUFFER>"; BUFFER= }
zle -C all complete-word all; zle -N show; bindkey -e; bindkey '^I' all; bindkey '^X' show
"""


def no_zsh() -> Optional[str]:
    return None if shutil.which("zsh") else "zsh is not there; scripts/doctor --check installs it"


@pytest.mark.needs(reason=no_zsh)
@pytest.mark.parametrize("beginning", [AUTOLOAD, SOURCE])
def test_completion_in_zsh(tmp_path: Path, beginning: str) -> None:
    (tmp_path / "_penstock").write_text(printed("completion", "zsh"))
    subprocess.run(["zsh", "-n", "_penstock"], cwd=tmp_path, check=True)
    (tmp_path / ".zshrc").write_text(f"{beginning}\n{KEYS}")
    screen, inner = pty.openpty()
    pipes: Any = {"stdin": inner, "stdout": inner, "stderr": inner, "start_new_session": True}
    own = {**os.environ, "ZDOTDIR": str(tmp_path), "TERM": "xterm"}
    shell = subprocess.Popen(["zsh", "-d", "-i"], cwd=tmp_path, env=own, **pipes)
    os.close(inner)
    try:
        until(screen, "", "ready ")
        for words, found in WORDS:
            line = until(screen, f"{' '.join(words)}\t\x18", ">\r").rpartition("<")[2].rpartition(">")[0]
            assert line.split()[len(words) - 1 :] == (found or words[-1:]), words
    finally:
        shell.kill()
        shell.wait(60)
        os.close(screen)


def until(screen: int, keys: str, text: str) -> str:
    """Types ``keys``, and waits until the screen has shown ``text``; returns what it has shown."""
    os.write(screen, keys.encode())
    seen = ""
    while text not in seen:
        ready, _, _ = select.select([screen], [], [], 60)
        assert ready, seen
        seen += os.read(screen, 65536).decode()
    return seen


def test_the_manual_has_every_flag() -> None:
    page = printed("manual")
    for parser in parsers().values():
        for action in parser._actions:
            for name in action.option_strings:
                if name.startswith("--"):
                    assert name.replace("-", "\\-") in page
    assert re.findall(r"^\.SH (.*)", page, re.M)[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    groff = shutil.which("groff")
    if groff is not None:
        done = subprocess.run(
            [groff, "-man", "-Tascii", "-ww"], input=page, check=True, capture_output=True, text=True
        )
        assert done.stderr == ""
