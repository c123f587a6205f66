"""Checks facts about the shipped files: build/lib, the headers, and the files of `make install`.

Ends with `N passed, N failed`. Names on the command line choose facts by substring.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

import constants
import installs  # noqa: F401  its facts are added to the others
from facts import (
    CC,
    CXX,
    INCLUDE,
    LIB,
    ROOT,
    STRICT,
    SWIFT,
    dynamic,
    fact,
    facts,
    header_functions,
    listed_symbols,
    run,
    same,
    shared,
    version,
)

GLIBC_LIMIT = (2, 34)
# Systems with glibc 2.34 have nghttp2 1.43. This pattern matches newer functions of nghttp2, whose symbols have no versions.
NEWER_NGHTTP2 = r"rfc9113|extpri|priority_update|rate_limit|alpn|(mem_(send|recv)|submit_\w+|_callback)2$"
OLDER_NGHTTP2 = r"_(on_(invalid_)?header|error)_callback2$"
NEEDED = r"lib(c|nghttp2|ssl|crypto|jansson|z)\.so[.0-9]*|ld-linux-[\w-]+\.so[.0-9]*"
# A library in another program's process must call none of these (docs/abi.md, "No process-wide side effects"). getenv is
# called for the option "proxy" alone.
FORBIDDEN = {
    "_exit", "abort", "daemon", "execve", "exit", "fork", "fprintf", "printf", "putchar", "putenv", "puts",
    "secure_getenv", "setenv", "setlocale", "sigaction", "signal", "stderr", "stdout", "system", "unsetenv",
}


# ---- The shared library ----


@fact
def needs_only_the_named_libraries():
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic())
    print(f"  needs: {' '.join(needed)}")
    wrong = [name for name in needed if not re.fullmatch(NEEDED, name)]
    assert not wrong, f"also needs {wrong}"


@fact
def has_no_run_path():
    assert not re.search(r"\((RPATH|RUNPATH)\)", dynamic()), dynamic()


@fact
def soname_and_symlinks():
    major = version().split(".")[0]
    assert f"[libpenstock.so.{major}]" in re.search(r"\(SONAME\).*", dynamic()).group(0)
    for name in ("libpenstock.so", f"libpenstock.so.{major}"):
        assert (LIB / name).resolve() == shared().resolve(), name


@fact
def exports_are_the_checked_in_list():
    lines = run("nm", "-D", "--defined-only", "--without-symbol-versions", shared()).splitlines()
    # A is the kind of a version's name.
    exported = [line.split()[-1] for line in lines if " A " not in line]
    assert all(name.startswith("penstock_") for name in exported), exported
    same(exported, listed_symbols(), "exports against Tests/artefact/symbols.txt")


@fact
def every_export_has_the_version_of_the_abi():
    names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", shared()).splitlines() if " A " not in line]
    other = [name for name in names if not name.endswith("@@PENSTOCK_0.2")]
    assert names and not other, other


@fact
def every_header_function_is_in_the_list_and_the_other_way():
    same(header_functions(), listed_symbols(), "header against Tests/artefact/symbols.txt")
    assert listed_symbols() == sorted(listed_symbols()), "symbols.txt is not sorted"


@fact
def needs_no_newer_glibc():
    found = sorted({tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", run("readelf", "-VW", shared()))})
    print(f"  highest GLIBC: {'.'.join(map(str, found[-1]))}")
    assert found[-1] <= GLIBC_LIMIT, f"GLIBC_{found[-1]}: " + run("nm", "-D", "--undefined-only", shared())


@fact
def needs_no_newer_nghttp2():
    # A weak symbol may be missing in the nghttp2 of the system.
    symbols = [line.split()[-2:] for line in run("nm", "-D", "--undefined-only", shared()).splitlines()]
    assert ["w", "nghttp2_option_set_max_continuations"] in symbols, "not weak"
    names = {name for kind, name in symbols if kind == "U"}
    names = {name for name in names if name.startswith("nghttp2_")}
    newer = [name for name in names if re.search(NEWER_NGHTTP2, name) and not re.search(OLDER_NGHTTP2, name)]
    assert names and not newer, sorted(newer)


@fact
def stack_is_not_executable():
    flags = re.search(r"GNU_STACK.*", run("readelf", "-lW", shared())).group(0)
    assert " RW " in flags and "RWE" not in flags, flags


@fact
def full_relro_and_nodelete():
    assert "GNU_RELRO" in run("readelf", "-lW", shared())
    text = dynamic()
    assert re.search(r"FLAGS_1.*NOW", text) and "BIND_NOW" in text, text
    assert re.search(r"FLAGS_1.*NODELETE", text), text
    assert "TEXTREL" not in text, text


@fact
def imports_nothing_with_process_wide_effects():
    imported = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--undefined-only", shared()).splitlines()}
    assert not imported & FORBIDDEN, f"imports {sorted(imported & FORBIDDEN)}"


@fact
def objects_are_made_by_our_functions():
    # The functions of Sources/CPenstockEmbedded/references.c replace those of the Swift runtime by their names, which make
    # objects with posix_memalign. One that another compiler names otherwise would still be there.
    text = run("objdump", "-d", "--no-show-raw-insn", shared())
    callers = {found[1] for part in text.split("\n\n") if "<posix_memalign@plt>" in part.partition("\n")[2]
               and (found := re.search(r"^[0-9a-f]+ <(.+)>:$", part, re.M))}
    assert callers == {"swift_slowAlloc"}, callers


@fact
def constants_with_one_name_are_equal():
    # The compiler numbers the constants of a function. In Embedded mode a module may have copies of functions from modules
    # below it, whose constants it may number in another order; of those with one name the linker takes any.
    linked = next((ROOT / ".build/embedded").glob("*/release/penstock.product/Objects.LinkFileList"), None)
    assert linked, "no list of what was linked in .build/embedded"
    seen = constants.contents(path for path in linked.read_text().split() if "/Penstock" in path)
    assert seen, "no constants: the compiler gives them other names"
    differing = sorted(name for name, contents in seen.items() if len(contents) > 1)
    assert not differing, f"copies differ, so give their functions one array each: {differing}"


@fact
def abi_is_the_one_that_is_kept():
    run("scripts/abi")


@fact
def changes_of_the_abi_are_noticed():
    """A number, and a parameter, that scripts/abi has to tell from those in the kept ABI."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("include", "scripts"):
            shutil.copytree(ROOT / name, f"{folder}/{name}")
        header = pathlib.Path(folder, "include/penstock/base.h")
        text = header.read_text()
        for old, new, said in (("PENSTOCK_E_END              18", "PENSTOCK_E_END              19", "PENSTOCK_E_END' value='19'"),
                               ("penstock_version_json(char **json)", "penstock_version_json(char **json, int more)",
                                "parameter 2 of type 'int' was added")):
            assert old in text, old
            header.write_text(text.replace(old, new))
            done = subprocess.run([f"{folder}/scripts/abi"], capture_output=True, text=True, check=False)
            assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr


