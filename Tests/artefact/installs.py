"""Facts about what `make install` makes: headers, libraries, pages, and programs that are built with them."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from facts import CC, INCLUDE, ROOT, STRICT, fact, run, same, shared, version

CONSUMER = r"""
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>
int main(void) {
  penstock_metadata *metadata;
  char *json;
  if (penstock_metadata_new(&metadata) || penstock_metadata_set(metadata, "Name", "value")) return 1;
  if (penstock_metadata_json(metadata, &json)) return 2;
  printf("%s %s\n", penstock_version(), json);
  int wrong = strcmp(json, "{\"name\":[\"value\"]}") != 0 && strcmp(json, "{\"name\": [\"value\"]}") != 0;
  penstock_free(json);
  penstock_metadata_release(metadata);
  return wrong ? 3 : 0;
}
"""


class Prefix:
    """A prefix that `make install` has filled. It is made once for all facts."""

    folder = None

    @classmethod
    def path(cls):
        if cls.folder is None:
            cls.folder = tempfile.TemporaryDirectory()
            run("make", "-s", "install", f"PREFIX={cls.folder.name}/usr")
        return pathlib.Path(cls.folder.name) / "usr"

    @classmethod
    def flags(cls, *arguments):
        environment = dict(os.environ, PKG_CONFIG_PATH=f"{cls.path()}/lib/pkgconfig")
        return run("pkg-config", *arguments, "penstock", env=environment).split()


def build_consumer(folder, flags):
    source, out = folder / "consumer.c", folder / "consumer"
    source.write_text(CONSUMER)
    run(CC, *STRICT, "-o", out, source, *flags)
    return out


@fact
def installs_what_it_says():
    names = sorted(str(path.relative_to(Prefix.path())) for path in Prefix.path().rglob("*") if not path.is_dir())
    headers = [f"include/penstock/{path.name}" for path in (INCLUDE / "penstock").glob("*.h")]
    libraries = ["libpenstock.a", "libpenstock.so", f"libpenstock.so.{version().split('.')[0]}",
                 f"libpenstock.so.{version()}", "pkgconfig/penstock.pc", "cmake/penstock/penstock-config.cmake",
                 "cmake/penstock/penstock-config-version.cmake"]
    same(names, headers + [f"lib/{name}" for name in libraries] + ["share/man/man3/penstock.3"], "installed files")
    assert Prefix.flags("--modversion") == [version()]


@fact
def manual_page_tells_all_that_the_headers_declare():
    page = Prefix.path() / "share/man/man3/penstock.3"
    done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u", page], text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    shown = set(re.findall(r"\bpenstock_\w+|\bPENSTOCK_\w+", done.stdout))
    # Of the headers' frames, and of the initializers for C++.
    hidden = re.compile(r"PENSTOCK_API|PENSTOCK_\w+_H|penstock_\w+_init")
    missing = {name for name in run("scripts/api.py", "names").split() if not hidden.fullmatch(name)} - shown
    assert not missing, missing
    sections = re.findall(r"^   (penstock_\w+)\(\)$", done.stdout, re.M)
    same(sorted(sections), run("scripts/api.py", "functions").split(), "functions")
    assert f"penstock {version()}" in done.stdout


@fact
def c_program_with_pkg_config_runs():
    with tempfile.TemporaryDirectory() as folder:
        out = build_consumer(pathlib.Path(folder), Prefix.flags("--cflags", "--libs"))
        assert "libpenstock.so" in run("readelf", "-dW", out)
        run(out, env=dict(os.environ, LD_LIBRARY_PATH=str(Prefix.path() / "lib")))


@fact
def c_program_with_pkg_config_static_runs():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # The linker prefers a shared library if both are there, so this folder has only the archive.
        (folder / "lib").mkdir()
        shutil.copy(Prefix.path() / "lib/libpenstock.a", folder / "lib")
        flags = [f"-L{folder}/lib" if flag == f"-L{Prefix.path()}/lib" else flag
                 for flag in Prefix.flags("--static", "--cflags", "--libs")]
        out = build_consumer(folder, flags)
        assert "libpenstock.so" not in run("readelf", "-dW", out)
        run(out)


CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.13)
project(consumer C)
find_package(penstock ${WANTED} REQUIRED COMPONENTS ${COMPONENTS})
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE ${TARGET})
"""


