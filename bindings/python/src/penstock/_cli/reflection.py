"""Descriptions of services and messages from the server itself: gRPC's server reflection, v1 and then v1alpha, whose
messages are the same."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .. import Channel, RpcError, StatusCode
from . import protobuf
from .connection import Pairs
from .failure import CommandError

VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
_STRING, _BYTES, _INT32, _MESSAGE = 9, 12, 5, 11
# The fields of the messages: name, number, type, and the message of a field, which is repeated if it ends with "*".
# Those for extensions, which this client does not ask for, are left out.
_MESSAGES: Dict[str, List[Any]] = {
    "ServerReflectionRequest": [
        ("host", 1, _STRING, None),
        ("file_by_filename", 3, _STRING, None),
        ("file_containing_symbol", 4, _STRING, None),
        ("list_services", 7, _STRING, None),
    ],
    "ServerReflectionResponse": [
        ("valid_host", 1, _STRING, None),
        ("file_descriptor_response", 4, _MESSAGE, "FileDescriptorResponse"),
        ("list_services_response", 6, _MESSAGE, "ListServiceResponse"),
        ("error_response", 7, _MESSAGE, "ErrorResponse"),
    ],
    "FileDescriptorResponse": [("file_descriptor_proto", 1, _BYTES, "*")],
    "ListServiceResponse": [("service", 1, _MESSAGE, "ServiceResponse*")],
    "ServiceResponse": [("name", 1, _STRING, None)],
    "ErrorResponse": [("error_code", 1, _INT32, None), ("error_message", 2, _STRING, None)],
}
# The fields of which a message has one at most.
_CHOICES = {"ServerReflectionRequest": "message_request", "ServerReflectionResponse": "message_response"}


def _description() -> Any:
    """The messages as a FileDescriptorProto."""
    file = protobuf.runtime().descriptor_pb2.FileDescriptorProto(
        name="reflection.proto", package=VERSIONS[0], syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in _CHOICES:
            message.oneof_decl.add(name=_CHOICES[name])
        for field, number, kind, of in fields:
            added = message.field.add(name=field, number=number, type=kind, label=3 if of and of[-1] == "*" else 1)
            if kind == _MESSAGE:
                added.type_name = f".{VERSIONS[0]}.{of.rstrip('*')}"
            if name in _CHOICES and field not in ("host", "valid_host"):
                added.oneof_index = 0
    return file


def _classes() -> Dict[str, Any]:
    google = protobuf.runtime()
    pool = google.descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_description().SerializeToString())
    find, make = pool.FindMessageTypeByName, google.message_factory.GetMessageClass
    return {name: make(find(f"{VERSIONS[0]}.{name}")) for name in _MESSAGES}


class Reflection:
    """A descriptor database of protobuf that asks the server. Each question is a call of its own, so it works where
    requests and responses can't overlap, too (HTTP/1.1)."""

    def __init__(self, channel: Channel, metadata: Pairs, timeout: Optional[float]) -> None:
        self._channel = channel
        self._metadata = metadata
        self._timeout = timeout
        self._messages = _classes()
        self._version: Optional[str] = None
        self._files: Dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Where the descriptions come from, for messages to people."""
        return f"the reflection of {self._channel.target}"

    @property
    def version(self) -> Optional[str]:
        """The version that the server has answered, such as "grpc.reflection.v1"; None before the first answer."""
        return self._version

    def services(self) -> List[str]:
        answer = self._ask(list_services="*")
        return [service.name for service in answer.list_services_response.service]

    def FindFileByName(self, name: str) -> Any:  # noqa: N802
        if name not in self._files:
            try:
                self._learn(self._ask(file_by_filename=name))
            except KeyError:
                self._files.setdefault(name, protobuf.well_known_file(name))
        return self._files[name]

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        return self._learn(self._ask(file_containing_symbol=symbol))

    def _learn(self, answer: Any) -> Any:
        """Keeps the files of an answer, of which the first is the one that was asked for."""
        files = []
        for data in answer.file_descriptor_response.file_descriptor_proto:
            try:
                file = protobuf.runtime().descriptor_pb2.FileDescriptorProto.FromString(data)
            except protobuf.runtime().message.DecodeError as error:
                raise CommandError(f"{self.name} has sent a description that can't be decoded: {error}") from error
            files.append(self._files.setdefault(file.name, file))
        if not files:
            raise KeyError("no file")
        return files[0]

    def _ask(self, **question: str) -> Any:
        """The server's answer. KeyError: it does not know what was asked for. CommandError: it has no reflection."""
        request = self._messages["ServerReflectionRequest"](**question)
        versions = VERSIONS if self._version is None else (self._version,)
        for version in versions:
            ask = self._channel.stream_stream(
                f"/{version}.ServerReflection/ServerReflectionInfo",
                self._messages["ServerReflectionRequest"].SerializeToString,
                self._messages["ServerReflectionResponse"].FromString,
            )
            try:
                answers = list(ask([request], metadata=self._metadata, timeout=self._timeout))
            except RpcError as error:
                if error.code() is StatusCode.UNIMPLEMENTED:
                    continue
                raise
            self._version = version
            if len(answers) != 1:
                raise CommandError(f"{self.name} has sent {len(answers)} answers to one question")
            if answers[0].HasField("error_response"):
                raise KeyError(answers[0].error_response.error_message)
            return answers[0]
        raise CommandError(
            f"{self._channel.target} has no reflection (neither {' nor '.join(VERSIONS)}): "
            "give --proto or --descriptor-set",
        )
