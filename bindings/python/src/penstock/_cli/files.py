"""Descriptions of services and messages from files: sets of descriptors, and .proto files by way of protoc."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List

from . import protobuf
from .failure import CommandError


class Files:
    """A descriptor database of protobuf with the files of descriptor sets."""

    def __init__(self, name: str, sets: Iterable[Any]) -> None:
        self.name = name
        self._files: Dict[str, Any] = {}
        self._homes: Dict[str, str] = {}
        for one in sets:
            for file in one.file:
                self._files[file.name] = file
                for symbol in _symbols(file):
                    self._homes[symbol] = file.name

    def services(self) -> List[str]:
        return [_joined(file.package, service.name) for file in self._files.values() for service in file.service]

    def FindFileByName(self, name: str) -> Any:  # noqa: N802
        if name not in self._files:
            self._files[name] = protobuf.well_known_file(name)
        return self._files[name]

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        return self._files[self._homes[symbol]]


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def _symbols(file: Any) -> Iterator[str]:
    """The full names of what a file has."""
    for service in file.service:
        yield _joined(file.package, service.name)
        for method in service.method:
            yield _joined(file.package, service.name, method.name)
    yield from _types(file.package, file.enum_type, file.message_type)
    yield from (_joined(file.package, extension.name) for extension in file.extension)


def _types(scope: str, enums: Any, messages: Any) -> Iterator[str]:
    yield from (_joined(scope, enum.name) for enum in enums)
    for message in messages:
        name = _joined(scope, message.name)
        yield name
        yield from (_joined(name, extension.name) for extension in message.extension)
        yield from _types(name, message.enum_type, message.nested_type)


def from_sets(paths: List[str]) -> Files:
    """The database of FileDescriptorSet files. CommandError: one can't be read."""
    return Files(", ".join(paths), [_read(path) for path in paths])


def _read(path: str) -> Any:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"--descriptor-set {path}: {error.strerror}") from error
    google = protobuf.runtime()
    try:
        found = google.descriptor_pb2.FileDescriptorSet.FromString(data)
    except google.message.DecodeError as error:
        raise CommandError(f"--descriptor-set {path}: no FileDescriptorSet ({error})") from error
    if not found.file:
        raise CommandError(f"--descriptor-set {path}: it has no file; protoc --descriptor_set_out writes such sets")
    return found


def from_protos(paths: List[str], folders: List[str]) -> Files:
    """The database of .proto files, which protoc parses. CommandError: there is no protoc, or it finds an error."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        command = [
            *_protoc(),
            *(f"-I{path}" for path in folders or _homes(paths)),
            f"--descriptor_set_out={made}",
            "--include_imports",
            "--include_source_info",
            *paths,
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise CommandError(
                f"--proto {', '.join(paths)}: {done.stderr.strip() or f'protoc gave {done.returncode}'}"
            )
        return Files(", ".join(paths), [_read(str(made))])


def _homes(paths: List[str]) -> List[str]:
    """The folders in which files are looked for where no flag names any; an absolute path needs its own."""
    return [".", *(str(Path(path).parent) for path in paths if Path(path).is_absolute())]


def _protoc() -> List[str]:
    """The command that runs protoc: the one of PATH, or that of grpcio-tools."""
    found = shutil.which("protoc")
    if found is not None:
        return [found]
    if importlib.util.find_spec("grpc_tools") is not None:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    raise CommandError(
        "--proto needs protoc, which is not on PATH, or the package grpcio-tools, which is not installed; "
        "or give --descriptor-set"
    )
