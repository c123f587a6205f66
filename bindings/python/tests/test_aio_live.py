"""Additions to a channel of `penstock.grpc.aio`: interceptors of grpc.aio's on a channel that runs, and
credentials of calls, with the results of grpc.aio's channel."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List

import grpc.aio
import pytest

import penstock.grpc.aio
from aio_helpers import LOOPS, each, eventually, raises, run_on
from aio_scenarios import BIDI, CLIENT, PROBE, SERVER, UNARY, collect, outcome
from test_grpc_credentials import Plugin, fail, report

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Any:
    return lambda work: run_on(LOOPS[request.param], work)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    for logger in ("grpc", "penstock"):
        caplog.set_level(logging.CRITICAL + 1, logger)


# ---- Interceptors on a channel that runs ----


class _Marks:
    """Notes that it has seen a call, and marks the call for those behind it."""

    def __init__(self, name: str, log: List[Any]) -> None:
        self.name = name
        self.log = log

    async def see(self, continuation: Any, details: Any, request: Any) -> Any:
        before = [value for key, value in details.metadata if key == "x-seen"]
        self.log.append((self.name, details.method, before))
        metadata = grpc.aio.Metadata(*details.metadata)
        metadata.add("x-seen", self.name)
        changed = grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )
        return await continuation(changed, request)


def kind_of(index: int) -> Any:
    """A class of interceptors for one kind of call."""
    name = "".join(part.title() for part in KINDS[index].split("_"))
    base = getattr(grpc.aio, f"{name}ClientInterceptor")
    return type(f"Marks{name}", (_Marks, base), {f"intercept_{KINDS[index]}": _Marks.see})


async def one_of_each(methods: List[Any]) -> Any:
    unary, server, client, both = methods
    return [
        await unary(b"1"),
        await collect(server(b"2")),
        await client(each(b"3", b"4")),
        await collect(both(each(b"5", b"6"))),
    ]


def methods_of(channel: Any) -> List[Any]:
    names = (UNARY, SERVER, CLIENT, BIDI)
    return [getattr(channel, kind)(name) for kind, name in zip(KINDS, names)]


def test_interceptors_see_calls_by_priority_as_if_the_channel_were_made_with_them(run: Any, server: str) -> None:
    async def made_with() -> Any:
        log: List[Any] = []
        all_of_them = [kind_of(index)(name, log) for index in range(4) for name in ("first", "second", "third")]
        async with grpc.aio.insecure_channel(server, interceptors=all_of_them) as channel:
            return await one_of_each(methods_of(channel)), log

    async def added() -> Any:
        log: List[Any] = []
        seconds = [kind_of(index)("second", log) for index in range(4)]
        async with penstock.grpc.aio.insecure_channel(server, interceptors=seconds) as channel:
            methods = methods_of(channel)
            for index in range(4):
                channel.add_interceptor(kind_of(index)("third", log), priority=-1)
                channel.add_interceptor(kind_of(index)("first", log), priority=7)
            return await one_of_each(methods), log

    assert run(added()) == run(made_with())


def test_interceptors_come_and_go_while_calls_run(run: Any, server: str) -> None:
    class Both(_Marks, grpc.aio.UnaryUnaryClientInterceptor, grpc.aio.UnaryStreamClientInterceptor):
        intercept_unary_unary = intercept_unary_stream = _Marks.see

    async def main() -> None:
        log: List[Any] = []
        async with penstock.grpc.aio.insecure_channel(server) as channel:
            unary, stream, *_ = methods_of(channel)
            await unary(b"")
            assert log == []
            low = channel.add_interceptor(Both("low", log), priority=1)
            with channel.add_interceptor(Both("high", log), priority=2):
                running = stream(b"x")
                assert await running.read() == b"x"
                await unary(b"")
            await unary(b"")
            low.priority = 3
            low.remove()
            low.remove()
            await unary(b"")
            assert await running.read() is grpc.aio.EOF
            assert [(name, before) for name, _, before in log] == [
                ("high", []),
                ("low", ["high"]),
                ("high", []),
                ("low", ["high"]),
                ("low", []),
            ]

    run(main())


def test_interceptors_of_this_package_are_added_by_the_same_function(run: Any, server: str) -> None:
    class Note(penstock.Interceptor):
        async def on_start(self, hop: penstock.Hop) -> None:
            hop.metadata["x-note"] = "1"

    async def main() -> None:
        async with penstock.grpc.aio.insecure_channel(server) as channel:
            probe = channel.unary_unary(PROBE, None, json.loads)
            registration = channel.add_interceptor(Note(), 3, methods=PROBE)
            assert ["x-note", "1"] in (await probe(b""))["metadata"]
            registration.remove()
            assert ["x-note", "1"] not in (await probe(b""))["metadata"]
            with pytest.raises(TypeError, match="have no filters: methods"):
                channel.add_interceptor(kind_of(0)("", []), methods=PROBE)
            with pytest.raises(TypeError):
                channel.add_interceptor(7)

    run(main())


# ---- Credentials of calls ----


def modules(aio: Any) -> Any:
    """The module whose functions make credentials for ``aio``."""
    return grpc if aio is grpc.aio else penstock.grpc


def secure(aio: Any, certificates: Path, servers: Dict[str, str], *call_credentials: Any) -> Any:
    module = modules(aio)
    credentials = module.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    if call_credentials:
        credentials = module.composite_channel_credentials(credentials, *call_credentials)
    return aio.secure_channel(servers["tls"].replace("127.0.0.1", "localhost"), credentials)


async def sent(channel: Any, **keywords: Any) -> Any:
    probe = channel.unary_unary(PROBE, None, json.loads)
    return [pair for pair in (await probe(b"", timeout=20, **keywords))["metadata"] if pair[0] != "user-agent"]


def both(run: Any, work: Callable[[Any], Any]) -> None:
    assert run(work(penstock.grpc.aio)) == run(work(grpc.aio))


def test_metadata_of_plugins(run: Any, certificates: Path, servers: Dict[str, str]) -> None:
    async def main(aio: Any) -> Any:
        module = modules(aio)
        where: List[Any] = []

        def by_context(context: Any) -> Any:
            where.append((context.service_url.rpartition(":")[0], context.service_url.rpartition("/")[2]))
            where.append(context.method_name)
            return (("x-plugin", "1"),)

        token = module.access_token_call_credentials("secret")
        plugin = module.metadata_call_credentials(Plugin(by_context))
        later = module.metadata_call_credentials(Plugin(lambda context: (("x-later", "1"),), later=True))
        results: List[Any] = []
        async with secure(aio, certificates, servers) as channel:
            for given in (None, token, plugin, later, module.composite_call_credentials(token, plugin)):
                results.append(await sent(channel, credentials=given, metadata=(("x-own", "1"),)))
        async with secure(aio, certificates, servers, token, later) as channel:
            results += [await sent(channel), await sent(channel, credentials=plugin)]
            results.append(await one_of_each(methods_of(channel)))
        return results, where

    both(run, main)


@pytest.mark.parametrize("answer", [fail, report, lambda context: (("Bad", "é"),)])
def test_plugins_that_fail(
    run: Any, certificates: Path, servers: Dict[str, str], answer: Callable[[Any], Any]
) -> None:
    async def main(aio: Any) -> Any:
        credentials = modules(aio).metadata_call_credentials(Plugin(answer))
        results = []
        async with secure(aio, certificates, servers, credentials) as channel:
            for work in (channel.unary_unary(UNARY)(b""), channel.unary_stream(SERVER)(b"").read()):
                results.append((await raises(grpc.aio.AioRpcError, work)).code())
        return results

    both(run, main)


def test_the_exception_of_a_plugin_is_the_cause(run: Any, certificates: Path, servers: Dict[str, str]) -> None:
    async def main() -> None:
        credentials = penstock.grpc.metadata_call_credentials(Plugin(fail))
        async with secure(penstock.grpc.aio, certificates, servers, credentials) as channel:
            error = await raises(grpc.aio.AioRpcError, channel.unary_unary(UNARY)(b""))
            assert isinstance(error.__cause__, ZeroDivisionError)

    run(main())


def test_a_call_can_be_cancelled_while_its_plugin_waits(
    run: Any, certificates: Path, servers: Dict[str, str]
) -> None:
    async def main() -> None:
        asked: List[Any] = []
        release = threading.Event()

        class Slow(grpc.AuthMetadataPlugin):  # type: ignore[misc]
            def __call__(self, context: Any, callback: Any) -> None:
                asked.append(callback)
                release.wait(20)
                callback((), None)

        credentials = penstock.grpc.metadata_call_credentials(Slow())
        async with secure(penstock.grpc.aio, certificates, servers, credentials) as channel:
            call = channel.unary_unary(UNARY)(b"")
            await eventually(lambda: len(asked) == 1)
            call.cancel()
            await raises(asyncio.CancelledError, call)
            late = channel.unary_unary(UNARY)(b"", timeout=0.2)
            assert (await raises(grpc.aio.AioRpcError, late)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        release.set()

    run(main())


def test_credentials_are_refused_in_cleartext(run: Any, server: str) -> None:
    async def main(aio: Any) -> Any:
        async with aio.insecure_channel(server) as channel:
            credentials = modules(aio).access_token_call_credentials("secret")
            return await outcome(asking(channel, credentials=credentials))

    async def asking(channel: Any, **keywords: Any) -> Any:
        return await channel.unary_unary(UNARY)(b"", **keywords)

    both(run, main)

    async def local() -> Any:
        ours = penstock.grpc
        token = ours.access_token_call_credentials("secret")
        given = ours.composite_channel_credentials(ours.local_channel_credentials(), token)
        async with ours.aio.secure_channel(server, given) as channel:
            with pytest.raises(TypeError, match="can't be read"):
                await asking(channel, credentials=grpc.access_token_call_credentials("secret"))
            return await sent(channel)

    assert run(local()) == [["authorization", "Bearer secret"]]
