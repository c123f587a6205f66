#!/usr/bin/env python3
"""A ready-made interceptor for a bearer token: it fetches a token when a call needs one, keeps it, and fetches a new
one when the server refuses it. The refused call is sent again with the new token; its caller does not see the
refusal.

    bearer_token.py [TARGET]
"""

import sys

import penstock
from penstock import ready

tokens = []


def fetch(request):
    """Gets a token. Runs on a thread of its own, so it may wait, read files or ask another server."""
    if request.refused:
        print(f"the server has refused {request.refused}", end="; ")
    tokens.append(f"token-{len(tokens) + 1}")
    print(f"fetched {tokens[-1]}")
    return tokens[-1], 3600  # valid for an hour


class Server(penstock.Interceptor):
    """The peer does not check tokens. So this interceptor, below the ready-made one, makes the peer (by the header x-status)
    refuse calls that have the first token."""

    def on_start(self, hop):
        if hop.metadata.get("authorization") == "Bearer token-1":
            hop.metadata["x-status"] = "16"  # UNAUTHENTICATED


with penstock.Channel(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", tls=False) as channel:
    # The channel has no TLS, so sending the token in cleartext has to be allowed.
    channel.add_interceptor(ready.BearerToken(fetch, allow_cleartext=True), priority=100)
    channel.add_interceptor(Server(), priority=-100)
    echo = channel.unary_unary("/penstock.Echo/Unary")
    seen = []
    for _ in range(2):
        _, call = echo.with_call(b"hi", timeout=5, metadata={"x-echo-metadata": "1"})
        seen.append(call.trailing_metadata().get("seen-authorization"))
        print(f"{call.code().name}; the server saw: authorization: {seen[-1]}")

if seen != ["Bearer token-2"] * 2 or len(tokens) != 2:
    sys.exit("the refused token was not replaced once")
