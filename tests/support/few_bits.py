"""Networks in QDQ form with codes of few bits, as Brevitas exports them: QuantizeLinear, Clip, DequantizeLinear."""

import numpy as np
from onnx import numpy_helper

from support.onnx_models import node


def in_few_bits(proto, bits):
    """A network in QDQ form of codes of 8 bits with codes of so many: scales grow, and constants are rounded again."""
    made = type(proto)()
    made.CopyFrom(proto)
    graph, shift = made.graph, 8 - bits
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    changed = {}
    for item in graph.node:
        if item.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        codes, scale, zero = item.input[0], item.input[1], item.input[2]
        steps = 2 if codes in constants and constants[codes].dtype == np.int32 else 1
        changed[scale] = constants[scale] * np.float32(2 ** (shift * steps))
        if codes in constants:
            rounded = np.rint(constants[codes] / 2 ** (shift * steps))
            high = 2 ** (bits - 1) - 1 if steps == 1 else np.inf
            changed[codes] = rounded.clip(-high, high).astype(constants[codes].dtype)
        else:
            changed[zero] = constants[zero] >> shift
    ends = {"uint8": (0, 2**bits - 1), "int8": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)}
    nodes, renamed = [], {}
    for item in graph.node:
        item.input[:] = [renamed.get(name, name) for name in item.input]
        nodes.append(item)
        if item.op_type == "QuantizeLinear":
            (name,), kind = item.output, constants[item.input[2]].dtype
            for what, end in zip(("least", "most"), ends[kind.name], strict=True):
                changed[f"{what} of {kind}"] = np.array(end, kind)
            renamed[name] = f"{name}/clipped"
            nodes.append(node("Clip", [name, f"least of {kind}", f"most of {kind}"], [renamed[name]]))
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (constants | changed).items())
    return made
