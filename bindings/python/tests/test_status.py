"""Status codes, statuses and details on their own."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

import penstock
from penstock import Detail, Status, StatusCode


def test_codes_have_grpcio_s_names_and_values() -> None:
    assert {code.name: code.value for code in StatusCode} == {code.name: code.value for code in grpc.StatusCode}


@pytest.mark.parametrize("code", list(StatusCode))
def test_codes_equal_grpcio_s(code: StatusCode) -> None:
    theirs = grpc.StatusCode[code.name]
    assert code == theirs
    assert theirs == code
    assert {theirs: 1}[code] == 1
    assert all((code == other) is (other is theirs) for other in grpc.StatusCode)


def test_codes_are_numbers_too() -> None:
    assert [int(code) for code in StatusCode] == list(range(17))
    assert [StatusCode(number).number for number in range(17)] == list(range(17))
    assert StatusCode.NOT_FOUND != 5
    for wrong in (17, -1, True, "5", 5.0):
        with pytest.raises(ValueError, match="is not a valid StatusCode"):
            StatusCode(wrong)


def test_a_status_of_one_s_own() -> None:
    status = Status(grpc.StatusCode.ABORTED, "once more", [("type.example/a.B", b"\x00\xff")], {"x-why": "because"})
    assert (status.code, status.message) == (StatusCode.ABORTED, "once more")
    assert status.details == [Detail("type.example/a.B", b"\x00\xff")]
    assert status.trailers.get_all("x-why") == ["because"]
    status.code = 5
    status.message = "gone — wirklich"
    status.trailers["x-bytes-bin"] = b"\x01"
    view = json.loads(status.json)
    assert (view["code"], view["name"], view["message"]) == (5, "NOT_FOUND", "gone — wirklich")
    shown = view["metadata"].pop("grpc-status-details-bin")
    assert [base64.b64decode(value) for value in shown] == [status.details_bin]
    assert view["metadata"] == {"x-why": ["because"], "x-bytes-bin": ["AQ=="]}
    assert repr(status) == "<Status NOT_FOUND 'gone — wirklich'>"


def test_a_code_out_of_range_and_a_nul_are_refused() -> None:
    with pytest.raises(ValueError, match="17"):
        Status(17)
    with pytest.raises(penstock.InvalidArgumentError, match="NUL"):
        Status(2, "cut\0short")


def test_details_of_google_rpc_are_given_as_fields() -> None:
    # The protobuf encoding of google.rpc.ErrorInfo {reason: "STALE", domain: "example.com"} (its numbers are in
    # google/rpc/error_details.proto).
    value = b"\x0a\x05STALE\x12\x0bexample.com"
    url = "type.googleapis.com/google.rpc.ErrorInfo"
    status = Status(9, "", [("example.com/own.Type", b"\x01"), (url, value)])
    own, info = status.details
    assert own.parsed is None
    assert info.parsed is not None
    assert (info.parsed["reason"], info.parsed["domain"]) == ("STALE", "example.com")
    assert (info.type_url, info.type_name, info.value) == (url, "google.rpc.ErrorInfo", value)
    assert status.find_detail("google.rpc.ErrorInfo") == info
    assert status.find_detail(url) == info
    assert status.find_detail("own.Type") == own
    assert status.find_detail("other.com/own.Type") is None
    status.clear_details()
    assert status.details == []


def test_a_message_of_the_application_s_own_is_a_detail(stubs: str) -> None:
    import echo_pb2

    status = Status(9, "", [echo_pb2.Complaint(subject="soup", count=2)])
    (detail,) = status.details
    assert detail.type_url == "type.googleapis.com/penstock.Complaint"
    assert detail.unpack(echo_pb2.Complaint).subject == "soup"
    with pytest.raises(TypeError, match=r"penstock\.Complaint, not a penstock\.Opaque"):
        detail.unpack(echo_pb2.Opaque)


@pytest.mark.parametrize("with_grpc", [True, False])
def test_an_error_is_grpcio_s_only_where_grpc_is_loaded(with_grpc: bool) -> None:
    sources = str(Path(penstock.__file__).parents[1])
    program = f"""
import sys
sys.path.insert(0, {sources!r})
import penstock
from penstock._handles.reply import local_error
if {with_grpc}: import grpc
error = local_error(penstock.StatusCode.ABORTED, "once more")
assert isinstance(error, penstock.RpcError) and isinstance(error, penstock.Error)
assert type(error).__name__ == "RpcError" and str(error) == "ABORTED: once more"
if {with_grpc}:
    assert isinstance(error, grpc.RpcError) and error.code() == grpc.StatusCode.ABORTED
else:
    assert "grpc" not in sys.modules and type(error) is penstock.RpcError
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_library_errors_are_named() -> None:
    cases: Any = [
        (1, penstock.InvalidArgumentError, ValueError, "PENSTOCK_E_INVALID_ARGUMENT"),
        (2, penstock.InvalidArgumentError, ValueError, "PENSTOCK_E_INVALID_JSON"),
        (10, penstock.TimedOutError, TimeoutError, "PENSTOCK_E_TIMEOUT"),
        (13, penstock.ClosedError, ValueError, "PENSTOCK_E_CLOSED"),
        (14, penstock.NotFoundError, LookupError, "PENSTOCK_E_NOT_FOUND"),
        (17, penstock.LibraryError, penstock.Error, "PENSTOCK_E_SYSTEM"),
    ]
    from penstock._handles.errors import library_error

    for result, kind, also, name in cases:
        error = library_error(result, "words")
        assert isinstance(error, kind)
        assert isinstance(error, also)
        assert (error.result, error.name, str(error)) == (result, name, f"words ({name})")
