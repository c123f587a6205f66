"""Metadata: an ordered multimap of lower-case names to values, as a mapping and as JSON."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_size_t, c_void_p
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    List,
    Mapping,
    MutableMapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from .. import _raw
from .._raw import constants as c
from .arguments import c_string
from .errors import check, check_with
from .objects import own

# A value: str for text, bytes for names that end in "-bin".
MetadataValue = Union[str, bytes]
# The types that are accepted as metadata: pairs, a mapping to a value or to several, JSON, or a `Metadata`.
MetadataLike = Union[
    "Metadata",
    Mapping[str, Union[MetadataValue, Iterable[MetadataValue]]],
    Iterable[Tuple[str, MetadataValue]],
    str,
    None,
]


_RULES = "a name is lower case and not reserved, a text visible ASCII without a space at its ends"


class Metadatum(NamedTuple):
    """One name and one value, as grpcio gives them."""

    key: str
    value: MetadataValue


class Metadata(MutableMapping[str, MetadataValue]):
    """Metadata: a view of a call's metadata, or an object of its own.

    Names are lower-case str (upper-case letters are lowered). Values of names that end in ``-bin`` are bytes; all
    others are str. A text value from a peer that is not UTF-8 is given as bytes. A name may have several values:
    ``metadata[name]`` is the first, `get_all` gives all, ``metadata[name] = value`` replaces all, `add` adds one.
    ``len`` and iteration count names, each once; `pairs` gives every (name, value) in order.

    The metadata of a hop may be used only in the hop's callback, on its thread; elsewhere its methods raise
    StateError. One object is for one thread at a time. A change raises InvalidArgumentError for a reserved or
    malformed name, or a value with characters that its name does not allow, and StateError where this metadata can't
    be changed.
    """

    __slots__ = ("__weakref__", "_guard", "_pointer")

    def __init__(self, values: MetadataLike = None) -> None:
        pointer = c_void_p()
        check(_raw.penstock_metadata_new(byref(pointer)))
        assert pointer.value is not None
        self._pointer: int = own(self, _raw.penstock_metadata_release, pointer.value)
        self._guard: Optional[Callable[[], object]] = None
        _fill(self, values)

    @classmethod
    def _view(cls, pointer: int, guard: Callable[[], object]) -> Metadata:
        """Metadata that C owns. ``guard`` is called before each use of the pointer, and raises if it must not be used
        now. It is a method of the object that keeps the pointer valid, so it keeps that object."""
        self = cls.__new__(cls)
        self._pointer = pointer
        self._guard = guard
        return self

    @property
    def _address(self) -> int:
        if self._guard is not None:
            self._guard()
        return self._pointer

    def __getitem__(self, name: str) -> MetadataValue:
        value = _value(self._address, c_string(name, "a metadata name"), 0)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: MetadataValue) -> None:
        encoded, data = _encoded(name, value)
        check(
            _raw.penstock_metadata_set_bytes(self._address, encoded, data, len(data)),
            f"metadata {name!r} can't be set ({_RULES})",
        )

    def __delitem__(self, name: str) -> None:
        result = _raw.penstock_metadata_remove(self._address, c_string(name, "a metadata name"))
        if result == c.E_NOT_FOUND:
            raise KeyError(name)
        check(result, f"metadata {name!r} can't be removed")

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return _value(self._address, c_string(name, "a metadata name"), 0) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self.pairs()))

    def __len__(self) -> int:
        return len({name for name, _ in self.pairs()})

    def get_all(self, name: str) -> List[MetadataValue]:
        """Every value of ``name``, in order; empty if it has none."""
        encoded = c_string(name, "a metadata name")
        values: List[MetadataValue] = []
        while True:
            value = _value(self._address, encoded, len(values))
            if value is None:
                return values
            values.append(value)

    def add(self, name: str, value: MetadataValue) -> None:
        """Adds a value after those that ``name`` has."""
        encoded, data = _encoded(name, value)
        check(
            _raw.penstock_metadata_add_bytes(self._address, encoded, data, len(data)),
            f"metadata {name!r} can't get a value ({_RULES})",
        )

    def pairs(self) -> List[Metadatum]:
        """Every (name, value), in order."""
        return metadata_pairs(self._address)

    def replace(self, values: MetadataLike) -> None:
        """Replaces all metadata. Nothing changes if a name or a value is not allowed."""
        self.json = values.json if isinstance(values, Metadata) else Metadata(values).json

    @property
    def json(self) -> str:
        """All metadata as JSON, ``{"name": ["v1", "v2"]}``, with ``-bin`` values in base64. Setting it replaces all
        metadata."""
        return metadata_json(self._address)

    @json.setter
    def json(self, text: str) -> None:
        error = c_void_p()
        check_with(
            _raw.penstock_metadata_set_json(self._address, c_string(text, "metadata JSON"), byref(error)),
            error,
        )

    def __reduce__(self) -> Tuple[Any, ...]:
        # A copy owns metadata of its own.
        return Metadata, (self.json,)

    def __repr__(self) -> str:
        return f"Metadata({[tuple(pair) for pair in self.pairs()]!r})"


class ReceivedMetadata(Tuple[Metadatum, ...]):
    """Metadata that a peer has sent: a tuple of (name, value) in order, as in grpcio, with the methods of a
    mapping."""

    _pointer: Optional[int] = None
    _keeper: object = None
    _owned: Any = None
    # The JSON of a copy, which has no pointer.
    _json: str = "{}"

    @classmethod
    def _of(cls, pointer: Optional[int], keeper: object, owned: Any) -> ReceivedMetadata:
        """A copy of the metadata at ``pointer``; its JSON is read from the original, which ``keeper`` keeps until its
        handle ``owned`` (see `own`) is NULL."""
        self = cls(metadata_pairs(pointer) if pointer else ())
        self._pointer = pointer
        self._keeper = keeper
        self._owned = owned
        return self

    def get(self, name: str, default: Optional[MetadataValue] = None) -> Optional[MetadataValue]:
        """The first value of ``name`` (any case), or ``default``."""
        lowered = name.lower()
        return next((value for key, value in self if key == lowered), default)

    def get_all(self, name: str) -> List[MetadataValue]:
        """Every value of ``name`` (any case), in order."""
        lowered = name.lower()
        return [value for key, value in self if key == lowered]

    @property
    def json(self) -> str:
        """All metadata as JSON; see `Metadata.json`."""
        return metadata_json(self._pointer) if self._pointer and self._owned else self._json

    def __reduce__(self) -> Tuple[Any, ...]:
        return ReceivedMetadata, (tuple(self),), {"_json": self.json}


_VALUE_TYPES = (str, bytes, bytearray, memoryview)


def _checked(name: object, value: object) -> MetadataValue:
    if not isinstance(name, str):
        raise TypeError(f"a metadata name must be a str, not {type(name).__name__}")
    if isinstance(value, str):
        if name.lower().endswith("-bin"):
            raise TypeError(f"metadata {name!r} takes bytes, not str")
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a value of metadata {name!r} must be str or bytes, not {type(value).__name__}")


def _encoded(name: str, value: MetadataValue) -> Tuple[bytes, bytes]:
    checked = _checked(name, value)
    data = checked.encode("utf-8", "surrogatepass") if isinstance(checked, str) else checked
    return c_string(name, "a metadata name"), data


def _decoded(name: bytes, data: bytes) -> MetadataValue:
    if name.endswith(b"-bin"):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _value(pointer: int, name: bytes, index: int) -> Optional[MetadataValue]:
    value, length = c_void_p(), c_size_t()
    result = _raw.penstock_metadata_get(pointer, name, index, byref(value), byref(length))
    if result == c.E_NOT_FOUND:
        return None
    check(result)
    return _decoded(name.lower(), ctypes.string_at(value, length.value))


def metadata_pairs(pointer: int) -> List[Metadatum]:
    """Every pair of the metadata at ``pointer``, copied."""
    name, value, length = c_char_p(), c_void_p(), c_size_t()
    pairs = []
    for index in range(_raw.penstock_metadata_count(pointer)):
        check(_raw.penstock_metadata_at(pointer, index, byref(name), byref(value), byref(length)))
        key = name.value or b""
        pairs.append(Metadatum(key.decode(), _decoded(key, ctypes.string_at(value, length.value))))
    return pairs


def metadata_json(pointer: int) -> str:
    """The metadata at ``pointer`` as JSON."""
    return owned_text(_raw.penstock_metadata_json, pointer)


def owned_text(function: Callable[..., int], *pointers: int) -> str:
    """The text that ``function(*pointers, char **)`` gives, as str; the original is freed."""
    text = c_void_p()
    check(function(*pointers, byref(text)))
    assert text.value is not None
    try:
        return ctypes.string_at(text.value).decode()
    finally:
        _raw.penstock_free(text)


def given_pairs(values: MetadataLike) -> Iterator[Tuple[str, MetadataValue]]:
    """The (name, value) pairs of a mapping or of an iterable of pairs, with the types of each checked."""
    if isinstance(values, Mapping):
        for name, several in values.items():
            if isinstance(several, _VALUE_TYPES):
                yield name, _checked(name, several)
            else:
                for value in several:
                    yield name, _checked(name, value)
    elif values is not None and not isinstance(values, str):
        for name, value in values:
            yield name, _checked(name, value)


def _fill(metadata: Metadata, values: MetadataLike) -> None:
    if isinstance(values, str):
        metadata.json = values
        return
    for name, value in values.pairs() if isinstance(values, Metadata) else given_pairs(values):
        metadata.add(name, value)
