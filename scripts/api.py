#!/usr/bin/env python3
"""What the public headers declare.

    api.py functions    every function, sorted
    api.py names        every function, type, constant and macro, sorted
    api.py prototypes   "return type|name|parameters" per function, in header order
    api.py flaws        what does not keep the rules for names in docs/abi.md; exit status 1 if there is something
"""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include" / "penstock"
# Headers that `flaws` does not look at yet.
LATER = {"async.h", "hop.h", "interceptor.h", "ready.h", "sync.h"}


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
    """JSON that is returned is kept by what never changes, else it is the caller's; and no `get_` before a value's name."""
    flaws = []
    if re.search(r"_get_\w", name):
        flaws.append(f"{name}: a getter has the name of the value")
    if name.endswith("_json") and not re.search(r"_(from|set)_json$", name):
        kept = returns == "const char *" and re.fullmatch(r"const penstock_(reply|error) \*\w+", parameters)
        given = returns == "penstock_result" and parameters.endswith(", char **json")
        if not kept and not given:
            flaws.append(f"{name}: neither returns what a reply or an error keeps nor ends with char **json")
    return flaws


def flaws(header: str) -> list[str]:
    return [flaw for prototype in prototypes(without_comments(header)) for flaw in flaws_of_name(*prototype)]


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
        lines = [flaw for path in sorted(INCLUDE.glob("*.h")) if path.name not in LATER for flaw in flaws(path.read_text())]
    else:
        print(__doc__, file=sys.stderr)
        return 2
    if lines:
        print("\n".join(lines))
    return 1 if what == "flaws" and lines else 0


if __name__ == "__main__":
    sys.exit(main())
