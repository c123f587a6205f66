"""Every function of the headers: the type that it returns, then the types of its parameters."""

from __future__ import annotations

from . import calls, hops, ready, values

PROTOTYPES = {**values.PROTOTYPES, **hops.PROTOTYPES, **calls.PROTOTYPES, **ready.PROTOTYPES}
