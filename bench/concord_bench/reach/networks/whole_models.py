"""Forms of whole models: their results, control flow, sizes and data types."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from concord_bench.reach.networks.builder import Builder, Family
from concord_bench.reach.networks.tables import layers

WHOLE = Family("forms of whole models")


@WHOLE.network("a constant result beside a computed one (class weights, anchors)")
def constant_output(b: Builder) -> None:
    b.result("y", layers(b, b.input("x", ["batch", 8]), 8, 16, 3))
    b.result("anchors", b.const(np.arange(6, dtype=np.float32).reshape(1, 6)))


@WHOLE.network("an input that goes through unchanged beside a computed result")
def passed_through(b: Builder) -> None:
    x = b.input("x", ["batch", 8])
    b.result("y", layers(b, x, 8, 16, 3))
    b.result("x_again", x)


@WHOLE.network("If whose condition is a constant (training flag of scripted modules)")
def if_constant(b: Builder) -> None:
    x = layers(b, b.input("x", [1, 8]), 8, 16, last="Relu")
    branches = {}
    for name, op in (("then_branch", "Identity"), ("else_branch", "Neg")):
        value = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [1, 16])
        branches[name] = helper.make_graph([helper.make_node(op, [x], [value.name])], name, [], [value])
    b.result("y", b.linear(b.op("If", b.const(np.array(False)), **branches), 16, 3))


@WHOLE.network("Loop of three steps over a state, as scripted code leaves it")
def loop_constant(b: Builder) -> None:
    x = layers(b, b.input("x", [1, 8]), 8, 8, last="Tanh", gain=1)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("MatMul", ["h", "w_loop"], ["hw"]),
            helper.make_node("Tanh", ["hw"], ["h_next"]),
        ],
        "body",
        [info("k", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("h", TensorProto.FLOAT, [1, 8])],
        [info("go_on", TensorProto.BOOL, []), info("h_next", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array((b.rng.standard_normal((8, 8)) / 3).astype(np.float32), "w_loop")],
    )
    y = b.op("Loop", b.const(np.int64(3)), b.const(np.array(True)), x, body=body)
    b.result("y", b.linear(y, 8, 3))


@WHOLE.network("model whose axes are all symbolic but the channels, with Shape, Gather and Reshape")
def symbolic_batch(b: Builder) -> None:
    x = b.conv_relu(b.input("x", ["batch", 3, 16, 16]), 3, 8, s=2)
    size = b.op("Shape", x)
    first = b.slice(size, 0, 1, 0)
    channels = b.slice(size, 1, 2, 0)
    x = b.op("Reshape", x, b.concat(first, channels, b.ints(-1), axis=0))
    b.result("y", b.linear(b.mean(x, 2, keep=False), 8, 4))


@WHOLE.network("model in binary16 (onnxconverter-common): float16 input, weights and result")
def float16_model(b: Builder) -> None:
    x = b.input(
        "x", ["batch", 16], TensorProto.FLOAT16, lambda rng, shape: rng.standard_normal(shape).astype(np.float16)
    )
    for cin, cout in ((16, 32), (32, 4)):
        weight = (b.rng.standard_normal((cin, cout)) / cin**0.5).astype(np.float16)
        x = b.add(b.op("MatMul", x, b.const(weight)), b.const((b.rng.standard_normal(cout) / 10).astype(np.float16)))
        x = b.op("Relu", x) if cout == 32 else x
    b.result("y", x, TensorProto.FLOAT16)


@WHOLE.network("float64 throughout, as JAX and Julia users export")
def float64_model(b: Builder) -> None:
    x = b.input("x", ["batch", 16], TensorProto.DOUBLE, lambda rng, shape: rng.standard_normal(shape))
    for cin, cout in ((16, 32), (32, 4)):
        name = f"w_{cin}"
        b.constants.append(numpy_helper.from_array(b.rng.standard_normal((cin, cout)) / cin**0.5, name))
        x = b.op("MatMul", x, name)
        x = b.op("Tanh", x) if cout == 32 else x
    b.result("y", x, TensorProto.DOUBLE)
