#!/usr/bin/env python3
"""The demo: four kinds of call through three interceptors, and what interceptors can do while calls run.

    demo.py [TARGET]

TARGET is the address of a penstock-peer (scripts/demo starts one); the default is localhost:50051. The program prints
"ok" for each of its expectations that holds, and ends with 0 only if all hold.
"""

import sys
import threading
import time
import weakref
from dataclasses import dataclass, field

import penstock
from penstock import EventKind, StatusCode, Verdict

TARGET = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
TIMEOUT = 10.0

# ---- Printing ----

COLORS = {"bold": 1, "dim": 2, "red": 31, "green": 32, "cyan": 36, "magenta": 35}
IN_COLOR = sys.stdout.isatty()
results: list[bool] = []


def colored(color: str, text: str) -> str:
    return f"\033[{COLORS[color]}m{text}\033[0m" if IN_COLOR else text


def title(text: str) -> None:
    print("\n" + colored("bold", text))


def expect(holds: bool, what: str) -> None:
    print("   ", colored("green", "ok    ") if holds else colored("red", "FAILED"), what)
    results.append(bool(holds))


# ---- The events that the interceptors of one call have seen, in order ----

OUTBOUND = (EventKind.START, EventKind.SEND, EventKind.HALF_CLOSE)
WORDS = {EventKind.SEND: "message", EventKind.RECEIVE: "message"}


@dataclass
class Passage:
    """The way of one event through the hops: which hops saw it, and its form when the first and the last of them saw it."""

    event: EventKind
    hops: list[str]
    first: str
    last: str


@dataclass
class Trace:
    """The events that the hops of one call have seen. It is a value of the call, so the hops and the caller share
    it."""

    passages: list[Passage] = field(default_factory=list)

    def note(self, who: str, event: EventKind, what: str) -> None:
        last = self.passages[-1] if self.passages else None
        if last is not None and last.event is event and who not in last.hops:
            last.hops.append(who)
            last.last = what
        else:
            self.passages.append(Passage(event, [who], what, what))

    def show(self) -> None:
        for one in self.passages:
            out = one.event in OUTBOUND
            name = WORDS.get(one.event, one.event.name.lower().replace("_", "-"))
            what = one.first if one.first == one.last else f"{one.first} => {one.last}"
            arrow = colored("cyan" if out else "magenta", f"{'->' if out else '<-'} {name:11}")
            hops = " > ".join(one.hops)
            print(f"    {arrow} {hops:28} {colored('dim', what)}" if what else f"    {arrow} {hops}")

    def went(self, event: EventKind, *hops: str) -> bool:
        """Whether the call had such an event, and each one was seen by exactly these hops, in this order."""
        found = [one.hops for one in self.passages if one.event is event]
        return bool(found) and all(one == list(hops) for one in found)


def note(hop: penstock.Hop, who: str) -> None:
    trace = hop.get_value("demo.trace")
    if trace is None:
        trace = Trace()
        hop.set_value("demo.trace", trace)
    what = ""
    if hop.event is EventKind.START:
        what = hop.method
    elif hop.event in (EventKind.SEND, EventKind.RECEIVE):
        what = f'"{hop.message.decode()}"'
    elif hop.event is EventKind.STATUS:
        what = hop.status.code.name
    trace.note(who, hop.event, what)


def trace_of(call) -> Trace:
    return call.values["demo.trace"]


# ---- Interceptors ----


class Watch(penstock.Interceptor):
    """Adds each event that it sees to the trace of the call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_start(self, hop):
        note(hop, self.name)

    on_send = on_half_close = on_headers = on_receive = on_status = on_start


class Auth(Watch):
    """Adds a header to every call."""

    def on_start(self, hop):
        hop.metadata["authorization"] = "Bearer s3cret"
        note(hop, self.name)


class Edit(Watch):
    """Replaces words of the messages that are sent."""

    def on_send(self, hop):
        note(hop, self.name)
        hop.message = hop.message.upper()


@dataclass
class Counts:
    sent: int = 0
    received: int = 0


class Meter(Watch):
    """Counts the messages of each call in the call's state, and adds the counts to the trailers."""

    def create(self, hop):
        return Counts()

    def on_send(self, hop):
        hop.state.sent += 1
        note(hop, self.name)

    def on_receive(self, hop):
        hop.state.received += 1
        note(hop, self.name)

    def on_status(self, hop):
        hop.metadata["x-meter"] = f"{hop.state.sent} out, {hop.state.received} in"
        note(hop, self.name)


class Gate(penstock.Interceptor):
    """Pauses each call's start until another thread has fetched a token."""

    name = "gate"

    def on_start(self, hop):
        note(hop, self.name)
        self.thread = threading.Thread(target=self.fetch_token, args=[hop.ticket()])
        self.thread.start()
        return Verdict.PAUSE

    def fetch_token(self, ticket):
        time.sleep(0.05)
        ticket.event().metadata["x-token"] = "fresh"
        ticket.resume()


