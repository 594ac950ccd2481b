"""ONNX graphs that execute a quantised network on its codes, with the same bits in every runtime.

Inputs are FLOAT, outputs are codes in their own type. Every layer is a function of the domain ``layers``, made of
standard operators.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from concord.derive.backends.onnx_writer import Writer
from concord.derive.exact.arrays import Array
from concord.derive.exact.lowering import ArrayLowering, shapes_of
from concord.derive.exact.onnx_writer import OnnxWriter
from concord.integer.network import IntegerNetwork
from concord.spec.formats import Rounding
from concord.transfer import Codes
from concord.utils.files import write_bytes


def to_onnx(network: IntegerNetwork) -> onnx.ModelProto:
    """The graph of a network.

    The metadata have the key ``codes``, in JSON: scale and zero point of every output that has codes. Wide numbers
    beyond binary32 are infinities: a graph cannot refuse them as it runs.

    Raises
    ------
    ValueError
        If a size of an input is open, an operation mixes samples, or an accumulator might not fit its bits.
    """
    graph, shapes = network.graph, shapes_of(network.graph)
    for part in network.with_wide_sums:
        raise ValueError(
            f"accumulators of {part.name} must fit {part.requantisation.bits} bits, and may reach {part.largest_sum}: "
            "an ONNX graph cannot say so as it runs; derive a file of Python or C"
        )
    writer = Writer({*graph.inputs, *graph.outputs})
    arrays = OnnxWriter(writer)
    lowering = ArrayLowering(arrays, graph, shapes)
    values: dict[str, Array] = {}
    for name, tensor in graph.inputs.items():
        values[tensor] = Array(name, real=True)
        if not graph.is_wide(tensor):
            with writer.layer(f"codes of {name}"):
                values[tensor] = _codes(arrays, values[tensor], graph.scheme(tensor))
    for operation in graph.operations:
        with writer.layer(operation.name or operation.output):
            values[operation.output] = lowering.write(operation, [values[name] for name in operation.inputs])
    dtypes = {name: np.dtype(graph.schemes[tensor].dtype) for name, tensor in graph.outputs.items()}
    kinds = {name: helper.np_dtype_to_tensor_dtype(dtype) for name, dtype in dtypes.items()}
    with writer.layer("outputs"):
        for name, tensor in graph.outputs.items():
            writer.node("Cast", [values[tensor].text], name, to=kinds[name])
    proto = writer.model(
        graph.name,
        [_port(name, onnx.TensorProto.FLOAT, shapes[tensor]) for name, tensor in graph.inputs.items()],
        [_port(name, kinds[name], shapes[tensor]) for name, tensor in graph.outputs.items()],
    )
    schemes = {name: graph.scheme(tensor) for name, tensor in graph.outputs.items() if not graph.is_wide(tensor)}
    facts = {name: {"scale": float(scheme.scale), "zero_point": scheme.zero} for name, scheme in schemes.items()}
    helper.set_model_props(proto, {"codes": json.dumps(facts)})
    onnx.checker.check_model(proto)
    return proto


def _codes(arrays: OnnxWriter, x: Array, scheme: Codes) -> Array:
    """Codes of an input."""
    steps = arrays.divide(x, arrays.numbers(scheme.scale, "scale"))
    if scheme.rounding is not Rounding.NEAREST_AWAY:
        return arrays.to_codes(steps, scheme.zero, scheme.low, scheme.high)
    doubles = Array(arrays.writer.node("Cast", [steps.text], to=onnx.TensorProto.DOUBLE))
    return arrays.codes_of_doubles(doubles, scheme.zero, scheme.low, scheme.high)


def _port(name: str, kind: int, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    rows = "samples" if shape[0] == 1 else f"{shape[0]} samples"
    return helper.make_tensor_value_info(name, kind, [rows, *shape[1:]])


def write_onnx(network: IntegerNetwork, path: Path) -> None:
    """Write the graph; errors as of :func:`to_onnx`."""
    write_bytes(path, to_onnx(network).SerializeToString())
