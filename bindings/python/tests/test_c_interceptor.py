"""Interceptors of another shared library: a C table on a channel, a runtime, or one call."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

import penstock
from conftest import REPOSITORY
from helpers import seen, unary
from penstock import AlreadyError, Channel, CInterceptor, InvalidArgumentError, LibraryError, Runtime, _raw

SOURCE = """
#include <penstock/penstock.h>

typedef struct counts { int starts, ends; } counts;

static int32_t on_start(penstock_hop *hop, void *state) {
  counts *mine = state;
  mine->starts++;
  penstock_metadata_set(penstock_hop_metadata(hop), "x-from", "c");
  return PENSTOCK_NEXT;
}

static void end(void *user_data) { ((counts *)user_data)->ends++; }

const penstock_interceptor counting = {
    .struct_size = sizeof(penstock_interceptor),
    .name = "counting",
    .methods = "/penstock.Probe/*",
    .on_start = on_start,
};

const penstock_interceptor *counting_until_the_end(counts *mine) {
  static penstock_interceptor table;
  table = counting;
  table.user_data = mine;
  table.finalizer = end;
  return &table;
}
"""


class Counts(ctypes.Structure):
    _fields_ = (("starts", ctypes.c_int), ("ends", ctypes.c_int))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("interceptor")
    (folder / "counting.c").write_text(SOURCE)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{REPOSITORY / 'include'}"]
    command = [os.environ.get("CC", "cc"), *flags]
    # musl does not know the library that is loaded by its soname, and looks for its file.
    place = f"-Wl,-rpath,{Path(penstock.load()).parent}"
    subprocess.run([*command, "counting.c", penstock.load(), place, "-o", "counting.so"], cwd=folder, check=True)
    loaded = ctypes.CDLL(str(Path(folder) / "counting.so"))
    loaded.counting_until_the_end.restype = ctypes.c_void_p
    return loaded


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def table(library: ctypes.CDLL, counts: Counts) -> CInterceptor:
    """A table that writes to ``counts``, and that has a finalizer."""
    return CInterceptor(library.counting_until_the_end(ctypes.byref(counts)))


def test_a_table_counts_and_changes_calls(
    channel: Channel, probe: Callable[..., Any], table: CInterceptor, counts: Counts
) -> None:
    registration = channel.add_interceptor(table, priority=3)
    assert seen(probe(), "x-from") == ["c"]
    # A method that the table's filter does not name: the interceptor does not see the call.
    unary(channel)
    assert (counts.starts, counts.ends) == (1, 0)
    entry = channel.interceptors[0]
    assert (entry["name"], entry["priority"], entry["methods"]) == ("counting", 3, "/penstock.Probe/*")
    registration.remove()
    assert registration.wait_removed(20)
    assert seen(probe(), "x-from") == []
    assert (counts.starts, counts.ends) == (1, 1)


def test_add_interceptor_overrides_name_and_methods(
    channel: Channel, probe: Callable[..., Any], table: CInterceptor, counts: Counts
) -> None:
    channel.add_interceptor(table, name="mine", methods="/penstock.Echo/*")
    assert channel.interceptors[0]["name"] == "mine"
    probe()
    assert counts.starts == 0
    unary(channel)
    assert counts.starts == 1


def test_a_table_stands_on_a_runtime_and_on_a_call(server: str, library: ctypes.CDLL, counts: Counts) -> None:
    constant = _raw.penstock_interceptor.in_dll(library, "counting")
    table = CInterceptor(constant, ctypes.cast(ctypes.byref(counts), ctypes.c_void_p))
    with Runtime() as runtime, Channel(server, tls=False, runtime=runtime) as channel:
        call = channel.unary_unary("/penstock.Probe/Unary", None, json.loads)
        runtime.add_interceptor(table)
        assert seen(call(b"{}"), "x-from") == ["c"]
        # The table has no finalizer, so it may be registered again.
        assert seen(call(b"{}", interceptors=[(table, 1)]), "x-from") == ["c"]
        assert counts.starts == 3


def test_a_table_with_a_finalizer_is_registered_once(channel: Channel, table: CInterceptor, counts: Counts) -> None:
    registration = channel.add_interceptor(table)
    with pytest.raises(AlreadyError, match="once"):
        channel.add_interceptor(table)
    registration.remove()
    assert registration.wait_removed(20)
    assert counts.ends == 1


def test_a_registration_that_fails_finalizes(channel: Channel, table: CInterceptor, counts: Counts) -> None:
    with pytest.raises(InvalidArgumentError):
        channel.add_interceptor(table, methods="no pattern")
    assert counts.ends == 1


def test_a_table_that_is_not_registered_stays_the_caller_s(table: CInterceptor, counts: Counts) -> None:
    del table
    assert counts.ends == 0


def test_any_pointer_of_ctypes_is_taken(channel: Channel, library: ctypes.CDLL, counts: Counts) -> None:
    mine = ctypes.addressof(counts)
    constant = _raw.penstock_interceptor.in_dll(library, "counting")
    address = ctypes.addressof(constant)
    for given in (constant, address, ctypes.c_void_p(address), ctypes.pointer(constant)):
        channel.add_interceptor(CInterceptor(given, mine))
    channel.unary_unary("/penstock.Probe/Unary")(b"{}")
    assert counts.starts == 4


def test_its_level_is_the_table_s(channel: Channel, library: ctypes.CDLL) -> None:
    copy = _raw.penstock_interceptor.from_buffer_copy(_raw.penstock_interceptor.in_dll(library, "counting"))
    copy.level = penstock.Level.OBJECT
    assert channel.add_interceptor(CInterceptor(copy)).level is penstock.Level.OBJECT
    assert channel.add_interceptor(CInterceptor(copy), level=penstock.Level.BYTES).level is penstock.Level.BYTES
    assert [entry["level"] for entry in channel.interceptors] == ["object", "bytes"]


@pytest.mark.parametrize("wrong", ["text", 1.5, object()])
def test_no_table_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        CInterceptor(wrong)


def test_null_and_a_table_that_nobody_has_filled_are_refused() -> None:
    for wrong in (0, ctypes.c_void_p(), _raw.penstock_interceptor()):
        with pytest.raises(InvalidArgumentError):
            CInterceptor(wrong)


def test_a_table_of_an_earlier_header_is_read_to_its_end_only(server: str) -> None:
    first = 152  # without replay_bytes and what follows
    for size in (first, 192):
        memory = ctypes.create_string_buffer(b"\xa5" * 1024, 1024)
        ctypes.memset(memory, 0, size)
        ctypes.cast(memory, ctypes.POINTER(ctypes.c_size_t))[0] = size
        with Channel(server, tls=False) as channel:
            channel.add_interceptor(CInterceptor(memory), name="earlier")
            assert channel.unary_unary("/penstock.Echo/Unary")(b"hi") == b"hi"
        ctypes.cast(memory, ctypes.POINTER(ctypes.c_size_t))[0] = first - 1
        with pytest.raises(InvalidArgumentError):
            CInterceptor(memory)


def test_a_table_that_says_it_is_larger_than_any_is_not_read() -> None:
    for size in (1025, 16 * ctypes.sizeof(_raw.penstock_interceptor), 2**63, 2**64 - 1):
        table = _raw.penstock_interceptor(struct_size=size)
        with pytest.raises(LibraryError) as raised:
            CInterceptor(table)
        assert raised.value.name == "PENSTOCK_E_UNSUPPORTED"


def test_a_table_of_a_later_header_is_taken_unless_it_uses_more() -> None:
    class Later(_raw.penstock_interceptor):
        _fields_ = (("more", ctypes.c_void_p),)

    later = Later()
    later.struct_size = ctypes.sizeof(Later)
    assert CInterceptor(later).name == ""
    later.more = 1
    with pytest.raises(LibraryError) as raised:
        CInterceptor(later)
    assert raised.value.name == "PENSTOCK_E_UNSUPPORTED"


def test_the_child_of_a_fork_registers_it_anew(server: str, table: CInterceptor, counts: Counts) -> None:
    registration = penstock.add_interceptor(table)
    try:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Channel(server, tls=False) as channel:
                    view = channel.unary_unary("/penstock.Probe/Unary", None, json.loads)(b"{}", timeout=20)
                code = 0 if seen(view, "x-from") == ["c"] and counts.starts == 1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        registration.remove()
