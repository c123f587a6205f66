"""Rules that only a wrong use, a long life or another thread shows."""

from __future__ import annotations

import contextvars
import sys
import threading
from types import SimpleNamespace
from typing import Any, List

import pytest

import penstock
from helpers import Only, eventually, on_thread, unary
from penstock import Channel, Hop
from penstock._calls import options
from penstock._calls.keywords import CallKeywords
from penstock._calls.options import _kept, interrupted
from penstock._calls.wait import workers
from penstock._handles import ctrl_c
from penstock._handles.context import _unchain as unchain
from penstock._handles.context import run, run_with
from penstock._handles.ctrl_c import escape, raise_escaping


def test_the_options_of_calls_are_kept_within_a_limit(server: str) -> None:
    # A runtime without interceptors, also of earlier tests: its calls need no context, so their options are kept.
    with penstock.Runtime() as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        for number in range(200):
            unary(channel, timeout=1000 + number)
            assert len(_kept) <= 64
    assert _kept


def test_a_pick_is_refused_on_another_thread(server: str) -> None:
    refused: List[Any] = []

    def pick(pick: penstock.Pick) -> Any:
        def use() -> None:
            for name in ("endpoints", "method", "metadata"):
                with pytest.raises(penstock.StateError, match="on its thread") as caught:
                    getattr(pick, name)
                refused.append(caught.value.result)

        on_thread(use).join()
        return pick.endpoints[0]

    with Channel(server, tls=False, picker=pick) as channel:
        assert unary(channel) == b"x"
    # A call that has no slot yet is picked for once more.
    assert refused
    assert len(refused) % 3 == 0


def test_a_worker_is_one_only_while_it_runs_a_function(channel: Channel) -> None:
    inside: List[bool] = []

    class Look(penstock.SyncInterceptor):
        def intercept(self, call: penstock.InterceptedCall) -> None:
            inside.append(threading.get_ident() in workers)
            call.next()

    channel.add_interceptor(Look(), priority=2)
    channel.add_interceptor(Look(), priority=1)
    list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
    assert inside == [True, True]
    eventually(lambda: not workers)
    # A unary call's own thread runs its functions.
    assert unary(channel) == b"x"
    assert inside == [True, True, False, False]


def test_a_wait_is_told_of_an_exception_that_escaped() -> None:
    assert interrupted(None) == 0
    escape(KeyboardInterrupt("once"))
    assert interrupted(None) == 1
    with pytest.raises(KeyboardInterrupt, match="once"):
        raise_escaping()
    assert interrupted(None) == 0
    raise_escaping()


def test_the_bounds_of_histograms_are_rounded(channel: Channel) -> None:
    metrics = penstock.ready.Metrics(buckets=[0.0015, 0.57])
    channel.add_interceptor(metrics)
    unary(channel)
    buckets = metrics.snapshot()["methods"][0]["codes"][0]["buckets"]
    assert [bucket["le_ms"] for bucket in buckets] == [2, 570, None]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(-1, penstock.InvalidArgumentError), (2**64, ValueError), (1.5, TypeError), (True, TypeError)],
)
def test_a_demand_is_checked(channel: Channel, wrong: Any, error: Any) -> None:
    refused: List[str] = []

    def start(hop: Hop) -> None:
        with pytest.raises(error):
            hop.demand(wrong)
        refused.append("refused")

    def change(hop: Hop) -> None:
        with pytest.raises(error):
            hop.count = wrong
        refused.append("refused")

    channel.add_interceptor(Only(on_start=start, on_demand=change))
    assert unary(channel) == b"x"
    assert refused == ["refused"] * 2


class Unraisable:
    """An object whose end raises, which only the hook of Python learns of."""

    def __del__(self) -> None:
        raise LookupError("at the end")


def test_other_exceptions_that_can_not_be_raised_go_to_their_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    told: List[Any] = []

    def others(unraisable: Any) -> None:
        told.append(str(unraisable.exc_value))

    def drop() -> int:
        Unraisable()
        return 7

    monkeypatch.setattr(sys, "unraisablehook", others)
    assert ctrl_c.call(drop) == 7
    assert told == ["at the end"]
    assert sys.unraisablehook is others
    # A hook that was set meanwhile stays.
    third: Any = lambda unraisable: None  # noqa: E731
    ctrl_c.call(lambda: monkeypatch.setattr(sys, "unraisablehook", third) or 0)
    assert sys.unraisablehook is third


