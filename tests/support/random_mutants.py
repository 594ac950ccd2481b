"""Random changes of one token of Python sources, as a slip would make them, on lines that changed since a commit.

Not in docstrings, annotations, messages and imports, nor where only a name for readers or a check of the programmer
(``strict=True``, ``frozen=True``) would be another.
"""

from __future__ import annotations

import ast
import random
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS = {
    ast.Lt: ("<", "<=", ">="), ast.LtE: ("<=", "<", ">"), ast.Gt: (">", ">=", "<="), ast.GtE: (">=", ">", "<"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"), ast.Pow: ("**", "*"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"),
}  # fmt: skip
_PAIRS = (
    ("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("floor", "ceil"), ("sum", "max"),
    ("zeros", "ones"), ("first", "last"), ("left", "right"), ("lower", "upper"), ("low", "high"),
)  # fmt: skip
_NAMES = dict(_PAIRS) | {b: a for a, b in _PAIRS}
#: Keywords that only readers and programmers see.
_READ = {"strict", "stacklevel", "frozen", "slots", "kw_only", "repr", "name", "names", "src_loc_at", "help", "metavar"}
#: Calls whose arguments are messages.
_TELLING = {"print", "say", "warn", "echo", "note", "secho"}


@dataclass(frozen=True, order=True)
class Change:
    """Bytes ``[begin, end)`` of a source, and what takes their place."""

    begin: int
    end: int
    new: str


def _called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


class _Finder(ast.NodeVisitor):
    """Collects the changes of a source."""

    def __init__(self, text: bytes):
        self.text, self.found = text, []
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self.starts = starts

    def begin(self, node):
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node):
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def source(self, node):
        return self.text[self.begin(node) : self.end(node)].decode()

    def add(self, begin, end, new):
        self.found.append(Change(begin, end, new))

    def between(self, left, right, old, news):
        """A token between two nodes."""
        begin, end = self.end(left), self.begin(right)
        pattern = re.sub(r" ", r"\\s+", re.escape(old).replace(r"\ ", " "))
        if match := re.search(pattern.encode(), self.text[begin:end]):
            for new in news:
                self.add(begin + match.start(), begin + match.end(), new)

    def negated(self, test):
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            simple = isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            text = self.source(test)
            self.add(self.begin(test), self.end(test), f"not {text}" if simple else f"not ({text})")

    def visit_Compare(self, node):
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            old, *news = _COMPARISONS[type(op)]
            self.between(left, right, old, news)
        self.generic_visit(node)

    def visit_BinOp(self, node):
        text = isinstance(node.left, ast.JoinedStr) or isinstance(getattr(node.left, "value", None), str)
        if type(node.op) in _OPERATORS and not text:
            old, *news = _OPERATORS[type(node.op)]
            self.between(node.left, node.right, old, news)
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        if type(node.op) in _OPERATORS:
            old, *news = _OPERATORS[type(node.op)]
            if not self.source(node.target).startswith("m.d"):  # statements of Amaranth are only ever added
                self.between(node.target, node.value, f"{old}=", [f"{new}=" for new in news])
            self.add(self.begin(node), self.end(node), "pass")
        self.visit(node.value)

    def visit_BoolOp(self, node):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, old, [new])
            self.add(self.begin(left), self.begin(right), "")
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        self.add(self.begin(node), self.begin(node.operand), "")
        self.visit(node.operand)

    def visit_Constant(self, node):
        if isinstance(node.value, bool):
            self.add(self.begin(node), self.end(node), str(not node.value))
        elif isinstance(node.value, int):
            self.add(self.begin(node), self.end(node), str(node.value + 1))
            if node.value > 0:
                self.add(self.begin(node), self.end(node), str(node.value - 1))
        elif isinstance(node.value, float):
            self.add(self.begin(node), self.end(node), str(2 * node.value if node.value else 1.0))

    def visit_Call(self, node):
        name = _called(node)
        if name in _TELLING:
            return
        if name in _NAMES:
            self.add(self.end(node.func) - len(name), self.end(node.func), _NAMES[name])
        first, second, *_ = (*node.args, None, None)
        names = ast.Name | ast.Attribute
        if isinstance(first, names) and isinstance(second, names) and self.source(first) != self.source(second):
            middle = self.text[self.end(first) : self.begin(second)].decode()
            swapped = f"{self.source(second)}{middle}{self.source(first)}"
            self.add(self.begin(first), self.end(second), swapped)
        arguments = sorted([*node.args, *node.keywords], key=self.begin)
        for before, argument in zip([None, *arguments], arguments, strict=False):
            if isinstance(argument, ast.keyword) and argument.arg and argument.arg not in _READ:
                if before is not None:
                    self.add(self.end(before), self.end(argument), "")
                elif len(arguments) == 1:
                    self.add(self.begin(argument), self.end(argument), "")
        self.generic_visit(node)

    def visit_keyword(self, node):
        if node.arg not in _READ:
            self.visit(node.value)

    def visit_Subscript(self, node):
        if isinstance(node.slice, ast.Slice):
            for bound in (node.slice.lower, node.slice.upper):
                if bound is not None:
                    self.add(self.begin(bound), self.end(bound), "")
        self.generic_visit(node)

    def visit_If(self, node):
        if "TYPE_CHECKING" not in self.source(node.test):
            self.negated(node.test)
            self.generic_visit(node)

    def visit_While(self, node):
        self.negated(node.test)
        self.generic_visit(node)

    visit_IfExp = visit_While

    def visit_comprehension(self, node):
        for test in node.ifs:
            self.negated(test)
        self.generic_visit(node)

    def visit_Break(self, node):
        self.add(self.begin(node), self.end(node), "continue")

    def visit_Continue(self, node):
        self.add(self.begin(node), self.end(node), "break")

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call) and _called(node.value) not in _TELLING:
            self.add(self.begin(node), self.end(node), "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node):
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        if node.name not in ("__repr__", "__str__"):
            for child in node.body:
                self.visit(child)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node):
        for child in node.body:
            self.visit(child)

    def visit_Assert(self, node):
        """Says what holds."""

    def visit_Raise(self, node):
        """Says what is wrong."""

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Raise


