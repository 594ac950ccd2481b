"""The accumulator that a network needs: its register and its grid, from the sums that samples make and from bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from concord.compiler.model import ACCUMULATOR, Compiled, compile_graph
from concord.graph.ir import Graph
from concord.image import Memories
from concord.overflow.compiled import Ranges
from concord.overflow.required import CountedWidths, RequiredWidth, RunChanges
from concord.program import trace
from concord.program.matrix_copies import contents
from concord.spec.config import NpuConfig
from concord.spec.limits import ACC_WIDTH_MIN
from concord.spec.operations import Op
from concord.spec.presets import with_accumulator
from concord.utils.arrays import Array

#: Bits above what samples need, if nothing else is asked for: sums may be 64 times as large.
GUARD = 6


class AccumulatorError(ValueError):
    """An accumulator that does not hold what the samples make."""


@dataclass(frozen=True)
class AccumulatorChoice:
    """An accumulator, and what speaks for it.

    Parameters
    ----------
    compiled : Compiled
        The network for the configuration that has it.
    before : NpuConfig
        The configuration that it is derived from.
    needs : tuple of RequiredWidth
        By layer, in units of the grid of the new configuration.
    samples : int
        Samples that were run with both accumulators, and gave the same bits.
    ranges : dict
        Least and greatest value of inputs that bounds hold for.
    """

    compiled: Compiled
    before: NpuConfig
    needs: tuple[RequiredWidth, ...]
    samples: int
    ranges: Ranges

    @property
    def lines(self) -> list[str]:
        """Lines about the accumulator, for people."""
        config, before = self.compiled.image.config, self.before
        lines = [
            widths_line(config, before),
            f"exponents of weights {config.wgt_exp_min} to {config.wgt_exp_max}, which are all that this network has",
        ]
        if config.act_exp_min > before.act_exp_min:
            lines.append(
                f"exponents of activations from {config.act_exp_min} on, not {before.act_exp_min}: vectors of smaller "
                "numbers lose low bits; on the samples that changes no result"
            )
        if self.samples:
            most = max(self.needs, key=lambda need: need.observed)
            lines.append(
                f"{self.samples} samples need {most.observed} bits ({most.layer}), and their results are those of "
                f"{before.name} bit for bit"
            )
        return [*lines, bound_line(self.needs, config.register_bits, self.ranges)]


def widths_line(config: NpuConfig, before: NpuConfig) -> str:
    """Accumulators of two configurations in words."""
    widths, others = (
        f"{npu.register_bits} bits in units of 2**{-npu.acc_frac}, {npu.acc_width} kept" for npu in (config, before)
    )
    return f"{config.name}: {widths}; {before.name} has {others}"


def bound_line(needs: Sequence[RequiredWidth], bits: int, ranges: Ranges) -> str:
    """Bits that any input within ranges might need of an accumulator of some bits, in words."""
    bound = max(needs, key=lambda need: need.bound)
    ends = ", ".join(f"{name} in {low:g} to {high:g}" for name, (low, high) in ranges.items())
    if bound.bound <= bits:
        return f"no input needs more: at most {bound.bound} bits ({bound.layer}) with {ends}"
    beyond = sum(need.bound > bits for need in needs)
    return (
        f"an input might need up to {bound.bound} bits ({bound.layer}; more than {bits} in {beyond} of "
        f"{len(needs)} layers) with {ends}: a sum that does not fit is cut off and raises ACC_OVERFLOW"
    )


def with_lines(compiled: Compiled, lines: Sequence[str]) -> Compiled:
    """A network whose image says where its accumulator comes from."""
    image = replace(compiled.image, metadata={**compiled.image.metadata, ACCUMULATOR: list(lines)})
    return replace(compiled, package=replace(compiled.package, image=image))


def choose_accumulator(
    graph: Graph, compiled: Compiled, bits: int | None, counter: CountedWidths, guard: int = GUARD
) -> AccumulatorChoice:
    """Compile a network once more, for a configuration whose accumulator has the bits that it needs.

    Its programs write no matrices: tensors are multiplied in the multifunction units.

    Exponents of weights are narrowed to those of the image, which changes no number, and the grid with them. Exponents
    of activations only if ``bits`` are too few otherwise, as far as results of the samples stay the same.

    Parameters
    ----------
    graph : Graph
        The network.
    compiled : Compiled
        What it compiles to.
    bits : int or None
        Bits of the register. ``None``: what samples need and ``guard`` more, or what any input needs, if that is less.
    counter : CountedWidths
        Counts what sums of samples need. Without samples bounds alone decide.
    guard : int
        Bits above what samples need.

    Raises
    ------
    AccumulatorError
        If ``bits`` are too few for the samples, with the layer and what it needs, or if a result changes.
    ValueError
        If there is no such configuration.
    """
    before = compiled.image.config
    if before.serial:
        raise ValueError(
            f"accumulator must be full for {before.name}: an element-serial configuration also adds numbers in it"
        )
    if before.has(Op.M_WR):  # sums of weights that a program writes are not bounded
        compiled = _recompiled(graph, compiled, before.without(Op.M_WR))
    weights = _weight_exponents(compiled)
    exact = _recompiled(graph, compiled, with_accumulator(before, before.full_bits, weights=weights))
    needs, ranges = counter.required(graph, exact)
    observed, bound = max(need.observed for need in needs), max(need.bound for need in needs)
    least = max(ACC_WIDTH_MIN, exact.image.config.lane_dot_bits)
    if bits is None:
        bits = max(least, min(bound, observed + guard) if counter.sampled else bound)
    raised = max(0, observed - bits)
    if raised and before.act_exp_min + raised > _least_static(compiled):
        raise _too_few(needs, bits)
    config = with_accumulator(before, bits, weights=weights, least=before.act_exp_min + raised)
    try:
        chosen = _recompiled(graph, compiled, config)
    except ValueError as error:
        raise _too_few(needs, bits) if raised else error from error
    count = 0
    if counter.sampled:
        count = count_unchanged(counter.compared(compiled, chosen), needs if raised else None, bits)
    if raised:
        needs, ranges = counter.required(graph, chosen)
    choice = AccumulatorChoice(chosen, before, needs, count, ranges)
    return replace(choice, compiled=with_lines(chosen, choice.lines))


def _weight_exponents(compiled: Compiled) -> tuple[int, int]:
    """Least and greatest exponent of the blocks of weights that are not zero."""
    image, config, memories = compiled.image, compiled.image.config, Memories.of(compiled.image)
    runs = (trace(image.program, config, phase.pc) for phase in image.schedule())
    copied = [contents(copy, memories) for copy in {copy for run in runs for copy in run.copies}]
    blocks: list[tuple[Array, Array]] = [(memories.matrix_mant, memories.matrix_exp), *copied]
    used = np.concatenate([exp[mant.any(axis=-1)] for mant, exp in blocks])
    return (int(used.min()), int(used.max())) if used.size else (config.wgt_exp_min, config.wgt_exp_max)


def _recompiled(graph: Graph, compiled: Compiled, config: NpuConfig) -> Compiled:
    """Compile a network with its formats for another configuration."""
    package = compiled.package
    made = compile_graph(graph, config, package.formats, batch=package.arrangement.batch)
    return replace(made, assumptions=compiled.assumptions, flag_diagnostics=compiled.flag_diagnostics)


def _least_static(compiled: Compiled) -> int:
    """The least static exponent of a tensor, those of the exporter included; the greatest exponent without any."""
    return min(compiled.package.formats.exponents.values(), default=compiled.image.config.act.exp_max)


def _too_few(needs: tuple[RequiredWidth, ...], bits: int) -> AccumulatorError:
    most = max(needs, key=lambda need: need.observed)
    count = sum(need.observed > bits for need in needs)
    return AccumulatorError(
        f"accumulator must have at least {most.observed} bits for the samples, not {bits}: {most.layer} needs them"
        + (f", and {count - 1} more layers need more than {bits}" if count > 1 else "")
    )


def count_unchanged(changes: RunChanges, raised: tuple[RequiredWidth, ...] | None, bits: int) -> int:
    """Number of samples with the same results and flags; ``raised``: what layers need of more bits than there are.

    Raises
    ------
    AccumulatorError
        If a result changes, or a flag is new.
    """
    if not changes.results and not changes.layers:
        return changes.samples
    if raised is not None:
        raise _too_few(raised, bits)
    layers, results = ", ".join(changes.layers), ", ".join(changes.results)
    where = f"layers that raise flags: {layers}" if layers else f"results that change: {results}"
    raise AccumulatorError(f"accumulator must leave the samples as they are, not with {bits} bits: {where}")
