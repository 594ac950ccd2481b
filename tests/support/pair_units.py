"""Sums and products of two binary16 numbers by every implementation, on arrays of patterns.

Each takes the patterns ``a`` and ``b`` and gives float32 numbers; the RTL gives patterns.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path

import numpy as np
from amaranth import Module
from amaranth.back import verilog
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.emulator import kernels
from concord.golden import binary16
from concord.operations import numpy_text
from concord.operations.float32 import Pool
from concord.spec.isa import Op
from concord_rtl.arith.binary16_add import Binary16Add
from concord_rtl.arith.binary16_mul import Binary16Mul
from concord_rtl.flow.verilate import compile_verilog
from concord_rtl.parts.control import AddOp

#: By name: golden model, operation of the emulator, and function of derived software.
OPERATIONS = {
    "add": (binary16.add, Op.VV_ADD, "half_add"),
    "mul": (binary16.mul, Op.VV_MUL, "half_mul"),
}
RTL = {"add": Binary16Add, "mul": Binary16Mul}
WRAPPER = Path(__file__).with_name("pairs.cpp")


class PairUnit(wiring.Component):
    """An adder or multiplier of the multifunction units with nothing but operands and a result."""

    def __init__(self, operation):
        self.kind = RTL[operation]
        super().__init__({"a": In(16), "b": In(16), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self.kind()
        m.d.comb += [unit.a.eq(self.a), unit.b.eq(self.b), self.o.eq(unit.o)]
        if self.kind is Binary16Add:
            m.d.comb += unit.op.eq(AddOp.ADD)
        return m


@cache
def library(operation):
    """The compiled unit."""
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    text = verilog.convert(PairUnit(operation), name="pair_unit", emit_src=False)
    return compile_verilog(text, "pair_unit", wrapper=WRAPPER)


def rtl(operation):
    """The Verilated unit."""
    run, latency = ctypes.CDLL(str(library(operation))).pairs_run, RTL[operation].LATENCY
    pointer = np.ctypeslib.ndpointer(np.uint16, flags="C")
    run.argtypes, run.restype = [pointer, pointer, pointer, ctypes.c_size_t, ctypes.c_size_t], None

    def compute(a, b):
        out = np.empty(a.shape, np.uint16)
        run(a, b, out, a.size, latency)
        return out

    return compute


def emulator(operation):
    """The function of the batched emulator."""
    pool, op = Pool(), OPERATIONS[operation][1]

    def compute(a, b):
        x, y = (kernels.decode(bits).reshape(1, -1, 1 << 12) for bits in (a, b))
        out = np.empty_like(x)
        kernels.elementwise(op, [x, y], out, pool)
        return out.reshape(a.shape)

    return compute


def numpy_file(operation):
    """The function of derived NumPy files."""
    function = getattr(numpy_text, OPERATIONS[operation][2])
    return lambda a, b: function(kernels.decode(a), kernels.decode(b))


def onnx_graph(operation):
    """The function of derived ONNX graphs in ONNX Runtime."""
    import onnx
    import onnxruntime
    from onnx import helper

    from concord.derive.backends.onnx_functions import IR_VERSION, OPSET, function_name, needed
    from concord.operations.onnx_text import DOMAIN

    name = function_name(OPERATIONS[operation][2])
    ports = [helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, [None]) for x in "aby"]
    graph = helper.make_graph([helper.make_node(name, ["a", "b"], ["y"], domain=DOMAIN)], "g", ports[:2], ports[2:])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, functions=needed([name]), opset_imports=opsets, ir_version=IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return lambda a, b: session.run(None, {"a": kernels.decode(a), "b": kernels.decode(b)})[0]


def torch_function(operation):
    """The function of derived PyTorch modules."""
    import torch

    from concord.operations import torch_text

    torch.set_num_threads(1)
    function = getattr(torch_text, OPERATIONS[operation][2])
    return lambda a, b: function(*(torch.from_numpy(kernels.decode(bits)) for bits in (a, b))).numpy()


#: What makes a function, by name of the implementation.
UNITS = {
    "emulator": emulator,
    "NumPy": numpy_file,
    "ONNX Runtime": onnx_graph,
    **({"PyTorch": torch_function} if importlib.util.find_spec("torch") else {}),
    "RTL": rtl,
}


def wrong(found, want):
    """Where results are not the patterns that are wanted: a NaN is a NaN, but of the RTL the canonical one."""
    if found.dtype == np.uint16:
        return found != want
    numbers = kernels.decode(want)
    differ = found.view(np.uint32) != numbers.view(np.uint32)
    return differ & ~(np.isnan(found) & np.isnan(numbers)) if differ.any() else differ
