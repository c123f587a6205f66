"""Status: how a call ended. A gRPC code, a message, details and trailers."""

from __future__ import annotations

import ctypes
import enum
import json
from ctypes import byref, c_char_p, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from .. import _raw
from .arguments import c_string, encoded_text
from .errors import check, check_with
from .metadata import Metadata, MetadataLike, owned_text
from .objects import own


class StatusCode(enum.Enum):
    """gRPC's status codes. Equal to (and hashed as) the members of ``grpc.StatusCode``, whose values they share:
    ``(number, words)``. ``int(code)`` and `number` give the number; ``StatusCode(5)`` gives the member with that
    number."""

    OK = (0, "ok")
    CANCELLED = (1, "cancelled")
    UNKNOWN = (2, "unknown")
    INVALID_ARGUMENT = (3, "invalid argument")
    DEADLINE_EXCEEDED = (4, "deadline exceeded")
    NOT_FOUND = (5, "not found")
    ALREADY_EXISTS = (6, "already exists")
    PERMISSION_DENIED = (7, "permission denied")
    RESOURCE_EXHAUSTED = (8, "resource exhausted")
    FAILED_PRECONDITION = (9, "failed precondition")
    ABORTED = (10, "aborted")
    OUT_OF_RANGE = (11, "out of range")
    UNIMPLEMENTED = (12, "unimplemented")
    INTERNAL = (13, "internal")
    UNAVAILABLE = (14, "unavailable")
    DATA_LOSS = (15, "data loss")
    UNAUTHENTICATED = (16, "unauthenticated")

    @property
    def number(self) -> int:
        """The number of the code, 0 to 16."""
        return self.value[0]

    def __int__(self) -> int:
        return self.value[0]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, enum.Enum) and type(other).__name__ == "StatusCode":
            return bool(other.value == self.value)
        return NotImplemented

    # Members that are equal to a member of grpc.StatusCode must have its hash: that of the name, as in every Enum.
    def __hash__(self) -> int:
        return hash(self._name_)

    @classmethod
    def _missing_(cls, value: object) -> Optional[StatusCode]:
        if isinstance(value, int) and not isinstance(value, bool):
            return next((code for code in cls if code.value[0] == value), None)
        return None


# The types that are accepted as a code: a member, a member of grpc.StatusCode, or 0 to 16.
CodeLike = Union[StatusCode, int, enum.Enum]


def code_number(code: CodeLike) -> int:
    """The number of a code. ValueError: not a gRPC code."""
    if isinstance(code, StatusCode):
        return code.value[0]
    if isinstance(code, enum.Enum) and isinstance(code.value, tuple):
        return StatusCode(code.value[0]).value[0]
    return StatusCode(code).value[0]


@dataclass(frozen=True)
class Detail:
    """One detail of a status: a ``google.protobuf.Any``."""

    type_url: str
    value: bytes
    # The fields of one of the ten google.rpc error details; None for another type.
    parsed: Optional[Dict[str, Any]] = None

    @property
    def type_name(self) -> str:
        """The part after the last ``/`` of the type URL: the message's full name."""
        return self.type_url.rpartition("/")[2]

    def unpack(self, message_class: Any) -> Any:
        """The value as a message of a generated class. TypeError: the detail is of another type."""
        wanted = message_class.DESCRIPTOR.full_name
        if wanted != self.type_name:
            raise TypeError(f"the detail is a {self.type_name}, not a {wanted}")
        return message_class.FromString(self.value)


# The types that are accepted as a detail: a `Detail`, (type URL, bytes), or a protobuf message.
DetailLike = Union[Detail, Tuple[str, bytes], Any]


def _detail_parts(detail: DetailLike) -> Tuple[str, bytes]:
    if isinstance(detail, Detail):
        return detail.type_url, detail.value
    if isinstance(detail, tuple):
        type_url, value = detail
        return type_url, value
    return f"type.googleapis.com/{detail.DESCRIPTOR.full_name}", detail.SerializeToString()


