"""The record of every operator is complete and true, and every stage handles the operator or names it as it refuses."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from concord.compiler.calibration.weights import ROUNDED
from concord.compiler.ir.cells import CELLS
from concord.compiler.lowering import host_partition, rules
from concord.compiler.lowering.bounds import bounds
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.graph import execute, host_rules, passes
from concord.graph.cost import macs, node_macs
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS, Operator, OperatorKind, OperatorWeights, operator_of
from concord.graph.ops.attributes import NoAttributes
from concord.graph.ops.base import no_macs
from concord.graph.passes import dtypes
from concord.graph.passes.batch import with_batch
from concord.graph.signs import never_negative
from concord.overflow.kinds import kind_of
from concord.overflow.layers import products
from concord.pipeline.instruments import PassError
from concord.spec.presets import TINY
from concord.spec.training import TrainingFormats
from concord.train.export import export_onnx
from concord.train.network import TRAINABLE, TrainableNetwork
from support.expressions import ROOMY, graph_of
from support.operator_examples import EXAMPLES, example

SOURCES = Path(__file__).parents[3] / "sw" / "concord"
#: Operators that no network has when it is compiled: training folds them before.
NOT_COMPILED = {"BatchNorm"}
#: Operators that are compiled behind a product alone.
BEHIND_PRODUCTS = {"ScaleAccumulators"}
#: Operators that the host computes.
OF_HOST = {name for name, record in OPS.items() if record.kind is OperatorKind.HOST}
#: Operators whose last input are indices.
INDEXED = ("Lookup", "Take")


def data(shapes, count=3, seed=5):
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 1, (count, *shape)) for shape in shapes]


def with_indices(node, inputs):
    """Whole numbers that axes of the examples have, where indices are read."""
    return [*inputs[:-1], np.abs(np.rint(inputs[-1])) % 5] if node.op in INDEXED else inputs


def evaluated(node, inputs):
    inputs = with_indices(node, inputs)
    return operator_of(node).evaluate(node, inputs)


def graph_with(node, shapes):
    """A network of one node."""
    batched = {name for name in (*node.inputs, node.outputs[0]) if shapes[name][0] == 1}
    return Graph("one", [node], list(node.inputs), [node.outputs[0]], shapes, batched)


# What records say is true ---------------------------------------------------------------------------


def test_every_operator_has_an_example():
    assert set(EXAMPLES) == set(OPS)


@pytest.fixture(params=sorted(EXAMPLES))
def made(request):
    node, shapes = example(request.param)
    return node, shapes, operator_of(node)


def test_attributes_are_described(made):
    node, _, record = made
    assert set(node.attrs) <= set(record.attributes) and all(one.meaning for one in record.attributes.values())


def test_shapes_are_those_of_results(made):
    node, shapes, _ = made
    results = evaluated(node, data([shapes[name] for name in node.inputs]))
    assert [r.shape for r in results] == [(3, *shapes[name]) for name in node.outputs]


def test_multiply_accumulates(made):
    """Each weight is used once for every index of the axes that it has none of; all else has none."""
    node, shapes, record = made
    want = {
        "Conv": 4 * 4 * 4 * (3 * 2 * 2), "Dense": 4 * 3, "MatMul": 2 * 4 * 3, "LSTM": 5 * 12 * (4 + 3),
        "GRU": 5 * 9 * (4 + 3), "RNN": 5 * 3 * (4 + 3),
    }  # fmt: skip
    graph = graph_with(node, shapes)
    assert macs(graph) == node_macs(graph, node) == want.get(node.op, 0)
    assert (record.macs is not None) == (record.kind is OperatorKind.QUANTISED)


def test_views_hold_elements_of_their_inputs(made):
    node, shapes, record = made
    inputs = [np.arange(np.prod(shapes[name])).reshape(1, *shapes[name]) + 100.0 * k
              for k, name in enumerate(node.inputs)]  # fmt: skip
    (result, *_) = evaluated(node, inputs)
    if record.view:
        assert np.isin(result, np.concatenate([x.reshape(-1) for x in inputs])).all()
    else:
        assert node.op in {*rules.HANDLERS, *rules.EXPANSIONS} | NOT_COMPILED | OF_HOST


def test_weights(made):
    """Rows of the weight run along the axis that is said, and give the index of the result that is said."""
    node, shapes, record = made
    if record.weights is None:
        assert not {"weight", "W", "R"} & set(node.attrs)
        return
    weights = record.weights
    first = node.attrs[weights.names[0]]
    assert shapes["a"][weights.inputs] == first.shape[2 if record.recurrence else 1]
    if record.recurrence is not None:
        assert first.shape[1] == record.recurrence.gates * node.attrs["hidden_size"]
        assert len(node.attrs["activations"][0]) == len(record.recurrence.functions)
        assert len(node.outputs) == 1 + len(record.recurrence.initial)
    if record.affine is None:
        return
    x = data([shapes["a"]])
    channel = weights.channel(len(shapes["y"]))
    factor, offset = (values.reshape(-1) for values in data([(len(first),)] * 2, count=1))
    along = (-1, *[1] * (len(shapes["y"]) - 1 - channel))
    row = (-1, *[1] * (first.ndim - 1))
    changed = node.with_attrs(
        **{weights.names[0]: first * factor.reshape(row), weights.bias: node.attrs[weights.bias] * factor + offset}
    )
    want = evaluated(node, x)[0] * factor.reshape(along) + offset.reshape(along)
    assert evaluated(changed, x)[0] == pytest.approx(want)


def test_rows_are_independent(made):
    node, shapes, record = made
    if record.batchable:
        many = [np.concatenate(list(x)) for x in data([shapes[name] for name in node.inputs])]
        single = [x[:, None] for x in many]
        together = evaluated(node, [x[None] for x in many])[0]
        assert together[0] == pytest.approx(evaluated(node, single)[0][:, 0])


def test_facts_that_no_result_shows():
    """They are about what the NPU does with an operator; a list of those that have them keeps changes from passing."""
    elementwise = {"Relu", "Clip", "Function", "FakeQuantize", "Round", "Sign", "Add", "Sub", "Mul", "Max", "Min"}
    states = {op: record.wide_inputs for op, record in OPS.items() if record.wide_inputs}
    assert states.items() >= {"LSTM": {2}, "GRU": {1}, "MatMul": {1}}.items() and "RNN" not in states
    assert {op for op, record in OPS.items() if record.batchable} >= {"Dense", *elementwise}
    any_order = {op for op, record in OPS.items() if not record.layout_sensitive}
    assert any_order >= {"Reshape", "Transpose", "Slice", "Softmax", "LogSoftmax", *elementwise}
    assert {op for op, record in OPS.items() if record.windowed} >= {"Conv", "MaxPool", "AveragePool"}
    assert {op for op, record in OPS.items() if record.recurrence} == set(CELLS)
    assert {op for op, record in OPS.items() if record.recurrence and record.recurrence.cell} == {"LSTM"}


def test_rising_and_signs(made):
    node, shapes, record = made
    inputs = data([shapes[name] for name in node.inputs], count=40)
    higher = [x + step for x, step in zip(inputs, data([s.shape[1:] for s in inputs], 40, 6), strict=True)]
    low, high = [np.minimum(a, b) for a, b in zip(inputs, higher, strict=True)], list(map(np.maximum, inputs, higher))
    if record.rises:
        assert (evaluated(node, low)[0] <= evaluated(node, high)[0]).all()
    for known in (False, True):
        if record.never_negative(node, [known] * len(inputs)):
            given = [np.abs(x) for x in inputs] if known else inputs
            assert evaluated(node, given)[0].min() >= 0


@pytest.mark.parametrize(
    ("op", "attrs", "shape"),
    [
        ("Reshape", {"shape": (1, 3, 4)}, (1, 3, 4)),
        ("Transpose", {"perm": (0, 1, 2)}, (1, 3, 4)),
        ("Concat", {"axis": 1}, (1, 3)),
        ("Slice", {"axes": (1,), "starts": (0,), "stops": (3,), "steps": (1,)}, (1, 3)),
        ("Pad", {"pads": (0, 0, 0, 0), "mode": "constant", "value": 1.0}, (1, 3)),
    ],
)
def test_identities(op, attrs, shape):
    node = Node(op, "node", ("a",), ("y",), attrs)
    (x,) = data([shape])
    assert operator_of(node).identity(node, shape, shape) and np.array_equal(evaluated(node, [x])[0], x)
    other, shapes = example(op)
    assert not operator_of(other).identity(other, shapes["a"], shapes["y"])


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "want"),
    [
        ("Clip", {"min": 0.0, "max": 6.0}, [False], True),
        ("Clip", {"min": 0.0, "max": -1.0}, [True], False),
        ("Function", {"functions": (("tanh", {}), ("exp", {}))}, [False], True),
        ("Function", {"functions": (("exp", {}), ("tanh", {}))}, [True], False),
        ("Add", {}, [True, True], True),
        ("Add", {"constant": np.ones(1)}, [True], False),  # it may be a bias, which training changes
        ("Mul", {"constant": np.ones(1)}, [True], True),
        ("Mul", {"constant": -np.ones(1)}, [True], False),
        ("Max", {}, [False, True], True),
        ("Max", {"constant": np.zeros(1)}, [False], True),
        ("Min", {}, [False, True], False),
        ("Pad", {"pads": (0, 1, 0, 0), "mode": "constant", "value": -1.0}, [True], False),
        ("Dense", {"weight": np.ones((1, 1)), "bias": np.zeros(1)}, [True], False),
        ("Dense", {"weight": np.ones((1, 1)), "bias": np.zeros(1), "fixed": True}, [True], True),
        ("Dense", {"weight": -np.ones((1, 1)), "bias": np.zeros(1), "fixed": True}, [True], False),
    ],
)
def test_signs_that_depend_on_attributes(op, attrs, inputs, want):
    assert OPS[op].never_negative(Node(op, "node", ("a", "b")[: len(inputs)], ("y",), attrs), inputs) == want


def test_signs_are_carried_through_a_network():
    """A walk goes up only as far as a sign depends on it, and a network of many ways is walked once."""
    nodes = [Node("Relu", "relu", ("x",), ("t0",))]
    nodes += [Node("Add", f"add{k}", (f"t{k}", f"t{k}"), (f"t{k + 1}",)) for k in range(60)]
    nodes += [Node("Concat", "both", ("t60", "x"), ("y",), {"axis": 1})]
    graph = graph_of(nodes, x=(1, 3))
    assert never_negative(graph, "t60") and not never_negative(graph, "y") and not never_negative(graph, "x")
    assert never_negative(graph, "y", inputs=True) and never_negative(graph, "x", inputs=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": OperatorKind.QUANTISED}, "macs must be a rule for a quantised operator, such as no_macs, not None"),
        ({"kind": OperatorKind.PRECISE, "macs": no_macs}, "macs must be None for a precise operator, not <function"),
        ({"kind": OperatorKind.PRECISE, "view": True}, "view must be an operator that moves elements"),
        (
            {"kind": OperatorKind.PRECISE, "weights": OperatorWeights(("w",), "b", 1)},
            "weights must be those of a quantised",
        ),
        (
            {"kind": OperatorKind.MOVING, "wide_inputs": frozenset({1})},
            "wide_inputs must be inputs of a quantised operator",
        ),
        (
            {"kind": OperatorKind.QUANTISED, "macs": no_macs, "weights": OperatorWeights(("w",), "b", 1)},
            "attributes, not b, w",
        ),
    ],
)
def test_records_that_contradict_themselves(fields, message):
    with pytest.raises(ValueError, match=message):
        Operator(record=NoAttributes, shape=None, evaluate=None, **fields)


def test_rows_of_several_weights_have_no_axis():
    with pytest.raises(ValueError, match=r"names must be one weight .* not \('w', 'r'\)"):
        OperatorWeights(("w", "r"), "b", 1, outputs=1)
    with pytest.raises(ValueError, match="outputs must be an axis of the result, not None"):
        OperatorWeights(("w", "r"), "b", 1).channel(3)


def test_an_operator_without_a_record_is_named():
    node = Node("Wavelet", "first", ("x",), ("y",))
    with pytest.raises(ValueError, match=r"operator of first must be one of .*Add, .* not 'Wavelet'"):
        operator_of(node)
    graph = Graph("net", [node], ["x"], ["y"], {"x": (1, 2), "y": (1, 2)})
    stages = [passes.run, dtypes.assign, macs, kind_of, lambda g: with_batch(g, 2), lambda g: compile_graph(g, TINY),
              lambda g: execute.run(g, {"x": np.zeros((1, 1, 2))}), bounds]  # fmt: skip
    for stage in stages:
        with pytest.raises((ValueError, PassError), match=r"operator of first must be one of|first is .* 'Wavelet'"):
            stage(graph)


# Every stage handles an operator or refuses it by its name ------------------------------------------


def refusal(stage, *args):
    """The message with which a stage refuses; ``None`` if it does not."""
    try:
        stage(*args)
    except ValueError as error:
        return str(error)
    return None


def test_stages_of_the_compiler(made):
    node, shapes, record = made
    graph = graph_with(node, shapes)
    known = record.view or node.op in rules.HANDLERS or node.op in rules.EXPANSIONS
    assert known == (node.op not in NOT_COMPILED | OF_HOST)
    message = refusal(lambda: rules.lowered(graph, ROOMY))
    if node.op in BEHIND_PRODUCTS:
        assert message.endswith("'node': accumulators must be those of one product, on an NPU with code_scaling")
    else:
        assert message is None if known else f"{node.op} 'node': operator is not supported on the NPU" in message
    assert node.op in INDEXED or set(bounds(graph)) == set(shapes)
    assert not record.recurrence or node.op in CELLS


def test_tables_of_the_compiler_have_operators_only():
    assert (set(rules.HANDLERS) | set(rules.EXPANSIONS) | set(CELLS) | set(ROUNDED)) <= set(OPS)


#: Modules that list operators: tables of what a stage does with each, and passes that look for a pattern. Names in
#: ``frontend``, ``integer`` and ``derive/backends`` are those of ONNX.
LISTING = {
    "compiler/calibration/weights.py",  # others are rounded to the nearest
    "compiler/ir/cells.py", "compiler/lowering/rules.py",  # refuse others by name
    "compiler/lowering/bounds.py",  # of others the record says whether they rise
    "compiler/lowering/decomposition.py",  # those that are made of tables
    "graph/host_rules.py", "overflow/layers.py", "train/export.py", "train/network.py",  # refuse others by name
    "compiler/lowering/reductions.py", "graph/passes/fake_quantize.py", "graph/passes/reshapes.py",  # patterns
    "graph/passes/centring.py",  # what others compute keeps its mean
    "graph/channels.py", "graph/equalised.py", "networks/expected_error.py",  # others have the factor 1
    "train/torch/modules.py",  # the gates of PyTorch
}  # fmt: skip


@pytest.mark.slow
def test_facts_about_operators_are_in_their_records():
    """A list of operators elsewhere would be one more that a new operator is missing from without a word."""
    found = set()
    for path in sorted(SOURCES.rglob("*.py")):
        name = str(path.relative_to(SOURCES))
        if not name.startswith(("graph/ops/", "frontend/", "integer/", "derive/backends/")):
            for node in ast.walk(ast.parse(path.read_text())):
                items = getattr(node, "keys" if isinstance(node, ast.Dict) else "elts", [])
                if len({item.value for item in items if isinstance(item, ast.Constant)} & set(OPS)) > 1:
                    found.add(name)
    assert found == LISTING, "facts about operators belong in their record, see docs/howto/operator.md"


def test_stages_of_training(made):
    node, shapes, _ = made
    alone = node.replace(inputs=("a",) * len(node.inputs))
    graph = Graph("one", [alone], ["a"], [node.outputs[0]], shapes, {"a", node.outputs[0]})
    message = refusal(TrainableNetwork, graph, TrainingFormats())
    if message is None or message == "network must have weights to train, and has none":
        assert node.op in TRAINABLE or node.attrs["functions"][0][0].capitalize() in TRAINABLE
    else:
        assert node.op in message
    message = refusal(export_onnx, graph)
    assert message is None or re.search(rf"must be an operator that can be written to ONNX, not {node.op}$", message)


def test_a_recurrent_layer_without_a_cell_is_refused(monkeypatch):
    node, shapes = example("GRU")
    monkeypatch.delitem(CELLS, "GRU")
    with pytest.raises(Unsupported, match="GRU 'node': cell must be one of LSTM, RNN, not GRU"):
        rules.lowered(graph_with(node, shapes), ROOMY)


def test_the_overflow_analysis(made):
    node, shapes, _ = made
    graph = graph_with(node, shapes)
    values = with_indices(node, data([graph.sample_shape(name) for name in node.inputs]))
    counted = list(products(graph, dict(zip(node.inputs, values, strict=True))))
    assert bool(counted) == bool(node_macs(graph, node))
    want = {"LSTM": "lstm", "GRU": "recurrent", "RNN": "recurrent", "Conv": "cnn", "MatMul": "graph"}
    assert kind_of(graph) == want.get(node.op, "dense")


def test_the_host_partition(made):
    node, shapes, record = made
    _, theirs = host_partition.split(graph_with(node, shapes))
    assert (theirs is not None) == record.host_partition and (
        record.host_partition or node.op not in ("Softmax", "LogSoftmax")
    )
    message = refusal(host_rules.operations, graph_with(node, shapes))
    assert message is None or message.startswith(f"operator {node.op}")
