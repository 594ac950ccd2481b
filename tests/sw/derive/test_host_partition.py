"""What the host computes behind the NPU has the bits of the driver on every backend, or is refused by name."""

import re
from dataclasses import replace

import numpy as np
import pytest

import concord
from concord.compiler.ir.arrangement import InputGrid
from concord.compiler.model import compile_graph
from concord.derive import evaluate
from concord.derive.backends import function_texts
from concord.derive.model import derive_package
from concord.graph.host_functions import HOST_FUNCTIONS
from concord.graph.host_rules import has_operations, operations
from concord.graph.ir import Node
from concord.graph.ops import OPS, OperatorKind
from concord.host import connect
from concord.spec.presets import TINY
from support import compiled_nets
from support.derive_models import HOST_PARTITIONS, samples
from support.derived_backends import every, networks, on_numpy, on_onnxruntime
from support.derived_modules import same
from support.expressions import ROOMY, graph_of
from support.host_stage_nets import NETWORKS, PRESET, inputs_of
from support.operator_examples import EXAMPLES, example


@every
@pytest.mark.parametrize("name", HOST_PARTITIONS)
def test_every_operator(name, backend, tmp_path):
    model = HOST_PARTITIONS[name]()
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


def scores(count, weight, bias):
    """A product ``a`` of ``x``; weights and bias have these deviations."""
    rng = np.random.default_rng(count)
    attrs = {"weight": rng.normal(0, weight, (count, 6)), "bias": rng.normal(0, bias, count)}
    return Node("Dense", "dense", ("x",), ("a",), attrs)


@every
@pytest.mark.parametrize("count", [1, 5, 12])
def test_softmax_of_many_lengths(count, backend, tmp_path):
    nodes = [scores(count, 2, 9), Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1})]
    networks(compile_graph(graph_of(nodes, x=(1, 6)), TINY).package, backend, tmp_path, 40)


@every
@pytest.mark.parametrize("count", [1, 5, 12])
def test_logarithms_of_a_softmax(count, backend, tmp_path):
    """In one operator, and as the logarithm of shares, of which some are nothing."""
    nodes = [
        scores(count, 30, 99),
        Node("LogSoftmax", "log_softmax", ("a",), ("y",), {"axis": 1}),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Function", "the_log", ("p",), ("z",), {"functions": (("log", {}),)}),
    ]
    graph = graph_of(nodes, x=(1, 6))
    graph = replace(graph, outputs=["y", "z"])
    networks(compile_graph(graph, TINY).package, backend, tmp_path, 40)


@pytest.mark.slow
@every
@pytest.mark.parametrize("name", HOST_FUNCTIONS)
def test_functions_behind_a_softmax(name, backend, tmp_path):
    """Of numbers of both signs, with the parameters that they have by default."""
    nodes = [
        scores(5, 2, 9),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Sub", "less", ("p",), ("d",), {"constant": np.asarray(0.25)}),
        Node("Function", "function", ("d",), ("y",), {"functions": ((name, {}),)}),
    ]
    networks(compile_graph(graph_of(nodes, x=(1, 6)), TINY).package, backend, tmp_path, 40)


@every
@pytest.mark.parametrize("axes, centred", [((2,), True), ((1, 2), False), ((1,), True)])
def test_normalisations_behind_a_softmax(axes, centred, backend, tmp_path):
    rng = np.random.default_rng(len(axes))
    dense = {"weight": rng.normal(0, 2, (15, 6)), "bias": rng.normal(0, 2, 15)}
    norm = {"axes": axes, "centred": centred, "epsilon": 1e-6, "scale": rng.normal(size=5)}
    nodes = [
        Node("Dense", "dense", ("x",), ("a",), dense),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Reshape", "map", ("p",), ("m",), {"shape": (1, 3, 5)}),
        Node("Normalise", "norm", ("m",), ("y",), norm),
    ]
    networks(compile_graph(graph_of(nodes, x=(1, 6)), TINY).package, backend, tmp_path, 40)


