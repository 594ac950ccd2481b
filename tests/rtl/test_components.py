"""Rules that hold for all components."""

import ast
from pathlib import Path

import pytest

import concord_rtl

ROOT = Path(concord_rtl.__file__).parent


def set_on_self(tree):
    """Attributes that a component sets outside of ``__init__``, by line."""
    for component in ast.walk(tree):
        if isinstance(component, ast.ClassDef) and "Component" in "".join(map(ast.unparse, component.bases)):
            for method in component.body:
                if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                    for node in ast.walk(method):
                        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                            if ast.unparse(node.value) == "self":
                                yield node.lineno, node.attr


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_elaboration_leaves_nothing_behind(path):
    """A component can be elaborated again, and is what its constructor made it."""
    assert not list(set_on_self(ast.parse(path.read_text())))


def test_the_check_can_fail():
    text = "class A(wiring.Component):\n    def elaborate(self, m):\n        a = self.b = 1\n        self.c, d = 1, 2\n"
    assert list(set_on_self(ast.parse(text))) == [(3, "b"), (4, "c")]
