"""Copies and pickles: of errors and of what they contain, and of objects that can't be copied."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any, Callable, List

import grpc
import pytest

import penstock
from helpers import SOURCES, Only
from penstock import Channel, Metadata, RpcError, Status, StatusCode

WISH = {
    "code": 9,
    "message": "no \x00 way",
    "initial": [["x-first", "1"]],
    "trailing": [["x-why", "because"], ["x-raw-bin", "00ff"]],
}


def failed(channel: Channel) -> RpcError:
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary")(json.dumps(WISH).encode())
    return caught.value


def refused(channel: Channel) -> RpcError:
    """An error with details, which an interceptor has made."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "STALE"}
    status = Status.from_json(json.dumps({"code": 7, "details": [info, {"@type": "a/b.C", "base64": "AP8="}]}))
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Echo/Unary")(b"x", interceptors=[Only(on_start=lambda hop: hop.end(status))])
    return caught.value


def view(error: Any) -> List[Any]:
    return [
        *(error.code(), error.details(), tuple(error.initial_metadata()), tuple(error.trailing_metadata())),
        *(error.initial_metadata().json, error.trailing_metadata().json, error.trailing_metadata().get("x-why")),
        *(error.status_details, error.find_detail("b.C"), error.status_json, error.stats, error.trace),
        *(error.peer_certificates, error.debug_error_string(), str(error), repr(error)),
    ]


@pytest.mark.parametrize("make", [failed, refused])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_is_copied_whole(
    channel: Channel, make: Callable[[Channel], RpcError], copied: Callable[[Any], Any]
) -> None:
    error = make(channel)
    error.hint = "try again"  # type: ignore[attr-defined]
    error.__cause__ = KeyError("not copied")
    expected = view(error)
    again = copied(copied(error))
    assert type(again) is type(error)
    assert isinstance(again, RpcError)
    assert isinstance(again, grpc.RpcError)
    assert again.hint == "try again"
    assert again.args == error.args
    assert again.values.get("any", 7) == 7
    del error
    assert view(again) == expected


def test_an_error_without_a_reply_is_copied(channel: Channel) -> None:
    def serialize(_: Any) -> bytes:
        raise KeyError("no")

    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Echo/Unary", serialize)(b"x")
    again = pickle.loads(pickle.dumps(caught.value))
    assert view(again) == view(caught.value)
    assert again.code() is StatusCode.INTERNAL


@pytest.mark.parametrize("with_grpc", [True, False])
def test_an_error_goes_to_a_process(channel: Channel, with_grpc: bool) -> None:
    """It is a grpc.RpcError if grpc is loaded where the pickle is read."""
    program = f"""
import pickle, sys
sys.path.insert(0, {SOURCES!r})
import penstock
if {with_grpc}: import grpc
error = pickle.load(sys.stdin.buffer)
assert ("grpc" in sys.modules) is {with_grpc}
assert isinstance(error, grpc.RpcError if {with_grpc} else penstock.RpcError)
assert error.code().name in error.status_json
sys.stdout.buffer.write(pickle.dumps(error))
"""
    error = failed(channel)
    ran = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(error), capture_output=True, check=True)
    assert view(pickle.loads(ran.stdout)) == view(error)


def test_an_error_crosses_a_pool_of_processes(server: str) -> None:
    """A pool hangs if an error of a worker can't be read from its pickle."""
    from helpers import run

    text = """
import multiprocessing, sys
def work(number):
    with penstock.Channel(target, tls=False) as channel:
        if number: channel.unary_unary("/penstock.Probe/Refuse")(b"")
        channel.wait_connectivity(penstock.Connectivity.IDLE, timeout=0)
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        for number in (0, 1):
            try: pool.apply(work, (number,))
            except penstock.Error as error: print(type(error).__name__, error)
"""
    assert run(text, server).splitlines() == [
        "TimedOutError the channel's state is still IDLE (PENSTOCK_E_TIMEOUT)",
        "RpcError UNAUTHENTICATED: who are you",
    ]


def test_errors_of_the_library_are_copied() -> None:
    with pytest.raises(penstock.InvalidArgumentError) as caught:
        Channel("localhost:1", options={"max_get_url_bytes": "a"})
    error = caught.value
    error.hint = 5  # type: ignore[attr-defined]
    again: Any = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.result, again.name, again.message, again.path, str(again), again.hint) == (
        *(error.result, error.name, error.message, "$.max_get_url_bytes", str(error)),
        5,
    )


def test_metadata_and_statuses_are_copied_whole(channel: Channel) -> None:
    metadata = Metadata([("a", "1"), ("a", "2"), ("b-bin", b"\x00\xff")])
    status = Status(5, "", [("a/b.C", b"\x00")])
    status.message = "gone \x00 away"
    status.trailers.replace(metadata)
    for copied in (copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))):
        names, ended = copied(metadata), copied(status)
        assert (names.json, ended.json) == (metadata.json, status.json)
        names["c"] = "3"
        ended.message = "other"
        assert "c" not in metadata
        assert status.message == "gone \x00 away"
    seen: List[Any] = []
    channel.add_interceptor(
        Only(
            on_start=lambda hop: seen.append(copy.copy(hop.metadata)),
            on_status=lambda hop: seen.append(copy.copy(hop.status)),
        )
    )
    channel.unary_unary("/penstock.Echo/Unary")(b"x", metadata={"x-a": "b"})
    assert seen[0]["x-a"] == "b"
    assert seen[1].code is StatusCode.OK


def test_objects_with_a_handle_are_not_copied(channel: Channel) -> None:
    refused: List[str] = []

    def refuses(thing: object) -> None:
        for copied in (copy.copy, pickle.dumps):
            with pytest.raises(TypeError, match=f"a {type(thing).__name__} can't be copied or pickled"):
                copied(thing)  # type: ignore[operator]
        refused.append(type(thing).__name__)

    channel.add_interceptor(Only(on_start=refuses))
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
    assert list(call) == [b"x"]
    for thing in (channel, channel._runtime, call, penstock.SerialExecutor()):
        refuses(thing)
    assert refused == ["Hop", "Channel", "Runtime", "Call", "SerialExecutor"]
