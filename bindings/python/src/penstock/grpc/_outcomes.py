"""How a call ended, in grpcio's terms, for the objects of both styles of call."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

from .._handles.reply import RpcError
from .._handles.status import StatusCode as Code
from ._metadata import incoming
from ._names import StatusCode, code_of

# The library's words for what grpcio's users know by other words.
_WORDS = {(Code.CANCELLED, "channel closed"): "Channel closed!"}


class Outcome(NamedTuple):
    """The end of a call: immutable."""

    code: StatusCode
    details: Optional[str]
    initial: Tuple[Any, ...] = ()
    trailing: Tuple[Any, ...] = ()
    # The words of the error for logs; None for one that was made on this side of the channel.
    debug: Optional[str] = None


INVALID_METADATA = Outcome(StatusCode.INTERNAL, "Invalid metadata", debug="")
CANCELLED = Outcome(StatusCode.CANCELLED, "Locally cancelled by application!")
NOT_SERIALIZED = Outcome(StatusCode.INTERNAL, "Exception serializing request!")
_INSECURE = "Established channel does not have a sufficient security level to transfer call credential."
UNPROTECTED = Outcome(StatusCode.UNAUTHENTICATED, _INSECURE, debug=f"UNAUTHENTICATED:{_INSECURE}")


def outcome_of(ended: Any) -> Outcome:
    """The outcome of an ended call of penstock's: an `RpcError`, a `CompletedCall`, or a `Call`."""
    code: Code = ended.code()
    details: str = ended.details()
    details = _WORDS.get((code, details), details)
    initial, trailing = incoming(ended.initial_metadata()), incoming(ended.trailing_metadata())
    is_local = isinstance(ended, RpcError) and ended._reply is None
    debug = None if is_local else "" if code is Code.OK else f"{code.name}:{details}"
    return Outcome(code_of(code.number), details, initial, trailing, debug)


def text_of(name: str, outcome: Optional[Outcome]) -> str:
    """The words for a call, as grpcio has them: of a class ``name``, with ``outcome``; None: it runs."""
    if outcome is None:
        return f"<{name} object>"
    text = f'<{name} of RPC that terminated with:\n\tstatus = {outcome.code}\n\tdetails = "{outcome.details}"\n'
    if outcome.code is not StatusCode.OK:
        text += f'\tdebug_error_string = "{outcome.debug}"\n'
    return f"{text}>"
