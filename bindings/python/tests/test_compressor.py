"""Compressors of the program's own: docs/protocols.md, "A compressor of your own"."""

from __future__ import annotations

import bz2
import contextvars
import gc
import weakref
from typing import Any, Iterator, List, Tuple

import pytest

import penstock
from coded_server import NAME, CodedServer
from helpers import eventually, run
from penstock import Channel, Compressor, StatusCode

PROTOCOLS = ["grpc", "grpc-web", "grpc-web-text", "connect"]
LARGE = b"abc" * 100_000


class Bz2(Compressor):
    name = NAME

    def __init__(self) -> None:
        # The sizes of the results.
        self.compressed: List[int] = []
        self.decompressed: List[int] = []

    def compress(self, data: bytes) -> bytes:
        self.compressed.append(len(data))
        return bz2.compress(data)

    def decompress(self, data: bytes, limit: int) -> bytes:
        stream = bz2.BZ2Decompressor()
        message = stream.decompress(data, limit + 1)
        if len(message) <= limit and not stream.eof:
            raise ValueError("the data is cut off")
        self.decompressed.append(len(message))
        return message


@pytest.fixture
def coded() -> Iterator[CodedServer]:
    server = CodedServer()
    yield server
    server.close()


def channel_to(server: CodedServer, compressor: Any = None, protocol: str = "grpc", **options: Any) -> Channel:
    given = {"protocol": protocol, "http": "2", "compression": NAME, **options}
    return Channel(server.target, tls=False, options=given, compressors=[compressor or Bz2()])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_of_all_kinds(coded: CodedServer, protocol: str) -> None:
    with channel_to(coded, protocol=protocol) as channel:
        for data in (b"", b"x", LARGE):
            assert channel.unary_unary("/a.B/Unary")(data, timeout=20) == data
            assert list(channel.unary_stream("/a.B/Each")(data, timeout=20)) == [data] * 3
            assert channel.stream_unary("/a.B/Join")([data, b"-", data], timeout=20) == data + b"-" + data
            assert list(channel.stream_stream("/a.B/Bidi")([data, b"-"], timeout=20)) == [data, b"-"]
    names = f"{NAME},gzip,deflate" if protocol == "connect" else f"{NAME},identity,gzip,deflate"
    assert {one.accepts for one in coded.seen} == {names}
    large = coded.seen[-4:]
    assert {one.encoding for one in large} == {NAME}
    # A message that compression makes longer is sent as it is.
    assert [[size > 0 for size in one.sizes] for one in large] == [[True], [True], [True, False, True], [True, False]]
    assert all(one.sizes[0] < 500 for one in large)
    assert all(size <= 0 for one in coded.seen[:8] for size in one.sizes)


def test_a_message_in_the_path_of_a_get(coded: CodedServer) -> None:
    with channel_to(coded, protocol="connect", max_get_url_bytes=1000) as channel:
        safe = penstock.Idempotency.NO_SIDE_EFFECTS
        assert channel.unary_unary("/a.B/Unary")(LARGE, timeout=20, idempotency=safe) == LARGE
    assert coded.seen[0][:3] == ("GET", NAME, f"{NAME},gzip,deflate")


def test_a_call_an_interceptor_or_a_message_chooses(coded: CodedServer) -> None:
    class Choosing(penstock.Interceptor):
        def on_start(self, hop: penstock.Hop) -> None:
            assert hop.compression == "identity"
            hop.compression = NAME
            assert hop.compression == NAME

    with channel_to(coded, compression="identity") as channel:
        unary = channel.unary_unary("/a.B/Unary")
        assert unary(LARGE, timeout=20) == LARGE
        assert unary(LARGE, timeout=20, compression=NAME) == LARGE
        assert unary(penstock.Uncompressed(LARGE), timeout=20, compression=NAME) == LARGE
        assert unary(b"x", timeout=20, compression=NAME, compression_min_bytes=0) == b"x"
        assert unary(LARGE, timeout=20, interceptors=[Choosing()]) == LARGE
    assert [one.encoding for one in coded.seen] == [None, *[NAME] * 4]
    assert [one.sizes[0] > 0 for one in coded.seen] == [False, True, False, True, True]


def failure(channel: Channel, data: bytes = LARGE) -> Tuple[StatusCode, str]:
    with channel, pytest.raises(penstock.RpcError) as caught:
        channel.unary_unary("/a.B/Unary")(data, timeout=20)
    return caught.value.code(), caught.value.details() or ""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_bomb_stops_at_the_limit(coded: CodedServer, protocol: str) -> None:
    coded.answer = bz2.compress(bytes(64 << 20))
    assert len(coded.answer) < 1000
    compressor = Bz2()
    code, words = failure(channel_to(coded, compressor, protocol))
    assert code is StatusCode.RESOURCE_EXHAUSTED
    assert "decompressed, is over the limit of 4194304 bytes (max_receive_message_bytes)" in words
    assert compressor.decompressed == [(4 << 20) + 1]


def test_the_limit_itself_is_allowed(coded: CodedServer) -> None:
    with channel_to(coded, max_receive_message_bytes=len(LARGE)) as channel:
        assert channel.unary_unary("/a.B/Unary")(LARGE, timeout=20) == LARGE
    assert failure(channel_to(coded, max_receive_message_bytes=len(LARGE) - 1))[0] is StatusCode.RESOURCE_EXHAUSTED