@every
def test_windows_behind_a_softmax(backend, tmp_path):
    """Compiled, and with the results of the driver."""
    dense = {"weight": np.random.default_rng(4).normal(0, 2, (24, 6)), "bias": np.zeros(24)}
    pool = {"kernel": (2, 2), "strides": (1, 2), "dilations": (1, 1), "pads": (1, 0, 1, 1)}
    nodes = [
        Node("Dense", "dense", ("x",), ("a",), dense),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Reshape", "map", ("p",), ("m",), {"shape": (1, 2, 3, 4)}),
        Node("MaxPool", "pool", ("m",), ("n",), pool),
        Node("Pad", "pad", ("n",), ("o",), {"pads": (0, 0, 1, 0, 0, 1, 0, 2), "mode": "constant", "value": 0.01}),
        Node("ReduceMax", "greatest", ("o",), ("y",), {"axes": (1, 3), "keepdims": False}),
    ]
    networks(compile_graph(graph_of(nodes, x=(1, 6)), ROOMY).package, backend, tmp_path, 20)


@every
@pytest.mark.parametrize("grid", [None, InputGrid(-3, -9, 9)])
def test_the_host_reads_inputs_as_they_are_given(grid, backend, tmp_path):
    """As the driver does: not rounded to binary16; one that is for the host alone is rounded to its grid."""
    rng = np.random.default_rng(7)
    dense = {"weight": rng.normal(size=(6, 6)), "bias": rng.normal(size=6)}
    nodes = [
        Node("Dense", "dense", ("given_1",), ("a",), dense),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Mul", "scale", ("p", "given_1"), ("behind_1",), {}),
        Node("Sub", "shift", ("behind_1", "given_0"), ("y",), {}),
    ]
    package = compile_graph(graph_of(nodes, given_1=(1, 6), given_0=(1, 6)), TINY).package
    grids = {} if grid is None else {"given_0": grid}
    package = replace(package, arrangement=replace(package.arrangement, grids=grids))
    inputs = {name: rng.normal(size=(5, 6)) for name in package.arrangement.inputs}
    with connect("emulator", package.config) as device:
        device.load(package.image)
        want = package.run(device, inputs)
    model = derive_package(package)
    found, _ = backend(model, tmp_path, inputs)
    same({name: found[name] for name in want}, want)
    same(evaluate.run(model, inputs), want)


@pytest.mark.slow
@every
def test_tensors_and_layers_that_are_called_like_parts_of_a_file(backend, tmp_path):
    """Files of Python have names of their own, the functions of the host among them."""
    rng = np.random.default_rng(8)
    kinds = function_texts.with_operations, function_texts.flag_text, function_texts.host_text
    texts = [text(library) for library in ("numpy", "torch") for text in kinds]
    own = set("compute flags host_outputs inputs load part_0 raised rest run t total values w words".split())
    own |= set(re.findall(r"^def ([a-z]\w*)", "\n".join(texts), re.MULTILINE))
    assert {"host_exp", "host_log", "half_add", "note", "product"} < own
    dense = {"weight": rng.normal(size=(4, 4)), "bias": rng.normal(size=4)}
    nodes = [Node("Dense", name, ("product",), (name,), dense) for name in sorted(own - {"product"})]
    nodes.append(Node("Softmax", "softmax", ("half_add",), ("shares",), {"axis": 1}))
    graph = graph_of(nodes, product=(1, 4))
    names = [node.outputs[0] for node in nodes]
    graph = replace(graph, outputs=names, batched={"product", *names})
    networks(compile_graph(graph, ROOMY.replace(program_depth=4096)).package, backend, tmp_path, 2)


def test_an_output_with_the_name_of_an_input(tmp_path):
    """It is what the NPU has of the input; an ONNX graph cannot have two tensors of one name."""
    dense = {"weight": np.eye(4), "bias": np.zeros(4)}
    graph = graph_of([Node("Dense", "dense", ("x",), ("y",), dense)], x=(1, 4))
    model = derive_package(compile_graph(replace(graph, outputs=["y", "x"]), TINY).package)
    inputs = {"x": np.array([[0.1, 1.0, -2.0, 3.0]])}
    found, _ = on_numpy(model, tmp_path, inputs)
    assert found["x"][0, 0] == float(np.float16(0.1)) != 0.1
    with pytest.raises(ValueError, match=r"^outputs of an ONNX graph must have other names than its inputs, not 'x'$"):
        on_onnxruntime(model, tmp_path, inputs)


