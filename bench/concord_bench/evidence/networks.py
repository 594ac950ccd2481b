"""Networks that are trained from random weights; weights here are zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from concord.graph.ir import Graph, Node
from concord.train import described


def recurrence(features: int, hidden: int) -> dict[str, Any]:
    """Attributes of an LSTM in one direction."""
    return {
        "W": np.zeros((1, 4 * hidden, features)), "R": np.zeros((1, 4 * hidden, hidden)),
        "B": np.zeros((1, 8 * hidden)),
        "hidden_size": hidden, "direction": "forward", "clip": None, "P": None, "input_forget": False,
        "activations": (("Sigmoid", "Tanh", "Tanh"),), "activation_parameters": (({}, {}, {}),),
        "initial_h": None, "initial_c": None,
    }  # fmt: skip


def lstm(hidden: int = 32) -> Graph:
    """Eight rows of eight pixels, one after the other, and a product after the last state."""
    shapes: dict[str, tuple[int, ...]] = {
        "x": (1, 1, 8, 8), "rows": (8, 1, 8), "last": (1, 1, hidden), "state": (1, hidden), "y": (1, 10)
    }  # fmt: skip
    nodes = [
        Node("Reshape", "rows", ("x",), ("rows",), {"shape": (8, 1, 8)}),
        Node("LSTM", "lstm", ("rows", "", ""), ("", "last", ""), recurrence(8, hidden)),
        Node("Reshape", "state", ("last",), ("state",), {"shape": (1, hidden)}),
        Node("Dense", "dense", ("state",), ("y",), {"weight": np.zeros((10, hidden)), "bias": np.zeros(10)}),
    ]
    return Graph("lstm", nodes, ["x"], ["y"], shapes, {"x", "y"})


def _layers(*layers: Mapping[str, Any], shape: tuple[int, ...]) -> Callable[[], Graph]:
    return lambda: described(layers, shape)


_RELU = {"op": "relu"}
MLP = _layers({"op": "flatten"}, {"op": "dense", "outputs": 32}, _RELU, {"op": "dense", "outputs": 10}, shape=(1, 8, 8))
CNN = _layers(
    {"op": "conv", "channels": 8, "pad": 1}, _RELU, {"op": "max_pool"},
    {"op": "conv", "channels": 16, "pad": 1}, _RELU, {"op": "max_pool"},
    {"op": "flatten"}, {"op": "dense", "outputs": 10}, shape=(1, 8, 8),
)  # fmt: skip
RESIDUAL = _layers(
    {"op": "conv", "channels": 8, "stride": 2, "pad": 1}, {"op": "relu", "name": "before"},
    {"op": "conv", "channels": 8, "pad": 1}, _RELU, {"op": "conv", "channels": 8, "pad": 1},
    {"op": "add", "to": "before"}, _RELU, {"op": "max_pool"},
    {"op": "conv", "channels": 16, "pad": 1}, _RELU, {"op": "flatten"}, {"op": "dense", "outputs": 10},
    shape=(1, 28, 28),
)  # fmt: skip
DEPTHWISE = _layers(
    {"op": "conv", "channels": 16, "stride": 2, "pad": 1}, _RELU,
    {"op": "depthwise", "pad": 1}, _RELU, {"op": "conv", "channels": 24, "kernel": 1}, _RELU, {"op": "max_pool"},
    {"op": "depthwise", "pad": 1}, _RELU, {"op": "conv", "channels": 32, "kernel": 1}, _RELU, {"op": "max_pool"},
    {"op": "flatten"}, {"op": "dense", "outputs": 10}, shape=(1, 28, 28),
)  # fmt: skip
