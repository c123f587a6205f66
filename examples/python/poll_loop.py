#!/usr/bin/env python3
"""A program with an event loop of its own drives the runtime: no thread of the library drives it, and all callbacks run
on the program's only thread.

    poll_loop.py [TARGET]
"""

import select
import sys

import penstock


class Arrivals(penstock.Interceptor):
    """Counts, within `Runtime.poll`, the responses that have begun."""

    def __init__(self):
        self.count = 0

    def on_headers(self, hop):
        self.count += 1


arrivals = Arrivals()
runtime = penstock.Runtime(drive=False)
target = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
with penstock.Channel(target, tls=False, runtime=runtime, interceptors=[arrivals]) as channel:
    echo = channel.unary_stream("/penstock.Echo/ServerStream")
    # Each call is only begun here. It goes on when the loop below polls the runtime.
    calls = [echo(word, timeout=5, metadata={"x-count": "2"}) for word in (b"tick", b"tock")]

    # The program's loop: the runtime is readable whenever it has work, timers included.
    while arrivals.count < len(calls) and any(call.is_active() for call in calls):
        ready, _, _ = select.select([runtime], [], [], 1.0)  # together with the program's own descriptors and timers
        if ready:
            runtime.poll(0)

    # Reading waits for messages that have not come yet, and drives the runtime's loop during the wait.
    answers = [list(call) for call in calls]
    print(answers)
runtime.shutdown()

if answers != [[b"tick"] * 2, [b"tock"] * 2]:
    sys.exit("the answers are not what was sent")
