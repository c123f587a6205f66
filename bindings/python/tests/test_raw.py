"""The prototypes in _raw are exactly those of the headers."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from conftest import REPOSITORY
from penstock import _raw
from penstock._raw import constants as _constants
from penstock._raw.functions import PROTOTYPES

RAW = Path(_raw.__file__).parent


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def header_prototypes() -> Dict[str, Dict[str, str]]:
    """The prototypes of each header that declares functions: name to prototype."""
    found: Dict[str, Dict[str, str]] = {}
    for file in (REPOSITORY / "include/penstock").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", " ", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r"^#.*$", "", text.replace("\\\n", " "), flags=re.MULTILINE)
        for prototype in re.findall(r"PENSTOCK_API\s+([^;]+);", text):
            name = re.search(r"(penstock_\w+)\(", prototype)
            assert name is not None
            found.setdefault(file.name, {})[name.group(1)] = squeezed(prototype)
    return found


def commented_prototypes() -> Dict[str, Dict[str, str]]:
    """The prototypes in the comments above the declarations of _raw, by the header that the section's title names."""
    declaration = r"((?:^    # [^\n]*\n)+)    \"(\w+)\": \("
    found: Dict[str, Dict[str, str]] = {}
    for file in RAW.glob("*.py"):
        _, *sections = re.split(r"^    # ---- (\w+\.h) ----\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for header, section in zip(sections[::2], sections[1::2]):
            for comment, name in re.findall(declaration, section, re.MULTILINE):
                prototype = squeezed(comment.replace("# ", " ")).rstrip(";")
                found.setdefault(header, {})[name] = prototype
    return found


def parameters(prototype: str) -> List[str]:
    inside = prototype[prototype.index("(") + 1 : prototype.rindex(")")]
    depth, parts = 0, [""]
    for character in inside:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [] if parts == ["void"] else [part.strip() for part in parts]


def test_every_function_of_the_header_is_declared_and_no_other() -> None:
    declared = [name for functions in header_prototypes().values() for name in functions]
    assert sorted(PROTOTYPES) == sorted(declared)


def test_the_comments_are_the_header_s_prototypes() -> None:
    assert commented_prototypes() == header_prototypes()


SIZES = {
    "int32_t": ctypes.c_int32,
    "penstock_result": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "penstock_interceptor_id": ctypes.c_uint64,
    "penstock_ticket": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
}


@pytest.mark.parametrize(
    ("name", "prototype"), [each for functions in header_prototypes().values() for each in functions.items()]
)
def test_declared_types_fit_the_prototype(name: str, prototype: str) -> None:
    restype, *argtypes = PROTOTYPES[name]
    declared = parameters(prototype)
    assert len(argtypes) == len(declared)
    for parameter, argtype in zip(declared, argtypes):
        words = parameter.replace("const ", "").split()
        if "*" not in parameter and words[0] in SIZES:
            assert argtype is SIZES[words[0]], parameter
        elif parameter.count("*") == 1 and "char" in parameter:
            assert argtype is ctypes.c_char_p, parameter
        else:
            assert ctypes.sizeof(argtype) == ctypes.sizeof(ctypes.c_void_p), parameter
    returned = prototype[: prototype.index(name)].replace("const ", "").split()
    if returned == ["void"]:
        assert restype is None
    elif "*" in "".join(returned):
        assert restype in (ctypes.c_void_p, ctypes.c_char_p)
    else:
        assert restype is SIZES[returned[0]]


def test_bound_functions_have_their_types() -> None:
    for name, prototype in PROTOTYPES.items():
        function = getattr(_raw, name)
        assert (function.restype, *function.argtypes) == prototype


def test_what_the_package_calls_is_declared() -> None:
    used = set()
    for file in RAW.parent.glob("*.py"):
        used |= set(re.findall(r"_raw\.(penstock_\w+)", file.read_text(encoding="utf-8")))
    types = {name for name in used if not callable(getattr(_raw, name)) or isinstance(getattr(_raw, name), type)}
    assert used - types <= set(PROTOTYPES)


def test_constants_are_those_of_the_header() -> None:
    headers = (REPOSITORY / "include/penstock").glob("*.h")
    text = "\n".join(file.read_text(encoding="utf-8").replace("\\\n", " ") for file in headers)
    defined = {
        name: int(number)
        for name, number in re.findall(r"^#define\s+PENSTOCK_(\w+)\s+\(?(-?\d+)(?:u|\))?(?!\w)", text, re.MULTILINE)
    }
    ours = {name: value for name, value in vars(_constants).items() if name.isupper()}
    verdicts = ("NEXT", "PAUSE", "HOLD", "DROP", "TAKE", "RESTART", "SKIP")
    kinds = ("E_", "CONNECTION_", "CONNECTIVITY_", "EVENT_", "IDEMPOTENCY_", "KIND_", "LEVEL_", "MESSAGE_", "PICK_")
    expected = {
        name: number
        for name, number in defined.items()
        if name.startswith(kinds) or name in ("OK", "HEADERS_PASS", *verdicts)
    }
    assert ours == expected


def test_structures_have_the_compiler_s_layout(tmp_path: Path) -> None:
    structures: Tuple[Any, ...] = (
        _raw.penstock_interceptor,
        _raw.penstock_async_interceptor,
        _raw.penstock_sync_interceptor,
        _raw.penstock_codec_functions,
        _raw.penstock_call_callbacks,
    )
    lines = []
    for structure in structures:
        lines.append(f'printf("%zu\\n", sizeof({structure.__name__}));')
        for field in structure._fields_:
            lines.append(f'printf("%zu\\n", offsetof({structure.__name__}, {field[0]}));')
    source = tmp_path / "layout.c"
    body = "\n".join(lines)
    source.write_text(f"#include <penstock/penstock.h>\n#include <stdio.h>\nint main(void) {{\n{body}\n}}\n")
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{REPOSITORY / 'include'}", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    expected = []
    for structure in structures:
        expected.append(ctypes.sizeof(structure))
        expected += [getattr(structure, field[0]).offset for field in structure._fields_]
    assert [int(number) for number in printed] == expected
