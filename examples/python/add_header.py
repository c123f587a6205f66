#!/usr/bin/env python3
"""Two interceptors: one adds a header to every call of one service, the other reads a trailer of every response.

    add_header.py [TARGET]
"""

import sys

import penstock


class Auth(penstock.Interceptor):
    def on_start(self, hop):
        hop.metadata["authorization"] = "Bearer s3cret"


class Print(penstock.Interceptor):
    """In on_status the metadata is the trailers. If a request has "x-echo-metadata", the peer (docs/peer.md) returns each request
    header as a trailer "seen-NAME"."""

    def on_status(self, hop):
        print("the server saw: authorization:", hop.metadata.get("seen-authorization"))


with penstock.Channel(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", tls=False) as channel:
    channel.add_interceptor(Auth(), priority=100, methods="/penstock.Echo/*")
    token = channel.add_interceptor(Print(), priority=50)
    echo = channel.unary_unary("/penstock.Echo/Unary")
    answer, call = echo.with_call(b"hi", timeout=5, metadata={"x-echo-metadata": "1"})
    print(answer, call.trailing_metadata().json)
    token.remove()
    echo(b"hi again", timeout=5)

if call.trailing_metadata().get("seen-authorization") != "Bearer s3cret":
    sys.exit("the server did not see the header")
