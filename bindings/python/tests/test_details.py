"""Error details: an application's own and google.rpc's, at a hop and at the caller, against protobuf's decoding."""

from __future__ import annotations

import json
from typing import Any, List

import pytest
from google.protobuf import any_pb2, json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

import penstock
from helpers import Only, unary
from penstock import Channel, Hop, RpcError, Status, StatusCode


def packed(message: Any) -> any_pb2.Any:
    anything = any_pb2.Any()
    anything.Pack(message)
    return anything


EVERY_TYPE: List[Any] = [
    error_details_pb2.ErrorInfo(reason="STALE", domain="example.com", metadata={"a": "1", "b": ""}),
    error_details_pb2.RetryInfo(retry_delay={"seconds": 3, "nanos": 50_000_000}),
    error_details_pb2.DebugInfo(stack_entries=["main", ""], detail="deep"),
    error_details_pb2.QuotaFailure(
        violations=[
            {"subject": "s", "quota_value": -(2**63), "future_quota_value": 0, "quota_dimensions": {"k": "v"}}
        ]
    ),
    error_details_pb2.PreconditionFailure(violations=[{"type": "TOS", "subject": "x", "description": "y"}]),
    error_details_pb2.BadRequest(
        field_violations=[{"field": "f", "reason": "R", "localized_message": {"locale": "de", "message": "nein"}}, {}]
    ),
    error_details_pb2.RequestInfo(request_id="1", serving_data="2"),
    error_details_pb2.ResourceInfo(resource_type="t", resource_name="n", owner="o", description="d"),
    error_details_pb2.Help(links=[{"description": "a", "url": "b"}]),
    error_details_pb2.LocalizedMessage(locale="de", message="schön"),
]


@pytest.mark.parametrize("message", EVERY_TYPE, ids=lambda message: type(message).__name__)
def test_google_rpc_details_are_read_from_protobuf_s_json(message: Any) -> None:
    """Protobuf decodes a detail that is made from its JSON to the original message. It also reads the JSON that
    `parsed` gives for a detail as that message."""
    view = {"@type": packed(message).type_url, **json_format.MessageToDict(message)}
    status = Status.from_json(json.dumps({"code": 3, "details": [view]}))
    (detail,) = status.details
    assert detail.unpack(type(message)) == message
    parsed = Status(3, details=[message]).details[0].parsed
    assert json_format.ParseDict(parsed, type(message)()) == message


def test_what_a_status_is_encodes_to_what_protobuf_has() -> None:
    status = Status(9, "no — wirklich", EVERY_TYPE)
    theirs = status_pb2.Status(code=9, message="no — wirklich", details=[packed(message) for message in EVERY_TYPE])
    assert status_pb2.Status.FromString(status.details_bin) == theirs
    assert Status.from_json(status.json).details_bin == status.details_bin


def test_details_are_added_replaced_and_removed(stubs: str) -> None:
    import echo_pb2

    status = Status(9, "", [echo_pb2.Complaint(subject="soup"), EVERY_TYPE[0]])
    status.set_detail(echo_pb2.Complaint(subject="salt"))
    status.set_detail(("own.example/a.B", b"1"))
    assert [detail.type_name for detail in status.details] == ["penstock.Complaint", "google.rpc.ErrorInfo", "a.B"]
    assert status.details[0].unpack(echo_pb2.Complaint).subject == "salt"
    status.remove_detail("google.rpc.ErrorInfo")
    with pytest.raises(penstock.NotFoundError):
        status.remove_detail("google.rpc.ErrorInfo")
    seen = status_pb2.Status.FromString(status.details_bin)
    assert [detail.type_url for detail in seen.details] == [
        "type.googleapis.com/penstock.Complaint",
        "own.example/a.B",
    ]
    status.clear_details()
    assert status_pb2.Status.FromString(status.details_bin) == status_pb2.Status(code=9)


