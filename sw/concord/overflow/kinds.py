"""Settings of the integer analysis, with defaults per kind of network [overflow]."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from concord.graph.cost import node_macs
from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.graph.ops.linear import DenseAttributes
from concord.spec.formats import Rounding
from concord.sums.histogram import check_width

#: Widths of the integers that operands can have.
OPERAND_WIDTHS = range(1, 33)
#: Roundings of operands by name.
ROUNDINGS = {"floor": Rounding.FLOOR, "nearest": Rounding.NEAREST_EVEN}


@dataclass(frozen=True, kw_only=True)
class IntegerSettings:
    """Widths and rules by which a layer is counted and scaled.

    Parameters
    ----------
    width, output_width : int
        Bits of the storage of intermediate values and of outputs, 1 to 64.
    input_width, weight_width : int
        Bits of the integers that inputs and weights are mapped on, 1 to 32.
    threshold : int
        Values of a layer that may leave their storage.
    weight_share : float
        Part of the growth that the weights take, 0 to 1, as a power; the inputs take the rest.
    per_bit : float
        Bits by which ranges grow for every bit of overflow but the first.
    least, most : float
        Bits by which they grow for the first one: if hardly any value overflows, and if all do.
    clip : bool
        Whether unused width may be filled by mapping less than the range of the values, which are then cut off.
    rounds : int
        How often a layer is counted at most.
    rounding : str
        ``floor`` or ``nearest``, as of :func:`concord.overflow.codes_of_range`.
    """

    width: int = 16
    output_width: int = 16
    input_width: int = 8
    weight_width: int = 8
    threshold: int = 0
    weight_share: float = 0.5
    per_bit: float = 1.0
    least: float = 0.25
    most: float = 1.0
    clip: bool = False
    rounds: int = 32
    rounding: str = "floor"

    def __post_init__(self) -> None:
        for name in ("width", "output_width"):
            check_width(name, getattr(self, name))
        for name in ("input_width", "weight_width"):
            check_width(name, getattr(self, name), OPERAND_WIDTHS)
        if not isinstance(self.threshold, int) or self.threshold < 0:
            raise ValueError(f"threshold must be an integer of at least 0, not {self.threshold!r}")
        if not 0.0 <= self.weight_share <= 1.0:
            raise ValueError(f"weight_share must be in 0..1, not {self.weight_share!r}")
        if not 0.0 <= self.per_bit < math.inf:
            raise ValueError(f"per_bit must be a finite number of at least 0, not {self.per_bit!r}")
        if not 0.0 < self.least <= self.most < math.inf:
            raise ValueError(f"least and most must be 0 < least <= most, not {self.least!r} and {self.most!r}")
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1, not {self.rounds!r}")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, not {self.rounding!r}")

    def replace(self, **changes: Any) -> IntegerSettings:
        """Settings of which some are changed; those that are ``None`` stay."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


#: By kind of network. Sums of convolutions are 16 bits, as in the source's figure. Fully connected and graph layers
#: add up longer rows, and have 20. What the weights of a recurrent layer lose is lost again in every step, so the
#: inputs take more of the growth; those of an LSTM, whose state is within -1..1, most of it.
KINDS: dict[str, IntegerSettings] = {
    "cnn": IntegerSettings(),
    "dense": IntegerSettings(width=20, output_width=20),
    "graph": IntegerSettings(width=20, output_width=20),
    "recurrent": IntegerSettings(width=20, output_width=20, weight_share=0.375),
    "lstm": IntegerSettings(width=20, output_width=20, weight_share=0.25),
}


def kind_of(graph: Graph) -> str:
    """Kind of the network that a graph is: the first that fits.

    LSTM, another recurrent layer, a convolution, a product with a fixed matrix on the left or of two computed tensors,
    as of an adjacency with features (a graph convolution), and else a fully connected network.
    """
    records = {node.op: operator_of(node) for node in graph.nodes}
    recurrences = [record.recurrence for record in records.values() if record.recurrence is not None]
    if recurrences:
        return "lstm" if any(recurrence.cell for recurrence in recurrences) else "recurrent"
    if any(record.windowed and record.weights for record in records.values()):
        return "cnn"
    fixed = any(node.attributes(DenseAttributes).fixed for node in graph.nodes if node.op == "Dense")
    computed = any(records[node.op].weights is None and node_macs(graph, node) for node in graph.nodes)
    return "graph" if computed or fixed else "dense"


def settings_of(kind: str) -> IntegerSettings:
    """Defaults of a kind; ``ValueError`` for one that is not known."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return KINDS[kind]
