"""A call is sent again also where the server sends headers, and then an error: the headers wait at the interceptor
that may restart it. In each style, against grpcio, which sends headers first where the test asks for it."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, List, Tuple

import pytest

from helpers import Only, on_thread
from penstock import (
    Channel,
    Completion,
    CompletionInterceptor,
    Hop,
    InterceptedCall,
    Interceptor,
    Kind,
    RpcError,
    StateError,
    Status,
    StatusCode,
    SyncInterceptor,
    Verdict,
)
from penstock.ready import BearerToken


class Refresh(Interceptor):
    replay_bytes = 1000

    def on_status(self, hop: Hop) -> object:
        if hop.status.code is not StatusCode.UNAUTHENTICATED or not hop.can_restart:
            return None
        hop.request_metadata["authorization"] = "Bearer new"
        return Verdict.RESTART


class RefreshLater(CompletionInterceptor):
    replay_bytes = 1000

    def on_status(self, status: Status, done: Completion) -> None:
        if status.code is not StatusCode.UNAUTHENTICATED or not done.hop.can_restart:
            done.next()
        else:
            on_thread(lambda: self.restart(done))

    @staticmethod
    def restart(done: Completion) -> None:
        done.request_metadata["authorization"] = "Bearer new"
        done.resolve(Verdict.RESTART)


class RefreshAndWait(SyncInterceptor):
    def intercept(self, call: InterceptedCall) -> None:
        status = call.next().status
        if status and status.code is StatusCode.UNAUTHENTICATED:
            call.metadata["authorization"] = "Bearer new"
            with contextlib.suppress(StateError):
                call.next()


def ready_token() -> BearerToken:
    tokens = iter(("old", "new"))
    return BearerToken(lambda request: next(tokens), allow_cleartext=True)


METHODS = (
    ("unary_unary", "/penstock.Probe/Authorized", b"ab"),
    ("stream_unary", "/penstock.Probe/AuthorizedStream", [b"a", b"b"]),
)


@pytest.mark.parametrize("metadata", [None, {"x-begin": "headers"}], ids=["error alone", "headers first"])
@pytest.mark.parametrize(("shape", "path", "request_data"), METHODS, ids=["unary", "client stream"])
@pytest.mark.parametrize("make", [Refresh, RefreshLater, RefreshAndWait, ready_token])
def test_a_refused_call_is_sent_again(
    channel: Channel, make: Callable[[], Any], shape: str, path: str, request_data: Any, metadata: Any
) -> None:
    headers: List[Tuple[str, ...]] = []
    channel.add_interceptor(Only(on_headers=lambda hop: headers.append(tuple(hop.metadata))), priority=1)
    channel.add_interceptor(make())
    assert getattr(channel, shape)(path)(request_data, metadata=metadata) == b"ab"
    # The headers of the refused attempt have not come up.
    assert len(headers) == 1
    assert "refused" not in headers[0]


@pytest.mark.parametrize("chooses", [True, False], ids=["headers wait", "headers pass"])
@pytest.mark.parametrize("base", [Refresh, RefreshLater, RefreshAndWait])
def test_a_refused_server_stream_is_sent_again(channel: Channel, base: Any, chooses: bool) -> None:
    headers: List[Tuple[str, ...]] = []
    channel.add_interceptor(Only(on_headers=lambda hop: headers.append(tuple(hop.metadata))), priority=1)
    interceptor = base()
    if chooses:
        interceptor.headers_wait = Kind.SERVER_STREAM
    channel.add_interceptor(interceptor)
    call = channel.unary_stream("/penstock.Probe/AuthorizedAnswers")(b"ab", metadata={"x-begin": "headers"})
    if chooses:
        assert list(call) == [b"ab", b"ab"]
        assert len(headers) == 1
        assert "refused" not in headers[0]
    else:
        with pytest.raises(RpcError) as caught:
            list(call)
        assert caught.value.code() is StatusCode.UNAUTHENTICATED
        assert "refused" in headers[0]


@pytest.mark.parametrize(
    ("headers_wait", "code"),
    [
        (None, None),
        (Kind.UNARY, None),
        ((Kind.UNARY, Kind.BIDI), None),
        ((), StatusCode.UNAUTHENTICATED),
        (Kind.SERVER_STREAM, StatusCode.UNAUTHENTICATED),
    ],
)
@pytest.mark.parametrize("base", [Refresh, RefreshLater])
def test_the_interceptor_says_where_headers_wait(channel: Channel, base: Any, headers_wait: Any, code: Any) -> None:
    interceptor = base()
    interceptor.headers_wait = headers_wait
    channel.add_interceptor(interceptor)
    call = channel.unary_unary("/penstock.Probe/Authorized")
    if code is None:
        assert call(b"ab", metadata={"x-begin": "headers"}) == b"ab"
    else:
        with pytest.raises(RpcError) as caught:
            call(b"ab", metadata={"x-begin": "headers"})
        assert caught.value.code() is code
