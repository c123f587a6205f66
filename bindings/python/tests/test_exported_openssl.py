"""The library in a program that exports the symbols of an OpenSSL of its own, as Node does: the loader gives these to
each library that names them. docs/tls.md, "The program's own OpenSSL"."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest

import penstock
from conftest import REPOSITORY

CC = os.environ.get("CC", "cc")
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{REPOSITORY / 'include'}"]
SOURCE = Path(__file__).with_name("exporting.c")

if platform.libc_ver()[0] != "glibc":
    pytest.skip("the loader of glibc is asked here", allow_module_level=True)
if "LD_PRELOAD" in os.environ:
    pytest.skip("the programs have no sanitizer", allow_module_level=True)


def compiled(folder: Path, *more: str) -> Path:
    made = folder / "made"
    subprocess.run([CC, *FLAGS, str(SOURCE), *more, "-ldl", "-o", str(made)], check=True, timeout=600)
    return made


def check(*command: str, **environment: str) -> None:
    """Runs a program; its last line has the versions of the library and of what it stands on."""
    whole = {**os.environ, **environment}
    done = subprocess.run(command, env=whole, text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    versions = json.loads(done.stdout.splitlines()[-1])
    assert versions["version"] == penstock.library_versions()["version"]


@pytest.fixture(scope="module", params=["whole", "used"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with the whole of OpenSSL, as Node has, or with the parts that it uses: for others the loader goes
    to the system's OpenSSL."""
    archives: List[str] = []
    for name in ("libssl.a", "libcrypto.a"):
        found = subprocess.run([CC, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        archives.append(found.stdout.strip())
        if not Path(archives[-1]).is_absolute():
            pytest.skip("the system has no archives of OpenSSL")
    if request.param == "whole":
        archives = ["-Wl,--whole-archive", *archives, "-Wl,--no-whole-archive"]
    return compiled(tmp_path_factory.mktemp("exporting"), *archives, "-rdynamic")


def test_in_a_program(program: Path, servers: Dict[str, str], certificates: Path) -> None:
    check(str(program), str(penstock.load()), servers["tls"], str(certificates / "ca.pem"))


MODULE = """
process.dlopen({exports: {}}, process.env.MODULE, require("os").constants.dlopen.RTLD_NOW);
const [host, port] = process.env.TARGET.split(":");
const options = {host, port, ca: require("fs").readFileSync(process.env.ROOTS), ALPNProtocols: ["h2"]};
const socket = require("tls").connect(options, () => socket.destroy());
"""


def test_in_node(servers: Dict[str, str], certificates: Path, tmp_path: Path) -> None:
    """Node's own TLS works behind the library's, too."""
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no Node")
    module = compiled(tmp_path, "-DMODULE_OF_NODE", "-fPIC", "-shared", "-Wl,--allow-shlib-undefined")
    roots = str(certificates / "ca.pem")
    check(node, "-e", MODULE, MODULE=str(module), LIBRARY=str(penstock.load()), TARGET=servers["tls"], ROOTS=roots)
