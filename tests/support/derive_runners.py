"""Operations of the emulator and of derived software by the names that :mod:`support.derive_numbers` has for them."""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from concord.derive.backends import function_texts, numpy_flags, numpy_functions, onnx_functions, python_library
from concord.derive.backends.onnx_functions import IR_VERSION, OPSET
from concord.emulator import kernels
from concord.operations import catalogue, numpy_text
from concord.operations.float32 import Pool
from concord.operations.onnx_text import DOMAIN
from concord.program import Quant
from concord.spec.formats import BlockFormat, ExponentMode, Rounding
from support.derive_flag_numbers import CONDITIONS
from support.derive_numbers import PRIMITIVES

_OPS = {
    onnx_functions.function_name(operation.primitive): op
    for op, operation in catalogue.OPERATIONS.items()
    if operation.exchanged is None
}
_QUANTISE = tuple(name for name in PRIMITIVES if "Quantize" in name)
_ONNX_LEVELS = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def _without(*names):
    return tuple(name for name in (*PRIMITIVES, *CONDITIONS) if name not in names)


#: By backend, which operations it has as such.
OPERATIONS = {
    "emulator": (*_OPS, "HalfTable", "RoundToHalf", "RoundSingleToHalf", *_QUANTISE),
    "numpy": _without("RoundSingleToHalf", "RoundSumToHalf", "BeyondSum", "HalfToReal"),  # that keeps NaNs as they are
    **{f"onnx {level}": (*PRIMITIVES, *CONDITIONS) for level in _ONNX_LEVELS},
    "torch": _without("RoundSingleToHalf"),
}


def _rounding(name):
    """Rounding of a conversion."""
    if name.endswith("Stochastic"):
        return Rounding.STOCHASTIC
    return Rounding.NEAREST_AWAY if name.endswith("Away") else Rounding.NEAREST_EVEN


def _sizes(name, attributes, rest):
    """Mantissa, least exponent, static exponent if there is one, and noise."""
    mant = int(attributes["greatest_code"] + 1).bit_length()
    if name.startswith("Static"):
        exponent = int(np.log2(attributes["unit"]))
        return mant, exponent, exponent, rest[0] if rest else None
    return mant, int(np.log2(rest[0][0])), None, rest[1] if len(rest) > 1 else None


def of_python(modules, name, attributes, *arrays):
    """A function of a derived file of Python, by its name in ONNX."""
    stem = name.removesuffix("Away").removesuffix("Stochastic")
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stem).lower()
    function = next(getattr(module, plain) for module in modules if hasattr(module, plain))
    return function(*arrays, **attributes, **({"away": True} if name.endswith("Away") else {}))


def numpy_file(name, attributes, *arrays):
    """A function of derived NumPy files."""
    with np.errstate(all="ignore"):
        return of_python([numpy_text, numpy_functions, numpy_flags], name, attributes, *arrays)


def emulator(name, attributes, *arrays):
    """A function of the batched emulator."""
    x, *rest = arrays
    pool = Pool()
    with np.errstate(all="ignore"):
        if name in _QUANTISE:
            return _emulated_block(name, attributes, x, rest, pool)
        lanes = x.reshape(1, 1, -1).copy()
        out = np.empty(lanes.shape, np.float32)
        if name in _OPS:
            kernels.elementwise(_OPS[name], [lanes, *(array.reshape(lanes.shape) for array in rest)], out, pool)
        elif name == "HalfTable":
            low, high, scale = int(attributes["low"]), int(attributes["high"]), int(np.log2(attributes["factor"]))
            slot = {"low": low, "high": high, "offset": -low, "scale": scale, "settled_low": 0, "settled_high": 0}
            kernels.look_up(lanes, slot, rest[0], out, pool)
        elif name == "RoundToHalf":
            kernels.round_sums(lanes, out, pool)
        else:
            out = lanes
            kernels.round_singles(out, pool)
        return out.reshape(x.shape)


def _emulated_block(name, attributes, x, rest, pool):
    mant, least, exponent, noise = _sizes(name, attributes, rest)
    form = BlockFormat(mant, x.shape[-1], least, max(least, 15))
    mode = ExponentMode.DYNAMIC if exponent is None else ExponentMode.STATIC
    quant = Quant(mode, exponent or 0, _rounding(name))
    given = x.reshape(len(x), 1, -1, 1).copy()
    beside = None if noise is None else noise.reshape(len(x), 1, -1).astype(np.uint16)
    out, scale = np.empty_like(given), np.empty((len(x), 1, 1), np.float32)
    kernels.quantize(given, form, quant, beside, out, scale, pool)
    return out.reshape(x.shape)


def torch_function(name, attributes, *arrays):
    """A function of derived modules of PyTorch."""
    import torch

    return of_python([text_of_torch()], name, attributes, *map(torch.from_numpy, arrays)).numpy()


@cache
def text_of_torch():
    """The functions that derived modules of PyTorch hold, as attributes."""
    of_torch = [function_texts.with_operations, function_texts.flag_text, function_texts.host_text]
    text = "\n\n".join([python_library.TORCH.imports, *(part("torch") for part in of_torch)])
    namespace = SimpleNamespace(np=np)
    exec(compile(text, "functions of PyTorch", "exec"), namespace.__dict__)
    return namespace


def run_onnx_nodes(nodes, inputs, functions, arrays, level):
    """The only output, ``y``, of a graph in ONNX Runtime."""
    types = dict.fromkeys(CONDITIONS, onnx.TensorProto.BOOL)
    types |= {"AnyOfSample": onnx.TensorProto.INT32}
    types |= dict.fromkeys(("HalfToReal", "HostExp", "HostLog"), onnx.TensorProto.DOUBLE)
    called = nodes[-1].op_type
    axes = [None] * (1 if called == "AnyOfSample" else arrays[0].ndim)
    outputs = [helper.make_tensor_value_info("y", types.get(called, onnx.TensorProto.FLOAT), axes)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = _ONNX_LEVELS[level]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, dict(zip([one.name for one in inputs], arrays, strict=True)))[0]


def onnx_runner(level, change=lambda function: function):
    """Calls functions in ONNX Runtime; ``change`` is applied to each."""

    def run(name, attributes, *arrays):
        functions = [change(function) for function in onnx_functions.needed([name])]
        called = next(function for function in functions if function.name == name)
        node = helper.make_node(name, list(called.input), ["y"], domain=DOMAIN, **attributes)
        inputs = [
            helper.make_tensor_value_info(given, helper.np_dtype_to_tensor_dtype(array.dtype), [None, *array.shape[1:]])
            for given, array in zip(called.input, arrays, strict=True)
        ]
        return run_onnx_nodes([node], inputs, functions, arrays, level)

    return run


def runner(backend):
    """What people call a backend, and what calls its operations."""
    if backend in ("emulator", "numpy"):
        return {"emulator": ("emulator", emulator), "numpy": ("NumPy", numpy_file)}[backend]
    if backend == "torch":
        return "PyTorch", torch_function
    return "ONNX Runtime", onnx_runner(backend.split()[1])
