"""Report of a run: its end, and the counters of the hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from concord.cycles import Counts, counts_of
from concord.program import Chain, Trace
from concord.program.integers import IntegerChain, TensorStep
from concord.spec.config import NpuConfig
from concord.spec.isa import Trap
from concord.utils.arrays import Ints


@dataclass(frozen=True)
class Run:
    """End and counters of one run, as in the registers.

    Parameters
    ----------
    trap : Trap
        ``NONE`` if the run reached ``halt``.
    pc : int
        Address of the word that trapped; 0 after ``halt``.
    dense_steps : int
        Tile steps, taps outside the image included.
    depthwise_steps : int
        Depthwise taps, those outside the image included.
    chains : int
        Chains dispatched, integer chains and losses among them.
    vectors : int
        Native vectors that left the pipe: one per result of a chain.
    executed : tuple of Trace and NpuConfig, or None
        What was executed, and for which hardware.
    steps : tuple of array or None
        For every sliding product that was executed, the steps of its windows, if they are known: exponents decide
        about them, and those of the entries of a batch differ.
    grown : tuple of bool
        For every update of an integer chain whether the exponent of the weights has grown, which takes cycles.
    """

    trap: Trap
    pc: int
    dense_steps: int
    depthwise_steps: int
    chains: int
    vectors: int
    executed: tuple[Trace, NpuConfig] | None = field(default=None, compare=False, repr=False)
    steps: tuple[Ints, ...] | None = field(default=None, compare=False, repr=False)
    grown: tuple[bool, ...] = ()

    @property
    def exact(self) -> bool:
        """True if cycles are exact; if not, :data:`concord.cycles.ASSUMED_STEPS` are taken for every sliding window."""
        return self.steps is not None or not self.executed or not self.executed[0].slides

    @property
    def cycles(self) -> int:
        """Cycles that the hardware takes for it."""
        return self._counts.cycles if self._counts else 0

    @property
    def hazard_stalls(self) -> int:
        """Cycles in which a read of the hardware waits for a write."""
        return self._counts.hazard_stalls if self._counts else 0

    @cached_property
    def _counts(self) -> Counts | None:
        """Worked out when somebody asks: that takes longer than small runs."""
        return counts_of(*self.executed, self.steps, self.grown) if self.executed else None


def report(
    trace: Trace,
    config: NpuConfig,
    steps: Sequence[Ints] | None = None,
    grown: Sequence[bool] = (),
) -> Run:
    """Counters of a run that executed this trace; they wrap at 32 bits as the registers do.

    ``steps``: of the windows of all sliding products, if they are known; ``grown``: see :class:`Run`.
    """
    chains = trace.chains
    integers = [item for item in trace.integers if not isinstance(item, TensorStep)]
    products = sum(item.vectors * item.product_steps(config) for item in integers if isinstance(item, IntegerChain))
    counts = (
        sum(chain.dense_steps(config) for chain in chains) + products,
        sum(chain.depthwise_steps() for chain in chains),
        len(chains) + len(integers),
        sum(chain.vectors for chain in chains) + sum(item.vectors for item in integers),
    )
    pc = 0 if trace.trap is Trap.NONE else trace.pc
    dense, depthwise, chained, left = (count % (1 << 32) for count in counts)
    known = None if steps is None else tuple(steps)
    return Run(
        trace.trap, pc, dense, depthwise, chained, left, executed=(trace, config), steps=known, grown=tuple(grown)
    )


def ended_by(trace: Trace, number: int) -> Trace:
    """Trace up to its item of this number, an integer chain or a tensor step that traps."""
    item = trace.items[number]
    assert not isinstance(item, Chain)
    executing = [k for k, event in enumerate(trace.events) if event.chain or event.item is not None]
    items = trace.items[: number + 1]
    chains = tuple(each for each in items if isinstance(each, Chain))
    return replace(
        trace,
        chains=chains,
        trap=Trap.INTEGER_RANGE,
        pc=item.pc,
        items=items,
        events=trace.events[: executing[number] + 1],
    )
