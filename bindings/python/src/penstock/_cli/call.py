"""`penstock call`: one call, JSON in and JSON out."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .. import Call, Channel, RpcError, StatusCode
from . import schema as schemas
from . import trace
from .connection import Pairs, advice, metadata, opened, shown_pairs
from .failure import CommandError, Exit, wrong
from .flags import add_connection, add_method, add_output, add_rpc_header, add_schema, flag
from .interceptors import loaded
from .messages import Messages
from .output import Output, is_terminal
from .requests import lines_of, values

HELP = "make a call: JSON in, JSON out"


def add(parser: argparse.ArgumentParser) -> None:
    add_method(parser)
    flag(
        parser,
        "d",
        "data",
        metavar="JSON",
        help="the request, or several one after the other; @ reads them from the standard input, @FILE from a file "
        "(default: @ for a stream of requests, else an empty message)",
    )
    flag(parser, "trace", action="store_true", help="show the call's way through the interceptors as a table")
    flag(
        parser,
        "interceptor",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="put an interceptor in, below those that were named before; may be given several times",
    )
    flag(parser, "emit-defaults", action="store_true", help="print fields that have their default value, too")
    flag(parser, "allow-unknown-fields", action="store_true", help="drop request fields that its type lacks")
    flag(
        parser,
        "compression",
        choices=("identity", "gzip", "deflate", "zstd"),
        help="the compression of the requests (default: identity)",
    )
    flag(parser, "wait-for-ready", action="store_true", help="wait for a connection, however often connecting fails")
    add_rpc_header(parser)
    add_connection(parser)
    add_schema(parser)
    add_output(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    pairs = metadata([*args.header, *args.rpc_header], args.expand_headers)
    known = schemas.from_files(args) if schemas.has_files(args) else None
    with contextlib.ExitStack() as stack:
        if known is None:
            # The schema comes over a channel of its own, so that the interceptors and the trace see how the call's
            # channel connects, and no other call.
            known = schemas.from_server(args, stack.enter_context(opened(args)))
        method = known.method(args.method)
        messages = Messages(known, args.emit_defaults, args.allow_unknown_fields)
        channel = stack.enter_context(opened(args, loaded(args.interceptor), args.trace))
        return _Run(args, output, method, messages, pairs).on(channel)


class _Run:
    """One call, and what is printed of it."""

    def __init__(
        self, args: argparse.Namespace, output: Output, method: Any, messages: Messages, pairs: Pairs
    ) -> None:
        self._args = args
        self._output = output
        self._method = method
        self._messages = messages
        self._metadata = pairs
        self._make = messages.parser(method.input_type)

    def on(self, channel: Channel) -> int:
        call = self._begun(channel)
        try:
            self._follow(call)
        except RpcError as error:
            if isinstance(error.__cause__, CommandError):
                raise error.__cause__ from error
            self._over(call)
            return self._failed(error)
        except KeyboardInterrupt:
            holder = call.trace["holder"]
            self._over(call)
            call.cancel()
            # Since the interruption nobody asks for a message, so that holder would say nothing.
            is_known = holder is not None and holder["state"] != "demand"
            self._output.note(f"interrupted: {holder['text']}" if is_known else "interrupted")
            raise
        self._over(call)
        self._succeeded(call)
        return Exit.OK

    def _begun(self, channel: Channel) -> Call:
        method = self._method
        kinds: Dict[Tuple[bool, bool], Callable[..., Any]] = {
            (False, False): lambda *given: channel.unary_unary(*given).future,
            (True, False): lambda *given: channel.stream_unary(*given).future,
            (False, True): channel.unary_stream,
            (True, True): channel.stream_stream,
        }
        bound = kinds[schemas.streams(method)](
            schemas.path(method),
            lambda message: message.SerializeToString(),
            self._messages.decoder(method.output_type),
        )
        requests: Any = self._requests() if schemas.streams(method)[0] else self._request()
        if self._args.verbose:
            self._sent()
        call: Call = bound(
            requests,
            timeout=self._args.max_time,
            metadata=self._metadata,
            compression=self._args.compression,
            wait_for_ready=True if self._args.wait_for_ready else None,
        )
        return call

    # ---- Requests ----

    def _request(self) -> Any:
        """The one request of a method without a stream of them."""
        given = values(lines_of(self._args.data))
        first = next(given, None)
        if first is None:
            first = 1, "{}"
        elif (more := next(given, None)) is not None:
            name = f"{schemas.path(self._method)} ({schemas.kind(self._method)})"
            raise wrong(f"{name} takes one request, and there is another in line {more[0]}")
        return self._make(first)

    def _requests(self) -> Iterator[Any]:
        data = "@" if self._args.data is None else self._args.data
        if data == "@" and is_terminal(sys.stdin):
            self._output.note("Requests are read from the terminal, a JSON object a line; Ctrl-D ends them.")
        return map(self._make, values(lines_of(data)))

    # ---- What is printed ----

    def _sent(self) -> None:
        method = self._method
        self._output.note(f"-> {schemas.path(method)} ({schemas.kind(method)}) to {self._args.address}")
        self._fields(self._metadata)

    def _fields(self, pairs: Any) -> None:
        for name, found in shown_pairs(pairs).items():
            for value in found:
                self._output.note(f"   {name}: {value}")

    def _follow(self, call: Call) -> None:
        """Prints headers and messages as they come. RpcError: the call has ended with another status than OK."""
        if self._args.verbose or self._output.machine:
            headers = call.initial_metadata()
            if self._output.machine:
                self._output.record(headers=shown_pairs(headers))
            if self._args.verbose:
                self._output.note("<- headers")
                self._fields(headers)
        if schemas.streams(self._method)[1]:
            for message in call:
                self._message(message, None)
        else:
            self._message(call.result(), 2 if self._output.is_terminal else None)

    def _message(self, message: Any, indent: Optional[int]) -> None:
        if self._output.machine:
            self._output.record(message=json.loads(self._messages.text(message)))
        else:
            self._output.message(self._messages.text(message, indent))

    def _over(self, call: Call) -> None:
        if self._args.trace and not self._output.machine:
            trace.show(call.trace, self._output)

    def _succeeded(self, call: Call) -> None:
        if self._output.machine:
            self._record(call)
        if self._args.verbose:
            self._trailers(call)

    def _failed(self, error: RpcError) -> int:
        code = error.code()
        if self._output.machine:
            self._record(error)
        else:
            self._output.note(f"penstock: {schemas.path(self._method)}: {said(error)}")
            for detail in error.status_details:
                self._output.note(f"  {json.dumps(self._messages.detail(detail), ensure_ascii=False)}")
        if self._args.verbose:
            self._trailers(error)
        return Exit.STATUS + code.number

    def _trailers(self, outcome: Any) -> None:
        self._output.note(f"<- {outcome.code().name}")
        self._fields(outcome.trailing_metadata())
        if outcome.stats:
            self._output.note(f"   {_times(outcome.stats)}")

    def _record(self, outcome: Any) -> None:
        status = {
            "code": outcome.code().number,
            "name": outcome.code().name,
            "message": outcome.details(),
            "details": [self._messages.detail(detail) for detail in outcome.status_details],
            "trailers": shown_pairs(outcome.trailing_metadata()),
        }
        view: List[Tuple[str, Any]] = [("status", status), ("stats", outcome.stats)]
        if self._args.trace:
            view.append(("trace", outcome.trace))
        self._output.record(**dict(view))


def said(error: RpcError) -> str:
    """The status of a failed call in one line, with the exception that has caused it, if one has."""
    code: StatusCode = error.code()
    text = f"{code.name}: {error.details()}" if error.details() else code.name
    if error.__cause__ is not None:
        text += f" ({type(error.__cause__).__name__}: {error.__cause__})"
    known = advice(error.details()) if code is StatusCode.UNAVAILABLE else None
    return text if known is None else f"{text} ({known})"


def _times(stats: Dict[str, Any]) -> str:
    """The statistics of a call in one line."""
    waited = stats["waited"]
    parts = [
        f"{stats['duration_us'] / 1000:.1f} ms",
        f"{(waited['name_us'] + waited['connection_us']) / 1000:.1f} ms for the connection",
        "no headers" if stats["headers_us"] is None else f"headers after {stats['headers_us'] / 1000:.1f} ms",
        "1 attempt" if stats["attempts"] == 1 else f"{stats['attempts']} attempts",
        f"messages: {stats['sent']['messages']} out, {stats['received']['messages']} in",
        f"peer {stats['peer'] or 'none'}",
    ]
    return ", ".join(parts)
