"""Rules that hold for all components."""

import ast
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring

import concord_rtl
from concord.spec.presets import TINY, UP5K
from concord_rtl.core.top import NpuTop

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


KINDS = {"Signal": Value, "data.View": data.View, "stream.Interface": stream.Interface}


def parts(member):
    """A member, or what an array of members holds."""
    return [part for item in member for part in parts(item)] if isinstance(member, list) else [member]


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY.replace(name="fed", inbox=256), UP5K], ids=lambda config: config.name)
def test_members_are_what_annotations_say(config, monkeypatch):
    """The type checker knows members from annotations, Amaranth from the signature."""
    seen = set()
    construct = wiring.Component.__init__

    def compare(self, *args):
        construct(self, *args)
        for name in self.signature.members:
            said = type(self).__annotations__.get(name, "Any")
            for part in parts(getattr(self, name)):
                flipped = isinstance(part, wiring.FlippedInterface)
                assert isinstance(wiring.flipped(part) if flipped else part, KINDS.get(said, object)), (self, name)
            seen.add(said)

    monkeypatch.setattr(wiring.Component, "__init__", compare)
    rtlil.convert(NpuTop(config))
    assert seen >= set(KINDS)
