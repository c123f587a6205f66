"""The other mallocs for the suites: jemalloc, tcmalloc, and canary.c in this folder. The blocks of `canary` are exactly as
large as requested. Those of `hardened` are too, but it claims that they are larger.

`environment(NAME)` gives the additional environment variables of a program.
"""

import ctypes.util
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "Tests" / "memory"
NAMES = ("jemalloc", "tcmalloc", "canary", "hardened")
LIBRARIES = {"jemalloc": "jemalloc", "tcmalloc": "tcmalloc_minimal"}


def canary():
    """Builds the canary; gives its path."""
    library = ROOT / "build" / "memory" / "canary.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    # Other programs may be using the library, so it is not overwritten but replaced.
    fresh = library.with_name(f"canary-{os.getpid()}.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-g", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                    "-fno-builtin", "-pthread", str(HERE / "canary.c"), str(HERE / "refusal.c"), "-o", str(fresh)], check=True)
    fresh.rename(library)
    return str(library)


def environment(name):
    if name in LIBRARIES:
        library = ctypes.util.find_library(LIBRARIES[name])
        if not library:
            raise SystemExit(f"lib{LIBRARIES[name]} is not there: scripts/doctor --check\n0 passed, 1 failed")
        return {"LD_PRELOAD": library}
    return {"LD_PRELOAD": canary(), **({"CANARY_CLAIMS": "1"} if name == "hardened" else {})}
