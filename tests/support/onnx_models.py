"""Small ONNX models, and what onnxruntime computes for them."""

from itertools import pairwise

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from concord.frontend import import_model
from concord.graph.execute import run
from concord.graph.ops import OPS
from support.onnx_expressions import Tensor, model_of

node = helper.make_node
_RNG = np.random.default_rng(7)
_FIRST = _RNG.bit_generator.state


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs=("y",), constants=None, opset=17, domains=()):
    """A model; ``inputs`` is a dict of shapes."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [info(name, shape) for name, shape in inputs.items()],
        [info(name, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset < 23 else 11)


def onnxruntime_results(proto, inputs, kind=np.float32):
    """Outputs in the order of the model, for inputs of the shape the graph has for one sample.

    Inputs become elements of a type, unless it is ``None``.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, {name: value if kind is None else value.astype(kind) for name, value in inputs.items()})


def sample_results(proto, options=None, **inputs):
    """Outputs of ONNX Runtime in the order of the model, which gets sample by sample and optimises as it likes."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    count = len(next(iter(inputs.values())))
    each = [session.run(None, {name: values[k : k + 1] for name, values in inputs.items()}) for k in range(count)]
    return [np.concatenate(parts) for parts in zip(*each, strict=True)]


def exact_sums(unsigned):
    """Options of a session whose kernels for uint8 do not saturate sums of two products, as they do without VNNI."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if unsigned:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def samples(graph, count=3, seed=0):
    """Random inputs by name."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((count, *graph.sample_shape(name))) for name in graph.inputs}


def disagreement(graph, proto, inputs):
    """Largest difference from onnxruntime, which gets sample by sample, relative to the largest value of an output."""
    results = run(graph, inputs, keep="all")
    for name, value in results.items():
        assert value.shape[1:] == graph.sample_shape(name)
    count = len(next(iter(inputs.values())))
    ones = [{name: value[k].reshape(graph.shapes[name]) for name, value in inputs.items()} for k in range(count)]
    worst = 0.0
    for name, *wanted in zip(graph.outputs, *(onnxruntime_results(proto, one) for one in ones), strict=True):
        assert all(want.shape == graph.shapes[name] for want in wanted)
        want = np.stack(wanted)
        largest = max(float(np.abs(want).max()), 1e-30)
        worst = max(worst, float(np.abs(results[name].reshape(want.shape) - want).max()) / largest)
    return worst


def agrees(proto, inputs=None, tolerance=1e-5):
    """Import, compare with onnxruntime on several samples, and return the graph; an expression is a model, too."""
    proto = model_of(proto) if isinstance(proto, Tensor) else proto
    graph = import_model(proto)
    assert all(set(item.attrs) <= documented(item.op) for item in graph.nodes)
    assert disagreement(graph, proto, inputs or samples(graph)) < tolerance
    return graph


def documented(op):
    """Names of the attributes an operator describes."""
    return set(OPS[op].attributes)


def ops(graph):
    return [item.op for item in graph.nodes]


def rewind():
    """Begin with the first numbers again."""
    _RNG.bit_generator.state = _FIRST


def generator():
    """The source of numbers of a test."""
    return _RNG


def floats(*shape):
    """Normally distributed float32; every test, and every file, begins with the same numbers."""
    return _RNG.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, dtype=np.int64)


def unary(op, opset=17, shape=(1, 3, 5), constants=None, **attrs):
    """A model of one node with one input and constants."""
    names = ["x", *(constants or {})]
    return model([node(op, names, ["y"], **attrs)], {"x": shape}, constants=constants, opset=opset)


def mlp(*widths):
    """Products between as many elements, with a Relu behind each."""
    nodes, constants, value = [], {}, "x"
    for k, (inputs, outputs) in enumerate(pairwise(widths)):
        constants[f"w{k}"] = floats(inputs, outputs) / np.float32(np.sqrt(inputs))
        nodes += [node("Gemm", [value, f"w{k}"], [f"h{k}"], name=f"fc{k}"), node("Relu", [f"h{k}"], [f"r{k}"])]
        value = f"r{k}"
    return model(nodes, {"x": (1, widths[0])}, [value], constants)