def test_others_are_refused_by_name(tmp_path):
    """Whatever may follow a softmax is derived, or its name is in the message."""
    late = {name for name, record in OPS.items() if record.kind is not OperatorKind.QUANTISED}
    refused = {op for op in late - {"Function"} if not has_operations(example(op)[0])}
    assert refused == {"BatchNorm", "ScaleAccumulators"}
    model = HOST_PARTITIONS["softmax"]()
    for op in sorted(refused):
        node = Node(op, "the last", ("shares",), ("end",), EXAMPLES[op][0])
        partition = replace(
            model.host_partition,
            nodes=[*model.host_partition.nodes, node],
            shapes=model.host_partition.shapes | {"end": (1, 12)},
        )
        with pytest.raises(ValueError, match=rf"operator {op} \(the last\)"):
            operations(partition)
    rng = np.random.default_rng(1)
    dense = {"weight": rng.normal(size=(5, 6)), "bias": rng.normal(size=5)}
    nodes = [
        Node("Dense", "dense", ("x",), ("a",), dense),
        Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1}),
        Node("Function", "the last", ("p",), ("y",), {"functions": (("log", {}), ("erf_ratio", {}))}),
    ]
    package = compile_graph(graph_of(nodes, x=(1, 6)), TINY).package
    with pytest.raises(ValueError, match=r"operator Function erf_ratio \(the last\)"):
        derive_package(package)


@pytest.mark.slow
@every
@pytest.mark.parametrize("name", NETWORKS)
def test_both_ends_of_a_network(name, backend, tmp_path):
    """What the host computes in front of the NPU and behind it, from inputs with the types of the model."""
    net = concord.compile(NETWORKS[name](), preset=PRESET, partition="any")
    x = inputs_of(name, 20)
    want = net.run(x)
    results, _ = backend(derive_package(net.package), tmp_path, x)
    same({key: results[key] for key in want}, want)
    assert {key: results[key].dtype for key in want} == {key: y.dtype for key, y in want.items()}


#: Floats that a cast to float32 takes to the middle of two halves, at both ends of halves, and beyond all types.
FLOATS = [1 + 2**-11 + 2**-30, -(1 + 3 * 2**-11 - 2**-30), 65519.999999, 65520.0, 2**-25 * (1 + 2**-30), 2**-25]
FLOATS += [1e300, -1e39, np.inf, -np.inf, np.nan, 1 / 3]
WHOLE = [np.nan, 255.0, 1.0, 0.0] * 3


@every
def test_outputs_have_the_types_of_the_model(backend, tmp_path):
    """A float is rounded once, also to a half; no number is 0 as a whole number."""
    floats, whole = ["float64", "float32", "float16"], ["int64", "uint8", "int16"]
    model = HOST_PARTITIONS["softmax"]()
    nothing = Node("Mul", "nothing", ("shares",), ("nothing",), {"constant": np.zeros(())})
    values = [
        Node("Add", kind, ("nothing",), (kind,), {"constant": np.array(FLOATS if kind in floats else WHOLE)})
        for kind in floats + whole
    ]
    truth = Node("Less", "bool", ("float64",), ("bool",), {"constant": np.ones(())})
    kinds = {kind: kind for kind in [*floats, *whole, "bool"]}
    partition = replace(
        model.host_partition,
        nodes=[*model.host_partition.nodes, nothing, *values, truth],
        shapes=model.host_partition.shapes | dict.fromkeys(["nothing", *kinds], (1, 12)),
        outputs=[*kinds],
    )
    model = replace(model, host_partition=partition, output_types=kinds)
    inputs = {key: np.nan_to_num(x, posinf=1.0, neginf=1.0) for key, x in samples(model, 3, seed=5).items()}
    results, _ = backend(model, tmp_path, inputs)
    results = {kind: results[kind].reshape(-1, 12) for kind in kinds}
    with np.errstate(over="ignore"):
        want = {kind: np.tile(np.array(FLOATS).astype(kind), (len(results[kind]), 1)) for kind in floats}
    assert [want["float16"][0, k] for k in (0, 1)] == [1 + 2**-10, -(1 + 2**-10)]
    want |= {kind: np.tile(np.nan_to_num(WHOLE), (len(results[kind]), 1)) for kind in whole}
    want["bool"] = want["float64"] < 1
    same(results, want)
    assert {kind: results[kind].dtype.name for kind in kinds} == kinds
    same(evaluate.run(model, inputs), {kind: want[kind].reshape(-1, 1, 12) for kind in kinds})
