"""The parts of the build that pyproject.toml can't express: the version from the C header, and the library in the
package.

PENSTOCK_WHEEL_LIBRARY names the library that the wheel carries, instead of the one that `make lib` builds; empty: the
wheel carries none, and the system's is used. PENSTOCK_WHEEL_PLATFORM is the tag of its platform. `make wheel` and
distributions set them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

# setuptools brings a distutils of its own.
from distutils.command.install_data import install_data  # isort: skip

SONAME = "libpenstock.so.0"
HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent


def in_repository() -> bool:
    return (REPOSITORY / "Makefile").is_file() and (REPOSITORY / "include/penstock/version.h").is_file()


def version() -> str:
    """The version from version.h; outside the repository, from the metadata of the source distribution."""
    if in_repository():
        text = (REPOSITORY / "include/penstock/version.h").read_text(encoding="utf-8")
        pattern = r'^#define\s+PENSTOCK_VERSION\s+"([^"]+)"$'
    else:
        text = (HERE / "PKG-INFO").read_text(encoding="utf-8")
        pattern = r"^Version: (.+)$"
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise SystemExit("the version was not found")
    return found.group(1)


def library() -> Optional[Path]:
    """The library, which is built if necessary; None outside the repository, where the system's library is used."""
    named = os.environ.get("PENSTOCK_WHEEL_LIBRARY")
    if named is not None:
        return Path(named).resolve(strict=True) if named else None
    if not in_repository():
        return None
    subprocess.run([os.environ.get("MAKE", "make"), "-C", str(REPOSITORY), "lib"], check=True)
    return (REPOSITORY / "build/lib" / SONAME).resolve(strict=True)


class BuildWithLibrary(build_py):
    def run(self) -> None:
        # An editable install runs from the sources. It loads the library that the program names, or the system's.
        if self.editable_mode:
            super().run()
            return
        package = Path(self.build_lib) / "penstock"
        # An earlier build may have left files in the folder, which would be packed too.
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        file = library()
        if file is not None:
            target = package / "_lib" / SONAME
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
            strip = shutil.which(os.environ.get("STRIP", "strip"))
            if strip is not None:
                subprocess.run([strip, "--strip-unneeded", str(target)], check=True)


# The files of the command `penstock` that its own subcommands print: where they are installed, and the arguments.
COMMAND_FILES: Dict[str, List[str]] = {
    "share/man/man1/penstock.1": ["manual"],
    "share/bash-completion/completions/penstock": ["completion", "bash"],
    "share/zsh/site-functions/_penstock": ["completion", "zsh"],
}
PRINT = """
import sys
sys.path.insert(0, "src")
import penstock
penstock.__version__ = sys.argv.pop(1)
from penstock._cli.main import main
sys.exit(main())
"""


class CommandFiles(install_data):
    def run(self) -> None:
        for name, arguments in COMMAND_FILES.items():
            file = HERE / "build/command" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-c", PRINT, self.distribution.get_version(), *arguments]
            file.write_bytes(subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout)
        super().run()


class PlatformWheel(bdist_wheel):
    """The wheel's tag: any Python 3, one platform, because the library in it is the only compiled part."""

    def get_tag(self) -> Tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", os.environ.get("PENSTOCK_WHEEL_PLATFORM", platform)


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    version=version(),
    distclass=WithLibrary,
    data_files=[(str(Path(name).parent), [f"build/command/{name}"]) for name in COMMAND_FILES],
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel, "install_data": CommandFiles},
)
