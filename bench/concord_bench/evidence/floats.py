"""The reference: a network trained by PyTorch in float32, from the same weights and with the same samples in each step.

Needs the ``torch`` extra.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from concord.graph.ir import Graph, Node
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Figures, OutputFigures, Samples, Settings
from concord.train.losses import IGNORED, ONLY, judged_count
from concord.train.network import TrainableNetwork
from concord.train.trainer import EVALUATION_BATCH, order_of

#: Formats in which the weights at the start are those of float32: 31 bits after the greatest one.
_FINE = TrainingFormats(
    weight=TrainingFormat(32), bias=TrainingFormat(32), accumulator=AccumulatorFormat(bits=8, point=0)
)


def initial(graph: Graph, seed: int) -> Graph:
    """The graph with the random weights that training begins with, before they are rounded to a format."""
    return TrainableNetwork(graph, _FINE, seed).trained()


class FloatTrainer:
    """Trains in float32 with SGD and momentum of PyTorch.

    Parameters
    ----------
    graph : Graph
        The network with the weights to start from.
    samples, settings, test
        As for :class:`concord.train.Trainer`; formats are not used.

    Raises
    ------
    ValueError
        If an operator has no float32 counterpart here, or a loss is not ``cross_entropy``.
    """

    def __init__(self, graph: Graph, samples: Samples, settings: Settings, test: Samples | None = None):
        import torch

        self.losses = settings.losses_of(graph.outputs)
        if others := sorted({by.loss for by in self.losses.values()} - {"cross_entropy"}):
            raise ValueError(f"loss must be cross_entropy, not {others[0]!r}")
        if unknown := sorted({node.op for node in graph.nodes} - set(_OPS)):
            raise ValueError(f"operators must be among {', '.join(_OPS)}, not {', '.join(unknown)}")
        torch.manual_seed(settings.seed)  # nothing is drawn; a layer that did would be repeatable
        self.graph, self.samples, self.settings, self.test = graph, samples, settings, test
        self.history: list[Figures] = []
        self.parameters: dict[str, dict[str, Any]] = {}
        keys = {layer.name: set(layer.parameters) for layer in TrainableNetwork(graph, _FINE).layers}
        for node in graph.nodes:
            arrays = _trained_arrays(node, keys.get(node.name, set()))
            self.parameters[node.name] = {
                key: torch.tensor(value.astype(np.float32), requires_grad=True) for key, value in arrays.items()
            }
        flat = [p for of_node in self.parameters.values() for p in of_node.values()]
        self.optimiser = torch.optim.SGD(
            flat, lr=float(settings.rate), momentum=float(settings.momentum), weight_decay=0.0
        )

    def forward(self, x: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
        """Logits ``[samples, classes]`` of samples as the network reads them, of the only output."""
        (output,) = self.forward_all(x).values()
        return output

    def forward_all(self, x: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
        """Values of all outputs, by the names that losses have."""
        import torch

        name = self.graph.inputs[0]
        values: dict[str, Any] = {name: torch.tensor(x.astype(np.float32)).reshape(len(x), *self.graph.shapes[name])}
        for node in self.graph.nodes:
            operands = [values[name] for name in node.inputs if name]
            results = _OPS[node.op](node, self.parameters[node.name], *operands)
            values |= {name: tensor for name, tensor in zip(node.outputs, results, strict=False) if name}
        return {
            name: values[output].reshape(len(x), -1)
            for name, output in zip(self.losses, self.graph.outputs, strict=True)
        }

    def fit(self) -> list[Figures]:
        """Take all steps."""
        import torch

        size = self.settings.batch
        for epoch in range(self.settings.epochs):
            rate = float(self.settings.rate_of(epoch))
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            order = order_of(self.settings.seed, epoch, len(self.samples))
            sums: dict[str, list[float]] = {name: [0.0, 0] for name in self.losses}
            for start in range(0, len(order), size):
                part = self.samples.part(order[start : start + size])
                whole = torch.zeros(())
                for name, output in self.forward_all(part.inputs(slice(None))).items():
                    labels = torch.tensor(part.labels[name].astype(np.int64))
                    loss = _loss(output, labels, len(part))
                    whole = whole + float(self.losses[name].weight) * loss
                    sums[name][0] += float(loss.detach()) * len(part)
                    sums[name][1] += _right(output, labels)
                self.optimiser.zero_grad()
                whole.backward()
                self.optimiser.step()
            learned = self._per_label(sums, self.samples)
            figures = Figures(epoch, rate, *self._together(learned))
            if ONLY not in learned:
                figures.outputs = {name: OutputFigures(*of_output) for name, of_output in learned.items()}
            if self.test is not None:
                tested = self.judge_outputs(self.test)
                figures.test_loss, figures.test_accuracy = self._together(tested)
                for name, each in figures.outputs.items():
                    each.test_loss, each.test_accuracy = tested[name]
            self.history.append(figures)
        return self.history

    def judge(self, samples: Samples) -> tuple[float, float | None]:
        """Loss and accuracy on samples; of several outputs the weighted sum of the losses, and ``None``."""
        return self._together(self.judge_outputs(samples))

    def judge_outputs(self, samples: Samples) -> dict[str, tuple[float, float]]:
        """Loss and accuracy of every output by its name."""
        import torch

        sums: dict[str, list[float]] = {name: [0.0, 0] for name in self.losses}
        with torch.no_grad():
            for start in range(0, len(samples), EVALUATION_BATCH):
                part = samples.part(slice(start, start + EVALUATION_BATCH))
                for name, output in self.forward_all(part.inputs(slice(None))).items():
                    labels = torch.tensor(part.labels[name].astype(np.int64))
                    sums[name][0] += float(_loss(output, labels, 1))
                    sums[name][1] += _right(output, labels)
        return self._per_label(sums, samples)

    def _per_label(self, sums: Mapping[str, Sequence[float]], samples: Samples) -> dict[str, tuple[float, float]]:
        counts = {name: judged_count(self.losses[name].loss, y) for name, y in samples.labels.items()}
        return {name: (loss / counts[name], right / counts[name]) for name, (loss, right) in sums.items()}

    def _together(self, by_output: Mapping[str, tuple[float, float]]) -> tuple[float, float | None]:
        if ONLY in by_output:
            return by_output[ONLY]
        return sum(float(self.losses[name].weight) * loss for name, (loss, _) in by_output.items()), None


def _loss(output: Any, labels: Any, samples: int) -> Any:
    """The sum of the losses of all labels that count, divided by a number of samples."""
    from torch.nn import functional

    if labels.dim() == 1:
        return functional.cross_entropy(output, labels, reduction="sum" if samples == 1 else "mean")
    positions = output.reshape(labels.numel(), -1), labels.reshape(-1)
    return functional.cross_entropy(*positions, ignore_index=IGNORED, reduction="sum") / samples


def _right(output: Any, labels: Any) -> int:
    """Labels whose class has the greatest output."""
    return int((output.reshape(labels.numel(), -1).argmax(1) == labels.reshape(-1)).sum())


# Operators -------------------------------------------------------------------------------------------------


def _trained_arrays(node: Node, keys: Collection[str]) -> dict[str, Any]:
    """Arrays of a node that are trained, as in block floating point; the two biases of an LSTM are one."""
    if node.op == "LSTM":
        return {"W": node.attrs["W"][0], "R": node.attrs["R"][0], "B": sum(np.split(node.attrs["B"][0], 2))}
    return {key: node.attrs[key] for key in ("weight", "bias", "constant", "table", "scale") if key in keys}


def _images(x: Any) -> Any:
    """``[samples, batch, C, *spatial]`` as images or videos."""
    return x.reshape(-1, *x.shape[2:])


def _padded(x: Any, node: Node, fill: float = 0.0) -> Any:
    from torch.nn import functional

    pads = node.attrs["pads"]
    begins, ends = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    last_first = [number for both in zip(reversed(begins), reversed(ends), strict=True) for number in both]
    return functional.pad(x, last_first, value=fill)


def _conv(node: Node, p: dict[str, Any], x: Any) -> tuple[Any]:
    from torch.nn import functional

    strides, dilations = node.attrs["strides"], node.attrs["dilations"]
    convolve = {2: functional.conv2d, 3: functional.conv3d}[len(strides)]
    y = convolve(
        _padded(_images(x), node), p["weight"], p["bias"], tuple(strides), 0, tuple(dilations), node.attrs["group"]
    )
    return (y.reshape(len(x), -1, *y.shape[1:]),)


def _max_pool(node: Node, p: dict[str, Any], x: Any) -> tuple[Any]:
    from torch.nn import functional

    padded = _padded(_images(x), node, -np.inf)
    pool = {2: functional.max_pool2d, 3: functional.max_pool3d}[len(node.attrs["kernel"])]
    y = pool(padded, tuple(node.attrs["kernel"]), tuple(node.attrs["strides"]))
    return (y.reshape(len(x), -1, *y.shape[1:]),)


def _mean(node: Node, p: dict[str, Any], x: Any) -> tuple[Any]:
    return (x.mean(dim=[axis + 1 for axis in node.attrs["axes"]], keepdim=bool(node.attrs["keepdims"])),)


def _dense(node: Node, p: dict[str, Any], x: Any) -> tuple[Any]:
    y = x @ (p["weight"] if "weight" in p else x.new_tensor(node.attrs["weight"])).T
    return (y + p["bias"] if "bias" in p else y,)


def _add(node: Node, p: dict[str, Any], *xs: Any) -> tuple[Any]:
    other = p["constant"] if "constant" in p else xs[1] if len(xs) > 1 else xs[0].new_tensor(node.attrs["constant"])
    return (xs[0] + other,)


def _mul(node: Node, p: dict[str, Any], x: Any) -> tuple[Any]:
    return (x * float(np.reshape(node.attrs["constant"], ())),)


def _lookup(node: Node, p: dict[str, Any], x: Any) -> tuple[Any]:
    return (p["table"][x.long()],)


def _normalise(node: Node, p: dict[str, Any], x: Any) -> tuple[Any]:
    axes = [axis + 1 for axis in node.attrs["axes"]]
    if node.attrs["centred"]:
        x = x - x.mean(dim=axes, keepdim=True)
    spread = (x * x).mean(dim=axes, keepdim=True) + node.attrs["epsilon"]
    return (x / spread.sqrt() * p["scale"],)


def _lstm(node: Node, p: dict[str, Any], x: Any) -> tuple[Any, Any]:
    """Y and the last h, one direction, from states of zeros; gates are in the order of ONNX."""
    import torch

    samples, steps, batch, _ = x.shape
    h = x.new_zeros(samples, batch, node.attrs["hidden_size"])
    c, states = h, []
    for k in range(steps):
        gates = x[:, k] @ p["W"].T + h @ p["R"].T + p["B"]
        i, o, f, g = gates.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states, 1)[:, :, None], h[:, None]


_OPS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "Add": _add,
    "Conv": _conv,
    "Dense": _dense,
    "LSTM": _lstm,
    "Lookup": _lookup,
    "MatMul": lambda node, p, a, b: (a @ b,),
    "MaxPool": _max_pool,
    "Mul": _mul,
    "Normalise": _normalise,
    "ReduceMean": _mean,
    "Relu": lambda node, p, x: (x.relu(),),
    "Reshape": lambda node, p, x: (x.reshape(len(x), *node.attrs["shape"]),),
    "Softmax": lambda node, p, x: (x.softmax(node.attrs["axis"] + 1),),
    "Transpose": lambda node, p, x: (x.permute(0, *(axis + 1 for axis in node.attrs["perm"])),),
}