def cmake_consumer(folder, target, wanted="0.2", components=""):
    """Builds the consumer with CMake against the prefix; returns the program."""
    folder = pathlib.Path(folder, target.replace("::", "-"))
    folder.mkdir()
    (folder / "consumer.c").write_text(CONSUMER)
    (folder / "CMakeLists.txt").write_text(CMAKE_PROJECT)
    run("cmake", "-S", folder, "-B", folder / "built", f"-DCMAKE_PREFIX_PATH={Prefix.path()}", f"-DCMAKE_C_COMPILER={CC}",
        f"-DWANTED={wanted}", f"-DCOMPONENTS={components}", f"-DTARGET={target}")
    run("cmake", "--build", folder / "built")
    return folder / "built/consumer"


@fact
def c_program_with_cmake_runs():
    with tempfile.TemporaryDirectory() as folder:
        out = cmake_consumer(folder, "penstock::penstock")
        assert "libpenstock.so" in run("readelf", "-dW", out)
        run(out)


@fact
def c_program_with_cmake_and_the_archive_runs():
    with tempfile.TemporaryDirectory() as folder:
        out = cmake_consumer(folder, "penstock::static", components="static")
        assert "libpenstock.so" not in run("readelf", "-dW", out)
        run(out)


@fact
def cmake_refuses_other_versions_and_components():
    for more, why in (({"wanted": "0.3"}, "compatible with requested version"),
                      ({"wanted": "1.0"}, "compatible with requested version"),
                      ({"components": "shiny"}, 'no component "shiny"')):
        with tempfile.TemporaryDirectory() as folder:
            try:
                cmake_consumer(folder, "penstock::penstock", **more)
            except AssertionError as refused:
                assert why in " ".join(str(refused).split()), refused
            else:
                raise AssertionError(f"accepted {more}")


@fact
def destdir_and_uninstall_leave_nothing():
    with tempfile.TemporaryDirectory() as folder:
        run("make", "-s", "install", "PREFIX=/usr", f"DESTDIR={folder}")
        pc = pathlib.Path(folder, "usr/lib/pkgconfig/penstock.pc").read_text()
        assert folder not in pc and "prefix=/usr\n" in pc, pc
        run("make", "-s", "uninstall", "PREFIX=/usr", f"DESTDIR={folder}")
        left = [path for path in pathlib.Path(folder).rglob("*") if not path.is_dir()]
        assert not left, left


@fact
def installs_the_command_with_its_manual_and_completion():
    with tempfile.TemporaryDirectory() as folder:
        run("make", "-s", "install", f"PREFIX={folder}/usr", f"WITH_PYTHON={ROOT}/.venv/bin/python",
            env=dict(os.environ, PIP_NO_BUILD_ISOLATION="false", PIP_DISABLE_PIP_VERSION_CHECK="1"))
        usr = pathlib.Path(folder, "usr")
        (package,) = usr.glob("lib/python3*/site-packages/penstock")
        assert not (package / "_lib").exists()
        environment = {"PYTHONPATH": package.parent, "LD_LIBRARY_PATH": usr / "lib", "PATH": os.environ["PATH"]}
        out = run(usr / "bin/penstock", "doctor", env=environment)
        mine = re.escape(version())
        assert re.search(rf"libpenstock +{mine}, {folder}/usr/lib/libpenstock.so.{mine}\n", out), out
        page = (usr / "share/man/man1/penstock.1").read_text()
        assert page.startswith(f'.TH PENSTOCK 1 "" "penstock {version().replace("-dev", ".dev0")}"'), page[:80]
        script = usr / "share/bash-completion/completions/penstock"
        asked = 'source "$1"; COMP_WORDS=(penstock doc); COMP_CWORD=1; _penstock; echo "${COMPREPLY[@]}"'
        assert run("bash", "-c", asked, "bash", script) == "doctor\n"
        assert (usr / "share/zsh/site-functions/_penstock").read_text().startswith("#compdef penstock\n")


@fact
def second_make_builds_nothing():
    before = shared().stat().st_mtime_ns
    run("make", "-s", "lib")
    assert shared().stat().st_mtime_ns == before
