"""Mutants: what could be one mistake in a source file."""

import ast
import functools
import hashlib
import os
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

TOKENS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "+=": "-=",
    "-=": "+=",
    "and": "or",
    "or": "and",
    "True": "False",
    "False": "True",
    "break": "continue",
    "continue": "break",
}
"""What takes the place of a token, in both languages."""
PYTHON_TOKENS = TOKENS | {
    "*": "//",
    "/": "*",
    "//": "*",
    "%": "//",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "min": "max",
    "max": "min",
}
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.And: "and",
    ast.Or: "or",
}
EXPLAINED = ROOT / "tests" / "survivors.txt"
"""Lines ``path | old -> new | the line of code | why no test can notice``; others are comments."""
LAYOUT = frozenset(
    {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}
)
DECLARATIONS = frozenset({"cdef", "cpdef", "ctypedef", "def", "class", "from", "import", "cimport", "@", "for"})
"""First words of lines of Cython that are left alone: there is little to notice but a compiler's error."""
LOGS = frozenset({"logger", "logging", "warnings"})


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a file: a function with all that is inside, a statement that an import executes, or the whole."""

    name: str
    """Of the function, or of the class around the statement, as in `__qualname__`."""
    line: int
    """Where it begins, its decorators included."""
    version: str
    """Of its text."""
    is_function: bool = False


@dataclass(frozen=True, slots=True)
class Mutant:
    """A piece of a file, and what takes its place."""

    path: str
    line: int
    column: int
    old: str
    new: str
    code: str
    """The whole line, without blanks around it."""
    unit: "Unit"
    """What has to change for it to be tried again."""
    statement: tuple[int, int] = (0, 0)
    """The first and the last line that are executed together with it; 0 for those that an import executes."""

    @property
    def key(self) -> str:
        place = f"{self.unit.name}:{self.line - self.unit.line}:{self.column}"
        return f"{self.path}:{place} {self.old} -> {self.new} {self.unit.version}"

    @property
    def is_replaceable(self) -> bool:
        """Whether it is in a function, whose code can be replaced: the new one may not do without `super`."""
        return self.unit.is_function and self.statement != (0, 0) and not self.old.startswith("super()")

    @property
    def explanation(self) -> str:
        """How the list of explained survivors names it."""
        return f"{self.path} | {' '.join(self.old.split())} -> {' '.join(self.new.split())} | {self.code}"

    def apply(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        begin = sum(map(len, lines[: self.line - 1])) + self.column
        return text[:begin] + self.new + text[begin + len(self.old) :]


@functools.cache
def explanations() -> frozenset[str]:
    """Return the mutants that are explained, as `Mutant.explanation` names them."""
    lines = EXPLAINED.read_text().splitlines()
    return frozenset(line.rpartition(" | ")[0] for line in lines if line and not line.startswith("#"))


def is_explained(mutant: Mutant) -> bool:
    """Whether the list says why no test can notice a mutant."""
    return mutant.explanation in explanations()


def version_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def compiled_mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a .pyx file. Operators stand between blanks: a `<` that does not begins a cast."""
    text = path.read_text()
    lines = text.splitlines()
    unit = Unit("", 0, version_of(text))
    first = ""
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type in LAYOUT:
            first = "" if token.type == tokenize.NEWLINE else first
            continue
        first = first or token.string
        if first in DECLARATIONS:
            continue
        (row, start), (_, end) = token.start, token.end
        line = lines[row - 1]
        if line.strip() == "return 0":  # "no error", as is every other number but -1
            continue
        between_blanks = line[start - 1 : start] in ("", " ") and line[end : end + 1] in ("", " ", ":", ")")
        new = TOKENS.get(token.string) if between_blanks else None
        if token.type == tokenize.NUMBER:
            new = str(int(token.string, 0) + 1) if token.string.isalnum() else None
        if new is not None:
            code = line.strip()
            yield Mutant(os.path.relpath(path, ROOT), row, start, token.string, new, code, unit)


