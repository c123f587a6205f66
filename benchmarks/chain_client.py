"""Makes the measurements of chain_client.c with interceptors in Python. It has the same options and prints the same line
of JSON."""

import argparse
import json
import queue
import threading
import time

import penstock
from penstock import Interceptor, StatusCode, Verdict


class Stub(Interceptor):
    def on_start(self, hop):
        return Verdict.TAKE

    def on_half_close(self, hop):
        hop.deliver_headers()
        hop.deliver_message(b"ok")
        hop.deliver_status(StatusCode.OK)


class Null(Interceptor):
    pass


class Start(Interceptor):
    def on_start(self, hop):
        return None


class StartStatus(Start):
    def on_status(self, hop):
        return None


class All(StartStatus):
    def create(self, hop):
        return None

    def destroy(self, hop):
        return None

    on_send = on_half_close = on_headers = on_receive = on_demand = on_sent = on_cancel = StartStatus.on_status


class PauseSame(Interceptor):
    def on_start(self, hop):
        hop.ticket().resume()
        return Verdict.PAUSE


class PauseOther(Interceptor):
    def __init__(self):
        self.tickets = queue.SimpleQueue()
        threading.Thread(target=self.resume_all, daemon=True).start()

    def on_start(self, hop):
        self.tickets.put(hop.ticket())
        return Verdict.PAUSE

    def resume_all(self):
        while True:
            self.tickets.get().resume()


KINDS = {"null": Null, "start": Start, "start_status": StartStatus, "all": All, "pause_same": PauseSame,
         "pause_other": PauseOther}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", default="none", choices=["none", *KINDS])
    parser.add_argument("--hops", type=int, default=0)
    parser.add_argument("--calls", type=int, default=1000)
    arguments = parser.parse_args()
    with penstock.Channel("127.0.0.1:1", tls=False) as channel:
        channel.add_interceptor(Stub(), priority=-(2**31))
        if arguments.what != "none":
            for _ in range(arguments.hops):
                channel.add_interceptor(KINDS[arguments.what]())
        call = channel.unary_unary("/a.Service/Method")

        def run(calls):
            for _ in range(calls):
                if call(b"hello") != b"ok":
                    raise SystemExit("wrong reply")

        run(arguments.calls // 10 + 1)
        started, busy = time.monotonic(), time.process_time()
        run(arguments.calls)
        print(json.dumps({"ns": (time.monotonic() - started) / arguments.calls * 1e9,
                          "cpu_ns": (time.process_time() - busy) / arguments.calls * 1e9}))


if __name__ == "__main__":
    main()
