"""The classes and enumerations of grpcio's interface: grpcio's own where it can be imported, so that code which asks
for ``isinstance(error, grpc.Call)`` or ``code() is grpc.StatusCode.OK`` sees its own objects, else those of
`_abstract`. This module alone imports grpcio, and uses nothing else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence

from . import _abstract

# grpcio's module; None: it can't be imported.
source: Any = None
if TYPE_CHECKING:
    from ._abstract import *  # noqa: F403
    from ._abstract import ChannelConnectivity, Compression, StatusCode
else:
    try:
        import grpc as source
    except ImportError:
        source = None
    globals().update({name: getattr(source or _abstract, name) for name in _abstract.NAMES})

__all__: Sequence[str] = _abstract.NAMES

_CODES: Dict[int, StatusCode] = {code.value[0]: code for code in StatusCode}
_STATES: Dict[int, ChannelConnectivity] = {state.value[0]: state for state in ChannelConnectivity}
_COMPRESSIONS = {0: "identity", 1: "deflate", 2: "gzip"}


def code_of(number: int) -> StatusCode:
    """The member of `StatusCode` with this number."""
    return _CODES[number]


def state_of(number: int) -> ChannelConnectivity:
    """The member of `ChannelConnectivity` with this number; penstock's `Connectivity` has the same numbers."""
    return _STATES[number]


def compression_name(compression: Optional[Compression]) -> Optional[str]:
    """Penstock's name for a member of `Compression`, or its number; None for None. KeyError: anything else, as in
    grpcio."""
    given: Any = compression
    return None if given is None else _COMPRESSIONS[given]
