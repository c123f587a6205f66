#!/usr/bin/env python3
"""Finds the silent defaults of base classes: a method or property of a class that may have subclasses, whose body does
nothing or is a constant. Each either stops test builds (`mustOverride`), or its comment says what happens "by default"."""
import pathlib
import re
import sys

CLASS = re.compile(r"^(?:@\S+ )*(?:public |open |fileprivate |private )*class (\w+)\b(?!\()")
MEMBER = re.compile(r"^(?P<words>(?:[@\w()]+ )*)(?:func|var) (?P<name>\w+).*\{ ?(?P<body>[^{}]*?) ?\}$")
CONSTANT = re.compile(r"^(?:|nil|true|false|self|-?\d+|\"\"|\[\]|\.\w+)$")
FIXED = {"final", "private", "fileprivate", "static", "override"}


def faults(path: pathlib.Path, indent: str = "  ") -> list[str]:
    """The silent defaults of one file, whose classes stand at its top, or one deeper."""
    found, name, depth, comment = [], None, "", ""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        start = line[: len(line) - len(line.lstrip())]
        if name and line == depth + "}":
            name = None
        elif match := CLASS.match(text):
            name, depth = match[1], start
        if text.startswith("///"):
            comment += " " + text[3:].strip()
            continue
        if name and start == depth + indent:
            whole = text if text.endswith("}") else text + " " + "".join(lines[number : number + 1]).strip()
            match = MEMBER.match(whole)
            if match and not FIXED & set(match["words"].split()) and CONSTANT.match(match["body"]):
                if "by default" not in comment.lower():
                    found.append(f"{path}:{number}: {name}.{match['name']} is a silent default")
        comment = ""
    return found


if __name__ == "__main__":
    every = [fault for path in sorted(pathlib.Path("Sources").rglob("*.swift")) for fault in faults(path)]
    print("\n".join(every), end="\n" if every else "")
    sys.exit(bool(every))
