"""Every function of the headers: what it returns, then its parameters."""

from __future__ import annotations

from . import calls, hops, ready, values

PROTOTYPES = {**values.PROTOTYPES, **hops.PROTOTYPES, **calls.PROTOTYPES, **ready.PROTOTYPES}
