"""Powers of two by which channels are divided, so that those of a block have numbers of one size.

A product loses what the elements of blocks of activations lose times the weights, and what those of blocks of weights
lose times the activations. A power of two that a channel gives from one to the other changes both. :func:`chosen` looks
for the powers with the least sum of both, over all products and relative to their results: with samples for the numbers
of these, without for what is to be expected of the inputs.

Where nothing is known of an input, trained weights tell: those of features of large numbers are small. The powers have
to suit features of one size, too, as weights may also be small because a feature says little.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from concord.compiler.calibration.block_losses import NOTHING, ProductLoss, columns_of, exponents_of, product_losses
from concord.compiler.calibration.calibration import Calibration, FormatChoice
from concord.compiler.calibration.preference import worth_flags
from concord.compiler.ir.table_specs import Domain
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.host_partition import split
from concord.compiler.lowering.input_assumptions import assumed, synthetic_samples
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.graph.channels import FIXED, ZERO, Channels, channels
from concord.graph.cost import macs
from concord.graph.equalised import ChannelScale, Front, equalised, fronts
from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.graph.passes.scales import WEIGHTS
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE
from concord.utils.arrays import FloatArray, Ids

#: Shares of the expected square of the error that powers of two may leave: to be tried with samples, and taken without.
TRIED, TAKEN = 0.9, 0.1
#: Share for inputs that travel as codes, which they no longer do after different powers.
CODES = 0.05
#: Share for channels between products without samples, on top of those of inputs.
BETWEEN = 0.1
#: Least gain of the powers of one tensor; less is left out.
_LITTLE = 1.05
#: Share of the error on samples that powers may leave.
WORTH = 0.9
#: End of the label of a candidate without scales.
AS_THEY_ARE = "channels as they are"
#: An input has its mean taken off where that is so many deviations.
DEVIATIONS = 1.5
#: Samples that are looked at.
_SAMPLES = 64
#: log2 of what rows of weights may be divided to: blocks of smaller ones lose bits, larger ones have none.
_LEAST, _MOST = -9, 6
#: log2 of the largest number that an input is divided to.
_PEAK = 12
#: Times that all powers are looked at.
_ROUNDS = 6
#: Weights of a feature, in proportion to the largest, that are taken for nothing.
_VANISHED = 2.0**-10


@dataclass(frozen=True)
class Chosen:
    """Scales, and the share of the expected square of the error that they leave."""

    scales: dict[str, ChannelScale]
    left: float = 1.0


def for_samples(
    graph: Graph,
    config: NpuConfig,
    inputs: Mapping[str, FloatArray],
    mantissas: Mapping[str, int] | None = None,
    most: float = TRIED,
) -> dict[str, ChannelScale]:
    """Scales that promise less error on samples; empty if none do.

    Parameters
    ----------
    graph : Graph
        The network.
    config : NpuConfig
        Says how wide mantissas are, and how many elements share an exponent.
    inputs : mapping of str to array
        Samples along the first axis.
    mantissas : mapping of str to int, optional
        Bits of the weights of layers that have others.
    most : float
        What they may leave of the expected square of the error.
    """
    count, graph = len(next(iter(inputs.values()))), _of_npu(graph)
    some = {name: inputs[name][:: max(1, count // _SAMPLES)][:_SAMPLES] for name in graph.inputs}
    as_codes = {name for name, x in some.items() if len(np.unique(x)) <= CODE_PAGE}
    offsets = {name: _offsets(graph, name, some[name]) for name in _of_host(graph)}
    choice = _chosen(graph, config, offsets, [some], mantissas or {})
    if choice.left > most:
        return {}
    if as_codes and choice.left > CODES:
        offsets = {name: None if name in as_codes else values for name, values in offsets.items()}
        choice = _chosen(graph, config, offsets, [some], mantissas or {}, free=set(graph.shapes) - as_codes)
    return choice.scales if choice.left <= most else {}


def for_weights(
    graph: Graph, config: NpuConfig, ranges: Mapping[str, Domain], mantissas: Mapping[str, int] | None = None
) -> dict[str, ChannelScale]:
    """Scales that weights promise less error for, without samples; empty if they do not.

    Parameters
    ----------
    graph, config, mantissas
        As for :func:`for_samples`.
    ranges : mapping of str to pair of floats
        Ranges of inputs that are known.
    """
    graph = _of_npu(graph)
    offsets = {name: _network_offsets(graph, name) for name in _of_host(graph)}
    cases = _hypotheses(graph, {name: ends for name, ends in ranges.items() if name in graph.inputs})
    widths = mantissas or {}
    choice = _chosen(graph, config, offsets, cases, widths, free=set(graph.inputs))
    everywhere = _chosen(graph, config, offsets, cases, widths)
    if everywhere.left <= BETWEEN * min(choice.left, 1.0):
        choice = everywhere
    return choice.scales if choice.left <= TAKEN else {}


def _of_npu(graph: Graph) -> Graph:
    """A network without the products that the host computes behind the NPU, which read what they read as it is."""
    npu, host = split(graph)
    if host is None or not macs(host):
        return graph
    return replace(npu, known_ranges=graph.known_ranges, element_types=graph.element_types, whole=graph.whole)


def better(
    calibration: Calibration, config: NpuConfig, mantissas: Mapping[str, int]
) -> tuple[Calibration, tuple[FormatChoice, ...]]:
    """The calibration with scales, if the emulator says that they are worth it, and what was compared.

    Parameters
    ----------
    calibration : Calibration
        The network and samples.
    config, mantissas
        As for :func:`for_samples`.
    """
    scales = for_samples(calibration.source, config, calibration.inputs, mantissas)
    if not scales:
        return calibration, ()
    equal = calibration.with_scales(scales)
    formats = Formats(mantissas=mantissas)
    calibration.attempts.expect(2)
    plain = calibration.measure(f"dynamic exponents, {AS_THEY_ARE}", config, formats)
    try:
        other = equal.measure("dynamic exponents", config, formats)
    except CapacityError:
        return calibration, ()
    worth = other.error <= WORTH * plain.error and worth_flags(other, (plain,))
    return (equal, (plain,)) if worth else (calibration, ())


def estimated(calibration: Calibration, config: NpuConfig, mantissas: Mapping[str, int]) -> Calibration:
    """The calibration with scales, if they promise so much that no measurement is needed.

    Parameters
    ----------
    calibration, config, mantissas
        As for :func:`better`.
    """
    scales = for_samples(calibration.source, config, calibration.inputs, mantissas, TAKEN)
    if scales:
        with suppress(CapacityError):
            formats = Formats(mantissas=mantissas, channel_scales=scales)
            compile_graph(calibration.source, config, formats, batch=calibration.batch)
            return calibration.with_scales(scales)
    return calibration


# Inputs ------------------------------------------------------------------------------------------


def _by_element(graph: Graph, name: str, input_fronts: Sequence[Front], what: str) -> FloatArray:
    """A number of what products read, by element of the input; that of the first reader."""
    values = np.full(int(np.prod(graph.shapes[name], dtype=int)), 0.0 if what == "middle" else 1.0)
    for front in reversed(input_fronts):
        values[front.elements] = front.spread(getattr(front, what))
    return values.reshape(graph.shapes[name])


def _of_host(graph: Graph) -> list[str]:
    """The inputs that the host writes, and may prepare."""
    return [name for name in graph.inputs if name not in graph.states]


def _network_offsets(graph: Graph, name: str) -> FloatArray | None:
    """Offset that the network itself takes off an input in front of products; ``None`` if it takes nothing."""
    input_fronts = fronts(graph, name)
    if input_fronts is None or not any(front.between for front in input_fronts):
        return None
    return _taken(graph, name, input_fronts, _by_element(graph, name, input_fronts, "middle"))


def _taken(graph: Graph, name: str, input_fronts: Sequence[Front], values: FloatArray) -> FloatArray | None:
    """Offsets, if all readers can make up for them."""
    for front in input_fronts:
        if front.padded and not np.array_equal(values, _by_element(graph, name, [front], "middle")):
            return None
    return values


def _offsets(graph: Graph, name: str, x: FloatArray) -> FloatArray | None:
    """Offset that the network takes off an input, else the mean of features that lie far from zero."""
    input_fronts = fronts(graph, name)
    if input_fronts is None:
        return None
    if any(front.between for front in input_fronts):
        return _network_offsets(graph, name)
    ids = channels(graph).sources[name]
    flat, place = x.reshape(len(x), -1), ids.reshape(-1)
    count = np.maximum(np.bincount(place), 1) * len(flat)
    mean = np.bincount(place, flat.sum(axis=0)) / count
    spread = np.sqrt(np.maximum(np.bincount(place, np.square(flat - mean[place]).sum(axis=0)) / count, 0.0))
    far = np.abs(mean) > DEVIATIONS * spread
    step = np.exp2(np.floor(np.log2(np.where(spread > 0, spread, 1.0))) - 2)
    middle = np.where(far, np.where(spread > 0, np.rint(mean / step) * step, mean), 0.0)
    return _taken(graph, name, input_fronts, middle[ids]) if far[place].any() else None


def _hypotheses(graph: Graph, ranges: Mapping[str, Domain]) -> list[dict[str, FloatArray]]:
    """Inputs that may be: as they are assumed to be, and with features as large as their weights are small."""
    plain = synthetic_samples(graph, assumed(graph, ranges))
    other = dict(plain)
    for name, assumption in assumed(graph, ranges).items():
        input_fronts = fronts(graph, name)
        if not assumption.normal or input_fronts is None:
            continue
        if any(front.between for front in input_fronts):
            middle, factor = (_by_element(graph, name, input_fronts, what) for what in ("middle", "factor"))
            shape = graph.sample_shape(name)
            plain[name] = other[name] = middle.reshape(shape) + plain[name] / np.abs(factor).reshape(shape)
            continue
        ids = channels(graph).sources[name]
        size = np.zeros(ids.max() + 1)
        for front in input_fronts:
            columns = columns_of(front.reader, front.weights.weight_of(front.reader))
            lengths = np.sqrt(np.square(columns).sum(axis=0))
            lengths /= max(float(lengths.max()), 1e-300)
            np.maximum.at(size, ids.reshape(-1)[front.elements], front.spread(lengths))
        inverse = 1.0 / np.maximum(size[ids], _VANISHED)
        inverse /= np.exp(np.log(inverse).mean())
        other[name] = plain[name] * inverse.reshape(graph.sample_shape(name))
    return [plain] if all(other[name] is plain[name] for name in plain) else [plain, other]


# Powers ------------------------------------------------------------------------------------------


def _chosen(
    graph: Graph,
    config: NpuConfig,
    offsets: Mapping[str, FloatArray | None],
    cases: Sequence[Mapping[str, FloatArray]],
    mantissas: Mapping[str, int],
    free: Collection[str] | None = None,
) -> Chosen:
    """The best powers for inputs of several kinds, with offsets that are given; of ``free`` tensors alone."""
    products = [(node, weights) for node in graph.nodes if (weights := operator_of(node).affine) is not None]
    if any(np.abs(weights.weight_of(node)).max(initial=0) >= WEIGHTS[1] for node, weights in products):
        return Chosen({})  # refused later, with the numbers of the model
    none = {name: np.zeros(graph.shapes[name], np.int64) for name in graph.inputs}
    taken = {name: ChannelScale.of(none[name], o) for name, o in offsets.items() if o is not None}
    before = [_errors(graph, config, case, mantissas) for case in cases] if taken else []
    folded = equalised(graph, taken)
    channel_map = channels(folded)
    readers: list[ProductLoss] = []
    peaks = np.full(channel_map.count, NOTHING)
    for case in cases:
        prepared = {name: _prepared(graph, name, x, taken) for name, x in case.items()}
        with np.errstate(all="ignore"):
            values = execute.run(folded, prepared, keep="all")
        if not all(np.isfinite(x).all() for x in values.values()):
            continue
        readers += product_losses(folded, channel_map, config, values, mantissas)
        for name in graph.inputs:
            largest = exponents_of(np.abs(prepared[name]).max(axis=0)).reshape(-1)
            np.maximum.at(peaks, channel_map.sources[name].reshape(-1), largest)
    if not readers:
        return Chosen({})
    low, high = _limits(folded, channel_map, peaks)
    for name, ids in channel_map.sources.items():
        if free is not None and name not in free:
            low[ids] = high[ids] = 0
    low[FIXED] = high[FIXED] = 0
    problem = _Problem(readers, channel_map.count, low, high)
    powers = problem.solved(list(channel_map.sources.values()))
    start = sum(before) if before else problem.total(np.zeros(channel_map.count, np.int64))
    scales = {
        name: ChannelScale.of(powers[ids], offsets.get(name))
        for name, ids in channel_map.sources.items()
        if powers[ids].any() or offsets.get(name) is not None
    }
    return Chosen(scales, problem.total(powers) / max(start, 1e-300))


def _prepared(graph: Graph, name: str, x: FloatArray, taken: Mapping[str, ChannelScale]) -> FloatArray:
    """Samples of an input less their offsets."""
    if name not in taken:
        return x
    return taken[name].prepare(x.reshape(len(x), *graph.shapes[name])).reshape(x.shape)


def _errors(graph: Graph, config: NpuConfig, case: Mapping[str, FloatArray], mantissas: Mapping[str, int]) -> float:
    """The expected error of a network as it is; inputs lose what binary16 does not hold."""
    with np.errstate(all="ignore"):
        values = execute.run(graph, case, keep="all")
    channel_map = channels(graph)
    problem = _Problem(product_losses(graph, channel_map, config, values, mantissas), channel_map.count)
    total = problem.total(np.zeros(channel_map.count, np.int64))
    with np.errstate(all="ignore"):
        rounded = execute.run(graph, {name: x.astype(np.float16).astype(np.float64) for name, x in case.items()})
    lost = [
        np.square(rounded[name] - values[name]).mean() / max(float(values[name].var()), 1e-300)
        for name in graph.outputs
    ]
    return total + float(np.nan_to_num(max(lost), nan=1e30, posinf=1e30))


def _limits(graph: Graph, channel_map: Channels, peaks: Ids) -> tuple[Ids, Ids]:
    """Least and greatest power of every channel: weights and inputs stay what the NPU holds."""
    low, high = np.full(channel_map.count, NOTHING), np.full(channel_map.count, -NOTHING)
    for node in graph.nodes:
        weights = operator_of(node).affine
        if weights is None or node.outputs[0] not in channel_map.sources:
            continue
        weight, ids = weights.weight_of(node), channel_map.sources[node.outputs[0]]
        rows = np.moveaxis(ids, weights.channel(ids.ndim), 0).reshape(len(weight), -1)[:, 0]
        largest = exponents_of(np.abs(weight).reshape(len(weight), -1).max(axis=1))
        there = largest > NOTHING
        np.maximum.at(low, rows[there], np.minimum(largest[there] - _MOST, 0))
        np.minimum.at(high, rows[there], np.maximum(largest[there] - _LEAST, 0))
    return np.maximum(low, peaks - _PEAK), high


class _Problem:
    """Powers of channels, and what products lose with them."""

    def __init__(self, readers: Sequence[ProductLoss], count: int, low: Ids | None = None, high: Ids | None = None):
        self.readers, self.count = readers, count
        self.low = np.full(count, NOTHING) if low is None else low
        self.high = np.full(count, -NOTHING) if high is None else high
        self.blocks = [(reader, block) for reader in readers for block in reader.blocks]
        self._of: list[list[int]] = [[] for _ in range(count)]
        #: By block: channels of results whose weights are below the least exponent; none where no row is.
        self._results: list[Ids | None] = []
        for index, (reader, block) in enumerate(self.blocks):
            below = reader.below(block)
            self._results.append(reader.results if below.any() else None)
            for channel in np.unique(np.concatenate([reader.channel[block], reader.results[below]])):
                if channel > FIXED:
                    self._of[channel].append(index)

    def total(self, powers: Ids) -> float:
        """The expected square of the error, summed over products, relative to their results."""
        return sum(self._cost(index, powers) for index in range(len(self.blocks)))

    def _cost(self, index: int, powers: Ids) -> float:
        (reader, block), results = self.blocks[index], self._results[index]
        channel = reader.channel[block]
        return reader.cost(
            block, np.where(channel == ZERO, 0, powers[channel]), 0 if results is None else powers[results]
        )

    def solved(self, tensors: Sequence[Ids]) -> Ids:
        """The best powers: the best start, then one step of one channel after the other as long as that helps.

        Tensors whose channels gain little by it stay as they are.
        """
        none = self._clipped(np.zeros(self.count, np.int64))
        starts = [none, self._by_tensor(none, tensors), *(self._clipped(start) for start in self._starts())]
        totals = [self.total(start) for start in starts]
        best = starts[int(np.argmin(totals))].copy()
        if min(totals) > 0.9 * totals[0]:
            return none
        for _ in range(_ROUNDS):
            moved = [self._improved(channel, best) for channel in range(1, self.count)]
            if not any(moved):
                break
        total = self.total(best)
        for ids in tensors:
            other = best.copy()
            other[ids] = none[ids]
            if best[ids].any() and (cost := self.total(other)) <= _LITTLE * total:
                best, total = other, cost
        return self._centred(best)

    def _clipped(self, powers: Ids) -> Ids:
        return np.clip(powers, np.minimum(self.low, self.high), np.maximum(self.low, self.high))

    def _by_tensor(self, powers: Ids, tensors: Sequence[Ids]) -> Ids:
        """Powers with one step for all channels of a tensor after the other, as long as that helps."""
        made = powers.copy()
        for ids in tensors:
            own = np.unique(ids[ids > FIXED])
            least = self._cost_of(own, made)
            for step in (1, -1):
                while True:
                    other = made.copy()
                    other[own] += step
                    other = self._clipped(other)
                    cost = self._cost_of(own, other)
                    if not cost < least * (1 - 1e-6):
                        break
                    made, least = other, cost
        return made

    def _cost_of(self, channels: Ids, powers: Ids) -> float:
        """Expected square of the error of all blocks that depend on some channels."""
        blocks = {index for channel in channels.tolist() for index in self._of[channel]}
        return sum(self._cost(index, powers) for index in sorted(blocks))

    def _starts(self) -> list[Ids]:
        """All activations of one size; all weights; half of each."""
        starts = []
        for of_x, of_w in ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0)):
            total, times = np.zeros(self.count), np.zeros(self.count)
            for reader in self.readers:
                there = (reader.channel > FIXED) & (reader.x_squares > 0)
                read = reader.w_squares > 0
                if (there & read).any():
                    x, w = (
                        np.log2(np.where(squares > 0, squares, 1.0)) / 2
                        for squares in (reader.x_squares, reader.w_squares)
                    )
                    size = np.where(read, of_x * x - of_w * w, x)  # what nothing reads may be as small as it likes
                    np.add.at(total, reader.channel[there], (size - np.median(size[there & read]))[there])
                    np.add.at(times, reader.channel[there], 1)
            starts.append(np.rint(total / np.maximum(times, 1)).astype(np.int64))
        return starts

    def _improved(self, channel: int, powers: Ids) -> bool:
        """Move the power of a channel in the direction that helps; whether one does."""
        readers, now = self._of[channel], int(powers[channel])
        if not readers:
            return False
        least = start = sum(self._cost(index, powers) for index in readers)
        for step in (1, -1):
            while self.low[channel] <= powers[channel] + step <= self.high[channel]:
                powers[channel] += step
                cost = sum(self._cost(index, powers) for index in readers)
                if cost >= least * (1 - 1e-6):
                    powers[channel] -= step
                    break
                least = cost
            if least < start:
                break
        return bool(powers[channel] != now)

    def _centred(self, powers: Ids) -> Ids:
        """Powers with the median 0, as far as limits and the least exponents allow, of channels that meet."""
        group = np.arange(self.count)
        while True:
            before = group.copy()
            for reader in self.readers:
                ids = np.where(reader.channel == ZERO, FIXED, reader.channel)
                group[ids] = np.minimum.reduce(group[ids])
            group = group[group]
            if np.array_equal(group, before):
                break
        made = powers.copy()
        for number in np.unique(group[group != group[FIXED]]):
            members = group == number
            least, most = (powers - self.high)[members].max(), (powers - self.low)[members].min()
            if least <= most:
                moved = made.copy()
                moved[members] -= int(np.clip(np.rint(np.median(powers[members])), least, most))
                own = np.flatnonzero(members)
                if self._cost_of(own, moved) <= self._cost_of(own, made) * (1 + 1e-6):
                    made = moved
        return made
