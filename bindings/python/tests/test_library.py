"""Which library is loaded, and the errors for a wrong one. Each test uses a new process, because loading happens
once."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import List, Optional

import pytest

import penstock
from conftest import REPOSITORY
from penstock._handles.version import package_version

SOURCES = str(Path(penstock.__file__).parents[1])


def run(program: str, *, path: Optional[str] = None) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        f"import sys; sys.path.insert(0, {(path or SOURCES)!r})\n{program}",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={})


def shared_library(folder: Path, source: str, name: str = "libfake.so") -> str:
    code, file = folder / "fake.c", folder / name
    code.write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", str(code), "-o", str(file)], check=True)
    return str(file)


def load_error(file: str) -> List[str]:
    """The class name and the message of the exception that ``load(file)`` raises in a new process."""
    done = run(
        f"import penstock\ntry: penstock.load({file!r})\nexcept Exception as e: print(type(e).__name__, e, sep='|')"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split("|")


def test_importing_loads_neither_the_library_nor_grpc() -> None:
    program = (
        "import penstock, sys\n"
        "assert not any(name == 'grpc' or name.startswith(('grpc.', 'google')) for name in sys.modules)\n"
        "assert 'libpenstock' not in open('/proc/self/maps').read()\n"
    )
    done = run(program)
    assert done.returncode == 0, done.stderr


def test_an_explicit_path_is_loaded() -> None:
    done = run(f"import penstock; print(penstock.load({penstock.load()!r}), penstock.library_version())")
    assert done.stdout.split() == [penstock.load(), penstock.library_version()], done.stderr


def test_the_same_file_may_be_named_again_but_not_another() -> None:
    program = (
        f"import penstock\npenstock.load({penstock.load()!r}); penstock.load({penstock.load()!r})\n"
        "try: penstock.load('/nowhere/else.so')\nexcept RuntimeError as e: print(e)"
    )
    assert "/nowhere/else.so" in run(program).stdout


def test_a_missing_file_is_named() -> None:
    kind, message = load_error("/nowhere/libpenstock.so.0")
    assert kind == "ImportError"
    assert "/nowhere/libpenstock.so.0" in message


def test_another_library_is_refused(tmp_path: Path) -> None:
    file = shared_library(tmp_path, "int unrelated(void) { return 0; }")
    kind, message = load_error(file)
    assert kind == "ImportError"
    assert file in message
    assert "is not libpenstock" in message


@pytest.mark.parametrize(
    ("number", "version"), [("0x000001", "0.0.1"), ("0x0001ff", "0.1.255"), ("0x010203", "1.2.3")]
)
def test_a_library_of_another_version_is_refused_with_both_versions(
    tmp_path: Path, number: str, version: str
) -> None:
    file = shared_library(tmp_path, f"unsigned penstock_version_number(void) {{ return {number}; }}")
    kind, message = load_error(file)
    assert kind == "ImportError"
    assert message == f"{file} is libpenstock {version}; this package needs 0.2.0 or a later 0.x"


def test_a_library_without_a_needed_function_is_refused(tmp_path: Path) -> None:
    file = shared_library(tmp_path, "unsigned penstock_version_number(void) { return 0x000200; }")
    kind, message = load_error(file)
    assert kind == "ImportError"
    assert message.startswith(f"{file} says that it is libpenstock 0.2.0, but lacks a function that 0.2.0 has: ")
    assert "penstock_" in message


def test_a_package_that_is_not_installed_has_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert package_version() == "0+source"


def test_without_any_library_the_message_says_where_it_looked() -> None:
    done = run("import penstock\ntry: penstock.library_version()\nexcept ImportError as e: print(e)")
    if "libpenstock was not found" not in done.stdout:
        pytest.skip("the system has a libpenstock of its own")
    assert "libpenstock.so.0" in done.stdout


def test_an_installed_package_carries_its_library(tmp_path: Path) -> None:
    package = str(REPOSITORY / "bindings/python")
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "--target", str(target), package], check=True)
    carried = target / "penstock/_lib/libpenstock.so.0"
    assert carried.is_file()
    assert (target / "penstock/py.typed").is_file()
    program = "import penstock; print(penstock.load(), penstock.__version__, penstock.library_version())"
    done = run(program, path=str(target))
    version = penstock.library_version()
    # A version before its release ends in "-dev" in the library, and in ".dev0" in Python.
    assert done.stdout.split() == [str(carried), version.replace("-dev", ".dev0"), version], done.stderr
