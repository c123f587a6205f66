"""Small mistakes in one line of Python: finds the possible ones in a file, and writes the file with one of them."""

import ast
import dataclasses

COMPARISONS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}
SUMS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


@dataclasses.dataclass(frozen=True)
class Mutant:
    operator: str
    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def key(self):
        """A name for the mutant that does not depend on the line's number."""
        return f"{self.path}: {' '.join(self.old.split())} -> {self.new}"

    def made(self, text):
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


class Finder(ast.NodeVisitor):
    """Finds the mutants of a file. Annotations, docstrings and code for type checkers are left unchanged, because they do
    not run."""

    def __init__(self, path, text):
        self.path, self.text, self.found = path, text, []
        self.lines = [0]
        for line in text.encode().split(b"\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)

    def add(self, operator, node, new):
        start = self.lines[node.lineno - 1] + node.col_offset
        end = self.lines[node.end_lineno - 1] + node.end_col_offset
        old = self.text.encode()[start:end].decode()
        self.found.append(Mutant(operator, self.path, node.lineno, start, end, old, new))

    # ---- The parts that are visited ----

    def visit_arg(self, node):
        pass

    def visit_AnnAssign(self, node):  # noqa: N802
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node):  # noqa: N802
        pass

    def visit_FunctionDef(self, node):  # noqa: N802
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self.body(node.body)

    def visit_ClassDef(self, node):  # noqa: N802
        self.body(node.body)

    def visit_Module(self, node):  # noqa: N802
        self.body(node.body)

    def body(self, statements):
        for statement in statements:
            self.visit(statement)

    def visit_If(self, node):  # noqa: N802
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.condition(node)

    # ---- The mistakes ----

    def condition(self, node):
        self.add("condition", node.test, f"(not ({ast.unparse(node.test)}))")
        self.generic_visit(node)

    visit_While = visit_IfExp = condition

    def visit_Compare(self, node):  # noqa: N802
        if len(node.ops) == 1:
            swapped = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
            self.add("comparison", node, f"({ast.unparse(swapped)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node):  # noqa: N802
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add("logic", node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node):  # noqa: N802
        if isinstance(node.op, ast.Not):
            self.add("logic", node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node):  # noqa: N802
        if type(node.op) in SUMS:
            other = ast.BinOp(node.left, SUMS[type(node.op)](), node.right)
            self.add("constant", node, f"({ast.unparse(other)})")
        self.generic_visit(node)

    def visit_Constant(self, node):  # noqa: N802
        if isinstance(node.value, bool):
            self.add("constant", node, str(not node.value))
        elif isinstance(node.value, (int, float)):
            self.add("constant", node, f"({node.value + 1})")
            self.add("constant", node, f"({node.value - 1})")

    def visit_Return(self, node):  # noqa: N802
        # No mutant for a return of False, 0 or an empty value: most code treats None in the same way, and the
        # operator `constant` changes such a value already.
        if node.value is not None and not (isinstance(node.value, ast.Constant) and not node.value.value):
            self.add("return", node, "return None")
        self.generic_visit(node)

    def visit_Expr(self, node):  # noqa: N802
        if isinstance(node.value, ast.Constant):
            return
        self.add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node):  # noqa: N802
        self.add("statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node):  # noqa: N802
        self.add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node):  # noqa: N802
        # Without its assignment a name is missing, which every test notices.
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self.add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node):  # noqa: N802
        self.add("statement", node, "pass")


def mutants(path, text):
    """All mutants of a file."""
    finder = Finder(path, text)
    finder.visit(ast.parse(text))
    return finder.found
