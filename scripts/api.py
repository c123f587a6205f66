#!/usr/bin/env python3
"""Lists and checks the declarations in the public headers.

    api.py functions    every function, sorted
    api.py names        every function, type, constant and macro, sorted
    api.py prototypes   "return type|name|parameters" per function, in header order
    api.py flaws        violations of the rules for names and comments in docs/abi.md; exit status 1 if there are any
"""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include" / "penstock"


def without_comments(source: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", source, flags=re.S)


def text() -> str:
    return "\n".join(without_comments(path.read_text()) for path in sorted(INCLUDE.glob("*.h")))


def prototypes(source: str) -> list[tuple[str, str, str]]:
    found = []
    for match in re.finditer(r"^PENSTOCK_API\s+([^;{]+?)\b(penstock_\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;",
                             source, flags=re.M):
        returns, name, parameters = (" ".join(part.split()) for part in match.groups())
        found.append((returns, name, parameters))
    return found


def flaws_of_name(returns: str, name: str, parameters: str) -> list[str]:
    """Checks a function's name. A function named `..._json` returns JSON that a reply or an error keeps, or gives JSON to the
    caller. No getter has `get_` in its name."""
    flaws = []
    if re.search(r"_get_\w", name):
        flaws.append(f"{name}: a getter has the name of the value")
    if name.endswith("_json") and not re.search(r"_(from|set)_json$", name):
        kept = returns == "const char *" and re.fullmatch(r"const penstock_(reply|error) \*\w+", parameters)
        given = returns == "penstock_result" and re.search(r"(^|, )char \*\*json$", parameters)
        if not kept and not given:
            flaws.append(f"{name}: neither returns what a reply or an error keeps nor ends with char **json")
    return flaws


PARTS = ("result", "memory", "threads")


def flaws_of_comment(header: str, returns: str, name: str, parameters: str) -> list[str]:
    """Checks that each function has a comment with its purpose, then `result:` unless it returns void, `memory:` and
    `threads:`, which names each parameter except the function's own handle and `error`, and says how to free each
    object that it gives out."""
    wanted = PARTS[1:] if returns == "void" else PARTS
    found = re.search(rf"/\*((?:(?!\*/).)*)\*/\nPENSTOCK_API [^;(]*\b{name}\(", header, flags=re.S)
    if not found:
        return [f"{name}: no comment of its own"]
    text = re.sub(r"\n \* ?", "\n", found.group(1))
    what, *said = re.split(rf"^({'|'.join(PARTS)}): ", text, flags=re.M)
    flaws = []
    if not what.strip():
        flaws.append(f"{name}: its comment does not say what it does")
    if tuple(said[::2]) != wanted or not all(part.strip() for part in said[1::2]):
        flaws.append(f"{name}: its comment has {said[::2]}, not {list(wanted)}")
    for at, parameter in enumerate(re.sub(r"\(\*(\w+)\)\(.*?\)", r"\1", parameters).split(",")):
        named = parameter.split()[-1].lstrip("*")
        is_handle = at == 0 and re.match(r"(const )?penstock_\w+ \*\w+$", parameter)
        if named not in ("void", "error") and not is_handle and not re.search(rf"\b{named}\b", text):
            flaws.append(f"{name}: its comment does not name {named}")
        memory = " ".join(dict(zip(said[::2], said[1::2])).get("memory", "").split())
        is_output = re.match(r"(?!const )\w+ \*\*", parameter.strip()) and named != "error"
        if is_output and not re.search(r"owned by the caller; free with penstock_\w*(free|release)\b", memory):
            flaws.append(f"{name}: memory does not say that *{named} is owned by the caller, and how to free it")
    return flaws


def flaws(header: str) -> list[str]:
    found = []
    for returns, name, parameters in prototypes(without_comments(header)):
        found += flaws_of_name(returns, name, parameters) + flaws_of_comment(header, returns, name, parameters)
    return found


def main() -> int:
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    source = text()
    if what == "functions":
        lines = sorted(name for _, name, _ in prototypes(source))
    elif what == "names":
        lines = sorted(set(re.findall(r"\b(?:penstock|PENSTOCK)_\w+", source)))
    elif what == "prototypes":
        lines = ["|".join(parts) for parts in prototypes(source)]
    elif what == "flaws":
        lines = [flaw for path in sorted(INCLUDE.glob("*.h")) for flaw in flaws(path.read_text())]
    else:
        print(__doc__, file=sys.stderr)
        return 2
    if lines:
        print("\n".join(lines))
    return 1 if what == "flaws" and lines else 0


if __name__ == "__main__":
    sys.exit(main())
