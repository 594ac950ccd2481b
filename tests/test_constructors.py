"""Constructors store what they get, and check it: to compute and to read is for methods, properties and functions."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Calls that read or write files.
FILES = frozenset(
    {"open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink", "iterdir", "glob"}
)
#: Calls that keep a part where a library asks for it.
KEEPING = frozenset({"add_module", "register_buffer", "__setattr__"})
#: Classes that hold what is open from their constructor on: a port, a file, a library, a server, workers.
HOLDERS = frozenset("CompiledDesign Connection Dump Engine Member NpzReader PageServer SerialTransport".split())
#: Classes whose constructor computes; no new ones.
COMPUTING = frozenset(
    """CProgram ExactProgram LaneAnalysis LoopPlaces PythonNodes RecurrentModule TrainableNetwork
    _Cell _Emitter _Grouper _Problem""".split()
)


def called(node):
    """Name of the function or method that a call is of; empty for what is no call."""
    match node:
        case ast.Call(func=ast.Name(name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
        case _:
            return ""


def stores(statement):
    """True if a statement checks a value, keeps it or gives it a name."""
    match statement:
        case ast.Assign(targets=[ast.Name()]):
            return True
        case ast.If(body=body, orelse=[]):
            return all(isinstance(part, ast.Raise) for part in body)
        case ast.Expr(value=value):
            return called(value) in KEEPING or called(value).startswith("require")
        case _:
            return False


def computes(constructor):
    """Lines of a constructor that do more than to store and to check."""
    for node in ast.walk(constructor):
        match node:
            case ast.While() | ast.With() | ast.Try():
                yield node.lineno
            case ast.For(iter=ast.Tuple(elts=few) | ast.List(elts=few)) if not any(
                isinstance(x, ast.Starred) for x in few
            ):
                pass
            case ast.For(body=body) if not all(map(stores, body)):
                yield node.lineno
            case ast.Call() if called(node) in FILES:
                yield node.lineno
            case _:
                pass


def computing_classes(source):
    """Lines of the constructors of a source that compute, by the name of the class."""
    return {
        node.name: lines
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__" and (lines := [*computes(method)])
    }


@pytest.mark.slow
def test_constructors_only_store():
    files = [path for folder in ("sw", "hw") for path in sorted((ROOT / folder).rglob("*.py"))]
    computing = [name for path in files for name in computing_classes(path.read_text(encoding="utf-8"))]
    assert sorted(computing) == sorted(HOLDERS | COMPUTING)


@pytest.mark.parametrize(
    "statement",
    [
        "for x in xs: self.total += x",
        "for x in (*xs, 1): self.f(x)",
        "while self.step(): pass",
        "with lock: self.x = x",
        "try: self.x = int(x)\n        except ValueError: pass",
        "self.file = open(x)",
        "self.text = x.read_text()",
        "if x: x.mkdir()",
        "for x in xs:\n            if x: self.f(x)",
    ],
)
def test_constructors_that_compute_are_noticed(statement):
    source = "class A:\n    def METHOD(self, x):\n        self.x = x\n        " + statement
    assert [*computing_classes(source.replace("METHOD", "__init__"))] == ["A"]
    assert not computing_classes(source.replace("METHOD", "run"))


def test_constructors_may_store_and_check():
    lines = [
        "super().__init__()",
        "self.x, self.of = x, {name: f(name) for name in x}",
        "for name in x: require_integer('name', name)",
        "for name in x:\n            low = f(name)\n            if low < 0: raise ValueError(low)",
        "for key, part in x.items(): self.add_module(key, part)",
        "for part in (self.a, self.b): part['f'] = 0",
    ]
    assert not computing_classes("class A:\n    def __init__(self, x):\n        " + "\n        ".join(lines))
