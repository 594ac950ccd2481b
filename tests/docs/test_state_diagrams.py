"""State diagrams of the pages have the states and the transitions of the sources."""

import ast
import re

import pytest

from concord.spec.docs import ROOT

#: Pages with diagrams, and the folders of which they show all state machines.
PAGES = {"feeder.md": "hw/concord_rtl/feeder"}

DIAGRAM = re.compile(r"```mermaid\n---\ntitle: (\w+)\n---\nstateDiagram-v2\n(.*?)```", re.S)
ARROW = re.compile(r"^    (\S+) --> (\w+)(?:: .+)?$", re.M)


def diagrams(text):
    """Arrows of the diagrams of a page, by name of the component; the first state has one from ``[*]``."""
    return {name: arrows(body) for name, body in DIAGRAM.findall(text)}


def arrows(body):
    """Pairs of states; every line of a diagram is an arrow, and none is there twice."""
    pairs = ARROW.findall(body)
    assert len(pairs) == len(set(pairs)) == len(body.splitlines())
    return set(pairs)


def is_state(node):
    call = node.items[0].context_expr if isinstance(node, ast.With) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) == "m.State"


def targets(node, methods):
    """States that statements go to, also in methods of the component that they call."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "m.next":
            yield ast.literal_eval(part.value)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in methods:
            if ast.unparse(part.func.value) == "self":
                yield from targets(methods[part.func.attr], methods)


def machines(text):
    """The same of the components of a source that have a state machine."""
    machines = {}
    for component in ast.parse(text).body:
        if isinstance(component, ast.ClassDef):
            methods = {node.name: node for node in component.body if isinstance(node, ast.FunctionDef)}
            states = [node for node in ast.walk(component) if is_state(node)]
            names = [ast.literal_eval(node.items[0].context_expr.args[0]) for node in states]
            pairs = {(name, to) for name, node in zip(names, states, strict=True) for to in targets(node, methods)}
            if first := next((with_ for with_ in ast.walk(component) if is_machine(with_)), None):
                start = next(ast.literal_eval(n.items[0].context_expr.args[0]) for n in first.body if is_state(n))
                machines[component.name] = pairs | {("[*]", start)}
    return machines


def is_machine(node):
    return isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr) == "m.FSM()"


@pytest.mark.parametrize("page", PAGES)
def test_diagrams_are_those_of_the_sources(page):
    sources = sorted((ROOT.parent / PAGES[page]).glob("*.py"))
    want = {name: pairs for path in sources for name, pairs in machines(path.read_text()).items()}
    assert want and diagrams((ROOT / page).read_text()) == want


SOURCE = """
class A(wiring.Component):
    def elaborate(self, platform):
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.go):
                    m.next = "WORK"
            with m.State("WORK"):
                self._end(m)

    def _end(self, m):
        m.next = "IDLE"
"""


def test_transitions_of_a_source():
    assert machines(SOURCE) == {"A": {("[*]", "IDLE"), ("IDLE", "WORK"), ("WORK", "IDLE")}}


@pytest.mark.parametrize("wrong", ["IDLE: never", "--> WORK", "    IDLE --> WORK"])
def test_a_line_that_is_no_arrow_or_is_there_twice(wrong):
    text = f"```mermaid\n---\ntitle: A\n---\nstateDiagram-v2\n    IDLE --> WORK: go\n{wrong}\n```"
    with pytest.raises(AssertionError):
        diagrams(text)
