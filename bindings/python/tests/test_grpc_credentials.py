"""Credentials by grpcio's names: TLS, and metadata that plug-ins give, with the same results as grpcio's."""

from __future__ import annotations

import contextvars
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import grpc
import pytest

import penstock.grpc
from grpc_scenarios import raised

USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="nobody")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    for logger in ("grpc", "penstock"):
        caplog.set_level(logging.CRITICAL + 1, logger)


def secure(module: Any, certificates: Path, target: str, *call_credentials: Any, **keywords: Any) -> Any:
    credentials = module.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    if call_credentials:
        credentials = module.composite_channel_credentials(credentials, *call_credentials)
    return module.secure_channel(target, credentials, **keywords)


class Plugin(grpc.AuthMetadataPlugin):  # type: ignore[misc]
    """Gives what ``answer`` returns, at once or, with ``later``, from another thread."""

    def __init__(self, answer: Callable[[Any], Any], later: bool = False) -> None:
        self.answer = answer
        self.later = later

    def __call__(self, context: Any, callback: Any) -> None:
        try:
            answer = self.answer(context)
        except LookupError as error:
            callback(None, error)
            return
        if self.later:
            threading.Timer(0.02, callback, (answer, None)).start()
        else:
            callback(answer, None)


def sent(channel: Any, **keywords: Any) -> Any:
    probe = channel.unary_unary("/penstock.Probe/Unary", None, json.loads)
    return [pair for pair in probe(b"", timeout=20, **keywords)["metadata"] if pair[0] != "user-agent"]


def seen(module: Any, certificates: Path, servers: Dict[str, str]) -> List[Any]:
    """What a user of credentials sees."""
    target = servers["tls"].replace("127.0.0.1", "localhost")
    token = module.access_token_call_credentials("secret")
    where: List[Any] = []

    def by_context(context: Any) -> Any:
        where.append((context.service_url.rpartition(":")[0], context.service_url.rpartition("/")[2]))
        where.append((context.method_name, isinstance(context, module.AuthMetadataContext)))
        return (("x-plugin", USER.get()),)

    USER.set("set before")
    plugin = module.metadata_call_credentials(Plugin(by_context))
    USER.set("set after")
    both = module.composite_call_credentials(token, plugin)
    pairs = [("x-later", "1"), ("x-b-bin", b"\0")]
    later = module.metadata_call_credentials(Plugin(lambda context: pairs, later=True))
    results: List[Any] = []
    with secure(module, certificates, target) as channel:
        results += [sent(channel), sent(channel, credentials=token), sent(channel, credentials=both)]
        results.append(sent(channel, credentials=later, metadata=(("x-own", "1"),)))
        future = channel.unary_unary("/penstock.Echo/Unary").future(b"a", credentials=later)
        stream = channel.unary_stream("/penstock.Echo/ServerStream")(b"a", credentials=both)
        results += [future.result(timeout=20), list(stream)]
        upload = channel.stream_unary("/penstock.Echo/ClientStream")
        results.append(upload(iter([b"a", b"b"]), credentials=later))
    with secure(module, certificates, target, token, later) as channel:
        results += [sent(channel), sent(channel, credentials=plugin)]
    return [results, where]


def test_metadata_of_plugins(certificates: Path, servers: Dict[str, str]) -> None:
    assert seen(penstock.grpc, certificates, servers) == seen(grpc, certificates, servers)


def fail(context: Any) -> Any:
    raise ZeroDivisionError("in a plug-in")


def report(context: Any) -> Any:
    raise LookupError("no token")


@pytest.mark.parametrize("answer", [fail, report, lambda context: (("Bad", "é"),)])
def test_plugins_that_fail(certificates: Path, servers: Dict[str, str], answer: Callable[[Any], Any]) -> None:
    """As in grpcio, which does not run beside ours here: the close of its channel may hang after such a failure."""
    with secure(penstock.grpc, certificates, servers["tls"]) as channel:
        credentials = penstock.grpc.metadata_call_credentials(Plugin(answer))
        unary = channel.unary_unary("/penstock.Echo/Unary")
        outcome = raised(penstock.grpc, lambda: unary(b"", credentials=credentials), words=False)
        assert outcome[:6] == ("_InactiveRpcError", penstock.grpc.StatusCode.UNAVAILABLE, "", "", (), ())
        future = unary.future(b"", credentials=credentials)
        assert future.exception(timeout=20) is future
        assert future.code() is penstock.grpc.StatusCode.UNAVAILABLE
        assert future.__cause__ is not None


