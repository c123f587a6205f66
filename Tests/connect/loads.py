"""The cases of large messages and of many calls."""

import os
import threading

import probe_pb2 as pb
from calls import LIMIT, MIB, Caller, asked, eventually, failure
from case import Case, fails
from harness import check, check_equal
from penstock import StatusCode


class Loads(Case):
    def case_large(self):
        data = os.urandom(4 * MIB) * 2
        answer = self.caller.one("unary", pb.Ask(data=data))
        check(answer.data == data, "other bytes than were sent")
        if "streams" in self.route.can:
            answer = self.caller.one("client_stream", pb.Ask(data=data[:4 * MIB]))
            check(answer.data == data[:4 * MIB] * 2, "other bytes than were streamed")
            answers = list(self.caller.server_stream(pb.Ask(data=data[:4 * MIB], answers=2), timeout=LIMIT))
            check(b"".join(answer.data for answer in answers) == data, "other bytes than were sent in a stream")

    case_large.needs = frozenset({"heavy"})

    def case_limit_of_receiving(self):
        """A message over the limit ends its call, and the next call succeeds."""
        with self.route.channel(max_receive_message_bytes=10_000) as channel:
            caller = Caller(channel)
            for kind in self.kinds:
                error = failure(lambda kind=kind, caller=caller: caller.all(kind, pb.Ask(size=100_000)))
                check_equal(error.code(), StatusCode.RESOURCE_EXHAUSTED, f"{kind}: {error.details()}")
            check_equal(caller.one("unary", asked()).text, asked().text, "the call after them")

    case_limit_of_receiving.needs = frozenset({"resets"})

    def case_thousand_at_once(self):
        """A thousand calls begin before the test waits for the first of them."""
        calls = [self.caller.server_stream(pb.Ask(number=number, data=b"x" * (number % 300)), timeout=60)
                 for number in range(1000)]
        for number, call in enumerate(calls):
            answers = list(call)
            check_equal([(answer.number, len(answer.data)) for answer in answers], [(number, number % 300)])

    case_thousand_at_once.needs = frozenset({"streams", "heavy"})

    def case_threads(self):
        """Many threads make calls of all kinds at the same time."""
        wrong = []

        def run(thread):
            try:
                for turn in range(15):
                    kind = self.kinds[(thread + turn) % len(self.kinds)]
                    ask = asked()
                    answers, _ = self.caller.all(kind, ask)
                    if self.plain(answers) != self.expected(kind, ask):
                        wrong.append(f"{kind}: {str(answers)[:100]}")
            except Exception as error:  # noqa: BLE001 - it is told below.
                wrong.append(f"{thread}: {error!r}")

        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            check(not thread.is_alive(), "a call hangs")
        check(not wrong, wrong[:3])

    def case_connection_is_kept(self):
        """Consecutive calls use one connection, also after errors."""
        with self.route.channel() as channel:
            caller = Caller(channel)

            def connections():
                clients = set()
                for turn in range(20):
                    for kind in self.kinds:
                        clients.add(caller.all(kind, asked())[0][0].seen.client)
                    if turn % 5 == 0:
                        failure(lambda: caller.one("unary", pb.Ask(failure=fails())))
                return len(clients)

            # The end of an answer may arrive after that of its call; the next call then uses another connection. On a busy
            # machine that may happen more than once in a round.
            eventually(lambda: connections() <= 2, True)

    case_connection_is_kept.needs = frozenset({"client address"})
