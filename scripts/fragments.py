"""Finds the code blocks of a document that are not whole programs, and makes programs of them: a block in C is put between
Tests/docs/prelude.h and main.h, one in Python into fragment.py. scripts/check-docs runs them against a server.

A comment before a block in C says which object its `state` is: `<!-- state: counter -->`. A block of statements without a
function is the body of an on_start.
"""

import re

BLOCK = re.compile(r"(?:<!-- ([^>]*) -->\s*)?```(c|python)\n(.*?)```", re.S)
CALLBACKS = ("create", "destroy", "on_start", "on_send", "on_headers", "on_receive", "say_what_hangs")


def fragments(text):
    """Each block that is not a whole program, as (line, language, settings, text)."""
    for match in BLOCK.finditer(text):
        marker = match.group(1) or ""
        if marker.startswith("program:"):
            continue
        settings = dict(re.findall(r"(\w+): ([\w |&.]+)", marker))
        yield text[: match.start()].count("\n") + 1, match.group(2), settings, match.group(3)


def c_source(text, settings):
    """The C program for the block `text`."""
    if not re.search(r"^(static|int|typedef)\b", text, re.M):
        text = ("static int32_t on_start(penstock_hop *hop, void *state) {\npenstock_ticket ticket = 0;\n"
                f"penstock_channel *channel = NULL;\npenstock_interceptor_id id = 0;\n{text}\nreturn PENSTOCK_NEXT;\n}}\n")
    defines = [f"#define HAS_{name}" for name in CALLBACKS if re.search(rf"^static \w+ {name}\(", text, re.M)]
    state = settings.get("state", "nothing")
    defines.append(f"#define STATE {state if state == 'nothing' else '(void *)&' + state}")
    return '#include "prelude.h"\n' + "\n".join(defines) + f'\n{text}\n#include "main.h"\n'
