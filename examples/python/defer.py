#!/usr/bin/env python3
"""An interceptor that pauses a call before anything is sent; another thread lets the call go on. The callback itself
does not wait, so other calls go on during the pause.

    defer.py [TARGET]
"""

import sys
import threading
import time

import penstock


class FetchFirst(penstock.Interceptor):
    def on_start(self, hop):
        threading.Thread(target=self.fetch, args=[hop.ticket()]).start()
        print("the call is paused")
        return penstock.Verdict.PAUSE

    def fetch(self, ticket):
        """Runs on a thread of its own, so it may wait, read files or ask another server."""
        time.sleep(0.1)
        try:
            # The ticket's event: here the start, with its metadata. It may be changed until the ticket is spent.
            ticket.event().metadata["authorization"] = "Bearer fetched"
            print("a thread lets the call go on")
            ticket.resume()  # or ticket.end(...), which ends the call
        except penstock.GoneError:
            pass  # the call has ended, by its deadline or a cancel


with penstock.Channel(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", tls=False) as channel:
    channel.add_interceptor(FetchFirst(), priority=100)
    echo = channel.unary_unary("/penstock.Echo/Unary")
    # The deadline counts from the call's creation, so it includes the pause.
    _, call = echo.with_call(b"hi", timeout=5, metadata={"x-echo-metadata": "1"})
    seen = call.trailing_metadata().get("seen-authorization")
    print(f"{call.code().name}; the server saw: authorization: {seen}")

if seen != "Bearer fetched":
    sys.exit("the server did not see the header")
