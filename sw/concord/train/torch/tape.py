"""The tape of a converted module: results of the forward pass, and the backward pass over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from concord.graph.ir import Node, Shape
from concord.graph.ops import operator_of
from concord.spec.training import TrainingFormats
from concord.train.layers.base import PassContext, TrainableLayer
from concord.train.network import parameter_gradients
from concord.train.noise import NoiseStream
from concord.train.parameters import Parameter, UpdateCounts
from concord.train.tensor import Tensor, saturations

#: Place of random numbers, as in :mod:`concord.train.trainer`.
_NOISE = 3


#: A tensor of a pass with its name.
Made = tuple[str, Tensor]


@dataclass
class Gradients:
    """Gradients that backward passes have left for a parameter.

    Parameters
    ----------
    parts : list of Tensor
        Gradients; the optimiser adds them up.
    samples : int
        Every one of them is the gradient of a sum over so many samples.
    """

    parts: list[Tensor] = field(default_factory=list)
    samples: int = 0


class Session:
    """State of a converted module beside its weights.

    Parameters
    ----------
    formats : TrainingFormats
        Of everything.
    seed : int
        Of noise.
    """

    def __init__(self, formats: TrainingFormats, seed: int):
        self.formats, self.seed = formats, seed
        #: Counts of updates and of saturated elements; the optimiser shows them.
        self.counts = UpdateCounts()
        #: Steps of the optimiser so far; noise depends on them.
        self.steps = 0
        self.noise = NoiseStream(seed, (_NOISE, 0))
        #: By the id of the parameter, in the order of the layers.
        self.gradients: dict[int, tuple[Parameter, Gradients]] = {}

    def end_step(self, steps: int) -> None:
        """Note a step of the optimiser."""
        self.steps, self.noise = steps, NoiseStream(self.seed, (_NOISE, steps))

    def collect(self, parameter: Parameter, change: list[Tensor], samples: int) -> None:
        """Note a gradient.

        Raises
        ------
        ValueError
            If gradients of other numbers of samples are there.
        """
        _, gradients = self.gradients.setdefault(id(parameter), (parameter, Gradients()))
        if gradients.parts and gradients.samples != samples:
            raise ValueError(
                f"gradients that are added up must be of as many samples each ({gradients.samples}), "
                f"not {samples}; call zero_grad() between steps"
            )
        gradients.parts.extend(change)
        gradients.samples = samples


@dataclass
class Record:
    """A layer that was passed."""

    node: Node
    layer: TrainableLayer
    memory: Any
    first: bool


class Tape:
    """One pass: layers in the order in which the module has called them.

    Parameters
    ----------
    session : Session
        Of the module.
    training : bool
        Whether the module is being trained.
    """

    def __init__(self, session: Session, training: bool):
        self.session, self.training = session, training
        self.context = PassContext(session.formats, session.noise if training else None, training)
        self.records: list[Record] = []
        self.shapes: dict[str, Shape] = {}
        #: Something that needs a gradient, so that a loss has one.
        self.anchor = torch.zeros((), requires_grad=True)
        self._names: set[str] = set()
        self._trained: set[str] = set()

    def name(self, stem: str) -> str:
        """A name that is not in use."""
        names = (stem if k == 0 else f"{stem}_{k}" for k in range(len(self._names) + 1))
        free = next(name for name in names if name not in self._names)
        self._names.add(free)
        return free

    def run(
        self, op: str, stem: str, layer: TrainableLayer, inputs: Sequence[Made], attrs: dict[str, Any], count: int = 1
    ) -> list[tuple[str, Tensor]]:
        """Compute a layer on tensors with names; results, again with names."""
        name = self.name(stem)
        outputs = [name] + [self.name(f"{name}.{k}") for k in range(1, count)]
        keys = [key for key, _ in inputs]
        node = Node(op, name, tuple(keys), tuple(outputs), attrs)
        shapes = operator_of(node).shape(node, [self.shapes[key] for key in keys])
        self.shapes.update(zip(outputs, shapes, strict=False))
        layer.first = not self._trained.intersection(keys)
        with saturations(self.session.counts):
            results, memory = layer.forward([tensor for _, tensor in inputs], self.context)
        self.records.append(Record(node, layer, memory if self.training else None, layer.first))
        if layer.parameters or not layer.first:
            self._trained.update(outputs)
        return list(zip(outputs, results, strict=False))

    def backward(self, name: str, gradient: Tensor, samples: int) -> None:
        """Gradients of all parameters from that of a result, as a :class:`TrainableNetwork` has them.

        Raises
        ------
        RuntimeError
            In a pass of evaluation.
        """
        if not self.training:
            raise RuntimeError("a module must be in training mode for backward; call train() before the pass")
        with saturations(self.session.counts):
            self._backward(name, gradient, samples)

    def _backward(self, name: str, gradient: Tensor, samples: int) -> None:
        parts: dict[int, tuple[Parameter, list[Tensor]]] = {}
        for parameter, change in parameter_gradients(self._steps(), [(name, gradient)], self.context):
            parts.setdefault(id(parameter), (parameter, []))[1].append(change)
        for record in self.records:  # in the order of the layers
            for parameter in record.layer.parameters.values():
                if id(parameter) in parts:
                    self.session.collect(*parts.pop(id(parameter)), samples)

    def _steps(self) -> Iterator[tuple[TrainableLayer, Sequence[str], Sequence[str], Any]]:
        """The pass from its end to its start; layers are as they were when they were called."""
        for record in reversed(self.records):
            record.layer.first = record.first
            yield record.layer, record.node.inputs, record.node.outputs, record.memory
