"""Finds small mistakes that can be made in the sources, and writes all of them into one copy of the sources. Each is
inactive unless the environment variable PENSTOCK_MUTANT has its number. So 200 mutants need one build, not 200.

An operator of Swift is replaced by an operator of our own, spelled in mathematical signs, whose function checks the number.
"""

import re
import subprocess

MODULES = ("PenstockWire", "PenstockNames", "PenstockCall", "PenstockChannel", "PenstockLoop", "PenstockLink", "PenstockHTTP",
           "PenstockFraming", "PenstockTransport", "PenstockTickets", "PenstockClient", "PenstockReady", "PenstockJSON",
           "PenstockABI", "Penstock")

# A comparison is replaced by the one that differs for equal values, or by its opposite.
COMPARISONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
LOGIC = {"&&": ("||",), "||": ("&&",)}
SUMS = {"+": ("-",), "-": ("+",), "&+": ("&-",), "&-": ("&+",)}
BINARY = re.compile(r"(?<=[\w\)\]\}\"]) (<=|>=|==|!=|<|>|&&|\|\||&\+|&-|\+|-) (?=[\w\(\[\"\.!-])")
NOT = re.compile(r"(?<=[\s\(\[])!(?=[a-z])")
TRUTH = re.compile(r"\b(return|=) (true|false)\b")
STATEMENT = re.compile(r"^( {4,})((?:_ = )?[a-zA-Z_][\w\.!\?\[\]]*\([^{}]*\)|"
                       r"[a-z_][\w\.\[\]]* (?:[-+&]{0,2}=) [^={][^{}]*)$")
KEYWORDS = re.compile(r"^(return|if|guard|let|var|for|while|case|switch|else|throw|break|continue|func|init|defer|self\.init|"
                      r"super\.init|precondition|assert|fatalError|public|private|static|final)\b")
C_CONDITION = re.compile(r"^(\s+(?:\} else )?if) \((.*)\) (\{|return .*;|free\(.*;|break;|continue;)$")
C_STATEMENT = re.compile(r"^(\s+)((?:[a-z]\w*\(.*\)|[a-z][\w\->\.\[\]]*(?:\+\+|--)|[a-z][\w\->\.\[\]]* [-+]?= [^=].*);)$")


def seed(root):
    """The hash of the last commit: nobody could know it while the tests were written."""
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def masked(line):
    """The line with the contents of strings and comments blanked."""
    out, index, quoted = [], 0, False
    while index < len(line):
        char = line[index]
        if quoted:
            if char == "\\":
                out.append("  ")
                index += 2
                continue
            quoted = char != '"'
            out.append('"' if char == '"' else "_")
        elif char == '"':
            quoted = True
            out.append(char)
        elif line.startswith("//", index):
            break
        else:
            out.append(char)
        index += 1
    return "".join(out)


class Mutant:
    """A mistake: its place, and the old and the new text."""

    def __init__(self, path, line, start, end, kind, old, new):
        self.path, self.line, self.start, self.end = path, line, start, end
        self.kind, self.old, self.new = kind, old, new
        self.number = 0

    @property
    def module(self):
        return self.path.parts[1]

    def key(self, text):
        return f"{self.path} | {text.strip()} | {self.column(text)}{self.old} -> {self.new}"

    def column(self, text):
        """Its place among the equal operators of its line; empty if there is only one."""
        before = masked(text)[:self.start].count(f" {self.old} ")
        return f"{before + 1}: " if masked(text).count(f" {self.old} ") > 1 and self.kind == "binary" else ""


def swift_mutants(path, lines):
    in_comment = in_check = False
    for number, text in enumerate(lines):
        line = masked(text)
        bare = line.strip()
        # The checks of test builds are a part of the tests.
        in_check = bare == "#if PENSTOCK_CHECKS" or in_check and not bare.startswith(("#else", "#endif"))
        if in_check:
            continue
        if bare.startswith("/*"):
            in_comment = True
        if in_comment or bare.startswith(("@", "#", "import ", "infix ", "precondition", "assert", "typealias ")):
            in_comment = in_comment and "*/" not in bare
            continue
        generic = re.search(r"\bwhere [A-Z]|\bfunc [^(]*<", line)
        for found in BINARY.finditer(line):
            old = found.group(1)
            if generic:
                continue
            for new in {**COMPARISONS, **LOGIC, **SUMS}[old]:
                yield Mutant(path, number, found.start(1), found.end(1), "binary", old, new)
        for found in NOT.finditer(line):
            yield Mutant(path, number, found.start(), found.end(), "not", "!", "")
        for found in TRUTH.finditer(line):
            old = found.group(2)
            if not re.search(r"\b(var|let|func|init)\b|: Bool", line[:found.start()]):
                yield Mutant(path, number, found.start(2), found.end(2), "truth", old, "false" if old == "true" else "true")
        found = STATEMENT.match(line)
        if found and not KEYWORDS.match(found.group(2)) and line.count("(") == line.count(")"):
            if number and not masked(lines[number - 1]).rstrip().endswith((",", "(", "=", "&&", "||", "->", "[")):
                yield Mutant(path, number, found.start(2), len(text.rstrip()), "delete", found.group(2), "nothing")


