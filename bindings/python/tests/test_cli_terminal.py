"""The command as a program of its own: in a terminal and in pipes, with Ctrl-C, and without other packages."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from google.protobuf import descriptor_pb2

from cli_helpers import GREETER, HELLO, PROTOS, started
from helpers import ended
from penstock._cli.main import main

BIDI = f"{GREETER}/SayHelloBidiStream"
PIPES: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.fixture
def plain(servers: Dict[str, str]) -> str:
    return servers["command_plain"]


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, *argv: str) -> None:
        self.screen, inner = pty.openpty()
        pipes: Any = {"stdin": inner, "stdout": inner, "stderr": inner, "start_new_session": True}
        self.process = started(*argv, **pipes)
        os.close(inner)
        self.seen = ""

    def until(self, text: str) -> None:
        """Waits until the screen has shown ``text``."""
        while text not in self.seen:
            assert self._read(), self.seen

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def code(self) -> int:
        """Waits for the end, and returns the exit code."""
        while self._read():
            pass
        return self.process.wait(60)

    def _read(self) -> bool:
        """Waits until the screen shows more. False: the command has ended."""
        ready, _, _ = select.select([self.screen], [], [], 60)
        assert ready, self.seen
        try:
            self.seen += os.read(self.screen, 65536).decode()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        os.close(self.screen)


@pytest.fixture
def terminals() -> Iterator[Any]:
    opened: List[Terminal] = []

    def terminal(*argv: str) -> Terminal:
        opened.append(Terminal(*argv))
        return opened[-1]

    yield terminal
    for one in opened:
        one.close()


def test_in_a_terminal_a_message_has_colours_and_lines(plain: str, terminals: Any) -> None:
    """With rich, which the tests have."""
    terminal = terminals("call", "--plaintext", "--trace", "-d", '{"name": "you"}', plain, HELLO)
    assert terminal.code() == 0
    assert '\x1b[1m{\x1b[0m\r\n  \x1b[1;34m"message"\x1b[0m: \x1b[32m"Hello, you!"\x1b[0m' in terminal.seen
    assert "caller" in terminal.seen
    assert "───" in terminal.seen


def test_requests_that_are_typed(plain: str, terminals: Any) -> None:
    terminal = terminals("call", "--plaintext", plain, BIDI)
    terminal.until("Ctrl-D ends them.")
    terminal.type('{"name": "one"}\n')
    terminal.until("Hello, one!")
    terminal.type('{"name": "two"}\n')
    terminal.until("Hello, two!")
    terminal.type("\x04")
    assert terminal.code() == 0


def test_ctrl_c_in_a_terminal(plain: str, terminals: Any) -> None:
    terminal = terminals("call", "--plaintext", plain, BIDI)
    terminal.type('{"name": "one"}\n')
    terminal.until("Hello, one!")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.code() == 130
    assert "\r\ninterrupted" in terminal.seen
    assert "Traceback" not in terminal.seen


def test_answers_come_while_requests_do_and_ctrl_c_ends_a_pipe(plain: str) -> None:
    with started("call", "--plaintext", plain, BIDI, **PIPES) as process:
        process.stdin.write('{"name": "one"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"message": "Hello, one!"}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
        assert process.stderr.read().startswith("interrupted")


def test_ctrl_c_says_whom_the_call_waits_for(plain: str, terminals: Any) -> None:
    seen = ""
    # The signal may come just before the command waits for the call. Then it says nothing.
    for _ in range(20):
        terminal = terminals("call", "--plaintext", "--interceptor", "cli_interceptors:Stuck", *PROTOS, plain, HELLO)
        terminal.until("Stuck has the call")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.code() == 130
        assert "Traceback" not in terminal.seen
        seen = terminal.seen
        if "interrupted" in seen:
            break
    assert "interrupted: paused in `Stuck` for " in seen


def test_a_closed_pipe_ends_it(plain: str) -> None:
    with started("call", "--plaintext", plain, BIDI, **PIPES) as process:
        process.stdin.write('{"name": "one"}\n')
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write('{"name": "two"}\n')
        process.stdin.flush()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


def hanging(folder: Path) -> str:
    """A description of penstock.Probe/HangBidi, which reads nothing: the server has none."""
    file = descriptor_pb2.FileDescriptorProto(name="probe.proto", package="penstock", syntax="proto3")
    file.message_type.add(name="Any").field.add(name="data", number=1, type=9, label=1)
    file.service.add(name="Probe").method.add(
        name="HangBidi",
        input_type=".penstock.Any",
        output_type=".penstock.Any",
        client_streaming=True,
        server_streaming=True,
    )
    path = folder / "probe.set"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return str(path)


def test_requests_wait_for_a_server_that_does_not_read(server: str, tmp_path: Path) -> None:
    """So what is read ahead of the server is bounded, however much comes."""
    probe = ("--descriptor-set", hanging(tmp_path), server, "penstock.Probe/HangBidi")
    line = b'{"data": "' + b"x" * 65_000 + b'"}\n'
    with started("call", "--plaintext", *probe, **PIPES) as process:
        descriptor = process.stdin.fileno()
        os.set_blocking(descriptor, False)
        written = 0
        # A pipe that takes nothing for a second is full; a process that is only slow makes the test pass, too, but it
        # has to read something.
        while select.select([], [descriptor], [], 60 if written < 200_000 else 1)[1]:
            written += os.write(descriptor, line)
            assert written < 32 << 20
        assert written >= 200_000
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("interrupted")


def test_it_runs_without_other_packages(plain: str) -> None:
    """Without protobuf and everything else that is installed (-S), but messages."""
    with started("health", "--plaintext", plain, python=("-S", "-W", "error"), **PIPES) as process:
        assert ended(process) == ("SERVING\n", "")
    with started("call", "--plaintext", plain, HELLO, python=("-S", "-W", "error"), **PIPES) as process:
        out, err = ended(process)
    assert (process.returncode, out) == (1, "")
    assert err == (
        "penstock: messages in JSON need the package protobuf, and No module named 'google'; "
        "install it: pip install protobuf\n"
    )


def test_streams_that_are_not_there(
    plain: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after <&- and >&- in a shell."""
    call = ["call", "--plaintext", *PROTOS, plain]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        assert main([*call, BIDI]) == 1
        assert capsys.readouterr().err == "penstock: the standard input is closed, and requests are read from it\n"
        patch.setattr(sys, "stdout", None)
        assert main([*call, HELLO]) == 0
        assert main(["list", "-v", *PROTOS, GREETER]) == 0
    assert capsys.readouterr() == ("", "")
