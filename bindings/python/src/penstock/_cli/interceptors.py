"""The interceptors that --interceptor names."""

from __future__ import annotations

import importlib
import sys
from typing import Any, List, Tuple

from .failure import CommandError, wrong


def loaded(names: List[str]) -> List[Tuple[Any, int]]:
    """The interceptors, each with its priority: the first is next to the caller. Modules of the working directory are
    found, too."""
    if names and "" not in sys.path:
        sys.path.insert(0, "")
    return [(_one(name), 100 * (len(names) - at)) for at, name in enumerate(names)]


def _one(text: str) -> Any:
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise wrong(f"--interceptor {text}: expected module:Class, such as penstock.ready:TraceContext")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found() if isinstance(found, type) else found
    except Exception as error:
        raise CommandError(f"--interceptor {text}: {type(error).__name__}: {error}") from error