def c_mutants(path, lines):
    for number, text in enumerate(lines):
        line = masked(text)
        found = C_CONDITION.match(line)
        if found:
            yield Mutant(path, number, found.start(2), found.end(2), "c-condition", found.group(2), "its opposite")
        found = C_STATEMENT.match(line)
        if found and not re.match(r"return\b|break;|case\b", found.group(2)):
            yield Mutant(path, number, found.start(2), found.end(2), "c-delete", found.group(2), "nothing")


def spelled(number):
    """A unique name for an operator."""
    return "".join(chr(0x2200 + digit) for digit in (number // 200, number % 200))


def written(mutant, text):
    """The line with the inactive mutant in it."""
    n, start, end = mutant.number, mutant.start, mutant.end
    if mutant.kind in ("binary", "not"):
        return text[:start] + spelled(n) + text[end:]
    if mutant.kind == "truth":
        return text[:start] + f"mutated({n}, {mutant.old})" + text[end:]
    if mutant.kind == "delete":
        return text[:start] + f"if !isMutant({n}) {{ {text[start:end]} }}" + text[end:]
    if mutant.kind == "c-condition":
        return text[:start] + f"!!({text[start:end]}) ^ is_mutant({n})" + text[end:]
    return text[:start] + f"if (!is_mutant({n})) {{ {text[start:end]} }}" + text[end:]


PRECEDENCE = {"<": "ComparisonPrecedence", "&&": "LogicalConjunctionPrecedence", "||": "LogicalDisjunctionPrecedence"}


def operator_of(mutant):
    """Swift's declaration of a mutant's operator."""
    name, n, old, new = spelled(mutant.number), mutant.number, mutant.old, mutant.new
    inline = "@inline(__always) "
    if mutant.kind == "not":
        return f"prefix operator {name}\n{inline}prefix func {name}(a: Bool) -> Bool {{ isMutant({n}) ? a : !a }}\n"
    if old in LOGIC:
        return (f"infix operator {name} : {PRECEDENCE[old]}\n{inline}func {name}(a: Bool, b: @autoclosure () -> Bool) -> Bool "
                f"{{ isMutant({n}) ? a {new} b() : a {old} b() }}\n")
    body = f"isMutant({n}) ? a {new} b : a {old} b"
    if old in SUMS:
        bound = "FixedWidthInteger" if "&" in old else "BinaryInteger"
        return (f"infix operator {name} : AdditionPrecedence\n"
                f"{inline}func {name}<T: {bound}>(a: T, b: T) -> T {{ {body} }}\n")
    text = f"infix operator {name} : ComparisonPrecedence\n"
    if old in ("==", "!="):
        text += f"{inline}func {name}<T: Equatable>(a: T, b: T) -> Bool {{ {body} }}\n"
        text += (f"@_disfavoredOverload {inline}func {name}<T>(a: T?, b: _OptionalNilComparisonType) -> Bool "
                 f"{{ {body} }}\n")
    else:
        text += f"{inline}func {name}<T: Comparable>(a: T, b: T) -> Bool {{ {body} }}\n"
    return text + (f"@_disfavoredOverload {inline}func {name}<A: BinaryInteger, B: BinaryInteger>(a: A, b: B) -> Bool "
                   f"{{ {body} }}\n")


C_SUPPORT = """#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
/* Whether a mutant is active. Mutants whose place is reached are marked in the file that PENSTOCK_MUTANTS_REACHED names. */
static inline int is_mutant(int mutant) {
  static int number = -1;
  static volatile char *reached;
  if (number < 0) {
    const char *text = getenv("PENSTOCK_MUTANT"), *path = getenv("PENSTOCK_MUTANTS_REACHED");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *place = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (place != MAP_FAILED) reached = place;
    number = text ? atoi(text) : 0;
  }
  if (reached) reached[mutant] = 1;
  return number == mutant;
}
"""


def swift_support(module, mutants):
    """The support file of a module for its mutants."""
    text = ["internal " * (module == "PenstockWire") + "import CPenstockMemory\n",
            "@inline(__always) func isMutant(_ number: Int32) -> Bool { is_mutant(number) != 0 }\n",
            "@inline(__always) func mutated(_ number: Int32, _ value: Bool) -> Bool { isMutant(number) ? !value : value }\n"]
    return "".join(text + [operator_of(mutant) for mutant in mutants if mutant.kind in ("binary", "not")])
