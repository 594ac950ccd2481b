"""The predictor inside the layers: training in the sums of an accumulator of few bits [overflow].

Every product reads its input with a static exponent, rounded to the nearest, halves to even, and limited to the
mantissas; adds up in a register of P bits (:mod:`concord.sums.register`); and gives binary16 numbers, the bias added
in binary16: the numbers of the NPU with this accumulator.

Ranges grow by whole bits: a bit more of the weights or of the inputs is a bit less of their mantissas and a step twice
as large. What the sums of a layer need is counted as ``concord overflow`` counts it: every product, every partial sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from concord.golden.rounding import round_shift
from concord.overflow.scaling import Excess, growth
from concord.overflow.trained import TrainedLayer
from concord.spec.formats import BINARY16_FRAC, MANT_MIN
from concord.spec.training import TRAIN_EXP_MIN, TrainingFormat, TrainingFormats
from concord.spec.widths import largest, needed_width
from concord.sums.counting import ProductBlock, count
from concord.sums.histogram import Histograms
from concord.sums.reach import radius
from concord.sums.register import ProductOperands, limited
from concord.train.bound import bind, row_norms
from concord.train.overflow_settings import OverflowSettings
from concord.train.parameters import AddedCounts, Parameter
from concord.train.tensor import Array, Tensor, top_of

#: Greatest number in binary16.
_BINARY16_MAX = 65504.0
#: Most rounds in which ranges grow before the first step.
_ROUNDS = 32
#: Numbers of a grid that change.
_STATE = ("exp", "weight", "data", "floor", "needed", "unused")


@dataclass
class OverflowCounts(AddedCounts):
    """Counts of what the accumulators held.

    Parameters
    ----------
    sums, ended : int
        Sums that were made, and those that left the register.
    counted, beyond : int
        Products, partial sums and outputs that the predictor has counted, and those that do not fit.
    clipped : int
        Inputs of products that were beyond their range.
    bounded : int
        Rows of weights that had to be brought back within the bound.
    scaled : int
        Bits by which ranges have grown, less those by which they have shrunk.
    """

    sums: int = 0
    ended: int = 0
    counted: int = 0
    beyond: int = 0
    clipped: int = 0
    bounded: int = 0
    scaled: int = 0


@dataclass
class ProductSite:
    """A product.

    Parameters
    ----------
    name : str
        Of the layer, with ``.W0`` or ``.R0`` after it for a recurrent one.
    weight : Parameter
        Of the product.
    tensor : str
        What it reads; empty for a state.
    positive : bool
        Whether that is never negative.
    fixed : bool
        Whether the weights are a constant that is not trained.
    """

    name: str
    weight: Parameter
    tensor: str
    positive: bool
    fixed: bool = False
    sums: Histograms = field(default_factory=Histograms)


@dataclass
class Scale:
    """Products on one grid: exponents of their inputs and weights.

    Parameters
    ----------
    sites : list of ProductSite
    exp : int
        Of all inputs.
    weight, data : int
        Bits by which the ranges of weights and of inputs have grown, so many less their mantissas have.
    floor : int
        The least there may be of both together.
    needed : int
        Exponent that the inputs of this epoch have needed.
    unused : int
        Bits that no sum of this epoch has used.
    """

    sites: list[ProductSite]
    exp: int = TRAIN_EXP_MIN
    weight: int = 0
    data: int = 0
    floor: int = 0
    needed: int = TRAIN_EXP_MIN
    unused: int = 64


class OverflowMonitor:
    """Accumulators of a network in training, and what is done about their overflows.

    Parameters
    ----------
    settings : OverflowSettings
    formats : TrainingFormats
    groups : list of list of ProductSite
        Products, those together that are on one grid.
    kind : str
        Of network.
    """

    def __init__(
        self, settings: OverflowSettings, formats: TrainingFormats, groups: Sequence[Sequence[ProductSite]], kind: str
    ):
        settings.check(formats)
        self.settings, self.formats = settings, formats
        self.counting = settings.counting(kind, min(formats.activation.bits, 32), min(formats.weight.bits, 32))
        self.sites = {site.name: site for group in groups for site in group}
        self.scales = [Scale(list(group)) for group in groups]
        self._scale_of = {site.name: scale for scale in self.scales for site in scale.sites}
        self.counts = OverflowCounts()
        self.bits = settings.accumulator_bits
        #: Samples that are counted in this pass.
        self.counted_samples = 0
        self._batch, self._ranging = 1, False

    # Widths -------------------------------------------------------------------------------------------

    def widths(self, scale: Scale) -> tuple[int, int]:
        """Bits of the mantissas of weights and of inputs."""
        return self.formats.weight.bits - scale.weight, self.formats.activation.bits - scale.data

    def _weight_format(self, scale: Scale) -> TrainingFormat:
        return TrainingFormat(self.widths(scale)[0], 0, self.formats.weight.rounding)

    def _limits(self, scale: Scale) -> tuple[int, int]:
        weight, data = self.widths(scale)
        return largest(weight), largest(data)

    def _share(self, scale: Scale, bits: int) -> bool:
        """Ranges grow by some bits, or shrink by one, weights by their share; whether there was a bit to take."""
        weight, data = scale.weight, scale.data
        for _ in range(abs(bits)):
            surplus = scale.weight - self.counting.weight_share * (scale.weight + scale.data + (bits > 0))
            if bits < 0:
                if scale.weight and (surplus > 0 or not scale.data):
                    scale.weight -= 1
                elif scale.data:
                    scale.data -= 1
                continue
            room = [width > MANT_MIN for width in self.widths(scale)]
            if room[0] and (surplus < -0.25 or not room[1]):
                scale.weight += 1
            elif room[1]:
                scale.data += 1
        return (weight, data) != (scale.weight, scale.data)

    # What layers ask for ------------------------------------------------------------------------------

    def operand(self, x: Tensor, name: str) -> Tensor:
        """The input of a product with its static exponent."""
        scale = self._scale_of[name]
        bits = self.widths(scale)[1]
        top = top_of(x.mant)
        needed = range_exponent(top, x.exp, bits)
        scale.needed = max(scale.needed, needed)
        exp, most = needed if self._ranging else scale.exp, largest(bits)
        steps = np.rint(np.ldexp(x.mant.astype(np.float64), x.exp - exp))
        if top and needed > exp:
            self.counts.clipped += int(np.count_nonzero(np.abs(steps) > most))
        return Tensor.of(np.clip(steps, -most, most), exp, most)

    def sums(self, name: str, sums: Array, of: ProductOperands) -> Array:
        """Sums ``[N, groups, O]`` as the register holds them; counted, if it is their turn."""
        if self._ranging:
            return sums
        if self.counted_samples:
            share = len(of.rows) * min(self.counted_samples, self._batch) // self._batch
            rows, weights = of.rows[:share].transpose(1, 2, 0), of.weights.transpose(0, 2, 1)
            block = ProductBlock(rows.astype(np.int64), weights.astype(np.int64))
            self.sites[name].sums.add(count([block]))
        limited_sums, ended = limited(sums, of, self.settings.lanes, self.bits)
        self.counts.sums += sums.size
        self.counts.ended += ended
        return limited_sums

    def binary16(self, mant: Array, exp: int, bias: Tensor | None) -> Tensor:
        """Sums in binary16, and a bias that is broadcast to them added in binary16."""
        values = _half(np.ldexp(mant.astype(np.float64), exp))
        if bias is not None:
            values = _half(values + bias_values(bias, exp))
        return _on_grid(values, max(exp, -BINARY16_FRAC))

    def add_binary16(self, x: Tensor, bias: Tensor) -> Tensor:
        """Numbers of binary16 and a bias that is broadcast to them, added in binary16."""
        values = _half(x.values + bias_values(bias, -BINARY16_FRAC))
        return _on_grid(values, max(min(x.exp, bias.exp), -BINARY16_FRAC))

    def input(self, values: Array) -> Tensor:
        """Inputs of the network as the NPU gets them: binary16 numbers."""
        whole = np.ldexp(_half(values), BINARY16_FRAC)
        return Tensor(whole, -BINARY16_FRAC, top_of(whole))

    # Before, between and after the steps -------------------------------------------------------------

    def begin(self, forward: Callable[[], object], samples: int) -> None:
        """Choose ranges and exponents with a pass over some samples, and scale until they are within the threshold."""
        for scale in self.scales:
            while self.settings.method != "plain" and self._lanes_beyond(scale):
                self._share(scale, 1)
            scale.floor = scale.weight + scale.data
        self._ranging = True
        forward()
        self._ranging = False
        for scale in self.scales:
            scale.exp = scale.needed
            self._regrid(scale, True)
            if self.settings.method == "bound":
                self._bind(scale)
        for _ in range(_ROUNDS if self.settings.method == "evidence" else 1):
            self.count_next(samples)
            forward()
            if not self._react():
                break
        self.counts, self.counted_samples = OverflowCounts(), 0
        for scale in self.scales:
            scale.needed, scale.unused = TRAIN_EXP_MIN, 64

    def count_next(self, batch: int) -> None:
        """Count the next pass, of a batch of so many samples."""
        self.counted_samples, self._batch = self.settings.samples, batch
        for site in self.sites.values():
            site.sums = Histograms()

    @contextmanager
    def separate_counts(self, bits: int | None = None, whole: int = 0) -> Iterator[OverflowCounts]:
        """Counts of their own, and perhaps another width of the register, for samples that nothing is learned from.

        ``whole`` of them are all counted by the predictor, on top of what it has counted.
        """
        kept = self.counts, self.bits, self.counted_samples, [scale.needed for scale in self.scales]
        self.counts, self.counted_samples, self._batch = OverflowCounts(), whole, max(whole, 1)
        self.bits = self.bits if bits is None else bits
        try:
            yield self.counts
        finally:
            self.counts, self.bits, self.counted_samples, needed = kept
            for scale, exp in zip(self.scales, needed, strict=True):
                scale.needed = exp

    def counts_step(self, step: int) -> bool:
        """True if the predictor counts in a step."""
        return step % self.settings.every == 0

    def end_step(self) -> None:
        """React to a step whose updates have been made."""
        if self.counted_samples:
            self._react()
            self.counted_samples = 0
        for scale in self.scales:
            scale.exp = max(scale.exp, scale.needed)
            if any(int(site.weight.exp[0]) != int(scale.sites[0].weight.exp[0]) for site in scale.sites):
                self._regrid(scale)
            if self.settings.method == "bound":
                self.counts.bounded += self._bind(scale)

    def end_epoch(self, last: bool) -> OverflowCounts:
        """Counts of an epoch. Ranges that it has not used shrink, unless it is the last."""
        for scale in self.scales:
            if not last and scale.needed > TRAIN_EXP_MIN:
                scale.exp = scale.needed
            if not last and self.settings.method == "evidence" and scale.unused >= 2:
                if scale.weight + scale.data > scale.floor:
                    self._grow(scale, -1)
            scale.needed, scale.unused = TRAIN_EXP_MIN, 64
        counts, self.counts = self.counts, OverflowCounts()
        return counts

    def bias(self, name: str, bias: Tensor) -> Array:
        """A bias as a product adds it: on the grid of its sums."""
        return bias_values(bias, self._scale_of[name].exp + int(self.sites[name].weight.exp[0]))

    def layers(self) -> tuple[TrainedLayer, ...]:
        """Evidence by product that was counted since the last call of :meth:`count_next`."""
        layers = []
        for site in self.sites.values():
            scale = self._scale_of[site.name]
            most = int(row_norms(site.weight, site.positive).max(initial=0)) * self._limits(scale)[1]
            observed = max((stage.bits for stage in site.sums.values()), default=0)
            beyond = sum(stage.beyond(self.bits) for stage in site.sums.values())
            exponents = scale.exp, int(site.weight.exp[0])
            layers.append(TrainedLayer(site.name, *exponents, observed, needed_width(most), beyond))
        return tuple(layers)

    def mantissas(self) -> tuple[int, int]:
        """Bits of the mantissas of inputs and of weights: the widest."""
        widths = [self.widths(scale) for scale in self.scales]
        return max(data for _, data in widths), max(weight for weight, _ in widths)

    def exponents(self) -> dict[str, int]:
        """Static exponents by tensor that a product reads."""
        return {site.tensor: self._scale_of[site.name].exp for site in self.sites.values() if site.tensor}

    @property
    def state(self) -> list[dict[str, int]]:
        """State that a checkpoint has to keep, by grid."""
        return [{key: getattr(scale, key) for key in _STATE} for scale in self.scales]

    def resume(self, state: Sequence[dict[str, int]]) -> None:
        """Go on with what was kept."""
        for scale, values in zip(self.scales, state, strict=True):
            for key in _STATE:
                setattr(scale, key, int(values[key]))
            for site in scale.sites:
                site.weight.fmt = self._weight_format(scale)

    def _lanes_beyond(self, scale: Scale) -> bool:
        weight, data = self._limits(scale)
        return self.settings.lanes * weight * data > largest(self.bits)

    def _react(self) -> bool:
        """Grow ranges where the last pass asks for it; whether one has grown."""
        before = self.counts.scaled
        for scale in self.scales:
            bits = 0
            for site in scale.sites:
                excess = Excess.of(site.sums, self.counting)
                self.counts.counted += excess.total
                self.counts.beyond += excess.count
                scale.unused = min(scale.unused, -excess.bits)
                if excess.count > self.counting.threshold:
                    bits = max(bits, 1, round(np.log2(growth(excess, self.counting))))
            if bits and self.settings.method == "evidence":
                self._grow(scale, bits)
        return self.counts.scaled != before

    def _grow(self, scale: Scale, bits: int) -> None:
        """Ranges grow by some bits, as far as mantissas allow, or shrink by one."""
        weight, data = scale.weight, scale.data
        self._share(scale, bits)
        self.counts.scaled += scale.weight + scale.data - weight - data
        scale.exp += scale.data - data
        scale.needed += scale.data - data if scale.needed > TRAIN_EXP_MIN else 0
        self._regrid(scale, scale.weight < weight)

    def _regrid(self, scale: Scale, free: bool = False) -> None:
        """All weights of a grid on one exponent: the greatest that one needs; not less than before, unless ``free``."""
        fmt = self._weight_format(scale)
        exp = max(self._exponent(scale, site, fmt, free) for site in scale.sites)
        for site in scale.sites:
            move(site.weight, exp, fmt)

    def _exponent(self, scale: Scale, site: ProductSite, fmt: TrainingFormat, free: bool) -> int:
        """The exponent that the weights of a product need; a constant also gets within the bound by it."""
        exp = weight_exponent(site.weight, fmt, free)
        if not site.fixed or self.settings.method != "bound":
            return exp
        limit = radius(self.bits, self._limits(scale)[1])
        while row_norms(moved(site.weight, exp, fmt), site.positive).max(initial=0) > limit:
            exp += 1
        return exp

    def _bind(self, scale: Scale) -> int:
        limit = radius(self.bits, self._limits(scale)[1])
        return sum(bind(site.weight, limit, site.positive) for site in scale.sites if not site.fixed)


def range_exponent(top: int, exp: int, bits: int) -> int:
    """The least exponent at which a magnitude ``top * 2**exp`` rounds to a mantissa of some bits; the least for 0."""
    if not top:
        return TRAIN_EXP_MIN
    most = largest(bits)
    exponent = exp + top.bit_length() - (bits - 1)
    return exponent + int(np.rint(np.ldexp(float(top), exp - exponent)) > most)


def weight_exponent(parameter: Parameter, fmt: TrainingFormat, free: bool) -> int:
    """The least exponent at which all weights of a parameter fit a format; not less than that it has, unless free."""
    shift, exp = parameter.accumulator.shift, int(parameter.exp[0])
    top = int(np.abs(parameter.total).max(initial=0))
    while free and top and int(round_shift(top << 1, shift)) <= fmt.q_max and exp > TRAIN_EXP_MIN + shift:
        top, exp = top << 1, exp - 1
    right = 0
    while int(round_shift(round_shift(top, right), shift)) > fmt.q_max:
        right += 1
    return exp + right


def move(parameter: Parameter, exp: int, fmt: TrainingFormat) -> None:
    """Bring a parameter, one block, to an exponent and a format: its total is rounded once, and its weights from it."""
    shift, most = parameter.accumulator.shift, parameter.accumulator.q_max
    total = round_shift(parameter.total, exp - int(parameter.exp[0]))
    weight = np.clip(round_shift(total, shift), -fmt.q_max, fmt.q_max)
    acc = np.clip(total - (weight << shift), -most, most) if shift else np.zeros_like(total)
    parameter.fmt = fmt
    parameter.replace(weight, acc, np.full_like(parameter.exp, exp))


def moved(parameter: Parameter, exp: int, fmt: TrainingFormat) -> Parameter:
    """Parameter as :func:`move` would make it."""
    copy = replace(parameter)
    move(copy, exp, fmt)
    return copy


def bias_values(bias: Tensor, exp: int) -> Array:
    """Values of a bias on the grid of a product: what it has below is rounded to the nearest, away."""
    right = max(0, exp - bias.exp)
    return np.ldexp(round_shift(bias.mant, right).astype(np.float64), bias.exp + right)


def _on_grid(values: Array, exp: int) -> Tensor:
    """Numbers as whole ones on a grid, which has them all."""
    return Tensor.of(np.ldexp(values, -exp), exp)


def _half(values: Array) -> Array:
    """Numbers rounded to binary16, halves to even, limited to the greatest one, in float64."""
    return np.clip(values, -_BINARY16_MAX, _BINARY16_MAX).astype(np.float16).astype(np.float64)
