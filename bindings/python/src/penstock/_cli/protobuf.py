"""The package protobuf, which messages need and the package penstock does not."""

from __future__ import annotations

from typing import Any

from .failure import CommandError

_WHERE = "install it: pip install protobuf"


def runtime() -> Any:
    """The module google.protobuf, with what the commands use of it loaded. CommandError: it is missing or too old."""
    try:
        from google import protobuf
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory
    except ImportError as error:
        raise CommandError(f"messages in JSON need the package protobuf, and {error}; {_WHERE}") from error
    del descriptor_pb2, descriptor_pool, json_format, message
    if not hasattr(message_factory, "GetMessageClass"):
        raise CommandError(f"protobuf {protobuf.__version__} is too old: 4.22 or later is needed; {_WHERE} --upgrade")
    return protobuf


def well_known_file(name: str) -> Any:
    """The description of a file that comes with protobuf, such as google/protobuf/any.proto. KeyError: it does
    not."""
    import importlib

    if not name.startswith("google/protobuf/") or not name.endswith(".proto"):
        raise KeyError(name)
    try:
        module = importlib.import_module(f"google.protobuf.{name[len('google/protobuf/') : -len('.proto')]}_pb2")
    except ImportError as error:
        raise KeyError(name) from error
    found = runtime().descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(found)
    return found
