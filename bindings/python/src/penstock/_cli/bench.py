"""`penstock bench`: load on one method, with percentiles, a histogram and a report in HTML."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import RpcError
from ..aio import Channel as AsyncChannel
from . import schema as schemas
from .connection import Pairs, metadata, opened, settings
from .failure import CommandError, Exit, wrong
from .flags import add_connection, add_method, add_output, add_rpc_header, add_schema, flag, seconds, whole
from .messages import Messages
from .output import Output, is_terminal
from .report import page
from .requests import lines_of, values
from .results import Results

HELP = "measure a method under load: percentiles, a histogram, a report in HTML"


def add(parser: argparse.ArgumentParser) -> None:
    add_method(parser)
    flag(
        parser,
        "d",
        "data",
        metavar="JSON",
        help="the request of each call, or the requests if it has a stream of them; @ reads the standard input, "
        "@FILE a file (default: one empty message)",
    )
    flag(parser, "c", "concurrency", type=whole, default=10, metavar="N", help="calls at the same time (default: 10)")
    flag(parser, "n", "requests", type=whole, metavar="N", help="how many calls (default: 1000, or --duration)")
    flag(parser, "duration", type=seconds, metavar="SECONDS", help="how long new calls are made")
    flag(
        parser,
        "rate",
        type=seconds,
        metavar="N",
        help="calls per second: a call that begins late counts from when it should have begun (default: no limit)",
    )
    flag(parser, "html", metavar="FILE", help="write a report with plots to this file")
    add_rpc_header(parser)
    add_connection(parser)
    add_schema(parser)
    add_output(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    pairs = metadata([*args.header, *args.rpc_header], args.expand_headers)
    load = _load(args, pairs)
    bar = _Bar(load) if is_terminal(sys.stderr) and not output.machine else None
    try:
        asyncio.run(load.run(bar))
    except KeyboardInterrupt:
        # The figures so far are shown all the same.
        _show(args, load, output)
        raise
    finally:
        if bar is not None:
            bar.clear()
    _show(args, load, output)
    return Exit.OK if load.results.all_ok else Exit.NO


def _load(args: argparse.Namespace, pairs: Pairs) -> Load:
    """The load that the flags describe, with its requests in bytes."""
    if schemas.has_files(args):
        known = schemas.from_files(args)
        method, requests = _requests(args, known)
    else:
        with opened(args) as channel:
            method, requests = _requests(args, schemas.from_server(args, channel))
    return Load(args, schemas.path(method), method, requests, pairs)


def _requests(args: argparse.Namespace, schema: schemas.Schema) -> Tuple[Any, List[bytes]]:
    method = schema.method(args.method)
    parse = Messages(schema).parser(method.input_type)
    given = [parse(value).SerializeToString() for value in values(lines_of(args.data))] or [b""]
    if len(given) > 1 and not schemas.streams(method)[0]:
        raise wrong(f"{schemas.path(method)} ({schemas.kind(method)}) takes one request, and -d has {len(given)}")
    return method, given


class Load:
    """Calls of one method, so many at the same time, on an event loop."""

    def __init__(self, args: argparse.Namespace, path: str, method: Any, requests: List[bytes], pairs: Pairs) -> None:
        self._args = args
        self._path = path
        self._kind = schemas.streams(method)
        self._requests = requests
        self._options: Dict[str, Any] = {"timeout": args.max_time, "metadata": pairs}
        self._most: Optional[int] = args.requests or (None if args.duration else 1000)
        self._begun = 0
        self.results = Results()

    def progress(self) -> float:
        """The part that is done, from 0 to 1."""
        by_time = self.results.elapsed / self._args.duration if self._args.duration else 0.0
        by_count = len(self.results.latencies) / self._most if self._most else 0.0
        return min(max(by_time, by_count), 1.0)

    async def run(self, bar: Optional[_Bar]) -> None:
        target, given = settings(self._args)
        async with AsyncChannel(target, **given) as channel:
            call = self._call(channel)
            self.results.begin()
            showing = asyncio.ensure_future(bar.run()) if bar is not None else None
            try:
                await asyncio.gather(*(self._work(call) for _ in range(self._args.concurrency)))
            finally:
                self.results.end()
                if showing is not None:
                    showing.cancel()

    def _call(self, channel: AsyncChannel) -> Callable[[], Any]:
        """A function that makes a call, and waits for its end."""
        names = {(False, False): "unary_unary", (True, False): "stream_unary", (False, True): "unary_stream"}
        method = getattr(channel, names.get(self._kind, "stream_stream"))(self._path)
        request: Any = self._requests if self._kind[0] else self._requests[0]

        async def one() -> None:
            await method(request, **self._options)

        async def stream() -> None:
            async for _ in method(request, **self._options):
                pass

        return stream if self._kind[1] else one

    async def _work(self, call: Callable[[], Any]) -> None:
        """One call after the other."""
        results, rate = self.results, self._args.rate
        while self._most is None or self._begun < self._most:
            passed = time.monotonic() - results.began
            due = self._begun / rate if rate else passed
            if self._args.duration and max(due, passed) >= self._args.duration:
                return
            self._begun += 1
            if due > passed:
                await asyncio.sleep(due - passed)
            code = "OK"
            try:
                await call()
            except RpcError as error:
                code = error.code().name
                results.failed(error)
            results.add(results.began + due, time.monotonic(), code)


class _Bar:
    """A bar on the terminal that grows."""

    WIDTH = 40

    def __init__(self, load: Load) -> None:
        self._load = load

    async def run(self) -> None:
        while True:
            results = self._load.results
            full = round(self._load.progress() * self.WIDTH)
            bar = "#" * full + "." * (self.WIDTH - full)
            sys.stderr.write(f"\r[{bar}] {len(results.latencies)} calls, {results.rate:,.0f}/s ")
            sys.stderr.flush()
            await asyncio.sleep(0.1)

    def clear(self) -> None:
        sys.stderr.write(f"\r{'':78}\r")
        sys.stderr.flush()


def _show(args: argparse.Namespace, load: Load, output: Output) -> None:
    results = load.results
    if not results.latencies:
        return
    if args.html is not None:
        title = f"{args.method.lstrip('/')} on {args.address}, {args.concurrency} calls at the same time"
        try:
            with open(args.html, "w", encoding="utf-8") as file:
                file.write(page(title, results))
        except OSError as error:
            raise CommandError(f"--html {args.html}: {error.strerror}") from error
    if output.machine:
        output.record(**results.view())
        return
    output.line(f"{len(results.latencies):,} calls in {results.elapsed:.2f} s: {results.rate:,.0f} calls/s")
    for name, count in sorted(results.codes.items()):
        said = f", such as: {results.said[name]}" if name in results.said else ""
        output.line(f"  {name} {count:,}{said}")
    rows = [[name, f"{value:.3f}"] for name, value in results.percentiles().items()]
    output.table(["latency", " ms"], rows)
    output.line("")
    most = max(count for _, _, count in results.histogram())
    bars = [
        [f"{low:.3f} to {high:.3f}", f"{count:,}", "#" * round(40 * count / most)]
        for low, high, count in results.histogram()
    ]
    output.table([" ms", " calls", ""], bars)
