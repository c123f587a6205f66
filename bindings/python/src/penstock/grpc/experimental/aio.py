"""The names of `penstock.grpc.aio`, under which they were first known."""

from __future__ import annotations

from ..aio import *  # noqa: F403
from ..aio import __all__ as __all__
