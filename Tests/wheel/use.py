"""Uses the penstock that is installed: `use.py TARGET TLS_TARGET`, both of bindings/python/tests/server.py. The roots are those
that the library finds by itself."""

import asyncio
import ctypes
import os
import sys

import penstock
import penstock.aio

# ---- The package, and the library in it ----

loaded = penstock.load()
assert loaded.startswith(os.path.dirname(penstock.__file__)), loaded
assert penstock.__version__ == penstock.library_version().replace("-dev", ".dev0"), penstock.__version__
libraries = penstock.library_versions()["libraries"]
assert sorted(libraries) == ["jansson", "nghttp2", "openssl", "zlib"], libraries
assert all(each["inside"] for each in libraries.values()), libraries
for name in ("libnghttp2.so.14", "libjansson.so.4", "libssl.so.3", "libcrypto.so.3"):
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    raise SystemExit(f"{name} is still to be had: it is not hidden")


# ---- Calls of all kinds ----


class Header(penstock.Interceptor):
    def __init__(self):
        self.seen = []

    def on_start(self, hop):
        hop.metadata["x-wheel"] = "yes"
        self.seen.append(hop.kind.name)


def call_all(channel):
    header = Header()
    channel.add_interceptor(header)
    options = {"timeout": 60, "compression": "gzip"}
    large = b"wheel" * 20000
    assert channel.unary_unary("/penstock.Echo/Unary")(large, **options) == large
    three = [b"one", b"two", b"three"]
    assert len(list(channel.unary_stream("/penstock.Echo/ServerStream")(b"one", **options))) > 0
    assert channel.stream_unary("/penstock.Echo/ClientStream")(iter(three), **options) == b"".join(three)
    assert list(channel.stream_stream("/penstock.Echo/Bidi")(iter(three), **options)) == three
    assert header.seen == ["UNARY", "SERVER_STREAM", "CLIENT_STREAM", "BIDI"], header.seen


async def call_on_a_loop(target):
    async with penstock.aio.Channel(target) as channel:
        assert await channel.unary_unary("/penstock.Echo/Unary")(b"loop", timeout=60) == b"loop"


plain, secure = sys.argv[1:]
with penstock.Channel(plain, tls=False) as channel:
    call_all(channel)
with penstock.Channel(secure) as channel:
    call_all(channel)
asyncio.run(call_on_a_loop(secure))
print("used", libraries["openssl"]["version"])
