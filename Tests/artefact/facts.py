"""The parts that all facts about the shipped files use."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "Tests" / "artefact"
LIB = ROOT / "build" / "lib"
INCLUDE = ROOT / "include"
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")
SWIFT = os.environ.get("SWIFT", "swift")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]

facts = []


def fact(function):
    facts.append((function.__name__.replace("_", " "), function))
    return function


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, cwd=options.pop("cwd", ROOT),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))} gave {done.returncode}:\n{done.stdout}"
    return done.stdout


def same(found, expected, what):
    found, expected = set(found), set(expected)
    assert found == expected, f"{what}: too many {sorted(found - expected)}, missing {sorted(expected - found)}"


def version():
    return re.search(r'#define PENSTOCK_VERSION +"(.+)"', (INCLUDE / "penstock/version.h").read_text()).group(1)


def shared():
    return LIB / f"libpenstock.so.{version()}"


def dynamic():
    return run("readelf", "-dW", shared())


def header_functions():
    return run(sys.executable, ROOT / "scripts/api.py", "functions").split()


def listed_symbols():
    lines = (HERE / "symbols.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]
