"""Sub-interpreters are refused in words."""

from __future__ import annotations

import pytest

from helpers import run

# Runs `code` in a sub-interpreter, by what this version of Python has for that, and prints how it went.
WITHIN = """
try:
    import _interpreters as interpreters
except ImportError:
    interpreters = __import__("_xxsubinterpreters")
def within(code):
    try:
        if hasattr(interpreters, "exec"):
            failed = interpreters.exec(one, code)
            if failed: print(failed.formatted)
        else:
            interpreters.run_string(one, code)
    except Exception as error:
        print(error)
if hasattr(interpreters, "new_config"):
    one = interpreters.create("KIND")
else:
    one = interpreters.create(isolated="KIND" == "isolated")
"""


def can_make_any() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            __import__(name)
        except ImportError:
            continue
        return True
    return False


@pytest.mark.needs(reason=lambda: None if can_make_any() else "this Python has no sub-interpreters")
@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_a_sub_interpreter_is_refused(server: str, kind: str) -> None:
    text = """
channel = penstock.Channel(target, tls=False)
echo = channel.unary_unary("/penstock.Echo/Unary")
assert echo(b"x") == b"x"
within(f"import sys; sys.path[:] = {sys.path!r}; import penstock")
assert echo(b"x") == b"x"
interpreters.destroy(one)
"""
    printed = run(WITHIN.replace("KIND", kind) + text, server)
    assert "penstock can't be used in a sub-interpreter" in printed
    assert "%{GLOBAL}" in printed
