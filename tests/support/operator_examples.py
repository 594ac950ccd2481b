"""One node of every operator of the graph, with the shapes of its inputs."""

import numpy as np

from concord.golden.codes import Codes
from concord.graph.ir import Node
from concord.graph.ops import operator_of

_WINDOW = {"strides": (1, 1), "pads": (1, 0, 0, 1), "dilations": (1, 1)}
_POOL = {"kernel": (2, 2), **_WINDOW}
_PAD = {"pads": (0, 1, 0, 0, 2, 0), "mode": "edge", "value": 0.0}


def _random(*shape):
    return np.random.default_rng(sum(shape)).normal(0, 0.5, shape).astype(np.float32).astype(np.float64)


def _recurrent(gates, outputs, names, **more):
    attrs = {
        "W": _random(1, 3 * gates, 4), "R": _random(1, 3 * gates, 3), "B": _random(1, 6 * gates), "hidden_size": 3,
        "direction": "forward", "activations": (names,), "activation_parameters": (({},) * len(names),), "clip": None,
        "initial_h": None, **more,
    }  # fmt: skip
    return attrs, [(5, 1, 4)], outputs


#: By operator: attributes, shapes of the inputs, number of outputs.
EXAMPLES = {
    "Conv": ({"weight": _random(4, 3, 2, 2), "bias": _random(4), "group": 1, **_WINDOW}, [(1, 3, 4, 4)], 1),
    "Dense": ({"weight": _random(4, 3), "bias": _random(4)}, [(1, 3)], 1),
    "WeightedSum": ({"weights": (1000, -3), "unit": -12, "axis": 1}, [(1, 3, 2, 2)] * 2, 1),
    "MatMul": ({}, [(1, 2, 3), (1, 3, 4)], 1),
    "LSTM": _recurrent(4, 3, ("Sigmoid", "Tanh", "Tanh"), P=None, input_forget=False, initial_c=None),
    "GRU": _recurrent(3, 2, ("Sigmoid", "Tanh"), linear_before_reset=False),
    "RNN": _recurrent(1, 2, ("Tanh",)),
    "MaxPool": (_POOL, [(1, 3, 4, 4)], 1),
    "AveragePool": (_POOL | {"counted": (0, 0, 0, 0)}, [(1, 3, 4, 4)], 1),
    "Relu": ({}, [(1, 6)], 1),
    "Clip": ({"min": -0.5, "max": 0.25}, [(1, 6)], 1),
    "FakeQuantize": (
        {"quantization": Codes(4, 0.25, -8)},
        [(1, 6)],
        1,
    ),
    "ScaleAccumulators": (
        {"factor": np.array([[40000.0, 3.0]]), "fraction": np.array([[-5.0, 9000.0]]), "shift": 3, "unit": -8},
        [(1, 2)],
        1,
    ),
    "Round": ({"limited": False}, [(1, 6)], 1),
    "Sign": ({}, [(1, 6)], 1),
    "Function": ({"functions": (("sigmoid", {}),)}, [(1, 6)], 1),
    **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min", "Compare"), ({}, [(1, 6), (1, 6)], 1)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), ({"axis": 1}, [(1, 6)], 1)),
    "Normalise": ({"axes": (1,), "centred": True, "epsilon": 0.1, "scale": _random(6)}, [(1, 6)], 1),
    "BatchNorm": (
        {name: np.full(3, 0.5) for name in ("scale", "bias", "mean", "variance")} | {"epsilon": 0.1, "momentum": 0.9},
        [(1, 3, 4)],
        1,
    ),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), ({"axes": (2,), "keepdims": False}, [(1, 3, 4)], 1)),
    "Expand": ({"shape": (1, 3, 4), "like": "a"}, [(1, 3, 1)], 1),
    "Copy": ({"shape": (1, 3, 4), "lanes": 1}, [(1, 3, 1)], 1),
    **dict.fromkeys(("AlignGroups", "GroupMean"), ({"axes": (2,)}, [(1, 3, 4)], 1)),
    "Reshape": ({"shape": (1, 12)}, [(1, 3, 4)], 1),
    "Transpose": ({"perm": (0, 2, 1)}, [(1, 3, 4)], 1),
    "Concat": ({"axis": 1}, [(1, 3), (1, 2)], 1),
    "Slice": ({"axes": (1,), "starts": (2,), "stops": (-1,), "steps": (-1,)}, [(1, 3)], 1),
    "Pick": ({"axis": 1, "indices": (2, 0, 0, 1)}, [(1, 3, 2)], 1),
    **dict.fromkeys(("Pad", "PadCopy"), (_PAD, [(1, 3, 4)], 1)),
    **dict.fromkeys(("Truncate", "Not"), ({}, [(1, 6)], 1)),
    **dict.fromkeys(("Less", "Equal", "Divide", "Modulo"), ({}, [(1, 6), (1, 6)], 1)),
    "Wrap": ({"low": -128.0, "modulus": 256.0}, [(1, 6)], 1),
    "Select": ({}, [(1, 6), (1, 6), (1, 6)], 1),
    "Lookup": ({"table": _random(5, 3), "axis": 0}, [(1, 4)], 1),
    "Take": ({"axis": 1}, [(1, 5, 3), (2,)], 1),
    "ArgMax": ({"axis": 1, "keepdims": False, "least": False, "last": True}, [(1, 6)], 1),
    "Fill": ({"value": _random(2, 3)}, [(1, 6)], 1),
    "Trees": (
        {
            "features": np.array([1.0, 0, 0, 2, 0, 0]),
            "thresholds": np.array([0.25, 0, 0, -0.5, 0, 0]),
            "low": np.array([1.0, 1, 2, 4, 4, 5]),
            "high": np.array([2.0, 1, 2, 5, 4, 5]),
            "roots": np.array([0.0, 3]),
            "values": _random(6, 2),
            "strict": False,
            "depth": 1,
        },
        [(1, 3)],
        1,
    ),
    "Impute": ({"values": _random(6)}, [(1, 6)], 1),
    "Categories": ({"categories": np.array([0.0, 2, 5]), "complete": False}, [(1, 6)], 1),
    "Coupling": ({"classes": 3, "slopes": np.array([-1.0, -2, 1]), "offsets": _random(3)}, [(1, 3)], 1),
    "TopK": ({"axis": 1, "size": 2, "largest": True}, [(1, 6)], 2),
}


def example(op):
    """The node of an operator, and shapes by tensor; inputs are ``a``, ``b``, ``c``, outputs ``y``, ``y1``, ``y2``."""
    attrs, shapes, count = EXAMPLES[op]
    inputs = tuple("abc"[: len(shapes)])
    node = Node(op, "node", inputs, tuple(f"y{k or ''}" for k in range(count)), dict(attrs))
    found = operator_of(node).shape(node, shapes)
    return node, dict(zip((*inputs, *node.outputs), (*shapes, *found), strict=True))
