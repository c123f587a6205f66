"""gevent and eventlet: interceptors, grpcio's names, what is left of calls, and the choice of the hub."""

from __future__ import annotations

import textwrap

import pytest

from green_helpers import BOTH, PACKAGES, QUIET, cases, green
from helpers import run


@cases("not patched", "patched before", often=BOTH)
def test_interceptors(package: str, patched: str, server: str) -> None:
    text = """
    from concurrent.futures import ThreadPoolExecutor
    import logging
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    class In(penstock.Interceptor):
        def on_start(self, hop):
            assert threading.get_native_id() == os.getpid()
            with raises(penstock.WouldDeadlockError): echo(b"")
            with raises(penstock.WouldDeadlockError): hangs.result(60)
            with raises(penstock.WouldDeadlockError): channel.wait_connectivity(channel.connectivity, 60)
            with raises(penstock.WouldDeadlockError): hop.side_channel().unary_unary("/penstock.Echo/Unary")(b"")
            ticket, side = hop.ticket(), hop.retain().side_channel()
            def later():
                turn()
                fetched.append(side.unary_unary("/penstock.Echo/Unary")(b"side"))
                ticket.resume()
            spawn(later)
            return penstock.Verdict.PAUSE
    fetched = []
    hangs = hang.future(b"")
    registration = channel.add_interceptor(In(), methods="/penstock.Echo/Bidi")
    assert list(bidi([b"1"])) == [b"1"]
    assert fetched == [b"side"]
    registration.remove()
    assert registration.wait_removed(30)
    registration = channel.add_interceptor(In(), methods="/penstock.Probe/*")
    waits = hang_stream(b"")
    registration.remove()
    assert not registration.wait_removed(0.02)
    waits.cancel()
    assert registration.wait_removed(30)
    hangs.cancel()

    # The function of a synchronous interceptor, and its side calls, wait on a thread of the library.
    class Sync(penstock.SyncInterceptor):
        def intercept(self, call):
            assert threading.get_native_id() != os.getpid()
            # The call whose time is short may end at any of these steps.
            with contextlib.suppress(penstock.GoneError, penstock.RpcError):
                sides.append(call.hop.side_channel().unary_unary("/penstock.Echo/ServerStream")(b"y"))
                turn()
                call.metadata["x"] = "y"
                reply = call.next()
                if reply.message: reply.message += b"!"
    sides = []
    registration = channel.add_interceptor(Sync(), methods="/penstock.Echo/Unary")
    assert finished([spawn(echo, b"x") for _ in range(8)]) == [b"x!"] * 8
    waiting = [spawn(code_of, hang, b"", timeout=60) for _ in range(3)]
    hanging(3)
    channel.add_interceptor(Sync(), methods="/penstock.Probe/Hang")
    finished([spawn(code_of, hang, b"", timeout=0.01)])
    for each in waiting: each.kill()
    hanging(0)
    registration.remove()

    # An exception is told where it may wait.
    class Fail(penstock.Interceptor):
        def on_start(self, hop): raise ZeroDivisionError
    class FailSync(penstock.SyncInterceptor):
        def intercept(self, call): raise ZeroDivisionError
    told = Queue()
    penstock.set_exception_hook(lambda *what: (turn(), told.put(what[1])))
    for one in (Fail(), FailSync()):
        registration = channel.add_interceptor(one)
        try: echo(b"x")
        except penstock.RpcError as error: assert type(error.__cause__) is ZeroDivisionError
        registration.remove()
    assert sorted(told.get(timeout=60) for _ in range(2)) == ["intercept", "on_start"]
    assert told.empty()

    class Executed(penstock.Interceptor):
        def create(self, hop): hop.set_executors(executor, executor)
        def on_receive(self, hop): hop.message += b"?"
    with ThreadPoolExecutor(2) as pool:
        executor = penstock.Executor(pool.submit)
        registration = channel.add_interceptor(Executed())
        assert finished([spawn(echo, b"x") for _ in range(8)]) == [b"x?"] * 8
        registration.remove()
    token = penstock.ready.BearerToken(lambda request: (turn(), ("s3cret", 60))[1], allow_cleartext=True)
    channel.add_interceptor(token, methods="/penstock.Probe/Unary")
    assert b"Bearer s3cret" in channel.unary_unary("/penstock.Probe/Unary")(b"{}")
    penstock.default_runtime().shutdown()
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


@cases("not patched", "patched before", often=BOTH)
def test_functions_of_synchronous_interceptors_wait_side_by_side(package: str, patched: str, server: str) -> None:
    """Each waits until all three have begun, and greenlets of the hub go on meanwhile: so neither do the calls wait
    for each other, nor is the hub blocked. They wait by whatever `time.sleep` is there."""
    text = """
    import time
    begun, turned = [], []
    all_began = original("_thread", "allocate_lock")()
    all_began.acquire()
    class Sync(penstock.SyncInterceptor):
        def intercept(self, call):
            begun.append(threading.get_native_id())
            if len(begun) == 3: all_began.release()
            while len(turned) < 100: time.sleep(0.001)
            reply = call.next()
            if reply.message: reply.message += b"!"
    channel.add_interceptor(Sync())
    calls = [spawn(echo, b"x", timeout=60), spawn(echo.future(b"y", timeout=60).result), spawn(list, bidi([b"z"]))]
    while not all_began.acquire(False): turn()
    # The functions wait now for the greenlets of the hub.
    for _ in range(100):
        turn()
        turned.append(1)
    assert finished(calls) == [b"x!", b"y!", [b"z"]]
    assert len(set(begun)) == 3 and os.getpid() not in begun
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


