"""Small changes of a module, each on its own: what a slip of the pen, or an attacker with commit rights, would do."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_ARITHMETIC: Final = (ast.BinOp, ast.operator, ast.Constant)
"""Of these alone is one number, such as ``4 * 1024``."""
_CALLS: Final = {"any": "all", "all": "any", "min": "max", "max": "min"}
_METHODS: Final = {"fullmatch": "match", "startswith": "endswith", "endswith": "startswith"}
_TRANSPARENT_METHODS: Final = frozenset({"lower", "removeprefix", "removesuffix"})
_MESSAGE_CALLS: Final = frozenset(
    {
        "Refused",
        "Deferred",
        "Malformed",
        "Check",
        "_Step",
        "_Group",
        "_BuiltinStep",
        "_BuiltinGroup",
        "NoInformation",
        "NotAnsweredYet",
        "NotApplicable",
        "KeyContradicted",
        "Unclear",
    }
)
_MESSAGE_METHODS: Final = frozenset({"integer", "octets", "sized", "malformed"})
"""Of those that read structures: each is told the name of what it reads, for its message."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    path: Path
    function: str
    """Qualified name of the function whose body changed; empty when the change is outside of any."""
    original: str
    source: str

    @property
    def key(self) -> str:
        """How ``equivalent.txt`` names it: the changed lines, without their numbers."""
        removed, added = (
            " ".join(line[1:].strip() for line in self._changes() if line.startswith(sign)) for sign in "-+"
        )
        return f"{self.path}: {removed} => {added}"

    @property
    def diff(self) -> str:
        """A unified diff."""
        return "\n".join(self._unified(context=2))

    def _changes(self) -> list[str]:
        return [line for line in self._unified(context=0) if not line.startswith(("---", "+++", "@@"))]

    def _unified(self, context: int) -> list[str]:
        name = str(self.path)
        lines = (self.original.splitlines(), self.source.splitlines())
        return list(difflib.unified_diff(*lines, name, name, lineterm="", n=context))


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of the module at ``path``, in the order of its lines."""
    original = path.read_text("utf-8")
    found = _Walk(original)
    found.visit(ast.parse(original))
    return [Mutant(path, function, original, source) for function, source in dict.fromkeys(found.mutations)]


class _Walk(ast.NodeVisitor):
    """Collects pairs of function name and mutated source."""

    def __init__(self, source: str) -> None:
        self._lines = source.encode("utf-8").splitlines(keepends=True)
        self._scope: list[str] = []
        self._function = ""
        self._in_message = 0
        self.mutations: list[tuple[str, str]] = []

    def _replace(self, node: ast.stmt | ast.expr, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        before = b"".join(self._lines[:first]) + self._lines[first][: node.col_offset]
        behind = self._lines[last][node.end_col_offset :] + b"".join(self._lines[last + 1 :])
        self.mutations.append((self._function, (before + text.encode("utf-8") + behind).decode("utf-8")))

    def _swap(self, node: ast.expr, replacement: ast.expr) -> None:
        self._replace(node, f"({ast.unparse(replacement)})")

    # Where we are

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outermost = not self._function
        if outermost:
            self._function = ".".join([*self._scope, node.name])
        for statement in node.body:
            self.visit(statement)
        if outermost:
            self._function = ""
        for default in (*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)):
            self.visit(default)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        text = ast.unparse(node)
        if not isinstance(node.value, ast.Constant) and not text.startswith("_LOG."):  # a docstring, a line of the log
            if not text.startswith("super()"):  # without it the function has other free variables
                self._replace(node, "pass")
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) != "__all__":
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and ast.unparse(node.annotation) != "TypeAlias":
            self.visit(node.value)

    # Statements

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")
        self._in_message += 1
        self.generic_visit(node)
        self._in_message -= 1

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass")

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    # Expressions

    def _negate(self, test: ast.expr) -> None:
        self._swap(test, ast.UnaryOp(ast.Not(), test))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._swap(node, ast.BoolOp(other, node.values))
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            self._swap(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._swap(node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if all(isinstance(part, _ARITHMETIC) for part in ast.walk(node)):
            self._replace(node, f"({ast.unparse(node)} + 1)")
            self._replace(node, f"({ast.unparse(node)} - 1)")
            return
        other = _OPERATORS.get(type(node.op))
        if other is not None and not isinstance(node.left, ast.JoinedStr):
            self._swap(node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)]()
            self._swap(
                node, ast.Compare(node.left, [*node.ops[:index], other, *node.ops[index + 1 :]], node.comparators)
            )
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "TypeVar":
            return
        if name in _CALLS:
            self._swap(node, ast.Call(ast.Name(_CALLS[name]), node.args, node.keywords))
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _METHODS:
                method = ast.Attribute(node.func.value, _METHODS[node.func.attr])
                self._swap(node, ast.Call(method, node.args, node.keywords))
            if node.func.attr in _TRANSPARENT_METHODS:
                self._swap(node, node.func.value)
        # The words of a message are the author's; everything else in the call is looked at.
        in_message = name in _MESSAGE_CALLS or (
            isinstance(node.func, ast.Attribute) and node.func.attr in _MESSAGE_METHODS
        )
        self._in_message += in_message
        self.generic_visit(node)
        self._in_message -= in_message

    def _elements(self, node: ast.Tuple | ast.List | ast.Set) -> Iterator[ast.expr]:
        for index in range(len(node.elts)):
            rest = node.elts[:index] + node.elts[index + 1 :]
            if isinstance(node, ast.Set):
                yield ast.Set(rest) if rest else ast.Call(ast.Name("set"), [], [])
            else:
                yield type(node)(rest, ast.Load())

    def _visit_elements(self, node: ast.Tuple | ast.List | ast.Set) -> None:
        if isinstance(node, ast.Set) or isinstance(node.ctx, ast.Load):
            for replacement in self._elements(node):
                self._swap(node, replacement)
        self.generic_visit(node)

    visit_Tuple = visit_List = visit_Set = _visit_elements  # noqa: N815

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        if not isinstance(node.slice, ast.Tuple):  # a generic type
            self.visit(node.slice)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """The pieces of a formatted text are no constants of their own."""

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value))
        elif isinstance(value, int):
            self._replace(node, str(value + 1))
            self._replace(node, f"({value - 1})")
        elif isinstance(value, bytes):
            self._replace(node, repr(b"X" + value))
        elif isinstance(value, str) and not self._in_message:
            self._replace(node, repr(f"X{value}"))
