"""The places in which code waits, and the hooks of forks and of the end, without a package of greenlets: a hub here
has a thread."""

from __future__ import annotations

import queue
import sys
import threading
from typing import Any, Callable, List, Optional

import pytest

import penstock
from helpers import eventually, on_thread
from penstock import _hooks
from penstock._calls import hubs
from penstock._handles import host


class Hub:
    """A hub whose greenlets are threads, and which calls posted functions on one thread."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Optional[Callable[[], Any]]] = queue.SimpleQueue()
        self.spawned: List[Callable[[], Any]] = []
        self.apart: List[Callable[[], Any]] = []
        self.waits = True
        self._thread = on_thread(self._run)

    def _run(self) -> None:
        for function in iter(self.posted.get, None):
            function()

    def gate(self) -> host.Gate:
        return host.ThreadGate()

    def spawn(self, function: Callable[[], Any]) -> None:
        self.spawned.append(function)

    def post(self, function: Callable[[], Any]) -> None:
        self.posted.put(function)

    def waits_here(self) -> bool:
        return self.waits

    def run_apart(self, function: Callable[[], Any]) -> None:
        self.apart.append(function)
        on_thread(function).join()

    def close(self) -> None:
        self.posted.put(None)
        self._thread.join()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Hub()
    monkeypatch.setattr(host, "_hub", made)
    yield made
    monkeypatch.setattr(host, "_hub", None)
    made.close()


# ---- Gates ----


def test_a_gate_is_opened_any_number_of_times() -> None:
    gate = host.ThreadGate()
    gate.wait(0)
    gate.wait(-5)
    gate.open()
    gate.open()
    gate.wait()
    late = host.ThreadGate()
    thread = on_thread(late.open)
    late.wait(threading.TIMEOUT_MAX * 2)
    thread.join()


def test_gates_give_what_is_ready() -> None:
    gates = host.Gates()
    asked: List[int] = []

    def ready() -> Optional[str]:
        asked.append(len(gates))
        return "ready" if len(asked) > 1 else None

    assert gates.wait(lambda: 5) == 5
    # Without a wait it is asked once.
    assert gates.wait(ready, 0) is None
    assert asked == [0]
    assert gates.wait(ready, 0) == "ready"
    asked.clear()
    # A change that comes before the gate is there is seen behind it.
    assert gates.wait(ready) == "ready"
    assert asked == [0, 1]
    assert len(gates) == 0


@pytest.mark.parametrize("timeout", [None, 600])
def test_gates_wait_until_they_are_opened(timeout: Optional[float]) -> None:
    gates = host.Gates()
    found: List[Any] = []
    opened = threading.Event()
    thread = on_thread(lambda: found.append(gates.wait(lambda: 7 if opened.is_set() else None, timeout)))
    eventually(lambda: len(gates) == 1)
    opened.set()
    gates.open()
    thread.join()
    assert found == [7]
    assert gates.wait(lambda: None, 0.01) is None
    assert len(gates) == 0


def test_a_wait_that_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks:
        def open(self) -> None: ...

        def wait(self, timeout: Optional[float] = None) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(host, "gate", Breaks)
    gates = host.Gates()
    told: List[str] = []
    with pytest.raises(KeyboardInterrupt):
        gates.wait(lambda: None, 5, lambda: told.append("broken off"))
    assert told == ["broken off"]
    assert len(gates) == 0


# ---- Functions that wait ----


def test_a_function_that_is_spawned() -> None:
    names: queue.SimpleQueue[Any] = queue.SimpleQueue()
    host.spawn(lambda: names.put((threading.current_thread().name, threading.current_thread().daemon)), "its name")
    assert names.get(timeout=60) == ("its name", True)
    assert host.hub() is None


def test_a_function_that_is_spawned_in_a_hub(hub: Hub) -> None:
    assert host.hub() is hub
    function = lambda: None  # noqa: E731
    host.spawn(function, "its name")
    assert hub.spawned == [function]


def apart(function: Callable[[], Any]) -> Any:
    return host.apart(function, "its name")


def test_a_function_that_waits_in_c_runs_apart_from_the_main_thread() -> None:
    assert apart(lambda: threading.current_thread().name) == "its name"
    with pytest.raises(LookupError, match="no"):
        apart(lambda: raises("no"))
    names: List[str] = []
    thread = on_thread(lambda: names.append(apart(lambda: threading.current_thread().name)))
    thread.join()
    assert names == [thread.name]


def test_a_function_that_waits_in_c_runs_apart_from_a_hub(hub: Hub) -> None:
    assert apart(lambda: 5) == 5
    with pytest.raises(LookupError, match="no"):
        apart(lambda: raises("no"))
    assert len(hub.apart) == 2
    # Where no greenlets wait, as on the threads of pools.
    hub.waits = False
    assert apart(lambda: 6) == 6
    assert len(hub.apart) == 2


def raises(text: str) -> Any:
    raise LookupError(text)


def test_a_step_is_repeated_until_its_result_is_another(hub: Hub) -> None:
    results = iter([7, 7, 7, 3])
    assert host.eventually(hub, lambda: next(results), None, 7) == 3
    results = iter([7, 7, 5])
    assert host.eventually(hub, lambda: next(results), 600, 7) == 5
    # With no time left it is called once.
    results = iter([7, 5])
    assert host.eventually(hub, lambda: next(results), 0, 7) == 7
    assert host.eventually(hub, lambda: next(results), -1, 7) == 5
    with pytest.raises(LookupError, match="no"):
        host.eventually(hub, lambda: raises("no"), None, 7)
    seen: List[Any] = []
    host.eventually(hub, lambda: seen.append(threading.current_thread()) or 0, None, 7)
    assert seen == [hub._thread]


def test_exceptions_are_told_in_the_hub(hub: Hub) -> None:
    from penstock._handles import reports

    told: List[Any] = []
    penstock.set_exception_hook(lambda name, callback, error: told.append((name, callback, str(error))))
    try:
        reports.tell("mine", "callback", LookupError("no"))
        assert told == []
        (function,) = hub.spawned
        function()
    finally:
        penstock.set_exception_hook(None)
    assert told == [("mine", "callback", "no")]


def test_one_hub_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class Green:
        pass

    class Other:
        pass

    monkeypatch.setattr(host, "_hub", None)
    said = r"^penstock\.green\.init\(\) has to be called before the first runtime or channel is made$"
    with pytest.raises(RuntimeError, match=said):
        hubs.begin(Green, "green", True)  # type: ignore[arg-type]
    assert host.hub() is None
    hubs.begin(Green, "green", False)  # type: ignore[arg-type]
    made: Any = host.hub()
    assert type(made) is Green
    for is_begun in (True, False):
        hubs.begin(Green, "green", is_begun)  # type: ignore[arg-type]
        assert host.hub() is made
        with pytest.raises(RuntimeError, match=r"^calls wait in another hub already, not in other's$"):
            hubs.begin(Other, "other", is_begun)  # type: ignore[arg-type]
    monkeypatch.setattr(host, "_hub", None)


# ---- Hooks ----


def test_each_hook_runs_also_if_another_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: List[str] = []
    printed: List[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: printed.append((kind, str(error))))
    _hooks._run([lambda: ran.append("first"), lambda: raises("no"), lambda: ran.append("last")])
    assert (ran, printed) == (["first", "last"], [(LookupError, "no")])


def test_a_hook_for_exceptions_that_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *_: raises("from the hook"))
    _hooks._run([lambda: raises("from the function")])
    printed = capsys.readouterr().err
    assert "LookupError: from the function" in printed
    assert printed.endswith("LookupError: from the hook\n")


def test_the_hooks_of_this_package() -> None:
    for hooks in (_hooks.in_child, _hooks.at_exit):
        assert "penstock._channels.runtime" in hooks
