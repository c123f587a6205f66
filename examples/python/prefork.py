#!/usr/bin/env python3
"""A server that forks its workers: they share a channel that was made, with its interceptor, before the fork.

    prefork.py [TARGET]
"""

import os
import sys

import penstock

WORKERS = 3


class Count(penstock.Interceptor):
    calls = 0

    def on_start(self, hop):
        self.calls += 1


channel = penstock.Channel(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", tls=False)
count = Count()
channel.add_interceptor(count)
echo = channel.unary_unary("/penstock.Echo/Unary")
echo(b"before", timeout=5)  # now the parent has a connection and a driving thread

workers = []
for number in range(WORKERS):
    worker = os.fork()
    if worker == 0:
        # The worker has the channel, and makes a connection of its own with its first call.
        answer = echo(f"hi from worker {number}".encode(), timeout=5).decode()
        print(f"{answer}: call {count.calls} of this process", flush=True)
        os._exit(0)
    workers.append(worker)
codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
echo(b"after", timeout=5)
print(f"the workers ended with {codes}; the parent has made {count.calls} calls")