class Retry(Watch):
    """Sends a call again that the server has refused for want of a token."""

    replay_bytes = 1024

    def on_status(self, hop):
        note(hop, self.name)
        if hop.status.code is StatusCode.UNAUTHENTICATED and hop.can_restart:
            del hop.request_metadata["x-status"]
            return Verdict.RESTART
        return Verdict.NEXT


class Guard(penstock.Interceptor):
    """Rejects every call."""

    name = "guard"

    def on_start(self, hop):
        note(hop, self.name)
        hop.end(StatusCode.PERMISSION_DENIED, "guard says no")


# ---- The parts ----


def four_kinds(channel: penstock.Channel) -> dict[str, penstock.Registration]:
    # The order of these lines does not matter: the priority decides.
    three = {
        "meter": channel.add_interceptor(Meter("meter"), priority=100),
        "auth": channel.add_interceptor(Auth("auth"), priority=300),
        "edit": channel.add_interceptor(Edit("edit"), priority=200),
    }

    title("1. A unary call, through auth (300), edit (200) and meter (100)")
    unary = channel.unary_unary("/penstock.Echo/Unary")
    answer, call = unary.with_call(b"hello", timeout=TIMEOUT, metadata={"x-echo-metadata": "1"})
    trace, trailers = trace_of(call), call.trailing_metadata()
    trace.show()
    expect(answer == b"HELLO", 'the answer is "HELLO"')
    expect(trailers.get("seen-authorization") == "Bearer s3cret", "the server saw the token that auth added")
    expect(trailers.get("x-meter") == "1 out, 1 in", "meter counted: 1 out, 1 in")
    expect(
        trace.went(EventKind.START, "auth", "edit", "meter") and trace.went(EventKind.STATUS, "meter", "edit", "auth"),
        "higher priority is earlier on the way out, later on the way in",
    )

    title("2. A server stream")
    stream = channel.unary_stream("/penstock.Echo/ServerStream")
    call = stream(b"tick", timeout=TIMEOUT, metadata={"x-count": "3"})
    answers = list(call)
    trace_of(call).show()
    expect(answers == [b"TICK"] * 3, "three messages came, then the end")
    expect(call.trailing_metadata().get("x-meter") == "1 out, 3 in", "meter counted: 1 out, 3 in")

    title("3. A client stream")
    collect = channel.stream_unary("/penstock.Echo/ClientStream")
    answer, call = collect.with_call([b"one ", b"two ", b"three"], timeout=TIMEOUT)
    trace_of(call).show()
    expect(answer == b"ONE TWO THREE", 'the answer is "ONE TWO THREE"')

    title("4. A bidirectional stream")
    answered = threading.Semaphore(0)

    def requests():
        yield b"ping"
        answered.acquire()
        yield b"pong"

    call = channel.stream_stream("/penstock.Echo/Bidi")(requests(), timeout=TIMEOUT)
    answers = [next(call)]
    answered.release()
    answers += call
    trace_of(call).show()
    expect(answers == [b"PING", b"PONG"], "each message was answered before the next was sent")
    return three


def change_the_chain(channel: penstock.Channel, three: dict[str, penstock.Registration]) -> None:
    title("5. The chain is changed while a call is in flight")
    changed = threading.Event()

    def requests():
        yield b"before"
        changed.wait()
        yield b"after"

    old = channel.stream_stream("/penstock.Echo/Bidi")(requests(), timeout=TIMEOUT)
    answers = [next(old)]

    channel.add_interceptor(Watch("late"), priority=250)
    edit = three.pop("edit")
    kept = weakref.ref(edit.interceptor)
    edit.remove()
    del edit
    three["meter"].priority = 400
    print("    late (250) was added, edit removed, meter moved from 100 to 400")

    answer, new = channel.unary_unary("/penstock.Echo/Unary").with_call(b"new", timeout=TIMEOUT)
    was_kept = kept() is not None
    changed.set()
    answers += old
    print("  the call that was in flight:")
    trace_of(old).show()
    print("  a call that was made after the change:")
    trace_of(new).show()
    expect(
        answers == [b"BEFORE", b"AFTER"] and trace_of(old).went(EventKind.SEND, "auth", "edit", "meter"),
        "the call in flight kept its chain",
    )
    expect(
        answer == b"new" and trace_of(new).went(EventKind.SEND, "meter", "auth", "late"),
        "the new call has the new one",
    )
    # Another thread may have the last reference to edit, so edit may be freed a little later.
    until = time.monotonic() + 5
    while kept() is not None and time.monotonic() < until:
        time.sleep(0.001)
    expect(was_kept and kept() is None, "edit was freed after its last call, not before")


