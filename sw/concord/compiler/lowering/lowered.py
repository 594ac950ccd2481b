"""Results of lowering: layers and the places of tensors; and the error for a graph that cannot be lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from concord.compiler.ir.layers import AnyLayer
from concord.compiler.ir.layout import Storage, Storages
from concord.compiler.lowering.inputs import Unfold
from concord.graph.ir import Graph
from concord.image.feeder_layout import Feed
from concord.utils.arrays import FloatArray, Ids
from concord.utils.reasons import some_of


class Unsupported(ValueError):
    """Error for a graph that cannot be lowered; ``reasons`` names each node, ``target`` the preset or board tried.

    ``advice`` are lines after the reasons.
    """

    def __init__(self, name: str, reasons: list[str], target: str = "", advice: Sequence[str] = ()):
        self.name, self.reasons, self.target = name, reasons, target
        place = f" for {target}" if target else ""
        lines = "".join(f"\n  {line}" for line in (*some_of(reasons), *advice))
        super().__init__(f"{name} cannot be compiled{place}:{lines}")


class VarianceRange(Enum):
    """Variances that a normalisation covers where no samples tell them."""

    #: For any numbers: scaled by the largest one of each group.
    ANY = "any"
    #: For variances around what is to be expected, the greatest 768 times the least, by two look-ups.
    TWO_LOOKUPS = "twice"
    #: The greatest 6 times the least, by one look-up.
    ONE_LOOKUP = "once"


@dataclass
class Lowered:
    """Layers of a graph in execution order, with the views of all tensors.

    Parameters
    ----------
    graph : Graph
        What was lowered.
    storages : Storages
        All storages.
    unfold : Unfold
        How much of a first window the host may unfold.
    layers : list of Layer
        In execution order.
    views : dict
        Where the elements of every tensor lie.
    inputs : dict
        By input: its storage, and for every element of that the element of the sample that is written there or ``PAD``.
    unfolded : Unfold
        How much it has unfolded indeed: with any limit that is not below it would be the same.
    constants : dict
        Vectors ``[vectors, native]`` that are loaded before the first run, in narrow memory.
    variance_range : VarianceRange
        How normalisations are computed of which no samples tell the variance.
    feeds : dict
        By input whose windows are unfolded: how.
    narrow : tuple of str
        Outputs that leave from narrow memory, as mantissas and exponents.
    states : dict
        Inputs that the NPU keeps, and the outputs that take their places.
    offsettable : set of str
        Inputs that may have an offset: only a convolution reads them, and its bias can make up for the offset.
    copied : dict
        By name of a layer that copies: where the elements lay that it copies, in the order of its own ``ids``.
    gathered : dict
        By tensor that was brought together in one storage: where its elements were computed.
    """

    graph: Graph
    storages: Storages
    unfold: Unfold
    layers: list[AnyLayer] = field(default_factory=list)
    views: dict[str, Ids] = field(default_factory=dict)
    inputs: dict[str, tuple[Storage, Ids]] = field(default_factory=dict)
    feeds: dict[str, Feed] = field(default_factory=dict)
    narrow: tuple[str, ...] = ()
    offsettable: set[str] = field(default_factory=set)
    copied: dict[str, Ids] = field(default_factory=dict)
    gathered: dict[str, Ids] = field(default_factory=dict)
    variance_range: VarianceRange = VarianceRange.ANY
    unfolded: Unfold = Unfold.NONE
    constants: dict[Storage, FloatArray] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
