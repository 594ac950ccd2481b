"""What an operator is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from concord.graph.ir import Floats, Node, Shape

#: Shape of every output, from those of the inputs (``None``: input left out).
ShapeRule = Callable[[Node, Sequence[Shape | None]], list[Shape]]
#: Every output, from the inputs; arrays have the shape of the tensor behind an axis of samples.
Evaluation = Callable[[Node, Sequence[Floats | None]], list[Floats]]


class Kind(Enum):
    """How an operator treats number formats [dtype-pass]."""

    QUANTISED = "quantised"  # reads and writes wide or narrow
    MOVING = "moving"  # no arithmetic on values: input and output have one format
    PRECISE = "precise"  # wide in, wide out


@dataclass(frozen=True)
class Operator:
    """One operator of the graph.

    Parameters
    ----------
    kind : Kind
        How the types of its edges are chosen.
    attributes : dict
        Meaning of every attribute of its nodes.
    shape : callable
        ``shape(node, input shapes) -> output shapes``; ``ValueError`` if the shapes do not fit.
    evaluate : callable
        ``evaluate(node, inputs) -> outputs`` in double precision. Arrays are ``[samples, *shape of the tensor]``; an
        input that is left out is ``None``, an output that is left out is computed all the same.
    """

    kind: Kind
    attributes: dict[str, str]
    shape: ShapeRule
    evaluate: Evaluation


def present(value: Floats | None) -> Floats:
    """An input that cannot be left out."""
    if value is None:
        raise ValueError("input must be there")
    return value


def present_shape(shape: Shape | None) -> Shape:
    """Shape of an input that cannot be left out."""
    if shape is None:
        raise ValueError("input must be there")
    return shape


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which all of them are broadcast."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"shapes must be ones that are broadcast to each other, not {listed}") from None


def aligned(x: Floats, rank: int) -> Floats:
    """Axes of length 1 between the samples and a tensor of fewer axes, for broadcasting."""
    return x.reshape(len(x), *[1] * (rank - x.ndim + 1), *x.shape[1:])
