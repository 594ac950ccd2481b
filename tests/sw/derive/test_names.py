"""Names of inputs, outputs and layers are anything that ONNX allows: derived software keeps every layer apart."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive.model import derive_package
from concord.graph.ir import Graph, Node
from support.derived_backends import emulated_flags, every
from support.derived_modules import emulated, same
from support.expressions import ROOMY

pytestmark = pytest.mark.slow

#: Layers whose names are one after Python's normalisation of identifiers (NFKC), or after characters were replaced.
TWINS = {
    "ligature": ("fi", "\ufb01"),
    "micro": ("\u00b5", "\u03bc"),
    "full width": ("abc", "\uff41\uff42\uff43"),
    "replaced": ("a/b", "a.b"),
    "case": ("Layer", "layer"),
}
#: Names that a file of Python cannot have as they are, or that derived files use themselves.
ODD = (
    *(
        "a\0b",
        "x\u00b2",
        "\u2460",
        "a\nb",
        "a\rb",
        "a\u2028b",
        '"""',
        "\\",
        "'",
        "{0}",
        "%s",
        " ",
        "\u202e",
        "\x1b[31m",
    ),
    *("flags", "self", "forward", "training", "count", "model", "run", "np", "inputs", "class", "None", "samples"),
    *("part", "outputs", "layer_a", "W", "load", "compute", "t", "host_softmax", "constants", "c0", "half", "name"),
    *("Flags", "a 3 layer"),  # the value of an output, and the function of the layer that makes it
)


def network(first="first", second="second", x="x", y="y", table="tanh", host=True):
    """Two products with weights of their own and a table, with or without a softmax on the host."""
    rng = np.random.default_rng(3)
    attrs = [{"weight": rng.normal(0, 1, (4, 4)), "bias": rng.normal(0, 1, 4)} for _ in range(2)]
    nodes = [
        Node("Dense", first, (x,), ("a 1",), attrs[0]),
        Node("Dense", second, ("a 1",), ("a 2",), attrs[1]),
        Node("Function", table, ("a 2",), ("a 3" if host else y,), {"functions": (("tanh", {}),)}),
    ]
    if host:
        nodes.append(Node("Softmax", "softmax", ("a 3",), (y,), {"axis": 1}))
    shapes = dict.fromkeys((x, *(node.outputs[0] for node in nodes)), (1, 4))
    graph = Graph("a network", nodes, [x], [y], shapes, set(shapes))
    graph.check()
    return graph


def compare(graph, backend, folder):
    """The derived file of a network, with flags, beside the emulator."""
    package = compile_graph(graph, ROOMY).package
    model = derive_package(package, flags=True)
    inputs = {graph.inputs[0]: np.random.default_rng(4).uniform(-6e4, 6e4, (5, 4))}
    outputs, flags = backend(model, folder, inputs)
    arrangement = package.arrangement
    inside = arrangement.unpack(emulated(package.image, arrangement.pack(inputs)), 5)
    want = inside | package.host_outputs(inputs, inside)
    same(
        {name: outputs[name] for name in want if name in outputs},
        {name: x for name, x in want.items() if name in outputs},
    )
    assert set(graph.outputs) <= set(outputs)
    assert flags == emulated_flags(package.image, arrangement.pack(inputs))
    assert flags, "these inputs overflow binary16"


@every
@pytest.mark.parametrize("names", TWINS.values(), ids=TWINS)
def test_layers_with_names_that_are_alike(names, backend, tmp_path):
    """Each has a function of its own, whichever of them comes first."""
    for number, (first, second) in enumerate((names, names[::-1])):
        (folder := tmp_path / str(number)).mkdir()
        compare(network(first, second), backend, folder)


@every
@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_odd_names(odd, backend, tmp_path):
    """Of layers, inputs and outputs, of the NPU and of the host."""
    for number, names in enumerate([{"first": odd, "y": odd, "host": False}, {"table": odd, "y": odd}, {"x": odd}]):
        (folder := tmp_path / str(number)).mkdir()
        compare(network(**names), backend, folder)
