"""Compares the package's keywords with the library's tables of options."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from typing import Any, Dict

import pytest

import penstock
from conftest import REPOSITORY
from penstock import Channel, Runtime, ready
from penstock._calls.keywords import CallKeywords

# The classes of ready-made interceptors, each with its keywords that are not an option of the library.
READY: Dict[str, set[str]] = {
    "BearerToken": {"source", "in_thread"},
    "Logging": {"write"},
    "Metrics": set(),
    "Telemetry": set(),
    "TraceContext": set(),
    "ResponseCache": set(),
    "RateLimit": set(),
    "FaultInjection": {"delay_percent", "abort_percent", "message"},
    "SignedToken": set(),
    "OAuth2": {"server"},
}
# The classes whose names are not those of their functions.
FUNCTIONS = {
    "Metrics": "penstock_metrics_new",
    "Telemetry": "penstock_telemetry_new",
    "SignedToken": "penstock_ready_jwt",
    "OAuth2": "penstock_ready_oauth2",
}


@pytest.fixture(scope="session")
def tables() -> Dict[str, Dict[str, Any]]:
    """The library's tables of options: for each function that takes options, and for "tls", the rows by key."""
    command = [sys.executable, str(REPOSITORY / "scripts/options"), "--json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {table["title"]: {row["key"]: row for row in table["rows"]} for table in json.loads(text)}


def test_a_call_s_keywords_are_options(tables: Dict[str, Dict[str, Any]]) -> None:
    options = {field.metadata["option"] for field in dataclasses.fields(CallKeywords)} - {None}
    assert options <= set(tables["penstock_call_options_new"])


def test_a_runtime_s_keywords_are_options_with_their_defaults(tables: Dict[str, Dict[str, Any]]) -> None:
    table = tables["penstock_runtime_new"]
    keywords = {
        name: parameter.default
        for name, parameter in inspect.signature(Runtime).parameters.items()
        if name != "drive"
    }
    assert {name: json.dumps(default) for name, default in keywords.items()} == {
        name: table[name]["default"] for name in keywords
    }


def test_a_channel_names_all_its_options(tables: Dict[str, Dict[str, Any]]) -> None:
    assert Channel.__doc__ is not None
    named = set(re.findall(r"``(\w+)``", Channel.__doc__))
    options = set(tables["penstock_channel_new"]) | set(tables['"tls" of a channel'])
    assert options <= named
    arguments = {"target", "options", "interceptors", "runtime", "resolver", "connector", "verifier", "picker"}
    arguments |= {"codec", "compressors"}
    assert named - options <= arguments | {"path"}


@pytest.mark.parametrize("name", READY)
def test_keywords_of_the_ready_made_are_their_options(tables: Dict[str, Dict[str, Any]], name: str) -> None:
    table = tables[FUNCTIONS.get(name, "penstock_ready_" + snake(name))]
    keywords = set(inspect.signature(getattr(ready, name)).parameters) - READY[name]
    assert {keyword if keyword in table else f"{keyword}_ms" for keyword in keywords} == set(table)


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize(
    ("title", "make"),
    [
        ("penstock_runtime_new", lambda options: Runtime(**options).shutdown()),
        ("penstock_channel_new", lambda options: Channel("x", options=options).close()),
    ],
)
def test_the_library_has_the_tables_bounds(tables: Dict[str, Dict[str, Any]], title: str, make: Any) -> None:
    tried = 0
    for key, row in tables[title].items():
        if row["type"] != "integer" or (title == "penstock_runtime_new" and key == "linger_us"):
            continue
        low, high = row["bounds"]
        # A default in words, such as "none", is no number that an option can be given.
        default = int(row["default"]) if row["default"].isdigit() else low
        assert low <= default <= high
        for good in (low, high, default):
            make({key: good})
        for bad in (low - 1, high + 1):
            with pytest.raises(penstock.InvalidArgumentError, match=f"an integer from {low} to {high}"):
                make({key: bad})
        tried += 1
    assert tried >= 2
