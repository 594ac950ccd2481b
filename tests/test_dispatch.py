"""What depends on a class is decided by ``match``, or by a dict looked up with ``type(x)``."""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Tests of the class of a value, one after the other, that ``match`` says better.
CHAIN = 3
LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break


def subject(condition):
    """The value whose class a condition tests first; ``None`` if it tests something else."""
    match condition:
        case ast.Call(func=ast.Name("isinstance"), args=[value, _]):
            return ast.unparse(value)
        case ast.BoolOp(op=ast.And(), values=[first, *_]):
            return subject(first)
        case _:
            return None


def branches(statement):
    """The values that the conditions of an ``if`` and its ``elif`` test."""
    while True:
        yield subject(statement.test)
        match statement.orelse:
            case [ast.If() as statement]:
                pass
            case _:
                return


def runs(body):
    """Values tested one after the other, by the ``elif`` of one statement, or by several that leave the block."""
    run = []
    for statement in body:
        match statement:
            case ast.If(orelse=[]) if isinstance(statement.body[-1], LEAVES):
                run.append(subject(statement.test))
            case ast.If():
                yield [*run, *branches(statement)]
                run = []
            case _:
                yield run
                run = []
    yield run


def loops(node):
    """Lines of a loop, or a comprehension, that asks for one class of a list after the other."""
    match node:
        case ast.For(target=target):
            targets = [target]
        case ast.GeneratorExp(generators=generators) | ast.ListComp(generators=generators):
            targets = [generator.target for generator in generators]
        case _:
            return
    names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Name("isinstance"), args=[ast.Name(), ast.Name(kind)]) if kind in names:
                yield part.lineno


def third_ways(source):
    """Lines of a source that decide by class in neither of the two ways."""
    lines = set()
    for node in ast.walk(ast.parse(source)):
        lines.update(loops(node))
        match node:
            case ast.Name(name) | ast.Attribute(attr=name) | ast.alias(name) if name.startswith("singledispatch"):
                lines.add(node.lineno)
            case ast.Module() | ast.stmt() | ast.ExceptHandler() | ast.match_case():
                for body in (getattr(node, "body", []), getattr(node, "orelse", [])):
                    for run in runs(body):
                        counts = Counter(value for value in run if value is not None)
                        lines.update(body[0].lineno for count in counts.values() if count >= CHAIN)
            case _:
                pass
    return sorted(lines)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["sw", "hw"])
def test_classes_decide_in_one_of_two_ways(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files and not {str(f): lines for f in files if (lines := third_ways(f.read_text(encoding="utf-8")))}


THIRD_WAYS = {
    "generic function": "@functools.singledispatch\ndef f(x): pass",
    "generic method": "from functools import singledispatchmethod",
    "loop": "for kind, rule in RULES.items():\n    if isinstance(x, kind):\n        rule(x)",
    "search": "rule = next(rule for kind, rule in RULES if isinstance(x, kind))",
    "elif": "if isinstance(x, A): f()\nelif isinstance(x, B) and y: g()\nelif isinstance(x, C): h()",
    "elif in a function": "def f():\n    if y: f()\n    elif isinstance(x, A): f()\n    elif isinstance(x, B): g()\n"
    "    elif isinstance(x, C): h()",
    "returns": "def f():\n    if isinstance(x, A): return 1\n    if isinstance(x, B): return 2\n"
    "    if isinstance(x, C): raise E\n    return 3",
    "return and elif": "def f():\n    if isinstance(x, A): return 1\n    if isinstance(x, B): y()\n"
    "    elif isinstance(x, C): z()",
    "after a loop": "for x in y: pass\nelse:\n    if isinstance(x.a, A): f()\n    elif isinstance(x.a, B): g()\n"
    "    elif isinstance(x.a, C): h()",
}


@pytest.mark.parametrize("source", THIRD_WAYS.values(), ids=THIRD_WAYS)
def test_third_ways_are_noticed(source):
    assert third_ways(source)
    assert not third_ways(source.replace("singledispatch", "dispatch").replace("isinstance(x", "accepts(x"))


def test_other_conditions_are_allowed():
    assert not third_ways("if isinstance(x, A): f()\nelif isinstance(x, B): g()\nelse: h()")
    assert not third_ways("if isinstance(x, A): f()\nelif isinstance(y, B): g()\nelif isinstance(z, C): h()")
    assert not third_ways("if isinstance(x, A): f()\nif isinstance(x, B): g()\nif isinstance(x, C): h()")
    assert not third_ways(
        "for name, kind in FIELDS:\n    if not isinstance(getattr(self, name), kind): raise TypeError"
    )