class Failing(Bz2):
    """One of its methods raises or returns ``with_what``."""

    def __init__(self, method: str, with_what: object) -> None:
        super().__init__()

        def fails(*_: object) -> object:
            if isinstance(with_what, BaseException):
                raise with_what
            return with_what

        setattr(self, method, fails)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", ["compress", "decompress"])
def test_an_exception_ends_the_call(coded: CodedServer, protocol: str, method: str) -> None:
    raised: List[Tuple[str, str, BaseException]] = []
    penstock.set_exception_hook(lambda *one: raised.append(one))
    try:
        error = KeyError("no such dictionary")
        code, words = failure(channel_to(coded, Failing(method, error), protocol))
        assert code is StatusCode.INTERNAL
        task = "compress a message" if method == "compress" else "decompress a received message"
        start = f'the program\'s compressor "{NAME}" could not {task}'
        assert words == f"{start}: it raised KeyError: 'no such dictionary'"
        assert raised == [("compressor", method, error)]
        raised.clear()
        code, words = failure(channel_to(coded, Failing(method, "text"), protocol))
        assert code is StatusCode.INTERNAL
        assert words.endswith("it raised TypeError: a message must be bytes, not str")
        assert isinstance(raised[0][2], TypeError)
    finally:
        penstock.set_exception_hook(None)


def test_an_answer_that_is_cut_off(coded: CodedServer, caplog: Any) -> None:
    coded.answer = bz2.compress(LARGE)[:-1]
    code, words = failure(channel_to(coded))
    assert code is StatusCode.INTERNAL
    assert words.endswith("it raised ValueError: the data is cut off")


def test_a_channel_without_it(coded: CodedServer) -> None:
    with channel_to(coded):
        code, words = failure(Channel(coded.target, tls=False, options={"compression": NAME}))
        assert (code, words) == (StatusCode.INTERNAL, f'the channel has no compressor "{NAME}"')
        assert coded.seen == []
        code, words = failure(Channel(coded.target, tls=False, options={"protocol": "connect", "http": "2"}))
        assert code is StatusCode.INTERNAL
        assert f'the unsupported content-encoding "{NAME}" (supported: ' in words


@pytest.mark.parametrize("name", ["identity", "gzip", "x-gzip", "deflate", "zstd", "X-BZ2", "", "a b", "a,b"])
def test_names_that_are_not_allowed(name: str) -> None:
    class Named(Bz2):
        pass

    Named.name = name
    with pytest.raises(penstock.InvalidArgumentError, match=r"functions\.name"):
        Channel("a:1", compressors=[Bz2(), Named()])


def test_what_is_no_compressor() -> None:
    with pytest.raises(TypeError, match="a Compressor, not <module 'bz2'"):
        Channel("a:1", compressors=[bz2])  # type: ignore[list-item]


def test_a_name_is_known_as_long_as_its_compressor(coded: CodedServer) -> None:
    options = {"compression": NAME}

    def is_refused() -> bool:
        gc.collect()
        try:
            Channel(coded.target, tls=False, options=options).close()
        except penstock.InvalidArgumentError as error:
            return error.path == "$.compression"
        return False

    eventually(is_refused)
    compressor = Bz2()
    reference = weakref.ref(compressor)
    channel = Channel(coded.target, tls=False, options=options, compressors=[compressor])
    del compressor
    assert channel.unary_unary("/a.B/Unary")(LARGE, timeout=20) == LARGE
    assert reference() is not None
    channel.close()
    eventually(is_refused)
    eventually(lambda: reference() is None)


def test_one_for_several_channels(coded: CodedServer) -> None:
    compressor = Bz2()
    with channel_to(coded, compressor) as first, channel_to(coded, compressor, "connect") as second:
        for channel in (first, second):
            assert channel.unary_unary("/a.B/Unary")(LARGE, timeout=20) == LARGE
    assert compressor.compressed == compressor.decompressed == [len(LARGE)] * 2


def test_it_runs_in_the_context_of_its_channel(coded: CodedServer) -> None:
    tenant = contextvars.ContextVar("tenant", default="none")
    seen: List[str] = []

    class Looking(Bz2):
        def compress(self, data: bytes) -> bytes:
            seen.append(tenant.get())
            tenant.set("changed")
            return super().compress(data)

    tenant.set("of the channel")
    with channel_to(coded, Looking()) as channel:
        tenant.set("of the call")
        assert channel.unary_unary("/a.B/Unary")(LARGE, timeout=20) == LARGE
    assert (seen, tenant.get()) == (["of the channel"], "of the call")


ON_A_LOOP = """
import asyncio
import bz2
import penstock.aio

class Bz2(penstock.Compressor):
    name = "x-bz2"
    def compress(self, data):
        return bz2.compress(data)
    def decompress(self, data, limit):
        return bz2.BZ2Decompressor().decompress(data, limit + 1)

async def main():
    async with penstock.aio.Channel(target, tls=False, compressors=[Bz2()]) as channel:
        data = bytes(10_000)
        for name in ("identity", "x-bz2"):
            assert await channel.unary_unary("/a.B/Unary")(data, timeout=20, compression=name) == data

asyncio.run(main())
print("done")
"""


def test_on_an_event_loop(coded: CodedServer) -> None:
    assert run(ON_A_LOOP, coded.target) == "done\n"
    assert [one.encoding for one in coded.seen] == [None, NAME]
