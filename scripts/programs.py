"""Builds and runs the whole programs in the documents: each block behind `<!-- program: NAME -->`, in C, C++ or Python. One
in Swift has to be that of examples/swift, which the suite swift-packages builds and runs.

The program gets the address of a penstock-peer as its argument, and has to end with 0 and to print "you". Settings
behind the name:

    prints: TEXT        what it has to print instead
    fails: CODE         the server ends the first call with this status: once as an error alone, once behind headers
    server: tls         the server has the certificates that the page makes in its block behind `<!-- certificates -->`;
                        the program runs beside them
    also: c++           a program in C that is built and run as C++17, too
    warns: WHY          a program in Python in which warnings are no errors
    needs: PACKAGE ...  what pkg-config names, to build with
    files: PATH ...     files that are put beside the program; a .proto is given to the compiler for the language

A block behind `<!-- output: NAME -->` is what the program NAME of the same page has printed, apart from its numbers.
"""

import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
PROGRAM = re.compile(r"<!-- program: (\S+?)((?:; \w+: [^;>]+?)*) -->\s*```\w+\n(.*?)```", re.S)
OUTPUT = re.compile(r"<!-- output: (\S+) -->\s*```\w*\n(.*?)```", re.S)
CERTIFICATES = re.compile(r"<!-- certificates -->\s*```sh\n(.*?)```", re.S)
CODES = {"UNAUTHENTICATED": 16, "UNAVAILABLE": 14}
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")


def programs(text):
    """Each whole program of a document, as (name, settings, text)."""
    for name, settings, program in PROGRAM.findall(text):
        yield name, dict(re.findall(r"; (\w+): ([^;]+)", settings)), program


def outputs(text):
    """What a document says that its programs print, by their names."""
    return dict(OUTPUT.findall(text))


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=600, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} gave {done.returncode}:\n{done.stdout}")
    return done.stdout


class Peer:
    """A penstock-peer with these arguments, which ends with the block."""

    def __init__(self, *arguments):
        self.command = [str(ROOT / "build/bin/penstock-peer"), "--listen", "127.0.0.1:0", "--exit-with-stdin"]
        self.command += map(str, arguments)

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return json.loads(self.process.stdout.readline())["address"]

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(10)


def failing(code, begins, folder):
    """The script of a server that ends the first call with a status, and then serves."""
    script = folder / "failing.script"
    answer = "answer\ntrailers\n" if begins == "headers" else "trailers\n  :status: 200\n  content-type: application/grpc\n"
    script.write_text("connection 1\nhandshake\nexpect headers\nexpect end\ngoaway NO_ERROR last=current\n"
                      f"{answer}  grpc-status: {CODES[code]}\n\nconnection others\nserve\n")
    return script


def certificates(text, folder):
    """Runs the block of a document that makes certificates; returns the options of a peer that has them."""
    run("bash", "-ec", CERTIFICATES.search(text)[1], cwd=folder)
    files = {"--cert": "server.pem", "--key": "server.key", "--client-ca": "ca.pem"}
    return ["--tls", *(part for option, file in files.items() for part in (option, folder / file))]


def build(name, text, settings, folder, prefix):
    """Builds a program; returns the command that runs it, and its environment."""
    source = folder / name
    source.write_text(text)
    environment = dict(os.environ, PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig", LD_LIBRARY_PATH=f"{prefix}/lib",
                       PYTHONPATH=str(ROOT / "bindings/python/src"), PYTHONDONTWRITEBYTECODE="1",
                       PENSTOCK_LIBRARY=f"{prefix}/lib/libpenstock.so")
    if name.endswith(".py"):
        return [PYTHON, *([] if "warns" in settings else ["-W", "error"]), source], environment
    plus, made = name.endswith(".cc"), []
    for path in settings.get("files", "").split():
        made += beside(ROOT / path, plus, folder)
    flags = run("pkg-config", "--cflags", "--libs", "penstock", *settings.get("needs", "").split(), env=environment).split()
    compiler = [os.environ.get("CXX", "c++"), "-std=c++17"] if plus else [os.environ.get("CC", "cc")]
    run(*compiler, *WARNINGS, f"-I{folder}", source, *made, *flags, "-pthread", "-o", folder / "program", env=environment)
    return [folder / "program"], environment


def beside(path, plus, folder):
    """Puts a file beside the program; returns the sources that a .proto becomes."""
    if path.suffix != ".proto":
        (folder / path.name).write_bytes(path.read_bytes())
        return []
    if plus:
        run("protoc", f"--cpp_out={folder}", f"-I{path.parent}", path)
        return [folder / f"{path.stem}.pb.cc"]
    run("protoc-c", f"--c_out={folder}", f"-I{path.parent}", path)
    return [folder / f"{path.stem}.pb-c.c"]


def problem(name, settings, text, page, folder, prefix, target):
    """Builds and runs a program of `page`; says what is wrong with it, or None."""
    if "also" in settings:
        settings = {key: value for key, value in settings.items() if key != "also"}
        wrong = problem(f"{pathlib.Path(name).stem}.cc", settings, text, page, folder, prefix, target)
        if wrong:
            return wrong
    if name.endswith(".swift"):
        example = pathlib.Path("examples/swift", pathlib.Path(name).stem, "main.swift")
        return None if (ROOT / example).read_text() == text else f"{name} is not {example}"
    output = outputs(page).get(name)
    try:
        command, environment = build(name, text, settings, folder, prefix)
        printed = []
        if settings.get("server") == "tls":
            with Peer(*certificates(page, folder)) as other:
                printed.append(run(*command, other, env=environment, cwd=folder))
        elif "fails" not in settings:
            printed.append(run(*command, target, env=environment))
        else:
            for begins in ("error", "headers"):
                with Peer("--script", failing(settings["fails"], begins, folder)) as other:
                    printed.append(run(*command, other, env=environment))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return error
    wanted = settings.get("prints", "you")
    for text in printed:
        if wanted not in text:
            return f"{name} printed {text!r}, without {wanted!r}"
        if output is not None and without_numbers(text) != without_numbers(output):
            return f"{name} printed other text than the page says:\n{text}"
    return None


def without_numbers(text):
    """Of an output, what is the same in each run: numbers and blanks at the ends of lines are not."""
    return re.sub(r"[ \t]+$", "", re.sub(r"[\d,.]*\d", "N", text.strip()), flags=re.M)
