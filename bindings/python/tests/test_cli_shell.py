"""The parts of the command for a shell: completion, and its manual page."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import List

import pytest

from cli_helpers import printed
from penstock._cli.main import COMMANDS, parsers


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "penstock.bash"
    file.write_text(printed("completion", "bash"))
    return file


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["penstock", ""], list(COMMANDS)),
        (["penstock", "de"], ["describe"]),
        (["penstock", "call", "--pla"], ["--plaintext"]),
        (["penstock", "call", "--proto"], ["--protocol", "--proto", "--protoset"]),
        (["penstock", "call", "--protocol", "grpc-"], ["grpc-web", "grpc-web-text"]),
        (["penstock", "call", "-http", ""], ["auto", "2", "1.1"]),
        (["penstock", "completion", ""], ["bash", "zsh"]),
        (["penstock", "call", "local"], []),
    ],
)
def test_completion(script: Path, words: List[str], found: List[str]) -> None:
    given = " ".join(f"'{word}'" for word in words)
    text = f"source {script}; COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _penstock; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-euc", text], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.split() == found


def test_zsh_has_the_same_script(script: Path) -> None:
    assert printed("completion", "zsh").endswith(script.read_text())


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
