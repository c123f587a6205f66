"""Finds the code that a test of Tests/c or bindings/python/tests runs: the test itself, and the functions that it names."""

import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
STREAMS = re.compile(r"\b(?:BIDI|CLIENT_STREAM|SERVER_STREAM|PENSTOCK_KIND_(?:BIDI|CLIENT_STREAM|SERVER_STREAM)|run_bidi|exchange"
                     r"|stream_stream|stream_unary|unary_stream|(?:Bidi|ClientStream|ServerStream))\b")


def c_parts(text):
    """The text of each definition at the top level of a C file, by name."""
    parts = {}
    for found in re.finditer(r"^TEST\((\w+)\) \{.*?^\}|^(?:static |inline |const )*[\w ]+[ *](\w+)\([^;{]*?\) \{.*?^\}"
                             r"|^static (?:const )?[\w ]+[ *](\w+)(?:\[\])* = .*?;$|^#define (\w+)\b.*?[^\\]$",
                             text, re.M | re.S):
        name = next(group for group in found.groups() if group)
        parts[name] = found.group(0)
    return parts


def python_parts(text):
    parts = {}
    for found in re.finditer(r"^(?:@.*\n)*(?:class|def) (\w+).*?(?=^\S|\Z)", text, re.M | re.S):
        body = found.group(0)
        end = found.end()
        # A function whose signature has several lines goes on behind a ")" in column 0.
        rest = re.match(r"\).*?(?=^\S|\Z)", text[end:], re.M | re.S)
        parts[found.group(1)] = body + (rest.group(0) if rest else "")
    return parts


@functools.cache
def all_tests():
    """For each test by name, the definitions (`c_parts`) in its file and in the headers that the file includes."""
    tests = {}
    for path in sorted(ROOT.glob("Tests/c/*.c")):
        text = path.read_text()
        parts = {}
        for name in re.findall(r'^#include "(\w+\.h)"', text, re.M):
            if not (path.parent / name).exists():
                continue  # the header is made when the tests are built
            header = (path.parent / name).read_text()
            for inner in re.findall(r'^#include "(\w+\.h)"', header, re.M):
                parts |= c_parts((path.parent / inner).read_text())
            parts |= c_parts(header)
        parts |= c_parts(text)
        tests |= {name: parts for name in re.findall(r"^TEST\((\w+)\)", text, re.M)}
    helpers = {}
    for name in ("helpers.py", "conftest.py"):
        helpers |= python_parts((ROOT / "bindings/python/tests" / name).read_text())
    for path in sorted(ROOT.glob("bindings/python/tests/test_*.py")):
        text = path.read_text()
        parts = helpers | python_parts(text)
        tests |= {name: parts for name in re.findall(r"^def (test_\w+)\(", text, re.M)}
    return tests


def what_runs(test):
    """The text of the test and of the definitions that it names. `check_ended`, which every test runs at its end, is left
    out, because it names all events."""
    parts, done, waiting = all_tests()[test], {"check_ended": ""}, [test]
    while waiting:
        name = waiting.pop()
        if name in done or name not in parts:
            continue
        done[name] = parts[name]
        waiting += re.findall(r"\b\w+\b", parts[name])
    return "\n".join(done.values())


def makes_streams(test):
    return bool(STREAMS.search(what_runs(test)))