@cases("not patched", "patched before")
def test_the_names_of_grpcio(package: str, patched: str, server: str) -> None:
    text = """
    import penstock.grpc as grpc
    others = grpc.insecure_channel(target)
    states = Queue()
    others.subscribe(lambda state: (turn(), states.put(state)))
    grpc.channel_ready_future(others).result(timeout=30)
    while states.get(timeout=60) is not grpc.ChannelConnectivity.READY: pass
    never = grpc.channel_ready_future(grpc.insecure_channel("unix:/nowhere/at/all"))
    with raises(grpc.FutureTimeoutError): never.result(timeout=0.01)
    with raises(Timeout), Timeout(0.01): never.result()
    echo = others.unary_unary("/penstock.Echo/Unary")
    assert finished([spawn(echo, b"x") for _ in range(5)]) == [b"x"] * 5
    future = echo.future(b"y")
    done = Queue()
    future.add_done_callback(lambda call: (turn(), done.put(call.result())))
    assert future.result() == b"y"
    assert done.get(timeout=60) == b"y"
    hangs = others.unary_unary("/penstock.Probe/Hang").future(b"")
    with raises(grpc.FutureTimeoutError): hangs.result(timeout=0.01)
    hanging(1)
    hangs.cancel()
    hanging(0)
    assert list(others.stream_stream("/penstock.Echo/Bidi")(iter([b"1", b"2"]))) == [b"1", b"2"]
    others.close()
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


def test_the_hub_may_end_while_channels_are_open(server: str) -> None:
    text = """
    assert echo(b"x") == b"x"
    spawn(echo, b"y")
    assert gevent.wait(timeout=30)
    print("last")
    """
    assert green("gevent", "not patched", text, server) == "last\n"


@cases("patched before")
def test_nothing_is_left_of_calls(package: str, patched: str, server: str) -> None:
    text = """
    import gc
    from penstock._calls.carried import left
    from penstock._handles.objects import registry
    def calls():
        echo(b"x")
        list(bidi(iter([b"1"])))
        hang_stream(b"")
        code_of(hang, b"", timeout=0.001)
        with raises(Timeout), Timeout(0.001): hang(b"")
        hanging(0)
        with raises(penstock.TimedOutError): channel.wait_connectivity(penstock.Connectivity.READY, 0)
    def opened(): return len(os.listdir("/proc/self/fd"))
    calls()
    gc.collect()
    count, kept = opened(), len(registry)
    for _ in range(5): calls()
    gc.collect()
    assert (opened(), len(registry), left()) == (count, kept, 0)
    runtime = penstock.Runtime()
    with penstock.Channel(target, tls=False, runtime=runtime) as other:
        other.unary_unary("/penstock.Echo/Unary")(b"x")
    runtime.shutdown()
    del runtime, other
    gc.collect()
    turn()
    assert opened() == count
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


