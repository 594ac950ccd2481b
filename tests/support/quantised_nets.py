"""Models that are quantised already, in the QDQ form."""

import numpy as np

from support.onnx_models import model, node


def network(scale=2.0**-5, dtype=np.int8, zero=0, weight_scale=2.0**-7, most=127, x=None):
    """Two products of quantised tensors, all weights quantised; ``x`` is scale and zero point of the input."""
    x_scale, x_zero = x or (2.0**-4, np.int8(0))
    rng = np.random.default_rng(12)
    constants = {
        "v": rng.integers(-most, most + 1, (6, 8)).astype(np.int8),
        "w": rng.integers(-most, most + 1, (8, 4)).astype(np.int8),
        "vs": np.float32(weight_scale), "ws": np.full(4, weight_scale, np.float32), "wz": np.zeros(4, np.int8),
        "xs": np.float32(x_scale), "xz": x_zero, "as": np.float32(scale), "az": dtype(zero),
    }  # fmt: skip
    constants["v"][0, 0] = constants["w"][0, 0] = -most
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["v", "vs"], ["vd"]), node("MatMul", ["xd", "vd"], ["m"], name="first"),
        node("Relu", ["m"], ["a"]),
        node("QuantizeLinear", ["a", "as", "az"], ["aq"]), node("DequantizeLinear", ["aq", "as", "az"], ["ad"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        node("MatMul", ["ad", "wd"], ["y"], name="second"),
    ]  # fmt: skip
    return model(nodes, {"x": ["N", 6]}, constants=constants)
