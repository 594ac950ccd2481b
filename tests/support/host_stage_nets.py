"""Networks of which the host computes the begin or the end, and inputs for them."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import node

PRESET = "ecp5-25f"
INT64, FLOAT, UINT8, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.UINT8, TensorProto.BOOL


def floats(*shape):
    """Weights, the same for the same shape."""
    return np.random.default_rng(sum(shape)).normal(0, 0.5, shape).astype(np.float32)


def network(nodes, inputs, outputs, constants):
    """A model whose inputs and outputs have types and shapes; the batch is open."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kind, ["n", *shape]) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, ["n", *shape]) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def classifier():
    """Words to classes: an embedding, a mean, a product, the class, and the two best."""
    return network(
        [
            node("Gather", ["table", "ids"], ["e"]),
            node("ReduceMean", ["e", "axis"], ["p"], keepdims=0),
            node("Gemm", ["p", "w", "b"], ["scores"]),
            node("ArgMax", ["scores"], ["class"], axis=1, keepdims=0),
            node("TopK", ["scores", "two"], ["best", "places"], axis=1),
        ],
        {"ids": (INT64, [6])},
        {"class": (INT64, []), "scores": (FLOAT, [5]), "best": (FLOAT, [2]), "places": (INT64, [2])},
        {"table": floats(70000, 4), "w": floats(4, 5), "b": floats(5), "axis": np.array([1]), "two": np.array([2])},
    )


def masked():
    """A mean of those words that a mask lets through: the mask goes to the NPU as it is."""
    return network(
        [
            node("Cast", ["mask"], ["m"], to=FLOAT),
            node("Unsqueeze", ["m", "two"], ["column"]),
            node("Gather", ["table", "ids"], ["e"]),
            node("Mul", ["e", "column"], ["kept"]),
            node("ReduceSum", ["kept", "one"], ["p"], keepdims=0),
            node("Gemm", ["p", "w", "b"], ["scores"]),
            node("Greater", ["scores", "zero"], ["yes"]),
        ],
        {"ids": (INT64, [6]), "mask": (INT64, [6])},
        {"yes": (BOOL, [5]), "scores": (FLOAT, [5])},
        {"table": floats(50, 16), "w": floats(16, 5), "b": floats(5), "one": np.array([1]), "two": np.array([2]),
         "zero": np.float32(0)},
    )  # fmt: skip


def pixels():
    """An image of bytes that the model itself normalises, channel by channel."""
    return network(
        [
            node("Cast", ["x"], ["f"], to=FLOAT),
            node("Div", ["f", "full"], ["share"]),
            node("Sub", ["share", "mean"], ["centred"]),
            node("Div", ["centred", "deviation"], ["normal"]),
            node("Conv", ["normal", "w"], ["y"], pads=[1, 1, 1, 1]),
            node("Relu", ["y"], ["r"]),
            node("ReduceMean", ["r", "axes"], ["p"], keepdims=0),
            node("ArgMax", ["p"], ["class"], axis=1, keepdims=0),
        ],
        {"x": (UINT8, [3, 8, 8])},
        {"class": (INT64, []), "p": (FLOAT, [4])},
        {"full": np.float32(255), "mean": np.array([0.485, 0.456, 0.406], "f").reshape(1, 3, 1, 1),
         "deviation": np.array([0.229, 0.224, 0.225], "f").reshape(1, 3, 1, 1), "w": floats(4, 3, 3, 3),
         "axes": np.array([2, 3])},
    )  # fmt: skip


def chooser():
    """Products in front of a TopK, and behind it."""
    return network(
        [
            node("Conv", ["x", "v"], ["y"], pads=[1, 1, 1, 1]),
            node("TopK", ["y", "two"], ["best", "places"], axis=1),
            node("Conv", ["best", "w"], ["z"]),
        ],
        {"x": (FLOAT, [3, 8, 8])},
        {"z": (FLOAT, [4, 6, 6])},
        {"v": floats(4, 3, 3, 3), "w": floats(4, 2, 3, 3), "two": np.array([2])},
    )


def too_large():
    """Four products, of which the matrix memory holds the third alone; the end has the first and the input."""
    return network(
        [
            node("Gemm", ["x", "u"], ["t"]),
            node("Gemm", ["x", "v"], ["a"]),
            node("Relu", ["a"], ["b"]),
            node("Gemm", ["b", "w"], ["c"]),
            node("Tanh", ["c"], ["d"]),
            node("Gemm", ["d", "z"], ["e"]),
            node("Add", ["e", "t"], ["f"]),
            node("Concat", ["f", "x"], ["y"], axis=1),
        ],
        {"x": (FLOAT, [12])},
        {"y": (FLOAT, [32])},
        {"u": floats(12, 20), "v": floats(12, 400), "w": floats(400, 160) / 20, "z": floats(160, 20)},
    )


def inputs_of(name, count=5):
    rng = np.random.default_rng(count)
    return {
        "classifier": {"ids": rng.integers(-70000, 70000, (count, 6))},
        "masked": {"ids": rng.integers(0, 50, (count, 6)), "mask": rng.integers(0, 2, (count, 6))},
        "pixels": {"x": rng.integers(0, 256, (count, 3, 8, 8)).astype(np.uint8)},
        "chooser": {"x": rng.normal(size=(count, 3, 8, 8)).astype(np.float32)},
        "too_large": {"x": rng.normal(size=(count, 12)).astype(np.float32)},
    }[name]


NETWORKS = {"classifier": classifier, "masked": masked, "pixels": pixels, "chooser": chooser, "too_large": too_large}
#: Those of which the host computes more than the ends.
ANY = ("chooser", "too_large")
