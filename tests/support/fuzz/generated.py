"""Networks that NNSmith generates: float32, ranks 1 to 4, up to six operators.

They compile and agree with ONNX Runtime, or are refused with a message. Steps, such as those of Ceil or ArgMax, make a
large difference of a small one, and so do poles; networks with such operators must agree in most elements.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from functools import cache

import numpy as np
import onnxruntime

import concord
from concord.compiler.lowering.host_partition import without_front
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph, with_front
from concord.frontend import UnsupportedModel, import_model
from concord.host import connect
from concord.program.allocator import CapacityError
from concord.spec.formats import BINARY16_MAX
from support.fuzz.ends import End, of_message
from support.fuzz.numbers import CONFIGS

#: Nodes of a network, elements of a tensor, milliseconds for the solver.
_NODES, _ELEMENTS, _PATIENCE = 6, 1 << 10, 20_000
#: Operators with steps or poles.
_STEEP = {
    "Acos", "ArgMax", "ArgMin", "Asin", "Cast", "Ceil", "Div", "Equal", "Floor", "Greater", "Less", "Log", "Pow",
    "Round", "Tan",
}  # fmt: skip
#: Mean error of a result, relative to its largest element: without such operators, and with them.
_SMOOTH, _ROUGH = 0.03, 0.25


@cache
def _kind():
    """The class of NNSmith's ONNX models, and its operators."""
    import torch
    from nnsmith.abstract.extension import activate_ext
    from nnsmith.materialize import Model

    exported = torch.onnx.export
    torch.onnx.export = lambda *args, **options: exported(*args, **options | {"dynamo": False})
    kind = Model.init("onnx")
    kind.add_seed_setter()
    operators = list(kind.operators())
    activate_ext(opset=operators, factory=None)
    return kind, operators


def generated(seed):
    """A ``ModelProto``; whatever NNSmith, its solver or the exporter raises if there is none for a seed."""
    from nnsmith.graph_gen import model_gen

    kind, operators = _kind()
    graph = model_gen(
        opset=operators, method="symbolic-cinit", seed=seed, max_elem_per_tensor=_ELEMENTS, max_nodes=_NODES,
        timeout_ms=_PATIENCE, rank_choices=[1, 2, 3, 4], dtype_choices=["f32"],
    )  # fmt: skip
    model = kind.from_gir(graph.make_concrete())
    model.refine_weights()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return model.native_model


def case(rng, folder):
    """One network: a result, a message, or a finding."""
    with warnings.catch_warnings(), open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
        warnings.simplefilter("ignore")
        seed = rng.getrandbits(30)
        try:
            proto = generated(seed)
            session = onnxruntime.InferenceSession(proto.SerializeToString())
            numbers = np.random.default_rng(seed)
            x = {item.name: numbers.uniform(1, 2, item.shape).astype(np.float32) for item in session.get_inputs()}
            names = [item.name for item in session.get_outputs()]
            want = dict(zip(names, session.run(None, x), strict=True))
        except Exception as error:  # of NNSmith, its solver, the exporter or ONNX Runtime
            return End("message", f"no network: {type(error).__name__}")
        (folder / "net.onnx").write_bytes(proto.SerializeToString())
        return compared(proto, x, want)


def compared(proto, x, want):
    """Compile a network, run it, and compare results with those of ONNX Runtime.

    What differs is compiled with samples, and must then be right, or say that it errs.
    """
    error = _compared(proto, x, want)
    if error.kind != "finding":
        return error
    numbers = np.random.default_rng(1)
    samples = {name: numbers.uniform(1, 2, (24, *value.shape)).astype(np.float32) for name, value in x.items()}
    shapes = import_model(proto)
    samples = {name: values.reshape(24, *shapes.sample_shape(name)) for name, values in samples.items()}
    net = concord.compile(proto, config=CONFIGS[1], calibrate=samples, quick=True)
    if warned := net.compilation.compiled.warnings:
        return of_message(warned[0])
    results = net.run({name: value.reshape(1, *net.inputs[name]) for name, value in x.items()})
    return _judged(proto, results, want)


def _compared(proto, x, want):
    config = CONFIGS[1]
    try:
        graph = import_model(proto)
        parts = without_front(graph)
        compiled = with_front(compile_graph(parts.rest, config), parts, graph)
    except (UnsupportedModel, Unsupported, CapacityError) as error:
        return of_message(str(error))
    samples = {name: x[name].reshape(1, *graph.sample_shape(name)) for name in graph.inputs}
    with connect("emulator", config) as device:
        device.load(compiled.image)
        results = compiled.package.run(device, samples)
    return _judged(proto, results, want)


def _judged(proto, results, want):
    rough = bool({node.op_type for node in proto.graph.node} & _STEEP)
    for name, value in want.items():
        if np.asarray(value).dtype.kind != "f" and rough:  # the place of one of several numbers that are nearly equal
            continue
        expected = np.asarray(value, np.float64)
        if not np.isfinite(expected).all() or np.abs(expected).max(initial=0.0) > BINARY16_MAX:
            return End("message", f"{name} is not finite in binary16")
        error = np.abs(results[name].reshape(expected.shape) - expected) / max(np.abs(expected).max(initial=0.0), 1e-6)
        if not error.mean() < (_ROUGH if rough else _SMOOTH):
            operators = ", ".join(node.op_type for node in proto.graph.node)
            return End("finding", f"{name} differs by {error.mean():.3g} in the mean: {operators}")
    return End("result")
