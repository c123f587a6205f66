"""Descriptions as the text of a .proto file, with their comments where the description has them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

Path = Tuple[int, ...]
_TYPES = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_LABELS = {1: "optional ", 2: "required ", 3: "repeated "}
_MESSAGE, _ENUM, _REPEATED = 11, 14, 3


class _Place(NamedTuple):
    """Something in a file that has a name: its description, where the comments of the file name it, and what prints
    it."""

    proto: Any
    path: Path
    lines: Callable[[Any, Path], Iterator[str]]


class FileText:
    """The texts of what a FileDescriptorProto has."""

    def __init__(self, file: Any) -> None:
        self._is_proto3 = file.syntax == "proto3"
        self._comments: Dict[Path, str] = {
            tuple(location.path): location.leading_comments
            for location in file.source_code_info.location
            if location.leading_comments
        }
        self._places: Dict[str, _Place] = {}
        scope = f"{file.package}." if file.package else ""
        for at, service in enumerate(file.service):
            self._places[scope + service.name] = _Place(service, (6, at), self._service)
            for number, method in enumerate(service.method):
                name = f"{scope}{service.name}.{method.name}"
                self._places[name] = _Place(method, (6, at, 2, number), self._method)
        self._find(scope, file.message_type, (4,))
        for at, enum in enumerate(file.enum_type):
            self._places[scope + enum.name] = _Place(enum, (5, at), self._enum)
        for at, extension in enumerate(file.extension):
            self._places[scope + extension.name] = _Place(extension, (7, at), self._extension)

    def _find(self, scope: str, messages: Any, path: Path) -> None:
        for at, message in enumerate(messages):
            name, here = scope + message.name, (*path, at)
            self._places[name] = _Place(message, here, self._message)
            for number, field in enumerate(message.field):
                self._places[f"{name}.{field.name}"] = _Place(field, (*here, 2, number), self._any_field)
            for number, enum in enumerate(message.enum_type):
                self._places[f"{name}.{enum.name}"] = _Place(enum, (*here, 4, number), self._enum)
            for number, extension in enumerate(message.extension):
                self._places[f"{name}.{extension.name}"] = _Place(extension, (*here, 6, number), self._extension)
            self._find(f"{name}.", message.nested_type, (*here, 3))

    def text(self, name: str) -> str:
        """The text of what has this full name. KeyError: nothing has."""
        place = self._places[name]
        return "\n".join(self._commented(place.lines, place.proto, place.path))

    def proto(self, name: str) -> Any:
        """The description of what has this full name. KeyError: nothing has."""
        return self._places[name].proto

    def _commented(self, lines: Callable[[Any, Path], Iterator[str]], proto: Any, path: Path) -> Iterator[str]:
        for line in self._comments.get(path, "").splitlines():
            yield f"//{line}".rstrip()
        yield from lines(proto, path)

    def _inner(self, lines: Callable[[Any, Path], Iterator[str]], protos: Any, path: Path) -> Iterator[str]:
        """The lines of each of ``protos``, one step to the right."""
        for at, proto in enumerate(protos):
            yield from (f"  {line}" for line in self._commented(lines, proto, (*path, at)))

    def _service(self, service: Any, path: Path) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from self._inner(self._method, service.method, (*path, 2))
        yield "}"

    def _method(self, method: Any, _: Path) -> Iterator[str]:
        request = f"{'stream ' * method.client_streaming}{method.input_type.lstrip('.')}"
        response = f"{'stream ' * method.server_streaming}{method.output_type.lstrip('.')}"
        end = " { option deprecated = true; }" if method.options.deprecated else ";"
        yield f"rpc {method.name}({request}) returns ({response}){end}"

    def _message(self, message: Any, path: Path) -> Iterator[str]:
        yield f"message {message.name} {{"
        if message.options.deprecated:
            yield "  option deprecated = true;"
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        for at, nested in enumerate(message.nested_type):
            if nested.name not in maps:
                yield from (f"  {line}" for line in self._commented(self._message, nested, (*path, 3, at)))
        yield from self._inner(self._enum, message.enum_type, (*path, 4))
        yield from self._fields(message, maps, path)
        yield from self._inner(self._extension, message.extension, (*path, 6))
        for extensible in message.extension_range:
            yield f"  extensions {_range(extensible.start, extensible.end - 1, 2**29 - 1)};"
        reserved = [_range(one.start, one.end - 1, 2**29 - 1) for one in message.reserved_range]
        yield from _reserved(reserved, message.reserved_name)
        yield "}"

    def _fields(self, message: Any, maps: Dict[str, Any], path: Path) -> Iterator[str]:
        """The fields, those of a oneof together."""
        told = set()
        for at, field in enumerate(message.field):
            here = (*path, 2, at)

            def line(one: Any, _: Path) -> Iterator[str]:
                entry = maps.get(one.type_name.rpartition(".")[2]) if one.label == _REPEATED else None
                yield self._field(one, entry)

            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from (f"  {text}" for text in self._commented(line, field, here))
                continue
            if field.oneof_index in told:
                continue
            told.add(field.oneof_index)
            yield f"  oneof {message.oneof_decl[field.oneof_index].name} {{"
            for number, other in enumerate(message.field):
                if other.HasField("oneof_index") and other.oneof_index == field.oneof_index:
                    yield from (f"    {text}" for text in self._commented(line, other, (*path, 2, number)))
            yield "  }"

    def _any_field(self, field: Any, _: Path) -> Iterator[str]:
        yield self._field(field, None)

    def _field(self, field: Any, entry: Any) -> str:
        """The line of a field; ``entry``: the entry of a map."""
        kind = _kind(field)
        if entry is not None:
            key, value = entry.field
            label, kind = "", f"map<{_kind(key)}, {_kind(value)}>"
        elif field.label == 1 and not field.proto3_optional and (self._is_proto3 or field.HasField("oneof_index")):
            label = ""
        else:
            label = _LABELS[field.label]
        options = []
        if field.HasField("default_value"):
            quoted = _TYPES[field.type - 1] in ("string", "bytes")
            options.append(f'default = "{field.default_value}"' if quoted else f"default = {field.default_value}")
        if field.options.deprecated:
            options.append("deprecated = true")
        if field.options.HasField("packed"):
            options.append(f"packed = {str(field.options.packed).lower()}")
        end = f" [{', '.join(options)}]" if options else ""
        return f"{label}{kind} {field.name} = {field.number}{end};"

    def _enum(self, enum: Any, path: Path) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        if enum.options.allow_alias:
            yield "  option allow_alias = true;"
        yield from self._inner(_enum_value, enum.value, (*path, 2))
        reserved = [_range(one.start, one.end, 2**31 - 1) for one in enum.reserved_range]
        yield from _reserved(reserved, enum.reserved_name)
        yield "}"

    def _extension(self, field: Any, _: Path) -> Iterator[str]:
        yield f"extend {field.extendee.lstrip('.')} {{"
        yield f"  {self._field(field, None)}"
        yield "}"


def _enum_value(value: Any, _: Path) -> Iterator[str]:
    yield f"{value.name} = {value.number}{' [deprecated = true]' if value.options.deprecated else ''};"


def _kind(field: Any) -> str:
    """The type of a field."""
    name: str = field.type_name.lstrip(".")
    return name if field.type in (_MESSAGE, _ENUM) else _TYPES[field.type - 1]


def _range(first: int, last: int, most: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last >= most else last}"


def _reserved(ranges: List[str], names: Any) -> Iterator[str]:
    if ranges:
        yield f"  reserved {', '.join(ranges)};"
    if names:
        quoted = ", ".join(f'"{name}"' for name in names)
        yield f"  reserved {quoted};"
