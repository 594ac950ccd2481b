"""The facts of one layer."""

from __future__ import annotations

from dataclasses import dataclass

from concord.host.copied_weights import CopiedWeights
from concord.networks.layer_errors import Error


@dataclass(frozen=True)
class Format:
    """Format of a tensor in a vector memory.

    Parameters
    ----------
    memory : str
        ``"narrow"`` or ``"wide"``.
    static : bool
        True if the exponent was fixed when the network was compiled.
    exponents : tuple of int or None
        Least, median and greatest exponent of the blocks on the samples; ``None`` in wide memory.
    """

    memory: str
    static: bool = False
    exponents: tuple[int, int, int] | None = None

    @property
    def text(self) -> str:
        """Format as a short text."""
        if self.exponents is None:
            return self.memory
        least, _, greatest = self.exponents
        span = f"{least}" if least == greatest else f"{least}..{greatest}"
        return f"{self.memory}, {'static' if self.static else 'dynamic'} exponent {span}"


@dataclass(frozen=True)
class Read:
    """A tensor that a layer reads: as the source of its chain, or as an operand of the multifunction units.

    ``layer`` is the index of the layer that writes it, ``input`` the name of the input of the network that it is, or is
    made of.
    """

    tensor: str
    memory: str
    role: str
    layer: int | None
    input: str | None


@dataclass(frozen=True)
class Flagged:
    """A chain with sticky flags: address and text of its first instruction, names of the flags and what each means."""

    address: int
    instruction: str
    flags: tuple[str, ...]
    meanings: tuple[str, ...]


@dataclass(frozen=True)
class Work:
    """Cost of a layer per run of the program.

    Parameters
    ----------
    macs : int
        Multiply-accumulates that the network needs, without any padding.
    dense_steps, depthwise_steps, vectors : int
        As the counters of the NPU count them.
    least_cycles : int
        Fewest cycles in which these steps and vectors go through the pipe.
    cycles : int
        Those that it takes.
    """

    macs: int
    dense_steps: int
    depthwise_steps: int
    vectors: int
    least_cycles: int
    cycles: int

    def utilisation(self, macs_per_cycle: int) -> float | None:
        """Share of the multipliers in the cycles; ``None`` for a layer without products."""
        return self.macs / (self.cycles * macs_per_cycle) if self.macs and self.cycles else None


@dataclass(frozen=True)
class Distribution:
    """Magnitudes of a float tensor, and the window of the format that holds it.

    Parameters
    ----------
    first : int
        Bin k counts the values with ``floor(log2(|x|)) == first + k``; bin 0 also those below.
    counts : tuple of int
        Values per bin.
    zeros : int
        Values that are zero.
    window : tuple of int
        log2 of the least step, of the median block, and of the end of the range.
    lost : float
        Share of the values that are not zero in float, but on the NPU.
    beyond : float
        Share of the values beyond the largest number of the format.
    """

    first: int
    counts: tuple[int, ...]
    zeros: int
    window: tuple[int, int]
    lost: float
    beyond: float


@dataclass(frozen=True)
class Space:
    """Words of the memories that belong to a layer: weights, constants, its result and what it needs in between.

    ``mantissa`` are the bits of the mantissas of its weights, ``None`` if it has none, and ``weight_bits`` what the
    weights need with them; ``for_samples`` says whether they are rounded for samples. ``copied`` are the weights that
    come from the external memory in a run.
    """

    matrix: int
    constants: int
    narrow: int
    wide: int
    mantissa: int | None
    weight_bits: int
    for_samples: bool
    copied: CopiedWeights


@dataclass(frozen=True)
class LayerFacts:
    """One chain, or one direction of a recurrent layer.

    Parameters
    ----------
    name, tensor : str
        Names of the layer and of the tensor that it computes.
    kind : str
        Its reduction, or the operator of a recurrent layer.
    nodes, operators : tuple of str
        Nodes of the graph that it covers.
    shape : tuple of int
        Of a sample of the tensor.
    mfu_ops : tuple of str
        What the multifunction units do, in order.
    reads : tuple of Read
        What it reads.
    writes : tuple of Format
        Where its result goes.
    error : Error
        Of the tensor.
    own_error : Error
        Of the tensor, if the reference computes this layer alone, from the tensors as the NPU has them.
    flagged : tuple of Flagged
        Saturation and overflow on the samples, and what tables have cut off.
    leaves : bool
        Whether an output of the NPU is made of it.
    streamed_residual : bool
        Whether an operand is kept narrow and widened chunk by chunk.
    """

    name: str
    tensor: str
    kind: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    shape: tuple[int, ...]
    mfu_ops: tuple[str, ...]
    reads: tuple[Read, ...]
    writes: tuple[Format, ...]
    error: Error
    own_error: Error
    flagged: tuple[Flagged, ...]
    work: Work
    space: Space
    distribution: Distribution
    leaves: bool
    streamed_residual: bool
