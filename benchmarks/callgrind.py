"""Runs a program under callgrind, and reads the instruction counts from callgrind's output file."""

import collections
import pathlib
import re
import subprocess

CALL = re.compile(r"calls=(\d+)")
NAME = re.compile(r"(c?fn|c?ob|c?fl|fi|fe|cfi)=\((\d+)\)(?: (.*))?$")


class Profile:
    """`own`: for each (object, function), the instructions of the function itself. `calls`: how often one function calls
    another.

    Counts are floats, because those of `per_call` are.
    """

    def __init__(self):
        self.own = collections.Counter()
        self.calls = collections.Counter()

    def total(self):
        return sum(self.own.values())

    def per_call(self, shorter, calls):
        """The cost of one call: the difference between this run and the `shorter` one, divided by `calls`, the number of
        calls that this run made more."""
        result = Profile()
        for mine, less, into in ((self.own, shorter.own, result.own), (self.calls, shorter.calls, result.calls)):
            for key in mine.keys() | less.keys():
                into[key] = (mine[key] - less[key]) / calls
        return result


def read(path):
    """Reads a file of callgrind, whose format is in valgrind's manual, "Callgrind Format Specification"."""
    profile = Profile()
    names = {"fn": {}, "ob": {}}
    at = {"fn": "", "ob": "", "cfn": "", "cob": ""}
    is_call = False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            first = line[:1]
            if first.isdigit() or first in "+-*":
                if is_call:
                    is_call = False  # this line has the cost of the called function, which is counted there
                else:
                    profile.own[at["ob"], at["fn"]] += int(line.rsplit(None, 1)[1])
                continue
            named = NAME.match(line)
            if named:
                key, number, name = named.groups()
                if key in at:
                    known = names[key[-2:]]
                    if name:
                        known[number] = name.strip()
                    at[key] = known[number]
                    if key == "fn":
                        at["cob"] = at["ob"]
                    elif key == "ob":
                        at["cob"] = at["ob"]
                continue
            called = CALL.match(line)
            if called:
                profile.calls[(at["ob"], at["fn"]), (at["cob"], at["cfn"])] += int(called.group(1))
                at["cob"] = at["ob"]
                is_call = True
    return profile


def run(command, out, environment=None, timeout=300):
    """Runs `command` under callgrind, which writes `out`, and returns its profile."""
    done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-instr=no",
                           *map(str, command)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout[-3000:]}")
    profile = read(out)
    pathlib.Path(out).unlink()
    return profile
