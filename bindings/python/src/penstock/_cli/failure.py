"""How a command ends that does not do what was asked."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """The exit codes. A call that ends with another status than OK gives `STATUS` and the number of its code."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO = 3
    STATUS = 64
    INTERRUPTED = 130
    CLOSED = 141


class CommandError(Exception):
    """A command can't go on: ``str()`` says what is wrong, where, and what was expected. ``exit_code`` is one of
    `Exit`."""

    def __init__(self, message: str, exit_code: int = Exit.FAILED) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)


def wrong(message: str) -> CommandError:
    """The failure for a command line that can't be meant."""
    return CommandError(message, Exit.USAGE)
