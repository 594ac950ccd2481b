"""Shards of a batch: each is computed as a batch of its own, and their gradients are added exactly.

What comes of a shard depends on its samples, the parameters and its place alone, and the sum of integers does not
depend on their order. So it does not matter who computes a shard, and when.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.graph.ir import Graph
from concord.spec.training import TrainingFormats
from concord.train.data import Samples
from concord.train.layers.base import PassContext
from concord.train.losses import ONLY, Loss, OutputLoss, losses_of
from concord.train.network import TrainableNetwork, batch
from concord.train.noise import NoiseStream
from concord.train.overflow_monitor import OverflowMonitor
from concord.train.parameters import UpdateCounts
from concord.train.tensor import Tensor, added, note_saturated, saturations
from concord.utils.parallel import Engine

#: Calls for noise of shard k begin at k times this.
_CALLS = 1 << 32
#: A network has the parameters of one task at a time; workers of a cluster may have several threads.
_TURN = threading.Lock()


@dataclass(frozen=True)
class Shard:
    """Result of a shard.

    Parameters
    ----------
    gradients : dict
        Of the sum of the losses of its samples, by parameter.
    losses : list of Loss
        Of its samples, one for each output.
    seen : dict
        Statistics of normalisations.
    calls : int
        Where the numbers of the noise have ended.
    """

    gradients: dict[str, Tensor]
    losses: list[Loss]
    seen: dict[str, Any]
    calls: int


def split(rows: Any, shards: int) -> list[Any]:
    """Neighbours in the order of the batch: the first shards have one sample more where it does not divide evenly."""
    return [part for part in np.array_split(rows, shards) if len(part)]


def forward(network: TrainableNetwork, samples: Samples, context: PassContext) -> tuple[dict[str, Tensor], list[Any]]:
    """Outputs of a forward pass; samples are in the format of activations, or as the monitor of few bits reads them."""
    values, graph = samples.inputs(slice(None)), network.graph
    if context.monitor is None:
        return network.forward_all(batch(values, graph, context.formats), context)
    x = context.monitor.input(values.reshape(len(values), *graph.shapes[graph.inputs[0]]))
    return network.forward_all(x, context)


def named(by_output: Mapping[str, Any], losses: Mapping[str, OutputLoss]) -> dict[str, Any]:
    """Values of each output, by the name that the losses have; the only one may have none."""
    return dict(zip(losses, by_output.values(), strict=True)) if ONLY in losses else dict(by_output)


def computed(
    network: TrainableNetwork, samples: Samples, formats: TrainingFormats, losses: Mapping[str, OutputLoss],
    monitor: OverflowMonitor | None, noise: NoiseStream, number: int,
) -> Shard:  # fmt: skip
    """Forward and backward of one shard; ``noise`` is that of the step."""
    own = NoiseStream(noise.seed, noise.place)
    own.calls = number * _CALLS
    context = PassContext(formats, own, monitor=monitor)
    outputs, memories = forward(network, samples, context)
    judged = losses_of(named(outputs, losses), samples.labels, losses, formats)
    gradients = judged[0].gradient if ONLY in losses else {loss.output: loss.gradient for loss in judged}
    return Shard(network.backward(gradients, memories, context), judged, context.seen, own.calls)


def judged(
    network: TrainableNetwork, samples: Samples, formats: TrainingFormats, losses: Mapping[str, OutputLoss],
    monitor: OverflowMonitor | None,
) -> dict[str, tuple[float, int | None]]:  # fmt: skip
    """Loss and right labels of one batch, by output, with the forward pass of training."""
    outputs, _ = forward(network, samples, PassContext(formats, training=False, monitor=monitor))
    of_outputs = losses_of(named(outputs, losses), samples.labels, losses, formats)
    return {loss.output: (loss.value, loss.right) for loss in of_outputs}


def together(shards: Sequence[Shard], formats: TrainingFormats) -> dict[str, Tensor]:
    """Gradients of all samples: sums as of any tensors, on the least exponent of the shards."""
    names = shards[0].gradients
    return {name: added([shard.gradients[name] for shard in shards], formats.intermediate) for name in names}


def state(network: TrainableNetwork) -> dict[str, Any]:
    """State of a network that is trained, as a pass reads it."""
    parameters = {name: (p.weight, p.acc, p.exp) for name, p in network.parameters.items()}
    return {"parameters": parameters, "norms": {name: norm.state for name, norm in network.norms.items()}}


def _with(
    network: TrainableNetwork, numbers: Mapping[str, Any], compute: Callable[..., Any], args: Sequence[Any]
) -> tuple[Any, int]:
    """A task: take the parameters, and compute; also, how many elements have saturated."""
    counts = UpdateCounts()
    with _TURN:
        parameters, norms = network.parameters, network.norms
        for name, (weight, acc, exp) in numbers["parameters"].items():
            parameters[name].replace(weight, acc, exp)
        for name, arrays in numbers["norms"].items():
            norms[name].state = arrays
        with saturations(counts):
            return compute(network, *args), counts.saturated


class Passes:
    """Passes of a network over shards and batches, here or on the workers of an engine.

    Parameters
    ----------
    network : TrainableNetwork
        That is trained here.
    engine : Engine or None
        ``None``: everything is computed here, one after the other.
    """

    def __init__(self, network: TrainableNetwork, engine: Engine | None = None):
        self.network, self.engine = network, engine
        self._copy = None if engine is None else engine.submit(_rebuilt, network.graph, network.formats)

    def map(self, compute: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> list[Any]:
        """``compute(network, *args)`` for all calls, in their order."""
        if self.engine is None:
            return [compute(self.network, *args) for args in calls]
        numbers = state(self.network)
        results = self.engine.map(_with, [(self._copy, numbers, compute, args) for args in calls])
        note_saturated(sum(saturated for _, saturated in results))
        return [result for result, _ in results]


def _rebuilt(graph: Graph, formats: TrainingFormats) -> TrainableNetwork:
    return TrainableNetwork(graph, formats)
