"""What the host computes behind the NPU has the bits of the driver on every backend, or is refused by name."""

from dataclasses import replace

import numpy as np
import pytest

import compiled_nets
from compiled_nets import ROOMY, graph_of
from concord.compiler.model import compile_graph
from concord.derive import evaluate
from concord.derive.model import derive_package
from concord.derive.tail import steps
from concord.graph.ir import Node
from concord.graph.ops import OPS, Kind
from concord.spec.presets import TINY
from derive_models import TAILS, samples
from derived_backends import every, networks
from derived_twins import same


@every
@pytest.mark.parametrize("name", TAILS)
def test_every_operator(name, backend, tmp_path):
    model = TAILS[name]()
    inputs = {key: np.nan_to_num(x, posinf=65504.0, neginf=-65504.0) for key, x in samples(model, 30, seed=5).items()}
    found, _ = backend(model, tmp_path, inputs)
    want = evaluate.run(model, inputs)
    same({key: found[key] for key in want}, want)


@every
def test_infinities_and_nans(backend, tmp_path):
    """Overflow within the NPU gives an infinity, of which a softmax makes NaN."""
    package = compile_graph(compiled_nets.grouped_softmax(), ROOMY).package
    arrangement = package.arrangement
    x = {name: np.full((2, *arrangement.shapes[name]), 65504.0) for name in arrangement.inputs}
    model = derive_package(package)
    found, _ = backend(model, tmp_path, x)
    with np.errstate(all="ignore"):
        want = evaluate.run(model, x)
    same({key: found[key] for key in want}, want)


@every
@pytest.mark.parametrize("count", [1, 5, 12])
def test_softmax_of_many_lengths(count, backend, tmp_path):
    rng = np.random.default_rng(count)
    dense = {"weight": rng.normal(0, 2, (count, 6)), "bias": rng.normal(0, 9, count)}
    nodes = [
        Node("Dense", "dense", ("x",), ("a",), dense),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
    ]
    networks(compile_graph(graph_of(nodes, x=(1, 6)), TINY).package, backend, tmp_path, 40)


def test_others_are_refused_by_name(tmp_path):
    """Whatever may follow a softmax is derived, or its name is in the message."""
    late = {name for name, one in OPS.items() if one.kind is not Kind.QUANTISED}
    derived = {"Softmax", "Reshape", "Transpose", "Concat", "Slice", "Add", "Sub", "Mul", "Max", "Min", "Relu", "Clip"}
    model = TAILS["tail"]()
    for op in sorted(late - derived - {"Function"}):
        node = Node(op, "the last", ("shares",), ("end",), {})
        tail = replace(model.tail, nodes=[*model.tail.nodes, node], shapes=model.tail.shapes | {"end": (1, 12)})
        with pytest.raises(ValueError, match=rf"operator {op} \(the last\)"):
            steps(tail)
    rng = np.random.default_rng(1)
    dense = {"weight": rng.normal(size=(5, 6)), "bias": rng.normal(size=5)}
    nodes = [
        Node("Dense", "dense", ("x",), ("a",), dense),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Function", "the log", ("p",), ("y",), {"functions": [("log", {})]}),
    ]
    package = compile_graph(graph_of(nodes, x=(1, 6)), TINY).package
    with pytest.raises(ValueError, match=r"operator Function log \(the log\)"):
        derive_package(package)