def _parsed(text: str) -> str | None:
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return None


def made(text: bytes, change: Change) -> str:
    """A source with a change in it."""
    return (text[: change.begin] + change.new.encode() + text[change.end :]).decode()


def changes(text: str) -> list[Change]:
    """All changes of a source, in their order; some may have no effect, and some may be no Python."""
    finder = _Finder(text.encode())
    finder.visit(ast.parse(text))
    return sorted(set(finder.found))


def fitting(text: str, change: Change) -> tuple[str, str]:
    """Whole lines around a change that are in a source once, and what takes their place."""
    data = text.encode()
    begin = data.rfind(b"\n", 0, change.begin) + 1
    end = data.find(b"\n", change.end)
    end = len(data) if end < 0 else end
    while begin and data.count(data[begin:end]) > 1:
        begin = data.rfind(b"\n", 0, begin - 1) + 1
    old = data[begin:end].decode()
    new = (data[begin : change.begin] + change.new.encode() + data[change.end : end]).decode()
    while old[0] == new[0] == " ":
        if text.count(old[1:]) > 1:
            break
        old, new = old[1:], new[1:]
    return old, new


def changed_lines(since: str, root: Path, folders: Iterable[str]) -> dict[str, list[int]]:
    """Lines of Python sources that are not as they were at a commit, by file."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", since, "--", *folders]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"since must be a commit, not {since!r}: {done.stderr.strip()}")
    found: dict[str, list[int]] = {}
    file = ""
    for line in done.stdout.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/")
        elif (match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)) and file.endswith(".py"):
            first, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, []).extend(range(first, first + count))
    return {file: lines for file, lines in found.items() if lines}


def draw(lines: dict[str, list[int]], root: Path, count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Random changes, each on a line of its own: file, old text, new text.

    A line is drawn among those that can be changed, then one of its changes. What a line has drawn depends on its text
    and its file alone, so that edits elsewhere leave most of a draw as it is.
    """
    places = []
    for file in sorted(lines):
        text = (root / file).read_text()
        data, rows, by_line = text.encode(), text.split("\n"), {}
        for change in changes(text):
            by_line.setdefault(data.count(b"\n", 0, change.begin) + 1, []).append(change)
        for line in sorted(by_line.keys() & set(lines[file])):
            order = random.Random(f"{seed} {file} {rows[line - 1].strip()}")
            places.append((order.random(), file, line, order, by_line[line]))
    for _, file, _, order, choices in sorted(places, key=lambda place: place[:3]):
        if count == 0:
            return
        text = (root / file).read_text()
        plain = _parsed(text)
        good = [c for c in choices if _parsed(made(text.encode(), c)) not in (None, plain)]
        if good:
            count -= 1
            yield (file, *fitting(text, order.choice(good)))
