"""An example of a message in JSON, with each of its fields, to be filled in."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from . import protobuf

# The JSON of the types of protobuf that have a form of their own.
_SPECIAL: Dict[str, Any] = {
    "google.protobuf.Any": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}},
    "google.protobuf.Duration": "0s",
    "google.protobuf.FieldMask": "",
    "google.protobuf.ListValue": [],
    "google.protobuf.Struct": {},
    "google.protobuf.Timestamp": "1970-01-01T00:00:00Z",
    "google.protobuf.Value": None,
}
_WRAPPERS = ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")


def template(message: Any, within: Tuple[str, ...] = ()) -> Any:
    """The example of a message: repeated fields have one element, and a message within itself is left empty."""
    name = message.full_name
    if name in _SPECIAL:
        return _SPECIAL[name]
    if name in {f"google.protobuf.{wrapper}Value" for wrapper in _WRAPPERS}:
        return _value(message.fields[0], within)
    if name in within:
        return {}
    return {field.json_name: _field(field, (*within, name)) for field in message.fields}


def _field(field: Any, within: Tuple[str, ...]) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields
        return {str(_value(key, within)).lower(): _value(value, within)}
    # Older versions of protobuf have labels instead, of which 3 is "repeated".
    is_repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == 3
    return [_value(field, within)] if is_repeated else _value(field, within)


def _value(field: Any, within: Tuple[str, ...]) -> Any:
    if field.message_type is not None:
        return template(field.message_type, within)
    if field.enum_type is not None:
        return field.enum_type.values[0].name
    types = protobuf.runtime().descriptor.FieldDescriptor
    if field.cpp_type == types.CPPTYPE_STRING:
        return ""
    if field.cpp_type == types.CPPTYPE_BOOL:
        return False
    # 64 bits are a string in JSON.
    return "0" if field.cpp_type in (types.CPPTYPE_INT64, types.CPPTYPE_UINT64) else 0
