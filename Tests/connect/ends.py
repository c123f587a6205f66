"""The cases about the ends of calls: errors, deadlines and cancelling."""

import itertools
import json
import time

import harness
import probe_pb2 as pb
from calls import CONNECT, LIMIT, MAKERS, asked, eventually, failure
from case import DETAILS, MESSAGE, Case, fails
from harness import check, check_equal
from penstock import RpcError, StatusCode

NUMBERS = itertools.count()


class Ends(Case):
    # ---- Errors ----

    def case_codes(self):
        for kind in self.kinds:
            for code in range(1, 17):
                error = failure(lambda kind=kind, code=code: self.caller.all(kind, pb.Ask(failure=fails(code, f"code {code}"))))
                check_equal((error.code().number, error.details()), (code, f"code {code}"), kind)

    def case_details(self):
        """A failed call has its message, details with their content, headers and trailers."""
        sent = [("x-head-text", "a"), ("x-head-bytes-bin", b"\0\xff"), ("x-tail-text", "z"), ("x-tail-bytes-bin", b"\xff\0")]
        for kind in self.kinds:
            ask = pb.Ask(answers=-1, failure=fails(9, MESSAGE, DETAILS))
            error = failure(lambda kind=kind, ask=ask: self.caller.all(kind, ask, metadata=sent))
            check_equal((error.code(), error.details()), (StatusCode.FAILED_PRECONDITION, self.message), kind)
            names = [detail.type_name for detail in error.status_details]
            check_equal(names, [each.DESCRIPTOR.full_name for each in DETAILS], kind)
            for detail, expected in zip(error.status_details, DETAILS, strict=True):
                check_equal(detail.unpack(type(expected)), expected, kind)
            if self.route.protocol == CONNECT and kind == "unary":
                # The answer is a page of JSON. All fields of its head become trailers.
                for name, value in sent:
                    check_equal(error.trailing_metadata().get_all(name), [value], name)
            elif "headers first" in self.route.can:
                self.check_metadata(kind, None, error, sent)
            view = json.loads(error.status_json)
            check_equal((view["code"], view["message"], len(view["details"])), (9, self.message, 3), kind)

    def case_error_after_messages(self):
        for kind in ("server_stream", "bidi"):
            call = (self.caller.server_stream(asked(answers=3, failure=fails()), metadata=[("x-tail-a", "b")], timeout=LIMIT)
                    if kind == "server_stream" else
                    self.caller.bidi([asked(answers=3, failure=fails())], metadata=[("x-tail-a", "b")], timeout=LIMIT))
            answers = []
            try:
                for answer in call:
                    answers.append(answer)
                raise harness.Failure(f"{kind}: no error")
            except RpcError as error:
                check_equal((error.code(), error.details()), (StatusCode.FAILED_PRECONDITION, self.message), kind)
                check_equal(error.trailing_metadata().get("x-tail-a"), "b", kind)
            check_equal(len(answers), 3, kind)

    case_error_after_messages.needs = frozenset({"streams"})

    def case_unimplemented(self):
        for kind in self.kinds:
            method = getattr(self.channel, MAKERS[kind])("/probe.Probe/Absent")
            make = {"unary": lambda method=method: method(b"", timeout=LIMIT),
                    "server_stream": lambda method=method: list(method(b"", timeout=LIMIT)),
                    "client_stream": lambda method=method: method([b""], timeout=LIMIT),
                    "bidi": lambda method=method: list(method([b""], timeout=LIMIT))}[kind]
            check_equal(failure(make).code(), StatusCode.UNIMPLEMENTED, kind)

    case_unimplemented.needs = frozenset({"resets"})

    # ---- Deadlines and cancelling ----

    def case_deadline_arrives(self):
        for kind in self.kinds:
            answer = self.caller.all(kind, asked(), timeout=30)[0][0]
            check(25_000 < answer.seen.timeout_ms <= 30_000, f"{kind}: {answer.seen.timeout_ms} ms are left of 30 s")
            answer = self.caller.all(kind, asked(), timeout=None)[0][0]
            check(answer.seen.timeout_ms < 0, f"{kind}: {answer.seen.timeout_ms} ms are left without a deadline")

    def state(self, key):
        return self.caller.state(pb.Ask(text=key), timeout=LIMIT).text

    def case_deadline(self):
        """The client's deadline ends the call, and the server notices that."""
        for kind in self.kinds:
            # On a busy machine the first deadlines may pass before the call has reached the server.
            for timeout in (0.15, 0.6, 2.4):
                key = f"deadline-{next(NUMBERS)}"
                begun = time.monotonic()
                error = failure(lambda kind=kind, key=key, timeout=timeout: self.caller.all(
                    kind, pb.Ask(hold="never"), timeout=timeout, metadata=[("x-id", key)]))
                took = time.monotonic() - begun
                check_equal(error.code(), StatusCode.DEADLINE_EXCEEDED, f"{kind}: {error.details()}")
                check(timeout - 0.01 <= took < timeout + 5, f"{kind} took {took:.2f} s of {timeout}")
                if self.state(key):
                    break
            eventually(lambda key=key: self.state(key), "cancelled")

    case_deadline.needs = frozenset({"state", "resets"})

    def case_cancel(self):
        """The server notices that a call is cancelled, before and after its first answer. connectrpc notices this only
        when it has received the whole request."""
        for field in ("hold", "hold_after"):
            for kind in ("server_stream", "bidi") if "translates" in self.route.can else ("server_stream",):
                key = f"cancel-{next(NUMBERS)}"
                ask = pb.Ask(**{field: "never"})
                # The deadline is long enough that the server does not end the call because of it.
                more = {"metadata": [("x-id", key)], "timeout": 3 * LIMIT}
                call = self.caller.server_stream(ask, **more) if kind == "server_stream" else self.caller.bidi([ask], **more)
                if field == "hold_after":
                    next(call)
                eventually(lambda key=key: self.state(key), "running")
                call.cancel()
                check_equal(call.code(), StatusCode.CANCELLED, kind)
                eventually(lambda key=key: self.state(key), "cancelled")
        check_equal(self.caller.one("unary", asked()).text, asked().text, "the call after them")

    case_cancel.needs = frozenset({"state", "streams", "resets"})

    def case_release(self):
        """A call waits at the server until another call on the same channel releases it. Both calls succeed."""
        key = f"release-{next(NUMBERS)}"
        call = self.caller.server_stream(pb.Ask(hold=key, answers=2), metadata=[("x-id", key)], timeout=LIMIT)
        eventually(lambda: self.state(key), "running")
        self.caller.release(pb.Ask(text=key), timeout=LIMIT)
        check_equal(len(list(call)), 2)
        eventually(lambda: self.state(key), "done")

    case_release.needs = frozenset({"state", "streams"})