def python_mutants(path: Path) -> list[Mutant]:
    """All mutants of a Python file, in their order.

    Operators, numbers and truth values are replaced, conditions negated, and calls whose result is not used removed.
    What is said, to people or to a type checker, is left alone: texts, log lines, errors that are raised, annotations.
    """
    finder = _Finder(path)
    finder.visit(ast.parse(finder.text))
    return sorted(finder.found, key=lambda it: (it.line, it.column, it.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: Path) -> None:
        self.text = path.read_text()
        self.found: list[Mutant] = []
        self._path = os.path.relpath(path, ROOT)
        self._lines = self.text.splitlines(keepends=True)
        self._statement = (0, 0)
        self._inside = 0
        self._names: list[str] = []
        """Of the classes around."""
        self._unit = Unit("", 0, "")

    # --- where it is -------------------------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt) and not self._inside:
            self._unit = self._unit_of(node)
        elif isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            first = body[0].lineno if isinstance(body, list) and body else None
            end = node.end_lineno or node.lineno
            self._statement = (node.lineno, end if first is None else max(first - 1, node.lineno))
        super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        statement = self._statement
        for child in ast.iter_child_nodes(node):
            self.visit(child)
            self._statement = statement

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """What stands outside of the body is executed with the definition."""
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)  # of the unit of the function, and executed by the import
        self._inside += 1
        for statement in node.body:
            self.visit(statement)
        self._inside -= 1
        self._statement = (0, 0) if not self._inside else self._statement

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  as `ast` names them

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def _unit_of(self, node: ast.stmt) -> Unit:
        """Return what a statement outside of functions is: a function, or executed by the import."""
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        names = [*self._names, node.name] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else self._names
        decorators = getattr(node, "decorator_list", [])
        line = min([node.lineno, *(it.lineno for it in decorators)])
        text = self.text[self._offset(line, 0) : self._offset(node.end_lineno, node.end_col_offset)]
        return Unit(".".join(names), line, version_of(text), is_function)

    # --- what is left alone ------------------------------------------------------------------------------------------

    def _pass(self, node: ast.AST) -> None:
        """Leave a part alone."""

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = _pass  # noqa: N815  as `ast` names them

    def visit_keyword(self, node: ast.keyword) -> None:
        """Leave alone what only asserts something: the strictness of `zip`, and that nothing changes a model."""
        if node.arg not in ("strict", "frozen"):
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and ast.unparse(node.annotation) != "TypeAlias":
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            if ast.unparse(call.func).split(".")[0] in LOGS:
                return
            self._replace(node, "pass")
        self.generic_visit(node)

    # --- what is changed ---------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self._operator(left, operator, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._operator(left, node.op, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._operator(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._operator(node.target, node.op, node.value, "=")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, self._source(node.operand))
        elif isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            self._replace(node, "0" if node.operand.value else "1")
            return
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self._replace(node.func, PYTHON_TOKENS[node.func.id])
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return  # no test can notice what only a checker of types imports
        self._negate(node.test)
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If  # noqa: N815  as `ast` names them

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        """Negate the parts of a condition; a comparison has an opposite of its own."""
        if isinstance(test, ast.BoolOp):
            for part in test.values:
                self._negate(part)
        elif not isinstance(test, ast.Compare | ast.Constant) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            text = self._source(test)
            plain = isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            self._replace(test, f"not {text}" if plain else f"not ({text})")

    def _operator(self, left: ast.expr, operator: ast.AST, right: ast.expr, suffix: str = "") -> None:
        old = SYMBOLS.get(type(operator), "") + suffix
        new = PYTHON_TOKENS.get(old)
        if new is not None:
            begin = self._offset(left.end_lineno, left.end_col_offset)
            self._add(self.text.index(old, begin, self._offset(right.lineno, right.col_offset)), old, new)

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        self._add(self._offset(node.lineno, node.col_offset), self._source(node), new)

    def _source(self, node: ast.expr | ast.stmt) -> str:
        # `ast.get_source_segment` splits the whole text for each node.
        begin = self._offset(node.lineno, node.col_offset)
        return self.text[begin : self._offset(node.end_lineno, node.end_col_offset)]

    def _offset(self, line: int | None, column: int | None) -> int:
        """Return the place in the text; the columns of a tree are counted in bytes."""
        assert line is not None
        assert column is not None
        before = self._lines[line - 1].encode()[:column].decode()
        return sum(map(len, self._lines[: line - 1])) + len(before)

    def _add(self, offset: int, old: str, new: str) -> None:
        before = self.text[:offset]
        line = before.count("\n") + 1
        column = offset - (before.rfind("\n") + 1)
        code = self._lines[line - 1].strip()
        self.found.append(Mutant(self._path, line, column, old, new, code, self._unit, self._statement))