def test_what_has_no_recovery() -> None:
    try:
        raise LookupError
    except LookupError as error:
        known, trace = error, error.__traceback__
    for given in ((None, None), (known, None), (None, trace), (known, trace)):
        assert ctrl_c._recovered(SimpleNamespace(exc_value=given[0], exc_traceback=given[1])) is False


def test_a_recovery_gets_what_the_function_had() -> None:
    found: List[Any] = []

    def begun(first: int, second: str) -> None:
        third = first
        raise LookupError(third)

    ctrl_c.recover_with(
        begun,
        lambda given, error: found.append(("unbegun", given, error)),
        lambda given, error: found.append(("begun", given, error)),
    )
    try:
        begun(1, "a")
    except LookupError as error:
        known: Any = error
    trace = known.__traceback__.tb_next
    assert ctrl_c._recovered(SimpleNamespace(exc_value=known, exc_traceback=trace)) is True
    # A signal before the first line is told by the line of the `def`.
    at_def = SimpleNamespace(tb_frame=trace.tb_frame, tb_lineno=begun.__code__.co_firstlineno)
    assert ctrl_c._recovered(SimpleNamespace(exc_value=known, exc_traceback=at_def)) is True
    names = ({"first": 1, "second": "a", "third": 1}, known)
    assert found == [("begun", *names), ("unbegun", *names)]
    del ctrl_c._begun[begun.__code__], ctrl_c._unbegun[begun.__code__]


def chained(*errors: Exception) -> List[Exception]:
    """The exceptions, each the context of the one before."""
    for error, context in zip(errors, errors[1:]):
        error.__context__ = context
    return list(errors)


def test_a_handled_exception_is_taken_out_of_a_chain() -> None:
    handled = KeyError("handled")
    first, second, _ = chained(ValueError("first"), ValueError("second"), handled)
    unchain(first, handled)
    assert (first.__context__, second.__context__) == (second, None)
    # What lies behind it is its own.
    first, _, last = chained(ValueError("first"), handled, ValueError("last"))
    unchain(first, handled)
    assert (first.__context__, handled.__context__) == (None, last)
    unchain(handled, handled)
    assert handled.__context__ is last
    # A chain without it stays, also one that ends nowhere.
    alone = ValueError("alone")
    unchain(alone, handled)
    first, second = chained(ValueError("first"), ValueError("second"))
    unchain(first, handled)
    assert (first.__context__, second.__context__, alone.__context__) == (second, None, None)
    second.__context__ = first
    unchain(first, handled)
    assert (first.__context__, second.__context__) == (second, first)
    second.__context__ = handled.__context__ = None


def test_what_a_callback_raises_knows_nothing_of_its_caller() -> None:
    def fails(*arguments: object) -> None:
        raise ValueError(arguments)

    def during(call: Any) -> BaseException:
        try:
            raise KeyError("handled")
        except KeyError:
            with pytest.raises(ValueError, match="1") as caught:
                call()
            return caught.value

    assert during(lambda: run(None, fails, 1)).__context__ is None
    assert during(lambda: run(contextvars.copy_context(), fails, 1)).__context__ is None
    assert during(lambda: run_with(None, fails, 1)).__context__ is None
    assert during(lambda: run_with(contextvars.copy_context(), fails, 1)).__context__ is None
    assert run(None, lambda: 5) == run_with(contextvars.copy_context(), lambda given: given, 5) == 5


def test_options_of_calls_with_callbacks_are_used_again(channel: Channel) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: None))
    text = CallKeywords(timeout=1234).options()
    options.forget_kept_options()
    assert unary(channel, timeout=1234) == b"x"
    (first,) = options._spare[text]
    for _ in range(3):
        assert unary(channel, timeout=1234) == b"x"
        assert options._spare[text] == [first]
    for _ in range(70):
        options._give_back(options.CallOptions(text), text)
    assert len(options._spare[text]) == 64
    # Those of other calls are forgotten when there are too many of them.
    for number in range(70):
        options._give_back(options.CallOptions(text), str(number))
        assert len(options._spare) <= 64
    options.forget_kept_options()
    assert options._spare == options._kept == {}