@cases("patched before")
def test_a_runtime_that_another_thread_drops(package: str, patched: str, server: str) -> None:
    """Its descriptor stays open as long as the hub watches it: the number could be another's meanwhile."""
    text = """
    import gc
    runtime = penstock.Runtime()
    other = penstock.Channel(target, tls=False, runtime=runtime)
    assert other.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
    descriptor, kept = runtime.fileno(), [runtime, other]
    del runtime, other
    dropped = original("_thread", "allocate_lock")()
    dropped.acquire()
    def drop():
        kept.clear()
        gc.collect()
        dropped.release()
    original("_thread", "start_new_thread")(drop, ())
    # The hub stands still.
    assert dropped.acquire(timeout=60)
    os.fstat(descriptor)
    assert echo(b"x") == b"x"
    with raises(OSError): os.fstat(descriptor)
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


@cases("patched before")
def test_a_runtime_with_threads_of_the_library(package: str, patched: str, server: str) -> None:
    text = """
    channel = penstock.Channel(target, tls=False, runtime=penstock.Runtime(loops=2))
    echo = channel.unary_unary("/penstock.Echo/Unary")
    hang = channel.unary_unary("/penstock.Probe/Hang")
    class In(penstock.Interceptor):
        def on_start(self, hop):
            with raises(penstock.WouldDeadlockError): echo(b"")
    channel.add_interceptor(In(), methods="/penstock.Echo/Bidi")
    assert finished([spawn(echo, b"x") for _ in range(20)]) == [b"x"] * 20
    assert list(channel.stream_stream("/penstock.Echo/Bidi")(iter([b"1"]))) == [b"1"]
    waiting = [spawn(code_of, hang, b"", timeout=60) for _ in range(3)]
    hanging(3)
    for each in waiting: each.kill()
    hanging(0)
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


@cases("patched before")
def test_when_the_hub_is_chosen(package: str, patched: str, server: str) -> None:
    text = """
    hub.init()
    try: others.init()
    except RuntimeError as error: print(error)
    """
    other = {"gevent": "eventlet", "eventlet": "gevent"}[package]
    assert green(package, patched, f"import penstock.{other} as others\n{textwrap.dedent(text)}", server) == (
        f"calls wait in another hub already, not in {other}'s\n"
    )
    late = f"""
penstock.Channel(target, tls=False)
import penstock.{package}
try: penstock.{package}.init()
except RuntimeError as error: print(error)
"""
    assert run(late, server, QUIET) == (
        f"penstock.{package}.init() has to be called before the first runtime or channel is made\n"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_missing_is_named(package: str) -> None:
    text = f"""
sys.modules["{package}"] = None
try: import penstock.{package}
except ImportError as error: print(error.name, error)
"""
    assert run(text, "").startswith(f"{package} penstock.{package} needs the package {package}: ")


@cases("patched before")
def test_a_program_ends_with_calls_running(package: str, patched: str, server: str) -> None:
    text = """
    waiting = [spawn(hang, b""), spawn(list, hang_stream(b""))]
    hanging(2)
    print("last")
    """
    assert green(package, patched, text, server, is_quiet=False) == "last\n"


@cases("not patched", "patched before", "patched after", often=("gevent, not patched", *BOTH))
def test_exports_of_telemetry_wait_in_the_hub(package: str, patched: str, server: str) -> None:
    """The server is no collector: its answer is UNIMPLEMENTED."""
    text = """
    from penstock import ready
    telemetry = ready.Telemetry()
    channel.add_interceptor(telemetry)
    collector = penstock.Channel(target, tls=False)
    echo(b"x")
    assert telemetry.flush(collector, 30) is StatusCode.UNIMPLEMENTED
    assert finished([spawn(telemetry.flush, collector, 30)]) == [StatusCode.UNIMPLEMENTED]
    with telemetry.export(collector, interval=0.01):
        echo(b"y")
        while telemetry.stats()["spans"]["refused"] < 4: turn()
        echo(b"z")
    assert telemetry.stats()["spans"]["refused"] == 6
    with raises(penstock.InvalidArgumentError): telemetry.flush(collector, 90000)
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"