def defer(channel: penstock.Channel) -> None:
    title("6. A call is deferred, and goes on from another thread")
    gate = Gate()
    registration = channel.add_interceptor(gate, priority=500)
    began = time.monotonic()
    answer, call = channel.unary_unary("/penstock.Echo/Unary").with_call(
        b"patience", timeout=TIMEOUT, metadata={"x-echo-metadata": "1"}
    )
    waited = time.monotonic() - began
    gate.thread.join()
    registration.remove()
    trace_of(call).show()
    expect(answer == b"patience" and waited >= 0.049, f"the call waited for the thread ({waited * 1000:.0f} ms)")
    expect(call.trailing_metadata().get("seen-x-token") == "fresh", "the server saw what the thread put in")


def send_again(channel: penstock.Channel) -> None:
    title("7. A call is sent again, and its caller does not notice: retry (275) is above late (250)")
    registration = channel.add_interceptor(Retry("retry"), priority=275)
    # The peer ends a call with the status that the request's metadata asks for.
    answer, call = channel.unary_unary("/penstock.Echo/Unary").with_call(
        b"again", timeout=TIMEOUT, metadata={"x-status": "16"}
    )
    registration.remove()
    trace_of(call).show()
    expect(answer == b"again", "the caller gets its answer")


def reject(channel: penstock.Channel) -> None:
    title("8. A call is rejected: guard (275) is above late (250)")
    registration = channel.add_interceptor(Guard(), priority=275, methods="/penstock.Echo/Un*")
    try:
        channel.unary_unary("/penstock.Echo/Unary")(b"let me in", timeout=TIMEOUT)
        expect(False, "the call fails")
    except penstock.RpcError as error:
        trace = trace_of(error)
        trace.show()
        expect(
            error.code() is StatusCode.PERMISSION_DENIED and error.details() == "guard says no",
            'the caller gets PERMISSION_DENIED, "guard says no"',
        )
        expect(
            trace.went(EventKind.START, "meter", "auth", "guard") and trace.went(EventKind.STATUS, "auth", "meter"),
            "those above guard saw the status, late saw nothing",
        )
    registration.remove()


@dataclass
class Complaint:
    """The application's own error detail: ``message Complaint { string subject = 1; int32 count = 2; }``.

    A program that uses protobuf passes its class to ``detail.unpack`` instead."""

    subject: str
    count: int

    def encode(self) -> bytes:
        return put_bytes(1, self.subject.encode()) + bytes([2 << 3, self.count])

    @classmethod
    def decode(cls, data: bytes) -> "Complaint":
        end = 2 + data[1]
        return cls(data[2:end].decode(), data[end + 1])


def put_bytes(number: int, data: bytes) -> bytes:
    """A field as protobuf encodes it. All sizes here are below 128, so each takes one byte."""
    return bytes([number << 3 | 2, len(data)]) + data


def error_detail(channel: penstock.Channel) -> None:
    title("9. An error with a detail of the application's own")
    # x-details-bin is an encoded google.rpc.Status whose detail is an Any.
    any_of_it = put_bytes(1, b"type.googleapis.com/penstock.Complaint") + put_bytes(2, Complaint("the pipes", 3).encode())
    wanted = {"x-status": "9", "x-message": "no pressure", "x-details-bin": bytes([1 << 3, 9]) + put_bytes(3, any_of_it)}
    try:
        channel.unary_unary("/penstock.Echo/Unary")(b"anything", timeout=TIMEOUT, metadata=wanted)
        expect(False, "the call fails")
    except penstock.RpcError as error:
        trace_of(error).show()
        print("   ", colored("dim", error.status_json))
        expect(error.code() is StatusCode.FAILED_PRECONDITION, "the status is FAILED_PRECONDITION")
        detail = error.find_detail("penstock.Complaint")
        own = Complaint.decode(detail.value) if detail else None
        expect(
            own == Complaint("the pipes", 3),
            f"its Complaint was found by type and decoded: {own}",
        )


def main() -> int:
    print(colored("bold", f"penstock {penstock.library_version()}, in Python, with {TARGET}"))
    with penstock.Channel(TARGET, tls=False) as channel:
        try:
            change_the_chain(channel, four_kinds(channel))
            defer(channel)
            send_again(channel)
            reject(channel)
            error_detail(channel)
        except penstock.RpcError as error:
            expect(False, f"a call failed that should not: {error}")
        title("What is registered now")
        for one in channel.interceptors:
            print(f"    {one['priority']:5} {one['name']:6} {one['methods']} {', '.join(one['kinds'])}")
    failed = results.count(False)
    print("\n" + colored("red" if failed else "green", f"{results.count(True)} expectations held, {failed} failed"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