def test_json_that_is_no_status_names_its_path() -> None:
    for text, path in (
        ('{"code": 99}', "$.code"),
        ('{"code": 5, "name": "ABORTED"}', "$"),
        ('{"code": 5, "details": [{"@type": "t/google.rpc.Help", "link": []}]}', "$.details[0].link"),
    ):
        with pytest.raises(penstock.InvalidArgumentError) as caught:
            Status.from_json(text)
        assert caught.value.path == path


def server_status(channel: Channel, status: status_pb2.Status) -> RpcError:
    wish = {
        "code": status.code,
        "message": status.message,
        "trailing": [["grpc-status-details-bin", status.SerializeToString().hex()]],
    }
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary", lambda view: json.dumps(view).encode())(wish)
    return caught.value


def test_grpcio_status_reads_our_errors(channel: Channel, stubs: str) -> None:
    import echo_pb2

    sent = status_pb2.Status(code=code_pb2.NOT_FOUND, message="no soup", details=[packed(m) for m in EVERY_TYPE[:2]])
    sent.details.append(packed(echo_pb2.Complaint(subject="soup", count=2)))
    error = server_status(channel, sent)
    assert rpc_status.from_call(error) == sent
    detail = error.find_detail("penstock.Complaint")
    assert detail is not None
    assert detail.unpack(echo_pb2.Complaint).count == 2
    assert [found.type_name for found in error.status_details][:2] == ["google.rpc.ErrorInfo", "google.rpc.RetryInfo"]


def test_what_a_hop_changes_is_what_the_wire_form_says(channel: Channel, stubs: str) -> None:
    import echo_pb2

    def change(hop: Hop) -> None:
        status = hop.status
        status.code = StatusCode.ABORTED
        status.message = "changed"
        status.set_detail(echo_pb2.Complaint(subject="salt"))
        status.remove_detail("google.rpc.ErrorInfo")
        status.add_detail(EVERY_TYPE[1])

    seen: List[Any] = []
    channel.add_interceptor(Only(on_status=lambda hop: seen.append(hop.metadata["grpc-status-details-bin"])), 1)
    channel.add_interceptor(Only(on_status=change))
    sent = status_pb2.Status(code=code_pb2.NOT_FOUND, message="no soup", details=[packed(EVERY_TYPE[0])])
    sent.details.append(packed(echo_pb2.Complaint(subject="soup", count=2)))
    error = server_status(channel, sent)
    expected = status_pb2.Status(code=code_pb2.ABORTED, message="changed")
    expected.details.append(packed(echo_pb2.Complaint(subject="salt")))
    expected.details.append(packed(EVERY_TYPE[1]))
    # grpcio-status refuses a status whose code or message differs from the call's.
    assert rpc_status.from_call(error) == expected
    assert [status_pb2.Status.FromString(data) for data in seen] == [expected]
    assert json.loads(error.status_json)["metadata"].keys() == {"grpc-status-details-bin"}


def test_a_hop_takes_all_details_away(channel: Channel) -> None:
    channel.add_interceptor(Only(on_status=lambda hop: hop.status.clear_details()))
    sent = status_pb2.Status(code=code_pb2.NOT_FOUND, message="no soup", details=[packed(EVERY_TYPE[0])])
    error = server_status(channel, sent)
    assert error.status_details == []
    assert error.trailing_metadata().get("grpc-status-details-bin") is None
    assert rpc_status.from_call(error) is None


def test_a_call_is_refused_with_a_status_from_json(channel: Channel) -> None:
    text = """{"name": "RESOURCE_EXHAUSTED", "message": "slower, please", "metadata": {"x-shard": "7"}, "details": [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}]}"""

    def refuse(hop: Hop) -> None:
        hop.end(Status.from_json(text))

    channel.add_interceptor(Only(on_start=refuse))
    with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED: slower, please") as caught:
        unary(channel)
    found = rpc_status.from_call(caught.value)
    retry = error_details_pb2.RetryInfo()
    assert found.details[0].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 1500
    assert caught.value.trailing_metadata().get("x-shard") == "7"
    detail = caught.value.find_detail("google.rpc.RetryInfo")
    assert detail is not None
    assert detail.parsed == {"retryDelay": "1.5s"}
