"""The modules of the package are in layers: they import from their own layer and from those below, without cycles."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path
from typing import Dict, Iterator, Set

import penstock

PACKAGE = Path(penstock.__file__).parent
# The modules of each layer, from the lowest layer to the highest.
LAYERS: Dict[str, str] = {
    "raw": "_constants _raw _raw.c_types _raw.calls _raw.functions _raw.hops _raw.library _raw.ready _raw.values",
    "handles": "_arguments _codec _connection _context _ctrl_c _encoding _errors _executor _fork _metadata _objects "
    "_reply _reports _resolver _status _verdict _version _wait _watch",
    "calls": "_call _keywords _method _options _side",
    "interceptors": "_c_interceptor _completion _hop _interceptor _picker _registration _request _sync _ticket "
    "_trampolines ready",
    "channel": "_channel _runtime",
}
HEIGHTS = {module: height for height, modules in enumerate(LAYERS.values()) for module in modules.split()}
# The package's __init__.py, which imports all public names, is above all layers.
HEIGHTS[""] = len(LAYERS)


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


def test_every_module_stands_in_a_layer() -> None:
    assert sorted(HEIGHTS) == sorted(modules())


def test_no_module_imports_from_a_layer_above() -> None:
    upward = [
        f"{module or 'penstock'} imports {imported or 'penstock'}"
        for module, others in graph().items()
        for imported in others
        if HEIGHTS[imported] > HEIGHTS[module]
    ]
    assert upward == []


def test_no_imports_make_a_circle() -> None:
    # Raises CycleError, which names the modules of the cycle.
    list(graphlib.TopologicalSorter(graph()).static_order())


def test_an_import_is_seen_wherever_it_stands() -> None:
    text = """
if TYPE_CHECKING:
    from .._channel import Channel
def later():
    from .. import _hop
    from . import library
    from .library import load
"""
    assert list(imports("_raw", text, set(modules()))) == ["_channel", "_hop", "_raw.library", "_raw.library"]
