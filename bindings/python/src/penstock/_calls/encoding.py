"""Encodings of messages that replace the encoding of generated stubs."""

from __future__ import annotations

import json
from typing import Any, Callable, Optional

Serializer = Optional[Callable[[Any], bytes]]
Deserializer = Optional[Callable[[bytes], Any]]


class Codec:
    """Encodes and decodes all messages of a channel, in place of the serializers of each method. So stubs that were
    generated for protobuf can use another encoding. Override `encode` and `decode`::

        class CBOR(penstock.Codec):
            name = "cbor"

            def encode(self, message):
                return cbor2.dumps(message)

            def decode(self, data, deserializer):
                return cbor2.loads(data)

        channel = penstock.Channel("localhost:50051", codec=CBOR())

    Interceptors at `Level.OBJECT` see the objects that the program sends and receives, with any codec.
    """

    # The name of the encoding in the content-type, such as "json" in "application/grpc+json" and "application/json":
    # lower-case letters, digits, "-", "_" and ".". "" stands for "proto".
    name: str = ""

    def encode(self, message: Any) -> bytes:
        """Returns the bytes of a message that is sent. An exception ends the call with INTERNAL."""
        raise NotImplementedError

    def decode(self, data: bytes, deserializer: Deserializer) -> Any:
        """Returns the message in ``data``. ``deserializer``: the method's own; None if it has none. With
        generated stubs it is ``M.FromString``, where ``M`` is the class of the message. An exception ends the call
        with INTERNAL."""
        raise NotImplementedError

    def _serializer(self, _: Serializer) -> Serializer:
        return self.encode

    def _deserializer(self, deserializer: Deserializer) -> Deserializer:
        return lambda data: self.decode(data, deserializer)


class JSONCodec(Codec):
    """JSON for plain Python objects: dictionaries, lists, strings, numbers, booleans and None."""

    name = "json"

    def encode(self, message: Any) -> bytes:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes, deserializer: Deserializer) -> Any:
        return json.loads(data)


class ProtobufJSONCodec(Codec):
    """Sends generated messages as protobuf's JSON (``google.protobuf.json_format``). The program still uses the
    classes of the stubs. Equal messages have equal bytes. Fields of a response that the class does not have are
    ignored.

    ModuleNotFoundError: the package protobuf is not installed."""

    name = "json"

    def __init__(self) -> None:
        try:
            from google.protobuf import json_format
        except ImportError as error:
            raise ModuleNotFoundError(
                "ProtobufJSONCodec needs the package protobuf (pip install protobuf)", name="google.protobuf"
            ) from error
        self._format: Any = json_format

    def encode(self, message: Any) -> bytes:
        # The entries of a map have no order. Sorted, equal messages have equal bytes, and so equal URLs in a GET,
        # which caches find again.
        text: str = self._format.MessageToJson(message, indent=None, sort_keys=True, ensure_ascii=False)
        return text.encode()

    def decode(self, data: bytes, deserializer: Deserializer) -> Any:
        return self._format.Parse(data, _class_of(deserializer)(), ignore_unknown_fields=True)

    def _deserializer(self, deserializer: Deserializer) -> Deserializer:
        _class_of(deserializer)
        return super()._deserializer(deserializer)


def _class_of(deserializer: Deserializer) -> Callable[[], Any]:
    """Returns the generated class ``M``, if the deserializer is ``M.FromString``. TypeError: the deserializer is
    another function."""
    owner = getattr(deserializer, "__self__", None)
    if owner is None and deserializer is not None and getattr(deserializer, "__name__", "") == "FromString":
        # In protobuf without a compiled part this function does not name its class.
        owner = type(deserializer(b""))
    if not isinstance(owner, type) or not hasattr(owner, "DESCRIPTOR"):
        raise TypeError(
            "ProtobufJSONCodec needs to know the class of the responses: pass its FromString as the deserializer, as "
            f"generated stubs do, not {deserializer!r}"
        )
    return owner
