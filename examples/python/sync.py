#!/usr/bin/env python3
"""Two synchronous interceptors. Each has one function that sees the whole call, and may wait. `Log` is above `Auth`,
which fetches a token by a call of its own, once. Both run on one worker thread.

    sync.py [TARGET]
"""

import sys
import time

import penstock

ECHO = "/penstock.Echo/Unary"


class Log(penstock.SyncInterceptor):
    def intercept(self, call):
        begun = time.monotonic()
        reply = call.next()  # lets the call go on, and waits for its response; this thread runs Auth during the wait
        taken = (time.monotonic() - begun) * 1000
        print(f"{call.method}: {reply.status.code.name} after {taken:.1f} ms")


class Auth(penstock.SyncInterceptor):
    token = None

    def intercept(self, call):
        if self.token is None:
            # A side call's chain begins below this interceptor, so the side call does not meet it.
            self.token = call.side_channel().unary_unary(ECHO)(b"fetched", timeout=5).decode()
        call.metadata["authorization"] = f"Bearer {self.token}"
        call.next()


with penstock.Channel(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", tls=False) as channel:
    channel.add_interceptor(Log(), priority=200)
    channel.add_interceptor(Auth(), priority=100)
    _, outcome = channel.unary_unary(ECHO).with_call(b"hi", timeout=5, metadata={"x-echo-metadata": "1"})
    seen = outcome.trailing_metadata().get("seen-authorization")
    print(f"{outcome.code().name}; the server saw: authorization: {seen}")

if seen != "Bearer fetched":
    sys.exit("the server did not see the header")
