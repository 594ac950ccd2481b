"""A graph in float32 on PyTorch, trained the usual way: what the time of the integer trainer is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from concord.graph.ir import Graph, Node

#: Gates of ONNX in the order of PyTorch: i, o, f, c to i, f, c, o.
_LSTM_ORDER = (0, 2, 3, 1)


class FloatReference(nn.Module):  # type: ignore[misc]
    """The layers of a graph with its weights as parameters; a Softmax at the end belongs to the loss.

    Tensors of the graph have an axis of length 1 where files have the batch; it is left out here.

    Parameters
    ----------
    graph : Graph
        With one input and one output, of the operators that :meth:`_apply` has.

    Raises
    ------
    ValueError
        If an operator is not there.
    """

    def __init__(self, graph: Graph):
        super().__init__()
        self.graph = graph
        self.inner = nn.ModuleDict()
        for node in graph.nodes:
            key = node.name.replace(".", "_")
            if node.op in ("Conv", "Dense"):
                tensors = {name: _parameter(node.attrs[name]) for name in ("weight", "bias")}
                self.inner[key] = nn.ParameterDict(tensors)
            elif node.op == "LSTM":
                self.inner[key] = _lstm(node)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits ``[samples, classes]``."""
        values = {self.graph.inputs[0]: x}
        for node in self.graph.nodes:
            output = self._apply(node, *(values[name] for name in node.inputs if name))
            values.update(dict.fromkeys((name for name in node.outputs if name), output))
        return values[self.graph.outputs[0]].reshape(len(x), -1)

    def _apply(self, node: Node, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        attrs, key = node.attrs, node.name.replace(".", "_")
        inner: Any = self.inner[key] if key in self.inner else None
        match node.op:
            case "Conv":
                padded = F.pad(x, _sides(attrs["pads"])) if any(attrs["pads"]) else x
                strides, dilations = attrs["strides"], attrs["dilations"]
                return F.conv2d(padded, inner["weight"], inner["bias"], strides, 0, dilations, attrs["group"])
            case "Dense":
                return F.linear(x, inner["weight"], inner["bias"])
            case "LSTM":
                return torch.as_tensor(inner(x[:, :, 0])[1][0][0][:, None, None])
            case "Relu":
                return torch.relu(x)
            case "MaxPool" if not any(attrs["pads"]):
                return F.max_pool2d(x, attrs["kernel"], attrs["strides"])
            case "AveragePool" if not any(attrs["pads"]):
                return F.avg_pool2d(x, attrs["kernel"], attrs["strides"])
            case "ReduceMean":
                return x.mean(attrs["axes"], keepdim=attrs["keepdims"])
            case "Add":
                return x + more[0]
            case "Reshape":
                first, *rest = attrs["shape"]
                return x.reshape(len(x), *([first] if first > 1 else []), *rest)
            case "Softmax" if node.outputs[0] == self.graph.outputs[0]:
                return x
        raise ValueError(f"operators of a float network must be among those that are timed, not {node.op}")


def _parameter(values: Any) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.array(values, dtype=np.float32)))


def _sides(pads: tuple[int, ...]) -> list[int]:
    """Padding of the last two axes as PyTorch has it: the last axis first."""
    top, left, bottom, right = pads
    return [left, right, top, bottom]


def _lstm(node: Node) -> nn.Module:
    (w,), (r,), (b,) = node.attrs["W"], node.attrs["R"], node.attrs["B"]
    made = nn.LSTM(w.shape[1], node.attrs["hidden_size"], batch_first=True)

    def ordered(values: Any) -> torch.Tensor:
        gates = np.split(np.array(values, dtype=np.float32), 4)
        return torch.from_numpy(np.concatenate([gates[k] for k in _LSTM_ORDER]))

    halves = np.split(b, 2)
    with torch.no_grad():
        for name, values in zip(
            ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), (w, r, *halves), strict=True
        ):
            getattr(made, name).copy_(ordered(values))
    return made
