"""Operations of the emulator and of derived software by the names that :mod:`derive_numbers` has for them."""

from __future__ import annotations

import numpy as np

from concord.derive.backends import numpy_prelude as prelude
from concord.emulator import kernels
from concord.program import Quant
from concord.spec.formats import BlockFormat, ExponentMode, Rounding
from concord.spec.isa import Op
from derive_flag_numbers import CONDITIONS
from derive_numbers import PRIMITIVES

_BINARY = {"HalfAdd": "add", "HalfSub": "sub", "HalfMul": "mul", "HalfMax": "larger", "HalfMin": "smaller"}
_OPS = {"HalfAdd": Op.VV_ADD, "HalfSub": Op.VV_SUB, "HalfMul": Op.VV_MUL, "HalfMax": Op.VV_MAX, "HalfMin": Op.VV_MIN}
_QUANTISE = tuple(name for name in PRIMITIVES if "Quantize" in name)
_LEVELS = ("none", "basic", "extended", "all")
#: By backend, which operations it has as such.
OPERATIONS = {
    "emulator": (*_OPS, "HalfRelu", "HalfTable", "RoundToHalf", "RoundSingleToHalf", *_QUANTISE),
    "numpy": (*_BINARY, "HalfRelu", "HalfTable", "RoundToHalf", "RealToHalf", *_QUANTISE),
    **{f"onnx {level}": (*PRIMITIVES, *CONDITIONS) for level in _LEVELS},
    "torch": (*PRIMITIVES, *CONDITIONS),
}


def _rounding(name):
    """Rounding of a conversion, and its name in NumPy files."""
    if name.endswith("Stochastic"):
        return Rounding.STOCHASTIC, "stochastic"
    return (Rounding.NEAREST_AWAY, "away") if name.endswith("Away") else (Rounding.NEAREST_EVEN, "even")


def _sizes(name, attributes, rest):
    """Mantissa, least exponent, static exponent if there is one, and noise."""
    mant = int(attributes["greatest_code"] + 1).bit_length()
    if name.startswith("Static"):
        exponent = int(np.log2(attributes["unit"]))
        return mant, exponent, exponent, rest[0] if rest else None
    return mant, int(np.log2(rest[0][0])), None, rest[1] if len(rest) > 1 else None


def numpy_file(name, attributes, *arrays):
    """A function of derived NumPy files."""
    x, *rest = arrays
    with np.errstate(all="ignore"):
        if name in _BINARY:
            return getattr(prelude, _BINARY[name])(x, rest[0])
        if name == "HalfRelu":
            return prelude.relu(x)
        if name == "HalfTable":
            scale = int(np.log2(attributes["factor"]))
            return prelude.table(x, rest[0], int(attributes["low"]), int(attributes["high"]), scale)
        if name in _QUANTISE:
            mant, least, exponent, noise = _sizes(name, attributes, rest)
            how = {"exponent": exponent, "rounding": _rounding(name)[1], "noise": noise}
            return prelude.quantise(x, [x.shape[-1]], mant, least, **how)
        return prelude.half(x + 0.0 if name == "RoundToHalf" else x)


def emulator(name, attributes, *arrays):
    """A function of the batched emulator."""
    x, *rest = arrays
    pool = kernels.Pool()
    with np.errstate(all="ignore"):
        if name in _QUANTISE:
            return _emulated_block(name, attributes, x, rest, pool)
        lanes = x.reshape(1, 1, -1).copy()
        out = np.empty(lanes.shape, np.float32)
        if name in _OPS:
            kernels.binary(_OPS[name], lanes, rest[0].reshape(lanes.shape), out, pool)
        elif name == "HalfRelu":
            kernels.relu(lanes, out)
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
    quant = Quant(mode, exponent or 0, _rounding(name)[0])
    given = x.reshape(len(x), 1, -1, 1).copy()
    beside = None if noise is None else noise.reshape(len(x), 1, -1).astype(np.uint16)
    out, scale = np.empty_like(given), np.empty((len(x), 1, 1), np.float32)
    kernels.quantize(given, form, quant, beside, out, scale, pool)
    return out.reshape(x.shape)


def runner(backend):
    """What people call a backend, and what calls its operations."""
    if backend in ("emulator", "numpy"):
        return {"emulator": ("emulator", emulator), "numpy": ("NumPy", numpy_file)}[backend]
    if backend == "torch":
        import test_torch_functions

        return "PyTorch", test_torch_functions.run
    import test_onnx_functions

    return "ONNX Runtime", test_onnx_functions.runner(backend.split()[1])
