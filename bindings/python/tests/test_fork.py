"""Forks: how the parent's objects behave in a child (docs/fork.md)."""

from __future__ import annotations

import pytest

from helpers import run


def test_a_fork(server: str) -> None:
    """In the child the parent's channel works, with its interceptors, and the parent's call has ended. In the parent
    both the channel and the call go on."""
    text = """
class Count(penstock.Interceptor):
    calls = 0
    def on_start(self, hop):
        self.calls += 1
count = Count()
token = penstock.add_interceptor(count, priority=4, name="count")
channel = penstock.Channel(target, tls=False)
echo = channel.unary_unary("/penstock.Echo/Unary")
stream = channel.unary_stream("/penstock.Probe/HangStream")(b"")
assert next(stream) == b"first"
assert echo(b"before") == b"before"
child = os.fork()
if child == 0:
    assert echo(b"parent's") == b"parent's"
    try:
        next(stream)
    except penstock.RpcError as error:
        print(error.code().name, error.details(), flush=True)
    del stream, echo, channel
    with penstock.Channel(target, tls=False) as channel:
        assert channel.unary_unary("/penstock.Echo/Unary")(b"child's", metadata={"a": "b"}) == b"child's"
        print(channel.interceptors[0]["name"], token.priority, count.calls, flush=True)
        token.remove()
        assert channel.interceptors == []
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert echo(b"after") == b"after"
assert stream.is_active()
stream.cancel()
print(count.calls)
"""
    assert run(text, server).splitlines() == [
        "CANCELLED the process was forked: the call is its parent's",
        "count 4 4",
        "3",
    ]


def test_a_fork_of_several_loops(server: str) -> None:
    """In each of several children the channels of all loops work, with the interceptor. In the parent they go on
    working."""
    text = """
import threading
class Count(penstock.Interceptor):
    calls = 0
    def on_start(self, hop):
        self.calls += 1
count = Count()
runtime = penstock.Runtime(loops=3)
runtime.add_interceptor(count)
channels = [penstock.Channel(target, tls=False, runtime=runtime) for _ in range(6)]
streams = [channel.unary_stream("/penstock.Probe/HangStream")(b"") for channel in channels]
for stream in streams:
    assert next(stream) == b"first"
over = threading.Event()
def work(number):
    while not over.is_set():
        assert channels[number].unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        before = count.calls
        for channel in channels:
            assert channel.unary_unary("/penstock.Echo/Unary")(b"child's") == b"child's"
        assert count.calls == before + 6
        assert all(stream.code() == penstock.StatusCode.CANCELLED for stream in streams)
        runtime.shutdown()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
over.set()
for thread in threads:
    thread.join()
assert all(stream.is_active() for stream in streams)
runtime.shutdown()
print("done")
"""
    assert run(text, server) == "done\n"


def test_a_fork_in_a_callback(server: str) -> None:
    """In the child of a fork within a callback the parent's channel is refused, and a new channel works."""
    text = """
class Forks(penstock.Interceptor):
    child = -1
    def on_start(self, hop):
        if self.child < 0: self.child = os.fork()
        if self.child == 0:
            try:
                echo(b"parent's")
            except penstock.ForkedError:
                print("refused", flush=True)
            with penstock.Channel(target, tls=False) as other:
                print(other.unary_unary("/penstock.Echo/Unary")(b"child's"), flush=True)
            os._exit(0)
channel = penstock.Channel(target, tls=False)
forks = Forks()
channel.add_interceptor(forks)
echo = channel.unary_unary("/penstock.Echo/Unary")
assert echo(b"x") == b"x"
print(os.waitstatus_to_exitcode(os.waitpid(forks.child, 0)[1]))
"""
    assert run(text, server).splitlines() == ["refused", 'b"child\'s"', "0"]


def test_many_children_of_a_busy_parent(server: str) -> None:
    """Children are made by os.fork and by multiprocessing while other threads make calls. Each child uses the
    parent's channel at once."""
    text = """
import multiprocessing
channel = penstock.Channel(target, tls=False)
class Count(penstock.Interceptor):
    calls = 0
    def on_start(self, hop): self.calls += 1
class Pass(penstock.SyncInterceptor):
    def intercept(self, call): call.next()
count = Count()
channel.add_interceptor(count)
channel.add_interceptor(Pass())
echo = channel.unary_unary("/penstock.Echo/Unary")
over, failed, called = threading.Event(), [], []
def busy():
    while not over.is_set():
        try:
            assert echo(b"busy", timeout=20) == b"busy"
            called.append(1)
        except BaseException as error:
            failed.append(error)
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads: thread.start()
def work(number):
    before = count.calls
    assert echo(b"%d" % number, timeout=20) == b"%d" % number
    assert count.calls > before
    return number
for number in range(200):
    child = os.fork()
    if child == 0:
        try: os._exit(0 if work(number) == number else 2)
        except BaseException as error: print(repr(error), flush=True)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, number
context = multiprocessing.get_context("fork")
for _ in range(5):
    with context.Pool(4) as pool:
        assert pool.map(work, range(40)) == list(range(40))
over.set()
for thread in threads: thread.join()
print(failed, len(called) > 100)
"""
    assert run(text, server) == "[] True\n"


