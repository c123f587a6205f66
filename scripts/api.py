#!/usr/bin/env python3
"""What the public headers declare.

    api.py functions    every function, sorted
    api.py names        every function, type, constant and macro, sorted
    api.py prototypes   "return type|name|parameters" per function, in header order
"""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include" / "penstock"


def text() -> str:
    parts = []
    for path in sorted(INCLUDE.glob("*.h")):
        parts.append(re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S))
    return "\n".join(parts)


def prototypes(source: str) -> list[tuple[str, str, str]]:
    found = []
    for match in re.finditer(r"^PENSTOCK_API\s+([^;{]+?)\b(penstock_\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;",
                             source, flags=re.M):
        returns, name, parameters = (" ".join(part.split()) for part in match.groups())
        found.append((returns, name, parameters))
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
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
