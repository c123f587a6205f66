"""The package's own example runs. check-docs runs those of docs/python.md."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap

import penstock


def run(text: str, target: str) -> str:
    assert "localhost:50051" in text
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text.replace("localhost:50051", target), "example", "exec"), {"penstock": penstock})
    return printed.getvalue()


def test_the_package_s_example(server: str, stubs: str) -> None:
    assert penstock.__doc__ is not None
    program = textwrap.dedent("".join(re.findall(r"(?m)^    .*\n|^\n", penstock.__doc__)))
    imports = "from helloworld_pb2 import HelloRequest\nfrom helloworld_pb2_grpc import GreeterStub\n"
    assert "Hello, you!" in run(imports + program, server)


def test_what_is_public_is_documented() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name).__doc__, name