def test_a_plugin_may_wait_and_the_deadline_ends_the_wait(certificates: Path, servers: Dict[str, str]) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def wait(context: Any) -> Any:
        waiting.set()
        go_on.wait(30)
        return ()

    with secure(penstock.grpc, certificates, servers["tls"]) as channel:
        unary = channel.unary_unary("/penstock.Echo/Unary")
        credentials = penstock.grpc.metadata_call_credentials(Plugin(wait))
        began = time.monotonic()
        stuck = unary.future(b"", credentials=credentials)
        assert waiting.wait(20)
        # Other calls go on meanwhile.
        assert unary(b"a", timeout=20) == b"a"
        with pytest.raises(grpc.RpcError) as caught:
            unary(b"", credentials=credentials, timeout=0.1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert stuck.cancel()
        assert time.monotonic() - began < 20
        go_on.set()


def test_a_plugin_answers_once(certificates: Path, servers: Dict[str, str]) -> None:
    refused: List[str] = []

    class Twice(penstock.grpc.AuthMetadataPlugin):
        def __call__(self, context: Any, callback: Any) -> None:
            callback((("x-a", "1"),), None)
            try:
                callback((("x-a", "2"),), None)
            except RuntimeError as error:
                refused.append(str(error))

    with secure(penstock.grpc, certificates, servers["tls"]) as channel:
        credentials = penstock.grpc.metadata_call_credentials(Twice())
        assert sent(channel, credentials=credentials) == [["x-a", "1"]]
    assert refused == ["AuthMetadataPluginCallback invoked more than once!"]


def test_mutual_tls(certificates: Path, servers: Dict[str, str]) -> None:
    parts = [(certificates / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem")]
    for module in (grpc, penstock.grpc):
        with module.secure_channel(servers["mtls"], module.ssl_channel_credentials(*parts)) as channel:
            assert channel.unary_unary("/penstock.Echo/Unary")(b"a", timeout=20) == b"a"
        with secure(module, certificates, servers["mtls"]) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/penstock.Echo/Unary")(b"a", timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_the_name_of_the_server(certificates: Path, servers: Dict[str, str]) -> None:
    for module in (grpc, penstock.grpc):
        for name, succeeds in (("localhost", True), ("elsewhere.example", False)):
            options = [("grpc.ssl_target_name_override", name)]
            with secure(module, certificates, servers["tls"], options=options) as channel:
                unary = channel.unary_unary("/penstock.Echo/Unary")
                if succeeds:
                    assert unary(b"a", timeout=20) == b"a"
                else:
                    with pytest.raises(grpc.RpcError) as caught:
                        unary(b"a", timeout=20)
                    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_credentials_for_this_machine(server: str) -> None:
    for module in (grpc, penstock.grpc):
        with module.secure_channel(server, module.local_channel_credentials()) as channel:
            assert sent(channel) == []
            token = module.access_token_call_credentials("secret")
            assert sent(channel, credentials=token) == [["authorization", "Bearer secret"]]
    with pytest.raises(ValueError, match=r"example\.org"):
        penstock.grpc.secure_channel("example.org:1", penstock.grpc.local_channel_credentials())
    uds = penstock.grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    with pytest.raises(ValueError, match="UDS"):
        penstock.grpc.secure_channel(server, uds)
    penstock.grpc.secure_channel("unix:/nowhere", uds).close()
    penstock.grpc.secure_channel("ipv6:[::1]:1", penstock.grpc.local_channel_credentials()).close()


def test_credentials_of_grpcio_are_refused_in_words(server: str) -> None:
    with pytest.raises(TypeError, match=r"penstock\.grpc"):
        penstock.grpc.secure_channel(server, grpc.ssl_channel_credentials())
    with penstock.grpc.insecure_channel(server) as channel, pytest.raises(TypeError, match=r"penstock\.grpc"):
        sent(channel, credentials=grpc.access_token_call_credentials("secret"))
    for name in ("alts_channel_credentials", "xds_channel_credentials", "compute_engine_channel_credentials"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(penstock.grpc, name)(None)