@fact
def version_is_one():
    text = version()
    header = (INCLUDE / "penstock/version.h").read_text()
    parts = [int(re.search(rf"PENSTOCK_VERSION_{part} +(\d+)", header).group(1)) for part in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(map(str, parts)) == text.removesuffix("-dev")
    number = int(re.search(r"PENSTOCK_VERSION_NUMBER +(0x[0-9a-fA-F]+)", header).group(1), 16)
    assert number == parts[0] << 16 | parts[1] << 8 | parts[2], hex(number)
    ask = "import ctypes, sys; l = ctypes.CDLL(sys.argv[1]); l.penstock_version.restype = ctypes.c_char_p; "
    ask += "print(l.penstock_version().decode(), l.penstock_version_number())"
    assert run(sys.executable, "-c", ask, shared()).split() == [text, str(number)]


# ---- The sources of the library ----


@fact
def every_export_is_cdecl_implementation():
    seen = []
    for path in sorted((ROOT / "Sources").rglob("*.swift")):
        if "penstock-peer" in path.parts:
            continue
        source = path.read_text()
        for match in re.finditer(r"@_cdecl\(\"(\w+)\"\)\s*(@implementation\b)?", source):
            where = f"{path.relative_to(ROOT)}:{source.count(chr(10), 0, match.start()) + 1}"
            assert match.group(2), f"{where}: {match.group(1)} without @implementation"
            assert "PenstockABI" in path.parts, f"{where}: an export outside PenstockABI"
            seen.append(match.group(1))
        assert not re.search(r"@_silgen_name|@_expose|@c\b", source), f"{path}: exports in another way"
    same(seen, header_functions(), "@_cdecl against the header")


# ---- The headers ----


def compile_header(header, compiler, language, standard):
    for text in (f'#include "{header}"\n', f'#include "{header}"\n#include "{header}"\n'):
        source = text + "extern int penstock_not_empty;\n"
        run(compiler, "-x", language, f"-std={standard}", *STRICT, "-I", INCLUDE, "-fsyntax-only", "-", input=source)


for path in sorted((INCLUDE / "penstock").glob("*.h")):
    for compiler, language, standard in ((CC, "c", "c99"), (CC, "c", "c11"), (CXX, "c++", "c++17")):

        def check(header=f"penstock/{path.name}", how=(compiler, language, standard)):
            compile_header(header, *how)

        facts.append((f"{path.name} compiles alone and twice as {standard}", check))


@fact
def initialisers_compile_in_c_and_cpp():
    source = """
    #include <penstock/penstock.h>
    int main(void) {
      penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
      penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
      return table.struct_size == sizeof(table) && callbacks.struct_size == sizeof(callbacks) &&
             table.on_start == 0 && callbacks.on_reply == 0 ? 0 : 1;
    }
    """
    with tempfile.TemporaryDirectory() as folder:
        for compiler, language, standard in ((CC, "c", "c99"), (CC, "c", "c11"), (CXX, "c++", "c++17")):
            out = f"{folder}/{standard}"
            run(compiler, "-x", language, f"-std={standard}", *STRICT, "-Wno-missing-field-initializers", "-I", INCLUDE,
                "-o", out, "-", input=source)
            run(out)


# ---- The archive ----

# A Swift host with classes, dictionaries, Unicode and its own reference counts.
SWIFT_HOST = r"""
import CPenstock

final class Box { var values: [String: Int] = [:] }
let box = Box()
for word in ["e\u{301}", "\u{e9}", "penstock"] { box.values[word, default: 0] += 1 }
precondition(box.values["\u{e9}"] == 2)
let boxes = (0..<1000).map { _ in box }
precondition(boxes.count == 1000)

var metadata: OpaquePointer?
precondition(penstock_metadata_new(&metadata) == PENSTOCK_OK)
precondition(penstock_metadata_set(metadata, "name", "value") == PENSTOCK_OK)
var json: UnsafeMutablePointer<CChar>?
precondition(penstock_metadata_json(metadata, &json) == PENSTOCK_OK)
print(String(cString: penstock_version()), String(cString: json!), box.values.count)
penstock_free(json)
penstock_metadata_release(metadata)
"""


@fact
def archive_is_one_object_with_only_our_names():
    archive = LIB / "libpenstock.a"
    assert len(run("ar", "t", archive).split()) == 1
    names = [line.split()[-1] for line in run("nm", "-g", "--defined-only", archive).splitlines() if len(line.split()) == 3]
    same(names, listed_symbols(), "global names of libpenstock.a")
    weak = set(re.findall(r" [VWvwu] (\S+)", run("nm", archive)))
    # A function of nghttp2 1.61; the library works without it.
    assert weak <= {"nghttp2_option_set_max_continuations"}, weak


def swift_host(*flags):
    with tempfile.TemporaryDirectory() as folder:
        source, out = pathlib.Path(folder, "main.swift"), pathlib.Path(folder, "host")
        source.write_text(SWIFT_HOST)
        libraries = run("pkg-config", "--libs", "libnghttp2", "libssl", "libcrypto", "jansson", "zlib").split()
        compiler = pathlib.Path(shutil.which(SWIFT)).with_name("swiftc")
        compiler = compiler if compiler.exists() else "swiftc"
        run(compiler, *flags, "-module-cache-path", f"{folder}/cache", "-I", INCLUDE, source, "-o", out,
            LIB / "libpenstock.a", *libraries)
        assert run(out).strip().endswith(" 2")


@fact
def archive_links_into_a_swift_program():
    swift_host()


@fact
def archive_links_beside_the_static_swift_runtime():
    swift_host("-static-stdlib")


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for name, check in facts:
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            check()
        except Exception as problem:
            failed += 1
            reason = str(problem) if isinstance(problem, AssertionError) else traceback.format_exc()
            print(f"FAILED: {name}\n  {reason}")
        else:
            passed += 1
            print(f"ok: {name}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
