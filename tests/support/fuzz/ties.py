"""Random networks of one operator whose numbers are in the middle between two codes, in every form that ONNX Runtime
fuses or does not."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from support.onnx_models import info, model, node

KINDS = ("int8", "int8", "uint8", "int16", "uint16")
OPERATORS = ("Add", "Mul", "Sub", "AveragePool", "GlobalAveragePool", "ReduceMean")


class TieNet:
    """A network in the making, the schemes of its codes, and inputs."""

    def __init__(self, rng):
        self.rng, self.nodes, self.constants = rng, [], {}
        self.kind = np.dtype(str(rng.choice(KINDS)))
        ends = np.iinfo(self.kind)
        self.low, self.high = int(ends.min), int(ends.max)
        self.zero = int(rng.choice([self.low, (self.low + self.high + 1) // 2 + int(rng.integers(-20, 20))]))
        self.scale = np.float32(rng.choice([rng.uniform(0.01, 0.1), 0.05, 2.0**-4]))
        self.inputs = {}

    def quantised(self, x, name, scale=None, zero=None):
        """Codes of a tensor, and their numbers."""
        self.constants |= {
            f"{name} scale": np.float32(self.scale if scale is None else scale),
            f"{name} zero": np.array(self.zero if zero is None else zero, self.kind),
        }
        scheme = [f"{name} scale", f"{name} zero"]
        self.nodes += [node("QuantizeLinear", [x, *scheme], [f"{name} codes"])] if x else []
        self.nodes.append(node("DequantizeLinear", [f"{name} codes", *scheme], [f"{name} numbers"]))
        return f"{name} numbers"

    def operand(self, name, shape):
        """An input of floats or of codes, with codes in all of their range; its numbers."""
        codes = self.rng.integers(self.low, self.high + 1, (40, *shape))
        if self.rng.random() < 0.25:
            self.inputs[f"{name} codes"] = codes.astype(self.kind)
            return self.quantised("", name)
        self.inputs[name] = ((codes - self.zero) * self.scale).astype(np.float32)
        return self.quantised(name, name)

    def build(self):
        """The model."""
        rng, outputs = self.rng, []
        op = str(rng.choice(OPERATORS))
        shape = (int(rng.integers(1, 4)), int(rng.integers(2, 7)), 4 * int(rng.integers(1, 3)))
        operands = [self.operand("a", shape)]
        if op in ("Add", "Mul", "Sub"):
            operands += [operands[0] if rng.random() < 0.2 else self.operand("b", shape)]
        elif op == "ReduceMean":
            self.constants["axes"] = np.array([2, 3])
        factor = {"Mul": float(self.scale) * (self.high - self.low) / 4, "Add": 2.0, "Sub": 2.0}.get(op, 1.0)
        attrs = {"kernel_shape": [2, int(rng.integers(1, 4))]} if op == "AveragePool" else {}
        if op == "AveragePool" and rng.random() < 0.3:
            attrs |= {"pads": [1, 0, 0, 0], "count_include_pad": int(rng.integers(2))}
        named = [*operands, "axes"] if op == "ReduceMean" else operands
        self.nodes.append(node(op, named, ["result"], name="operator", **attrs))
        last, zero = "result", self.zero
        if rng.random() < 0.4:
            self.nodes.append(node("Relu", [last], ["limited"]))
            last, zero = "limited", self.low if rng.random() < 0.5 else zero
        y = self.quantised(last, "y", self.scale * factor, zero)
        if rng.random() < 0.3:  # something else reads an operand, too
            self.nodes.append(node("Relu", [operands[0]], ["beside"]))
            outputs.append(self.quantised("beside", "other"))
        outputs.append("y codes" if rng.random() < 0.4 else y)
        return self._model(outputs), op

    def _model(self, outputs):
        proto = model(self.nodes, {}, (), self.constants, opset=21)
        number = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16,
                  "uint16": TensorProto.UINT16}[self.kind.name]  # fmt: skip

        def port(name, shape):
            return info(name, shape, number if name.endswith("codes") else TensorProto.FLOAT)

        proto.graph.input.extend(port(name, ["n", *x.shape[1:]]) for name, x in self.inputs.items())
        proto.graph.output.extend(port(name, None) for name in outputs)
        return proto


def network(rng):
    """A model, inputs for it, and the operator and the type of codes in it."""
    made = TieNet(rng)
    proto, op = made.build()
    return proto, made.inputs, op, made.kind.name
