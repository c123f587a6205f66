"""Objects that refer to the channel or runtime which has them: nobody closes the channel, and the garbage collector
finds the cycle."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import gc
import threading
import weakref
from typing import Any, Callable, List, Optional

import pytest

import penstock
from penstock import Channel, Hop, Interceptor, RpcError, Runtime
from test_leaks import Thing, _nothing_left, descriptors, nothing_registered, soon  # noqa: F401


class Holding(Interceptor):
    """Refers to its channel, and to everything that it has seen of its calls."""

    def __init__(self) -> None:
        self.kept: List[Any] = []

    def on_start(self, hop: Hop) -> None:
        self.kept += [hop.retain(), hop.metadata]


class HoldingAll(Holding):
    def create(self, hop: Hop) -> Any:
        return Thing()

    def on_status(self, hop: Hop) -> None: ...


class HoldingSync(penstock.SyncInterceptor):
    def __init__(self) -> None:
        self.kept: List[Any] = []

    def intercept(self, call: penstock.InterceptedCall) -> None:
        self.kept += [call, call.hop, call.next()]


class HoldingCompletions(penstock.CompletionInterceptor):
    def __init__(self) -> None:
        self.kept: List[Any] = []

    def on_start(self, metadata: penstock.Metadata, done: penstock.Completion) -> None:
        self.kept += [metadata, done, done.hop]
        done.next()


class HoldingResolver(penstock.Resolver):
    def __init__(self, target: str) -> None:
        self.target = target
        self.kept: List[Any] = []

    def resolve(self) -> None:
        self.push({"addresses": [{"address": f"ipv4:{self.target}"}]})


def interceptor_of_channel(make: Callable[[], Any]) -> Callable[[str], Any]:
    def made(server: str) -> Any:
        holding = make()
        holding.kept.append(Channel(server, tls=False, interceptors=[holding]))
        return holding

    return made


def interceptor_of_runtime(server: str) -> Any:
    holding = HoldingAll()
    runtime = Runtime()
    runtime.add_interceptor(holding)
    holding.kept.append(Channel(server, tls=False, runtime=runtime))
    return holding


def picker(server: str) -> Any:
    class Picks:
        def __init__(self) -> None:
            self.kept = [Channel(server, tls=False)]
            self.kept[0].set_picker(self.pick)

        def pick(self, pick: penstock.Pick) -> Any:
            return 0

    return Picks()


def watch(server: str) -> Any:
    class Watches:
        def __init__(self) -> None:
            self.kept = [Channel(server, tls=False)]
            self.kept[0].watch_connectivity(self.changed)

        def changed(self, state: penstock.Connectivity) -> None: ...

    return Watches()


def resolver(server: str) -> Any:
    holding = HoldingResolver(server)
    holding.kept.append(Channel("orders", tls=False, resolver=holding))
    return holding


def connector(server: str) -> Any:
    class Connects(penstock.Connector):
        def __init__(self) -> None:
            self.kept = [Channel(server, tls=False, connector=self)]

    return Connects()


def compressor(server: str) -> Any:
    class Compresses(penstock.Compressor):
        name = "x-cycle"

        def __init__(self) -> None:
            self.kept = [Channel(server, tls=False, compressors=[self])]

        def compress(self, data: bytes) -> bytes:
            return data

        def decompress(self, data: bytes, limit: int) -> bytes:
            return data

    return Compresses()


def token_source(server: str) -> Any:
    class Source:
        def __init__(self) -> None:
            self.kept = [Channel(server, tls=False)]
            bearer = penstock.ready.BearerToken(self.token, in_thread=False, allow_cleartext=True)
            self.kept[0].add_interceptor(bearer)

        def token(self, request: Any) -> str:
            return "t"

    return Source()


def log(server: str) -> Any:
    class Log:
        def __init__(self) -> None:
            self.kept = [Channel(server, tls=False)]
            self.kept[0].add_interceptor(penstock.ready.Logging(self.write))

        def write(self, line: str) -> None: ...

    return Log()


def executor(server: str) -> Any:
    class Runs(Interceptor):
        def __init__(self) -> None:
            self.executor = penstock.Executor(self.submit)
            self.kept = [Channel(server, tls=False, interceptors=[self])]

        def submit(self, job: Callable[[], None]) -> None:
            job()

        def on_start(self, hop: Hop) -> None: ...

    return Runs()


@pytest.mark.parametrize(
    "make",
    [
        *map(interceptor_of_channel, (Holding, HoldingAll, HoldingSync, HoldingCompletions)),
        *(interceptor_of_runtime, picker, watch, resolver, connector, compressor, token_source, log, executor),
    ],
)
def test_what_refers_to_its_channel_is_collected_with_it(server: str, make: Callable[[str], Any]) -> None:
    """Nobody closes the channels. Their connections are closed when the garbage collector has found the cycles."""
    penstock.default_runtime()._used()
    before = descriptors()
    gone = []
    for _ in range(20):
        holding = make(server)
        gone.append(weakref.ref(holding))
        channel = next(kept for kept in holding.kept if isinstance(kept, Channel))
        channel.unary_unary("/penstock.Echo/Unary")(b"x")
        assert gc.collect() >= 0
        assert gone[-1]() is holding
        assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
        del holding, channel
    assert soon(lambda: all(one() is None for one in gone))
    assert soon(nothing_registered)
    assert soon(lambda: descriptors() <= before)


def use(kept: Any) -> None:
    for one in (
        *(lambda: kept.is_active(), lambda: kept.code(), lambda: kept.initial_metadata().json),
        *(lambda: kept.trailing_metadata().json, lambda: kept.json, lambda: kept.call_id, lambda: repr(kept)),
        *(lambda: kept.connectivity, lambda: kept.connect(), lambda: kept.trace, lambda: kept.snapshot()),
        *(lambda: kept.values.get("a"), lambda: kept["x"], lambda: kept.details, lambda: kept.fileno()),
        *(lambda: kept.demand(1), lambda: kept.stats, lambda: kept._handle.value),
        # A call that runs is to go on.
        lambda: isinstance(kept, penstock.Call) or kept.cancel("late"),
    ):
        with contextlib.suppress(Exception):
            one()


class Used(Interceptor):
    """When a call ends, notes that, and uses everything that it has, which may have been collected."""

    def __init__(self, told: List[str]) -> None:
        self.kept: List[Any] = []
        self.told = told

    def on_start(self, hop: Hop) -> None:
        self.kept.append(hop.retain())

    def on_status(self, hop: Hop) -> None:
        self.told.append(hop.status.code.name)
        for kept in self.kept:
            use(kept)


class UsedByStates(Used):
    """Each call has a state, which refers to everything, too."""

    def create(self, hop: Hop) -> Any:
        return [self.kept]


class UsedByCompletions(penstock.CompletionInterceptor):
    """As `Used`; each call has an object of its own."""

    def __init__(self, told: List[str], kept: Optional[List[Any]] = None) -> None:
        self.kept: List[Any] = [] if kept is None else kept
        self.told = told

    def create(self, method: str, kind: penstock.Kind) -> UsedByCompletions:
        return UsedByCompletions(self.told, self.kept)

    def on_status(self, status: penstock.Status, done: penstock.Completion) -> None:
        self.told.append(status.code.name)
        for kept in self.kept:
            use(kept)
        done.next()


KEPT: contextvars.ContextVar[List[Any]] = contextvars.ContextVar("KEPT")


@pytest.mark.parametrize("is_cycle", [True, False])
@pytest.mark.parametrize("make", [Used, UsedByStates, UsedByCompletions])
def test_calls_of_a_channel_that_is_dropped_still_end(server: str, make: Callable[..., Any], is_cycle: bool) -> None:
    """Calls that run keep their interceptors, and what these refer to, and end when their objects are dropped. If the
    interceptor has the objects, something else has to end the calls; then all of it is collected. The context of the
    registration and of the calls is part of the cycle."""
    told: List[str] = []
    runtime = Runtime()
    gone = contextvars.copy_context().run(drop_running, server, runtime, make(told), is_cycle)
    if is_cycle:
        gc.collect()
        assert gone() is not None
        assert told == ["UNAUTHENTICATED"]
        runtime.shutdown()
    assert soon(lambda: told == ["UNAUTHENTICATED", *["CANCELLED"] * 3])
    assert soon(lambda: gone() is None)
    assert soon(nothing_registered)
    runtime.shutdown()


def drop_running(server: str, runtime: Runtime, used: Any, is_cycle: bool) -> Any:
    if is_cycle:
        KEPT.set(used.kept)
    channel = Channel(server, tls=False, runtime=runtime, interceptors=[used])
    calls = [channel.unary_stream("/penstock.Probe/HangStream")(b"") for _ in range(3)]
    for call in calls:
        assert next(call) == b"first"
    if is_cycle:
        used.kept += [channel, *calls]
    used.kept += ended(channel)
    return weakref.ref(channel)


def ended(channel: Channel) -> List[Any]:
    """Objects of every kind that an ended call leaves, and others that own a handle."""
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Refuse")(b"", timeout=20)
    # Without the frames of the callers, which have the running calls.
    error = caught.value.with_traceback(None)
    return [
        *(error, error._reply, error.trailing_metadata(), error.initial_metadata()),
        *(penstock.Metadata([("x", "y")]), penstock.Status(5, "", [("a/b", b"c")])),
        *(penstock.ready.Metrics(), penstock.SerialExecutor(), penstock.CancelScope()),
    ]


# ---- Objects that are told of the end after they were collected ----


class Telling(penstock.Resolver):
    """A resolver that refers to its channel, and when it is told of the end uses all that was collected with it."""

    def __init__(self, target: str, told: List[str]) -> None:
        self.target = target
        self.told = told
        self.kept: List[Any] = []

    def resolve(self) -> None:
        self.push({"addresses": [{"address": f"ipv4:{self.target}"}]})

    def stop(self) -> None:
        for kept in self.kept:
            use(kept)
        with contextlib.suppress(penstock.LibraryError):
            self.push({"addresses": []})
        self.told.append("stop")

    def changed(self, state: penstock.Connectivity) -> None:
        if state is penstock.Connectivity.SHUTDOWN:
            for kept in self.kept:
                use(kept)
            self.told.append("changed")


def collected_channel(server: str, told: List[str]) -> None:
    telling = Telling(server, told)
    used = Used([])
    channel = Channel("orders", tls=False, resolver=telling, interceptors=[used])
    telling.kept += [channel, used, *ended(channel)]
    channel.watch_connectivity(telling.changed)
    telling.kept += used.kept
    stream = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", metadata={"x-repeat": "2"})
    assert len(list(stream)) == 2
    telling.kept += [stream, stream.initial_metadata(), stream.values]


def test_what_is_collected_is_told_of_the_end_and_may_use_all_it_has(server: str) -> None:
    told: List[str] = []
    collected_channel(server, told)
    assert soon(lambda: sorted(told) == ["changed", "stop"])
    assert soon(nothing_registered)


class LastWords:
    """An object of the program whose `__del__` uses what was collected with it."""

    def __init__(self, kept: List[Any], said: List[str]) -> None:
        self.kept = kept
        self.said = said

    def __del__(self) -> None:
        for kept in self.kept:
            use(kept)
        self.said.append("bye")


def test_a_destructor_may_use_what_was_collected_with_it(server: str) -> None:
    said: List[str] = []
    channel = Channel(server, tls=False)
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    kept = [channel, call, call.initial_metadata(), call.values, *ended(channel)]
    kept.append(LastWords(kept, said))
    del kept, call, channel
    assert soon(lambda: said == ["bye"])


# ---- Threads ----


def test_collections_disturb_no_call(server: str) -> None:
    """Threads make calls on channels of their own, which they drop in cycles, while another collects without a pause.
    Each interceptor is told of the start and the end of each of its calls."""
    counts = [0, 0, 0]
    lock = threading.Lock()

    class Counting(Interceptor):
        def __init__(self) -> None:
            self.kept: List[Any] = []

        def create(self, hop: Hop) -> Any:
            return [self]

        def on_start(self, hop: Hop) -> None:
            with lock:
                counts[0] += 1

        def on_status(self, hop: Hop) -> None:
            with lock:
                counts[1] += 1

        def destroy(self, hop: Hop) -> None:
            with lock:
                counts[2] += 1

    def work() -> None:
        for _ in range(25):
            counting = Counting()
            channel = Channel(server, tls=False, interceptors=[counting])
            channel.watch_connectivity(lambda state, kept=counting.kept: None)
            counting.kept.append(channel)
            assert channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=60) == b"x"
            call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", metadata={"x-repeat": "3"})
            assert list(call) == [b"x"] * 3
            counting.kept.append(call)
            del counting, channel, call

    ended = threading.Event()

    def collect() -> None:
        while not ended.is_set():
            gc.collect()

    collector = threading.Thread(target=collect)
    collector.start()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    ended.set()
    collector.join()
    assert soon(lambda: counts == [200, 200, 200])
    assert soon(nothing_registered)
