"""Puts this package in the place of ``grpc``."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any, Dict


def install() -> None:
    """See `penstock.install_grpc_shim`."""
    own: Any = sys.modules[__package__]
    present: Any = sys.modules.get("grpc")
    if present is own:
        return
    if present is not None or own._names.source is not None:
        raise RuntimeError("grpcio has been imported already: call install_grpc_shim before anything imports grpc")
    # `penstock.grpc.aio` has classes of grpcio's as its bases. Without grpcio it can't be imported, nor can grpc.aio.
    aio: Any = None
    with contextlib.suppress(ImportError):
        aio = importlib.import_module(f"{__package__}.aio")
    modules: Dict[str, Any] = {"grpc": own, "grpc.aio": aio}
    for name in ("_utilities", "experimental"):
        modules[f"grpc.{name}"] = importlib.import_module(f"{__package__}.{name}")
    sys.modules.update(modules)