def test_a_fork_before_the_first_use_and_many_children(server: str) -> None:
    text = """
import multiprocessing
def work(number):
    with penstock.Channel(target, tls=False) as channel:
        return channel.unary_unary("/penstock.Echo/Unary")(str(number).encode())
if __name__ == "__main__":
    assert work(0) == b"0"
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(sorted(pool.map(work, range(6))))
    assert work(7) == b"7"
"""
    assert run(text, server) == f"{[str(number).encode() for number in range(6)]}\n"


def test_the_parent_s_token_can_be_removed_in_a_child_without_channels(server: str) -> None:
    text = """
token = penstock.add_interceptor(penstock.Interceptor(), name="parent's")
child = os.fork()
if child == 0:
    token.priority = 3
    token.remove()
    assert penstock.default_runtime().interceptors == []
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(len(penstock.default_runtime().interceptors))
"""
    assert run(text, server) == "1\n"


def test_what_is_for_every_channel_is_so_in_a_child_without_channels(server: str) -> None:
    text = """
token = penstock.add_interceptor(penstock.Interceptor(), name="parent's", priority=2)
child = os.fork()
if child == 0:
    token.priority = 3
    (one,) = penstock.default_runtime().interceptors
    assert (one["name"], one["priority"]) == ("parent's", 3), one
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
(one,) = penstock.default_runtime().interceptors
print(one["priority"])
"""
    assert run(text, server) == "2\n"


def test_a_child_keeps_nothing_of_the_parent_s_runtime(server: str) -> None:
    """In a child that is forked in a synchronous interceptor, the child's thread no longer counts as a worker. A
    child that drops the channel and the runtime has as many descriptors as the parent had before it made them."""
    text = """
import gc
import time
from penstock._calls.wait import workers
def descriptors(): return len(os.listdir("/proc/self/fd"))
def child_of(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
before = descriptors()
class Forks(penstock.SyncInterceptor):
    def intercept(self, call):
        assert workers
        def work():
            if workers: os._exit(1)
        print(child_of(work), flush=True)
        call.next()
runtime = penstock.Runtime()
channel = penstock.Channel(target, tls=False, runtime=runtime)
token = channel.add_interceptor(Forks())
list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
def work():
    global runtime, channel, token
    del token, channel, runtime
    gc.collect()
    for _ in range(200):
        if descriptors() == before: return
        time.sleep(0.05)
    os._exit(descriptors())
print(child_of(work))
"""
    assert run(text, server) == "0\n0\n"


# Locks that a callback takes, and that a function of `os.register_at_fork` takes before a fork. Each is made after
# penstock was imported.
LOCKS = {
    "the executor of callbacks": """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(4)
class Locks(penstock.Interceptor):
    executor = penstock.Executor(pool.submit)
    def on_start(self, hop): pass
    def on_status(self, hop): pass
""",
    "a pool in a callback": """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(4)
class Locks(penstock.Interceptor):
    def on_start(self, hop):
        pool.submit(hop.ticket().resume)
        return penstock.Verdict.PAUSE
""",
    "a lock of the program": """
lock = threading.Lock()
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
class Locks(penstock.Interceptor):
    def on_start(self, hop):
        with lock: pass
    on_send = on_headers = on_receive = on_status = on_start
""",
}


@pytest.mark.parametrize("lock", LOCKS)
def test_forks_while_callbacks_take_a_lock_that_the_fork_takes_too(server: str, lock: str) -> None:
    """No fork waits for a callback that waits for the fork, so each child can use the parent's channel."""
    text = """
channel, busy = penstock.Channel(target, tls=False), penstock.Channel(target, tls=False)
busy.add_interceptor(Locks())
over = threading.Event()
def work():
    echo = busy.unary_unary("/penstock.Echo/Unary")
    while not over.is_set(): assert echo(b"busy") == b"busy"
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
refused = 0
for _ in range(60):
    child = os.fork()
    if child == 0:
        try: channel.unary_unary("/penstock.Echo/Unary")(b"child's")
        except penstock.ForkedError: os._exit(1)
        os._exit(0)
    refused += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
over.set()
for thread in threads: thread.join()
print(refused)
"""
    assert run(LOCKS[lock] + text, server) == "0\n"


def test_the_first_runtime_at_the_end_of_the_process(server: str) -> None:
    text = """
import atexit
def late():
    with penstock.Channel(target, tls=False) as channel:
        print(channel.unary_unary("/penstock.Echo/Unary")(b"late"))
atexit.register(late)
"""
    assert run(text, server) == "b'late'\n"
