"""The cases that run on every route. They call probe.Probe from Python; its answers describe the call as the server has
seen it."""

import os
import threading
import time
import urllib.parse

import penstock
import probe_pb2 as pb
from calls import CONNECT, LIMIT, Caller, asked, failure
from case import DETAILS, MESSAGE, fails, header
from ends import Ends
from google.protobuf import json_format
from harness import check, check_equal
from loads import Loads
from penstock import Idempotency, StatusCode


class Cases(Ends, Loads):
    """All cases: those of both bases, and those about what passes in a call."""

    # ---- What comes to the server ----

    def case_kinds(self):
        for kind in self.kinds:
            ask = asked()
            answers, call = self.caller.all(kind, ask)
            check_equal(self.plain(answers), self.expected(kind, ask), kind)
            check_equal(call.code(), StatusCode.OK)
            check_equal(answers[-1].seen.verb, "POST", kind)
            check(not self.route.http or answers[-1].seen.http == self.route.http, kind, "came as HTTP", answers[-1].seen.http)
            check_equal(answers[-1].seen.messages, 2 if kind in ("client_stream", "bidi") else 1, f"{kind}: messages")
            self.check_content_type(kind, answers[-1], "proto")

    def case_empty_messages(self):
        for kind in self.kinds:
            answers, _ = self.caller.all(kind, pb.Ask())
            check_equal(self.plain(answers), self.expected(kind, pb.Ask()), kind)

    def case_metadata(self):
        """Metadata in both directions: texts, bytes, and several values of one name, in headers and in trailers."""
        sent = [("x-head-text", "a, b; c=\"d\""), ("x-head-bytes-bin", b"\0\xff,"), ("x-tail-text", "end of it"),
                ("x-tail-bytes-bin", bytes(range(256))), ("x-tail-empty", "")]
        for kind in self.kinds:
            answers, call = self.caller.all(kind, asked(), metadata=sent)
            self.check_metadata(kind, answers[0], call, sent)

    def case_metadata_twice(self):
        sent = [("x-tail-one", "1"), ("x-tail-one", "2"), ("x-tail-two-bin", b"\1"), ("x-tail-two-bin", b"\2")]
        for kind in self.kinds:
            _, call = self.caller.all(kind, asked(), metadata=sent)
            for name in ("x-tail-one", "x-tail-two-bin"):
                found = call.trailing_metadata().get_all(name)
                expected = [value for key, value in sent if key == name]
                if not name.endswith("-bin"):
                    # A server may join the values with commas (RFC 9110, section 5.3).
                    found = [part.strip() for value in found for part in value.split(",")]
                check_equal(found, expected, f"{kind}: {name}")

    def case_large_metadata(self):
        value = "x" * 6000
        for kind in self.kinds:
            answers, call = self.caller.all(kind, asked(), metadata=[("x-head-large", value)])
            check_equal(call.initial_metadata().get("x-head-large"), value, kind)
            check_equal(header(answers[0], "x-head-large"), [value.encode()], kind)

    # ---- GET ----

    def case_get(self):
        for ask in (asked(), pb.Ask(), pb.Ask(text="a")):
            answers, call = self.caller.all("get", ask, idempotency=Idempotency.NO_SIDE_EFFECTS,
                                            metadata=[("x-tail-a", "b"), ("x-head-c-bin", b"\xfe")])
            answer = answers[0]
            check_equal(self.plain(answers), self.expected("get", ask))
            check_equal(call.trailing_metadata().get("x-tail-a"), "b")
            check_equal(call.initial_metadata().get("x-head-c-bin"), b"\xfe")
            if "translates" in self.route.can:
                continue
            check_equal(answer.seen.verb, "GET")
            query = dict(urllib.parse.parse_qsl(answer.seen.query, keep_blank_values=True))
            check_equal((query.get("encoding"), query.get("connect")), ("proto", "v1"), answer.seen.query)
            check_equal(header(answer, "content-type"), [], "content-type of GET")

    case_get.needs = frozenset({"get"})

    def case_get_too_long(self):
        """A GET whose URL would be over the limit is sent as a POST."""
        ask = pb.Ask(data=os.urandom(9000))
        answer = self.caller.one("get", ask, idempotency=Idempotency.NO_SIDE_EFFECTS)
        check_equal((answer.seen.verb, answer.data), ("POST", ask.data))
        with self.route.channel(max_get_url_bytes=300) as channel:
            for size, verb in ((30, "GET"), (3000, "POST")):
                verb = "POST" if "translates" in self.route.can else verb
                answer = Caller(channel).one("get", pb.Ask(data=bytes(size)), idempotency=Idempotency.NO_SIDE_EFFECTS)
                check_equal((answer.seen.verb, len(answer.data)), (verb, size))

    case_get_too_long.needs = frozenset({"get"})

    def case_get_fails(self):
        error = failure(lambda: self.caller.one("get", pb.Ask(failure=fails(5, details=DETAILS[:1])),
                                                idempotency=Idempotency.NO_SIDE_EFFECTS))
        check_equal((error.code(), error.details()), (StatusCode.NOT_FOUND, self.message))
        check_equal(len(error.status_details), 1)

    case_get_fails.needs = frozenset({"get"})

    # ---- Streams ----

    def case_long_streams(self):
        """Streams with many messages of many sizes, in each direction."""
        sizes = [index * 131 % 7000 for index in range(300)]
        asks = [pb.Ask(data=bytes([index % 256]) * size) for index, size in enumerate(sizes)]
        answer = self.caller.client_stream(iter(asks), timeout=LIMIT)
        check_equal((len(answer.data), answer.seen.messages), (sum(sizes), 300))
        check(answer.data == b"".join(ask.data for ask in asks), "other bytes than were sent")
        answers = list(self.caller.server_stream(pb.Ask(answers=300, data=b"x" * 3000), timeout=LIMIT))
        check_equal([answer.number for answer in answers], list(range(300)))
        check(all(answer.data == b"x" * 3000 for answer in answers), "other bytes than were sent")
        check_equal(list(self.caller.server_stream(pb.Ask(answers=-1), timeout=LIMIT)), [], "an empty stream")

    case_long_streams.needs = frozenset({"streams"})

    def case_no_requests(self):
        check_equal(list(self.caller.bidi([], timeout=LIMIT)), [], "a stream without requests")
        check_equal(self.caller.client_stream([], timeout=LIMIT).data, b"", "no requests")

    case_no_requests.needs = frozenset({"streams", "empty"})

    def case_full_duplex(self):
        """On one stream, each request is sent after the answer to the request before it."""
        replies = threading.Semaphore(0)

        def asks():
            for number in range(20):
                yield pb.Ask(number=number)
                check(replies.acquire(timeout=LIMIT), "no answer to", number)

        numbers = []
        for answer in self.caller.bidi(asks(), timeout=LIMIT):
            numbers.append(answer.number)
            replies.release()
        check_equal(numbers, list(range(20)))

    case_full_duplex.needs = frozenset({"full"})

    def case_half_duplex(self):
        """Over HTTP/1.1, a receive ends the call if the half-close does not follow within 5 seconds. The receive does
        not hang."""
        begun = time.monotonic()
        gate = threading.Event()

        def asks():
            yield pb.Ask()
            gate.wait(3 * LIMIT)

        try:
            error = failure(lambda: list(self.caller.bidi(asks(), timeout=3 * LIMIT)))
            check_equal(error.code(), StatusCode.UNIMPLEMENTED, error.details())
            check(time.monotonic() - begun < LIMIT, "it took", time.monotonic() - begun, "s")
        finally:
            gate.set()

    case_half_duplex.needs = frozenset({"half"})

    # ---- Compression ----

    def case_gzip(self):
        self.compressed(self.caller, "gzip")

    case_gzip.needs = frozenset({"gzip"})

    def case_zstd(self):
        """Both directions: a channel with this option accepts zstd, and prefers it."""
        with self.route.channel(compression="zstd") as channel:
            self.compressed(Caller(channel), "zstd")

    case_zstd.needs = frozenset({"zstd"})

    def compressed(self, caller, encoding):
        ask = pb.Ask(data=b"compressible" * 5000)
        for kind in self.kinds:
            answers, call = caller.all(kind, ask, compression=encoding)
            check_equal(self.plain(answers), self.expected(kind, ask), kind)
            sent, received = call.stats["sent"], call.stats["received"]
            check(sent["bytes"] > 60000 and sent["compressed_bytes"] < 6000 and sent["wire_bytes"] < 6000, f"{kind} sent {sent}")
            check(received["bytes"] > 60000, f"{kind} received {received}")
            # connectrpc uses the first encoding that the client accepts.
            if self.route.protocol == CONNECT or encoding == "zstd":
                check(received["wire_bytes"] < 6000, f"{kind} received {received}")
            names = ("content-encoding",) if self.route.protocol == CONNECT and kind == "unary" else (
                "connect-content-encoding",) if self.route.protocol == CONNECT else ("grpc-encoding",)
            if "translates" not in self.route.can:
                check_equal([value for name in names for value in header(answers[0], name)], [encoding.encode()],
                            kind)

    def case_gzip_from_a_minimum_size(self):
        ask = pb.Ask(data=b"short")
        for kind in self.kinds:
            sizes = {}
            for least in (None, 0, 1000):
                answers, call = self.caller.all(kind, ask, compression="gzip", compression_min_bytes=least)
                check_equal(self.plain(answers), self.expected(kind, ask), kind)
                sent = call.stats["sent"]
                sizes[least] = sent["compressed_bytes"] - sent["bytes"]
            check(sizes[0] > 0 and sizes[None] == 0 and sizes[1000] == 0, f"{kind} {sizes}")

    case_gzip_from_a_minimum_size.needs = frozenset({"gzip"})

    # ---- JSON ----

    def case_json(self):
        with self.route.channel(penstock.ProtobufJSONCodec()) as channel:
            caller = Caller(channel)
            for kind in self.kinds:
                ask = asked()
                answers, _ = caller.all(kind, ask)
                check_equal(self.plain(answers), self.expected(kind, ask), kind)
                self.check_content_type(kind, answers[-1], "json")
            error = failure(lambda: caller.one("unary", pb.Ask(failure=fails(9))))
            check_equal((error.code(), error.details()), (StatusCode.FAILED_PRECONDITION, MESSAGE))

    case_json.needs = frozenset({"json"})

    def case_json_get(self):
        with self.route.channel(penstock.ProtobufJSONCodec()) as channel:
            answer = Caller(channel).one("get", asked(), idempotency=Idempotency.NO_SIDE_EFFECTS)
        check_equal((answer.seen.verb, answer.text), ("GET", asked().text))
        query = dict(urllib.parse.parse_qsl(answer.seen.query))
        check_equal((query["encoding"], query.get("base64")), ("json", None))
        check_equal(json_format.Parse(query["message"], pb.Ask()), asked())

    case_json_get.needs = frozenset({"json", "get"})
