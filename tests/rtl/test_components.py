# amaranth: UnusedElaboratable=no

"""Rules that hold for all components."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from amaranth import unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

import concord_rtl
from concord_rtl.parts.component import Component, Input, Output, PortTable

ROOT = Path(concord_rtl.__file__).parent


def set_on_self(tree):
    """Attributes that a component sets outside of ``__init__``, by line."""
    for component in ast.walk(tree):
        if isinstance(component, ast.ClassDef):
            methods = [part for part in component.body if isinstance(part, ast.FunctionDef)]
            for method in methods if "elaborate" in [method.name for method in methods] else ():
                if method.name != "__init__":
                    for node in ast.walk(method):
                        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                            if ast.unparse(node.value) == "self":
                                yield node.lineno, node.attr


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_elaboration_leaves_nothing_behind(path):
    """A component can be elaborated again, and is what its constructor made it."""
    assert not list(set_on_self(ast.parse(path.read_text())))


def test_the_check_can_fail():
    text = "class A(Component):\n    def elaborate(self, m):\n        a = self.b = 1\n        self.c, d = 1, 2\n"
    assert list(set_on_self(ast.parse(text))) == [(3, "b"), (4, "c")]


BASES = (wiring.Component, wiring.Signature)


def components():
    """Every class of the generator that is derived from an Amaranth component or signature."""
    for info in pkgutil.walk_packages([str(ROOT)], "concord_rtl."):
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and issubclass(value, BASES) and value.__module__ == info.name:
                yield value


def faults_of_ports(component):
    """What is wrong with the way in which a component states its ports."""
    if not issubclass(component, PortTable):
        yield "does not have a table of ports"
        return
    if "__annotations__" in vars(component) and set(component.ports()) & set(component.__annotations__):
        yield "states a port a second time, as an annotation"
    if re.search(
        r"^ *Members$", (ast.get_docstring(ast.parse(inspect.getsource(component)).body[0]) or ""), re.MULTILINE
    ):
        yield "states ports a second time, in its docstring"
    for name, port in component.ports().items():
        if not re.fullmatch(r"[A-Z0-9`:].*[.]|[A-Z`:].*, as are:", port.text):
            yield f"does not say in a sentence what {name} is"
        if f"\n{name} : {port.flow}\n    {port.text}" not in (component.__doc__ or ""):
            yield f"does not have {name} in its documentation"


@pytest.mark.slow
@pytest.mark.parametrize("component", [*components()], ids=lambda component: component.__name__)
def test_ports_are_stated_once(component):
    assert not list(faults_of_ports(component))


def test_all_components_are_looked_at():
    assert len([*components()]) >= 100


class Twice(Component):
    """Two faults.

    Members
    -------
    i : In(1)
        Value.
    """

    i: Any
    i = Input(1, "Value.")
    o = Output(1, "no sentence")


def test_the_check_of_ports_can_fail():
    assert len(list(faults_of_ports(Twice))) == 3
    assert list(faults_of_ports(wiring.Component))


class Stage(Component):
    """A stage with an output of as many bits as it is told, if any."""

    i = Input(lambda self: unsigned(self.bits), "Value.")
    ready = Output(1, "Ready at once.", init=lambda self: self.bits & 1)
    o = Output(lambda self: self.bits, "Value of the cycle before.", when=lambda self: self.bits > 1)

    def __init__(self, bits):
        self.bits = bits
        super().__init__({"more": In(2)})


class Later(Stage):
    """Another port, and one that is different."""

    last = Output(3, "Last.")
    i = Input(4, "Four bits.")


def test_signatures_follow_the_table():
    wide, narrow, later = Stage(7), Stage(1), Later(2)
    members = {"i": In(unsigned(7)), "ready": Out(1, init=1), "o": Out(7), "more": In(2)}
    assert dict(wide.signature.members.items()) == members
    assert list(narrow.signature.members) == ["i", "ready", "more"]
    assert dict(later.signature.members.items())["i"] == In(4)
    assert list(later.signature.members) == ["i", "ready", "o", "last", "more"]
    assert wide.i.shape() == unsigned(7) and wide.o.shape() == unsigned(7)
    assert "Four bits." in Later.__doc__ and "Last." in Later.__doc__ and "Value of the cycle before." in Later.__doc__


def test_a_port_that_a_configuration_lacks_is_named():
    with pytest.raises(AttributeError, match="Stage has no port 'o' in this configuration"):
        _ = Stage(1).o
