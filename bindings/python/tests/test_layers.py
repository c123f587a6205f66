"""The package's folders are its layers: a module imports from its own layer and from those below, without cycles."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path
from typing import Dict, Iterator, List, Set

import pytest

import penstock

PACKAGE = Path(penstock.__file__).parent
# The folders, and one module, from the lowest layer to the highest. The modules and folders beside them are the faces
# of the package, which only programs import.
LAYERS = ("_hooks", "_raw", "_handles", "_calls", "_interceptors", "_channels", "_aio")
FACES = {"", "__main__", "_cli", "_interpreter", "aio", "eventlet", "gevent", "grpc", "ready"}
# The modules of _calls that wait. The others, and the layers below, serve every style of call.
BLOCKING = {f"_calls.{name}" for name in ("blocking", "call", "caller", "green", "hubs", "side_channel", "wait")}


def height(module: str) -> int:
    folder = module.split(".")[0]
    return LAYERS.index(folder) if folder not in FACES else len(LAYERS)


def modules() -> Dict[str, Path]:
    """Each module's name within the package, and its file; the package itself is the empty name."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(package: str, text: str, names: Set[str]) -> Iterator[str]:
    """The modules of ``names`` that a module with the source ``text`` in ``package`` imports, also within functions
    and for type checkers only."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "penstock" for alias in node.names), "imports are relative"
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        parts = package.split(".") if package else []
        source = ".".join([*parts[: len(parts) + 1 - node.level], *(node.module or "").split(".")]).strip(".")
        for alias in node.names:
            inner = f"{source}.{alias.name}".strip(".")
            yield inner if inner in names else source


def graph() -> Dict[str, Set[str]]:
    files = modules()
    found = {}
    for module, file in files.items():
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        found[module] = set(imports(package, file.read_text(encoding="utf-8"), set(files))) - {module}
    return found


def upward(imported_by: Dict[str, Set[str]]) -> List[str]:
    return [
        f"{module or 'penstock'} imports {imported or 'penstock'}"
        for module, others in imported_by.items()
        for imported in others
        if height(imported) > height(module)
    ]


def test_every_module_stands_in_a_layer_or_is_a_face() -> None:
    assert {module.split(".")[0] for module in modules()} == {*LAYERS, *FACES}


def test_only_the_shim_leads_to_the_names_of_grpcio() -> None:
    outside = {module: others for module, others in graph().items() if module.split(".")[0] != "grpc"}
    known = {module for module, others in outside.items() if any(other.split(".")[0] == "grpc" for other in others)}
    assert known <= {""}


def test_the_command_uses_public_names_only() -> None:
    used = {other for module, others in graph().items() if module.split(".")[0] == "_cli" for other in others}
    assert {other for other in used if other.split(".")[0] != "_cli"} <= {"", "aio"}


def test_no_module_imports_from_a_layer_above() -> None:
    assert upward(graph()) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("_raw.values", "from .._handles.objects import own"),
        ("_handles.reply", "from .._calls import messages"),
        ("_calls.side", "def later():\n    from .._interceptors.hop import Hop"),
        ("_interceptors.hop", "from .._channels.channel import Channel"),
        ("_channels.channel", "from .. import ready"),
    ],
)
def test_an_import_from_a_layer_above_is_found(module: str, text: str) -> None:
    package = module.rpartition(".")[0]
    assert len(upward({module: set(imports(package, text, set(modules())))})) == 1


def test_what_serves_every_style_of_call_imports_nothing_that_waits() -> None:
    neutral = {module: others for module, others in graph().items() if height(module) <= LAYERS.index("_calls")}
    assert set(modules()) >= BLOCKING
    assert {module for module, others in neutral.items() if others & BLOCKING} <= BLOCKING


def test_no_imports_make_a_circle() -> None:
    # Raises CycleError, which names the modules of the cycle.
    list(graphlib.TopologicalSorter(graph()).static_order())


def test_an_import_is_seen_wherever_it_stands() -> None:
    text = """
if TYPE_CHECKING:
    from .._channels.channel import Channel
def later():
    from .._interceptors import hop
    from . import library
    from .library import load
"""
    found = list(imports("_raw", text, set(modules())))
    assert found == ["_channels.channel", "_interceptors.hop", "_raw.library", "_raw.library"]
