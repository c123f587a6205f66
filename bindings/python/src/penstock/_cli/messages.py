"""Messages as JSON, both ways, with protobuf's own mapping."""

from __future__ import annotations

import base64
import inspect
import json
import re
from typing import Any, Callable, Dict, Optional, Tuple

from .. import Detail
from . import protobuf
from .failure import CommandError, wrong
from .schema import Schema

_DEFAULTS = ("always_print_fields_with_no_presence", "including_default_value_fields")


def _said(error: Exception) -> str:
    """The message of an error of json_format, in one line."""
    text, _, fields = str(error).partition("\n")
    known = re.findall(r"'(\w+)'", fields)
    return f"{text.rstrip('.')}; it has {', '.join(known)}" if known else text


class Messages:
    """Makes messages of a schema from JSON, and JSON from messages."""

    def __init__(self, schema: Schema, defaults: bool = False, unknown: bool = False) -> None:
        self._schema = schema
        self._format = protobuf.runtime().json_format
        self._unknown = unknown
        # The name of this argument depends on the version of protobuf.
        known = inspect.signature(self._format.MessageToJson).parameters
        self._options: Dict[str, Any] = {name: defaults for name in _DEFAULTS if name in known}

    def parser(self, descriptor: Any) -> Callable[[Tuple[int, str]], Any]:
        """A function that makes a message of a JSON value, which comes with the number of its line."""
        make = self._schema.message_class(descriptor)

        def parse(value: Tuple[int, str]) -> Any:
            line, text = value
            try:
                return self._format.Parse(
                    text, make(), ignore_unknown_fields=self._unknown, descriptor_pool=self._schema.pool
                )
            except (self._format.ParseError, TypeError) as error:
                raise wrong(f"the request in line {line} is no {descriptor.full_name}: {_said(error)}") from error

        return parse

    def decoder(self, descriptor: Any) -> Callable[[bytes], Any]:
        """A function that decodes a message."""
        decode: Callable[[bytes], Any] = self._schema.message_class(descriptor).FromString
        return decode

    def text(self, message: Any, indent: Optional[int] = None) -> str:
        """A message as JSON, in one line without ``indent``."""
        try:
            text: str = self._format.MessageToJson(
                message, indent=indent, ensure_ascii=False, descriptor_pool=self._schema.pool, **self._options
            )
        except (self._format.SerializeToJsonError, TypeError, ValueError) as error:
            raise CommandError(f"a {message.DESCRIPTOR.full_name} can't be shown as JSON: {error}") from error
        return text

    def detail(self, detail: Detail) -> Dict[str, Any]:
        """A detail of a status: its fields, or its bytes in base64 if nothing describes its type."""
        view: Dict[str, Any] = {"@type": detail.type_url}
        if detail.parsed is not None:
            return {**view, **detail.parsed}
        try:
            found = self._schema.pool.FindMessageTypeByName(detail.type_name)
            message = self._schema.message_class(found).FromString(detail.value)
            return {**view, **json.loads(self.text(message))}
        except Exception:
            # The status is what the user has to see, whatever can't be found out about its details.
            return {**view, "base64": base64.b64encode(detail.value).decode()}
