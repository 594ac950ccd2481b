"""Models of one operator on codes, with random codes, scales and zero points."""

import numpy as np

from concord.frontend.codes import load
from support.integer_nets import codes_of_onnxruntime
from support.onnx_models import info, model, node

MICROSOFT = "com.microsoft"


class Draw:
    """Random codes and schemes of a type, and the constants and inputs that they become."""

    def __init__(self, seed, dtype):
        self.rng = np.random.default_rng(seed)
        self.dtype, self.ends = dtype, np.iinfo(dtype)
        self.constants, self.inputs = {}, {}

    def codes(self, shape, dtype=None):
        ends = np.iinfo(dtype or self.dtype)
        return self.rng.integers(ends.min, ends.max + 1, shape).astype(dtype or self.dtype)

    def scheme(self, name, factor=1.0, dtype=None, count=None):
        """Names of a scale and a zero point."""
        scale = np.exp(self.rng.uniform(-0.6, 0.6, count)) * 0.05 * factor
        dtype = dtype or self.dtype
        zero = np.iinfo(dtype).min + self.rng.integers(96, 160, count or ())
        self.constants |= {f"{name} scale": np.float32(scale), f"{name} zero": zero.astype(dtype)}
        return [f"{name} scale", f"{name} zero"]

    def tensor(self, name, shape):
        """Names of an input of the model, its scale and its zero point."""
        self.inputs[name] = self.codes(shape)
        return [name, *self.scheme(name)]

    def constant(self, name, shape, dtype=np.int8, count=None):
        """The same of a constant."""
        self.constants[name] = self.codes(shape, dtype)
        return [name, *self.scheme(name, 0.2, dtype, count)]

    def bias(self, count, most=3000):
        self.constants["bias"] = self.rng.integers(-most, most + 1, count).astype(np.int32)
        return ["bias"]

    def near_the_middle(self, a, b):
        """Operands of a sum of two inputs with ratios of scales that are nearly multiples of a quarter."""
        self.inputs, operands = {"a": a, "b": b}, []
        for name, quarters in (("a", 2), ("b", int(self.rng.choice([1, 3, 5, 7]))), ("y", 4)):
            operands += [] if name == "y" else [name]
            operands += self.scheme(name)
            near = 0 if name == "y" else int(self.rng.integers(-9, 10))
            self.constants[f"{name} scale"] = np.float32(quarters / 4 + near * 2.0**-24)
            self.constants[f"{name} zero"] = self.codes(())
        return operands

    def model(self, op, operands, domain=MICROSOFT, **attrs):
        """A model of one operator, and the name of the type of its codes in ONNX."""
        proto = model([node(op, operands, ["y"], domain=domain, **attrs)], {}, ("y",), self.constants,
                      domains=(MICROSOFT,))  # fmt: skip
        kind = {"uint8": "UINT8", "int8": "INT8"}[np.dtype(self.dtype).name]
        number = {"UINT8": 2, "INT8": 3}[kind]
        proto.graph.input.extend(info(name, value.shape, number) for name, value in self.inputs.items())
        del proto.graph.output[:]
        proto.graph.output.append(info("y", None, number))
        return proto, kind

    def different(self, op, operands, domain=MICROSOFT, **attrs):
        """How many codes differ; there must be some that are not saturated."""
        proto, kind = self.model(op, operands, domain, **attrs)
        want = codes_of_onnxruntime(proto, ["y"], self.inputs, kind)["y"]
        got = load(proto).run(self.inputs)["y"]
        assert got.shape == want.shape and got.dtype == want.dtype
        assert np.mean((want > self.ends.min) & (want < self.ends.max)) > 0.02
        return int(np.sum(got != want))
