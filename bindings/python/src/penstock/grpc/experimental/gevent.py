"""The name under which grpcio lets its calls wait in gevent's hub."""

from __future__ import annotations

import importlib


def init_gevent() -> None:
    """Lets the calls of this package wait in gevent's hub, as `penstock.gevent.init` does."""
    # Imported only now: gevent may not be installed.
    importlib.import_module("penstock.gevent").init()