class Status:
    """How a call ended: a status that the program makes, or a view of the status that passes a hop.

    The status of a hop may be used only in the hop's callback, on its thread; elsewhere its methods raise StateError.
    A change of the status of a local cancel or deadline raises StateError, too.
    """

    __slots__ = ("__weakref__", "_guard", "_pointer")

    def __init__(
        self,
        code: CodeLike,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        pointer = c_void_p()
        check(_raw.penstock_status_new(code_number(code), c_string(message, "a message"), byref(pointer)))
        assert pointer.value is not None
        self._pointer: int = own(self, _raw.penstock_status_release, pointer.value)
        self._guard: Optional[Callable[[], object]] = None
        for detail in details:
            self.add_detail(detail)
        if trailers is not None:
            self.trailers.replace(trailers)

    @classmethod
    def from_json(cls, text: str) -> Status:
        """A status from JSON in the form of `json`: ``code`` or ``name`` is required, the other members are
        optional. A detail has ``@type`` and ``base64``, or the fields of its google.rpc type. InvalidArgumentError
        names the JSON path."""
        pointer, error = c_void_p(), c_void_p()
        result = _raw.penstock_status_from_json(c_string(text, "a status"), byref(pointer), byref(error))
        check_with(result, error)
        assert pointer.value is not None
        self = cls._view(pointer.value, None)
        self._pointer = own(self, _raw.penstock_status_release, pointer.value)
        return self

    @classmethod
    def _view(cls, pointer: int, guard: Optional[Callable[[], object]]) -> Status:
        self = cls.__new__(cls)
        self._pointer = pointer
        self._guard = guard
        return self

    def _address(self) -> int:
        if self._guard is not None:
            self._guard()
        return self._pointer

    @property
    def code(self) -> StatusCode:
        """The code; can be set."""
        return StatusCode(_raw.penstock_status_code(self._address()))

    @code.setter
    def code(self, code: CodeLike) -> None:
        check(_raw.penstock_status_set_code(self._address(), code_number(code)), "the code can't be set")

    @property
    def message(self) -> str:
        """The message; can be set."""
        return status_message(self._address())

    @message.setter
    def message(self, message: str) -> None:
        text = encoded_text(message, "a message")
        check(_raw.penstock_status_set_message(self._address(), text, len(text)), "the message can't be set")

    @property
    def trailers(self) -> Metadata:
        """The trailers, which can be changed if the status can."""
        pointer: int = _raw.penstock_status_trailers(self._address())
        return Metadata._view(pointer, self._address)

    @property
    def details(self) -> List[Detail]:
        """The details, copied. `add_detail`, `set_detail`, `remove_detail` and `clear_details` change them."""
        return status_details(self._address())

    def add_detail(self, detail: DetailLike) -> None:
        """Adds a `Detail`, a (type URL, bytes) pair, or a protobuf message."""
        type_url, value = _detail_parts(detail)
        url = c_string(type_url, "a type URL")
        check(_raw.penstock_status_add_detail(self._address(), url, value, len(value)), f"detail {type_url!r}")

    def set_detail(self, detail: DetailLike) -> None:
        """Replaces the value of the first detail with this type URL; adds the detail if there is none."""
        type_url, value = _detail_parts(detail)
        url = c_string(type_url, "a type URL")
        check(_raw.penstock_status_set_detail(self._address(), url, value, len(value)), f"detail {type_url!r}")

    def remove_detail(self, type_url: str) -> None:
        """Removes every detail with this type URL or type name. NotFoundError: there is none."""
        url = c_string(type_url, "a type URL")
        check(_raw.penstock_status_remove_detail(self._address(), url), f"detail {type_url!r}")

    def clear_details(self) -> None:
        """Removes all details."""
        check(_raw.penstock_status_clear_details(self._address()), "the details can't be removed")

    def find_detail(self, type_url: str) -> Optional[Detail]:
        """The first detail with this type URL or type name; None if there is none."""
        return find_detail(self.details, type_url)

    @property
    def details_bin(self) -> bytes:
        """Code, message and details as an encoded ``google.rpc.Status``."""
        data, length = c_void_p(), c_size_t()
        check(_raw.penstock_status_details_bin(self._address(), byref(data), byref(length)))
        try:
            return ctypes.string_at(data, length.value)
        finally:
            _raw.penstock_free(data)

    @property
    def json(self) -> str:
        """The status as JSON: code, name, message, metadata (the trailers), details."""
        return owned_text(_raw.penstock_status_json, self._address())

    def __reduce__(self) -> Tuple[Any, ...]:
        # A copy owns a status of its own. The message is apart, because JSON that is read must have no NUL.
        view = json.loads(self.json)
        return _copied_status, (view.pop("message"), json.dumps(view))

    def __repr__(self) -> str:
        return f"<Status {self.code.name} {self.message!r}>"


def _copied_status(message: str, view: str) -> Status:
    status = Status.from_json(view)
    status.message = message
    return status


# The types that can end a call: a code (with a message and so on), or a `Status`.
StatusLike = Union[CodeLike, Status]


def as_status(code: StatusLike, message: str, details: Iterable[DetailLike], trailers: MetadataLike) -> Status:
    """The status that the arguments of a method such as `Hop.end` describe. TypeError: ``code`` is a `Status`, and
    there are other arguments."""
    if not isinstance(code, Status):
        return Status(code, message, details, trailers)
    if message or tuple(details) or trailers is not None:
        raise TypeError("a Status has its message, details and trailers already")
    return code


def status_message(pointer: int) -> str:
    """The message of the status at ``pointer``."""
    length = c_size_t()
    message = _raw.penstock_status_message(pointer, byref(length))
    return ctypes.string_at(message, length.value).decode("utf-8", "replace")


def status_details(pointer: int) -> List[Detail]:
    """The details of the status at ``pointer``. Details of google.rpc types have their fields in ``parsed``."""
    type_url, value, length = c_char_p(), c_void_p(), c_size_t()
    found: List[Tuple[str, bytes]] = []
    for index in range(_raw.penstock_status_detail_count(pointer)):
        check(_raw.penstock_status_detail_at(pointer, index, byref(type_url), byref(value), byref(length)))
        found.append(((type_url.value or b"").decode("utf-8", "replace"), ctypes.string_at(value, length.value)))
    fields: List[Optional[Dict[str, Any]]] = [None] * len(found)
    if any(url.rpartition("/")[2].startswith("google.rpc.") for url, _ in found):
        views = json.loads(owned_text(_raw.penstock_status_json, pointer)).get("details", [])
        fields = [_fields(view) for view in views]
    return [Detail(url, data, view) for (url, data), view in zip(found, fields)]


def _fields(view: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    if "base64" in view:
        return None
    return {name: value for name, value in view.items() if name != "@type"}


def find_detail(details: Iterable[Detail], type_url: str) -> Optional[Detail]:
    """The first of ``details`` with this type URL; a ``type_url`` without a ``/`` is compared with the type names
    only."""
    if "/" in type_url:
        return next((detail for detail in details if detail.type_url == type_url), None)
    return next((detail for detail in details if detail.type_name == type_url), None)
