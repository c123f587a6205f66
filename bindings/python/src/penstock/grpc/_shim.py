"""Puts this package in the place of ``grpc``."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Dict

# The modules of grpcio that programs and packages import, and ours in their places. Those with an underscore are not
# for them, but have the names of exceptions and of metadata that many catch and annotate all the same.
_PLACES = {
    "_channel": "_channel",
    "_utilities": "_utilities",
    "aio": "aio",
    "aio._call": "aio._abstract",
    "aio._metadata": "aio._abstract",
    "experimental": "experimental",
    "experimental.aio": "experimental.aio",
    "experimental.gevent": "experimental.gevent",
    "experimental.session_cache": "experimental.session_cache",
}


def install() -> None:
    """See `penstock.install_grpc_shim`."""
    own: Any = sys.modules[__package__]
    present: Any = sys.modules.get("grpc")
    if present is own:
        return
    if present is not None or own._names.source is not None:
        raise RuntimeError("grpcio has been imported already: call install_grpc_shim before anything imports grpc")
    modules: Dict[str, Any] = {"grpc": own}
    for name, ours in _PLACES.items():
        modules[f"grpc.{name}"] = importlib.import_module(f"{__package__}.{ours}")
    sys.modules.update(modules)
    # As the import of a submodule does.
    for name in _PLACES:
        parent, _, leaf = f"grpc.{name}".rpartition(".")
        if not hasattr(modules[parent], leaf):
            setattr(modules[parent], leaf, modules[f"grpc.{name}"])
