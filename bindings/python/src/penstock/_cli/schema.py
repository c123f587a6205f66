"""The services and messages of a server, wherever their descriptions come from."""

from __future__ import annotations

import argparse
import difflib
from typing import Any, List, Protocol, Set, Tuple

from .. import Channel
from . import protobuf
from .connection import metadata
from .failure import CommandError, wrong
from .files import from_protos, from_sets
from .reflection import Reflection


class Source(Protocol):
    """A descriptor database, as protobuf asks it."""

    @property
    def name(self) -> str: ...

    def services(self) -> List[str]: ...

    def FindFileByName(self, name: str) -> Any: ...  # noqa: N802

    def FindFileContainingSymbol(self, symbol: str) -> Any: ...  # noqa: N802


def has_files(args: argparse.Namespace) -> bool:
    """Whether the flags name files, so that the server is not asked."""
    return bool(args.proto or args.descriptor_set)


def from_files(args: argparse.Namespace) -> Schema:
    if args.proto and args.descriptor_set:
        raise wrong("--proto and --descriptor-set are given together: one of them is enough")
    if args.proto:
        return Schema(from_protos(args.proto, args.import_path))
    return Schema(from_sets(args.descriptor_set))


def from_server(args: argparse.Namespace, channel: Channel) -> Schema:
    pairs = metadata([*args.header, *args.reflect_header], args.expand_headers)
    return Schema(Reflection(channel, pairs, args.max_time))


def schema(args: argparse.Namespace, channel: Channel) -> Schema:
    """The schema that the flags name, else the server's."""
    return from_files(args) if has_files(args) else from_server(args, channel)


class _Once:
    """The database that a pool of protobuf asks. A pool that looks for a name of another kind asks for the file
    again, and must not get it twice."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._given: Set[str] = set()

    def FindFileByName(self, name: str) -> Any:  # noqa: N802
        self._given.add(name)
        return self._source.FindFileByName(name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        file = self._source.FindFileContainingSymbol(symbol)
        if file.name in self._given:
            raise KeyError(symbol)
        self._given.add(file.name)
        return file


class Schema:
    """Descriptions that are fetched when they are needed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.pool: Any = protobuf.runtime().descriptor_pool.DescriptorPool(_Once(source))

    def services(self) -> List[str]:
        """The full names of the services, sorted."""
        return sorted(self.source.services())

    def service(self, name: str) -> Any:
        """The description of a service. CommandError: there is none with this name."""
        try:
            return self.pool.FindServiceByName(name)
        except KeyError as error:
            raise CommandError(f"{self.source.name}: no service {name!r}{_near(name, self.services())}") from error

    def method(self, text: str) -> Any:
        """The description of a method, given as ``package.Service/Method``, perhaps with a slash before, or with a
        dot in place of the slash. CommandError: there is none with this name."""
        name = text.lstrip("/")
        service, mark, method = name.rpartition("/" if "/" in name else ".")
        if not mark or not service or not method:
            raise wrong(f"method {text!r}: expected package.Service/Method")
        found = self.service(service)
        if method not in found.methods_by_name:
            raise CommandError(f"{service} has no method {method!r}{_near(method, list(found.methods_by_name))}")
        return found.methods_by_name[method]

    def symbol(self, text: str) -> Any:
        """The description of a service, method, message, enum, field or extension. CommandError: there is none with
        this name."""
        name = text.strip("./").replace("/", ".")
        pool = self.pool
        finders = (pool.FindServiceByName, pool.FindMessageTypeByName, pool.FindEnumTypeByName)
        for find in (*finders, pool.FindExtensionByName, self._member):
            try:
                return find(name)
            except KeyError:
                continue
        raise CommandError(f"{self.source.name}: nothing has the name {text!r}{_near(name, self.services())}")

    def _member(self, name: str) -> Any:
        """A method of a service, or a field of a message. KeyError: there is none with this name."""
        scope, _, member = name.rpartition(".")
        try:
            return self.pool.FindServiceByName(scope).methods_by_name[member]
        except KeyError:
            return self.pool.FindMessageTypeByName(scope).fields_by_name[member]

    def message_class(self, descriptor: Any) -> Any:
        return protobuf.runtime().message_factory.GetMessageClass(descriptor)


def _near(name: str, known: List[str]) -> str:
    """The names that may have been meant."""
    if not known:
        return "; it has none"
    if name in known:
        return ", which it lists, but does not describe"
    close = difflib.get_close_matches(name, known, 1, 0.5) or [one for one in known if one.endswith(f".{name}")]
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(sorted(known)[:12])}{', ...' if len(known) > 12 else ''}"


def path(method: Any) -> str:
    """The path of a method, such as ``/package.Service/Method``."""
    return f"/{method.containing_service.full_name}/{method.name}"


def kind(method: Any) -> str:
    """The kind of a method: unary, client stream, server stream or bidi."""
    kinds = {(False, False): "unary", (True, False): "client stream", (False, True): "server stream"}
    return kinds.get(streams(method), "bidi")


def streams(method: Any) -> Tuple[bool, bool]:
    """Whether a method has a stream of requests, and one of responses."""
    try:
        return method.client_streaming, method.server_streaming
    except AttributeError:
        # Older versions of protobuf have these in the proto only, which protobuf in pure Python can't make.
        proto = protobuf.runtime().descriptor_pb2.MethodDescriptorProto()
        method.CopyToProto(proto)
        return proto.client_streaming, proto.server_streaming
