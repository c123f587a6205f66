"""Keeps the sizes of other libraries' shared objects in benchmarks/figures/beside.json, and writes the documents.

    beside.py NAME FILE ...    adds or replaces the row of NAME: the sum of the files, stripped
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import document


def stripped(path):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "stripped"
        subprocess.run(["strip", "-o", copy, path], check=True)
        return copy.stat().st_size


def main():
    name, *files = sys.argv[1:]
    path = document.FIGURES / "beside.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found[name] = {"files": [pathlib.Path(file).name for file in files], "bytes": sum(map(stripped, files))}
    document.keep("beside", found)


if __name__ == "__main__":
    main()
