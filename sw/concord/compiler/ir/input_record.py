"""Record of the inputs of a compilation, and comparison of the inputs of a run with it.

The rule, with samples. Of every sample there are three magnitudes, in powers of two: its root mean square, its largest
element, and its floor, a low quantile of what is not zero. Their distributions over the samples are known. For inputs
of a run a factor is searched that would make them more like the samples. A magnitude counts by how well it tells a
factor of 4 among the samples; it is the mean over samples that counts, and few samples must be clearer than many. A
factor that makes the inputs less like the samples in one of these magnitudes does not count. So quiet samples are
nothing to report where the samples have quiet ones, too, and samples that are all zero say nothing about a factor.

Beside that, the mean of a batch must not have moved away from all means of samples, and elements must not lie far
beyond their range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.compiler.ir.arrangement import InputGrid
from concord.utils.arrays import FloatArray

#: The source of a record that samples were seen for.
SAMPLES = "samples"
#: The source of a record of an input that nothing is known of.
UNSEEN = "default for floats, as there are no samples"
#: Samples of a run that are looked at for a factor; of more, they are evenly spread.
_LOOKED_AT = 64
#: Points of a distribution that are kept.
_POINTS = 33
#: Quantiles of the magnitudes of a sample that may be its floor; the one that varies least is taken.
_FLOORS = (0.0, 0.01, 0.05)
#: Factors that are searched, in powers of two: none below 2.8, for samples are not that much alike.
_SHIFTS = np.concatenate([-np.arange(1.5, 12.1, 0.5)[::-1], np.arange(1.5, 12.1, 0.5)])
#: The factor, in powers of two, that magnitudes are weighed by.
_FACTOR = 2.0
#: Least width of what counts as alike, in powers of two.
_WIDTH = 0.25
#: Log of the odds per sample that a factor needs: of many samples; what few need above that, divided by a power of
#: their number; and the most, which one sample needs.
_ODDS, _ODDS_FEW, _ODDS_FALL, _ODDS_ALONE = 0.5, 16.0, 1.5, 5.0
#: By so much, as a log of odds per sample, may a factor make the inputs less like the samples in one magnitude.
_UNLIKE = -0.3
#: Distance of the mean of a batch beyond those of samples: so many deviations of their elements, and so many times
#: the range of the means, less by the root of the number of samples in the batch, of which no more than these count.
_MOVED, _MOVED_ALONE, _MOVED_MOST = 0.5, 2.5, 16
#: Distance of elements beyond the range of samples: by this much of it and the spread of the ends of samples, if
#: that are more than so many of the samples of a batch; by this many times the range, if it is but one.
_NEAR, _OUTLIERS, _FAR = 0.25, 0.02, 2.0
#: Share of a range that was assumed or given, and not seen, by which values may lie beyond it.
_SLACK = 0.125
#: Share of elements that the codes of a quantised model may cut off.
_CUT_OFF = 0.01
#: Bits that the largest element of a batch must have in the format of the input.
LEAST_BITS = 3


@dataclass(frozen=True)
class Mismatch:
    """Difference of inputs from the record of the compilation, and advice."""

    meaning: str
    advice: str


class _Density:
    """The density of numbers, from points of their distribution, with long tails; its logarithm is interpolated."""

    _STEP, _BEYOND = 0.125, 24.0

    def __init__(self, points: FloatArray, count: int):
        spread = min(float(points.std()), float(np.subtract(*np.quantile(points, (0.75, 0.25)))) / 1.34)
        self.width = max(_WIDTH, 0.9 * spread * count**-0.2) * (1 + 4 / count)
        self.at = np.arange(points.min() - self._BEYOND, points.max() + self._BEYOND, self._STEP)
        distance = (self.at[:, None] - points) / self.width
        self.log = np.log(((1 + distance**2 / 3) ** -2).mean(axis=1) / self.width)

    def __call__(self, values: FloatArray) -> FloatArray:
        return np.asarray(np.interp(values, self.at, self.log))

    def gain(self, values: FloatArray, shifts: FloatArray) -> FloatArray:
        """Mean log of the odds that numbers are of this distribution when shifted, against not shifted."""
        return np.asarray((self(values + shifts[:, None]) - self(values)).mean(axis=1))


def _magnitudes(x: FloatArray, floor: float) -> dict[str, FloatArray]:
    """Magnitudes of samples ``[samples, elements]`` in powers of two, without those that are all zero."""
    sizes = np.sort(np.abs(x[np.abs(x).any(axis=1)]), axis=1)
    if not len(sizes):
        return {}
    zeros = (sizes == 0).sum(axis=1)
    places = zeros + np.floor(floor * (sizes.shape[1] - 1 - zeros)).astype(int)
    magnitudes = {
        "root mean square": np.sqrt((sizes**2).mean(axis=1)),
        "peak": sizes[:, -1],
        "floor": sizes[np.arange(len(sizes)), places],
    }
    return {name: np.log2(np.maximum(values, 1e-300)) for name, values in magnitudes.items()}


def _points(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(x) for x in np.quantile(values, np.linspace(0, 1, _POINTS)))


def _spread(values: FloatArray) -> float:
    return float(np.subtract(*np.quantile(values, (0.9, 0.1))))


def _weight(density: _Density, values: FloatArray) -> float:
    """Weight of a magnitude, by how well it tells a factor of 4 among the samples: mean log of odds."""
    return max(0.0, -float(density.gain(values, np.array([-_FACTOR, _FACTOR])).mean()))


@dataclass(frozen=True)
class InputRecord:
    """Statistics of an input.

    Parameters
    ----------
    low, high : float
        Least and greatest value.
    source : str
        ``"samples"``, or why it is assumed.
    count : int
        Number of samples; 0 if the record is assumed.
    deviation : float
        Standard deviation of all elements.
    means : tuple of float
        Least and greatest mean of a sample.
    spreads : tuple of float
        Of the least elements of samples, and of the greatest ones: how far apart eight of ten are.
    floor : float
        The quantile of magnitudes that is the floor of a sample.
    magnitudes : mapping of str to tuple of float
        Points of the distributions of the magnitudes of samples, in powers of two.
    weights : mapping of str to float
        How well each tells a factor of 4; they add up to 1, or there are none.
    least : float
        Magnitude that the largest element of a batch needs, for the format of the input to hold it with 3 bits.
    """

    low: float
    high: float
    source: str
    count: int = 0
    deviation: float = 0.0
    means: tuple[float, float] = (0.0, 0.0)
    spreads: tuple[float, float] = (0.0, 0.0)
    floor: float = 0.0
    magnitudes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    least: float = 0.0

    @classmethod
    def of_samples(cls, samples: npt.ArrayLike, least: float = 0.0) -> InputRecord:
        """Record of samples ``[samples, ...]``."""
        x = np.asarray(samples, dtype=np.float64)
        x = x.reshape(len(x), -1)
        count, means = len(x), x.mean(axis=1)
        best: tuple[float, float, dict[str, FloatArray], dict[str, float]] | None = None
        for floor in _FLOORS:
            magnitudes = _magnitudes(x, floor)
            weights = {name: _weight(_Density(np.array(_points(y)), count), y) for name, y in magnitudes.items()}
            if best is None or weights.get("floor", 0.0) > best[0]:
                best = weights.get("floor", 0.0), floor, magnitudes, weights
        assert best is not None
        _, floor, magnitudes, weights = best
        total = sum(weights.values())
        return cls(
            float(x.min()),
            float(x.max()),
            SAMPLES,
            count,
            float(x.std()),
            (float(means.min()), float(means.max())),
            (_spread(x.min(axis=1)), _spread(x.max(axis=1))),
            floor,
            {name: _points(y) for name, y in magnitudes.items()},
            {name: weight / total for name, weight in weights.items()} if total else {},
            least,
        )

    @property
    def text(self) -> str:
        """Range of the input, in words."""
        where = f"{self.count} samples" if self.source == SAMPLES else self.source
        return f"values from {self.low:g} to {self.high:g} ({where})"

    def mismatch(self, values: npt.ArrayLike, grid: InputGrid | None = None) -> Mismatch | None:
        """Difference of inputs ``[samples, ...]``, if there is any; the host rounds and limits them to ``grid``."""
        x = np.asarray(values, dtype=np.float64)
        if not x.size or not np.isfinite(x).all():  # told by who runs them
            return None
        x = x.reshape(len(x), -1)
        low, high = float(x.min()), float(x.max())
        now = f"values from {low:g} to {high:g}"
        if self.count:
            meaning = self._factor(x) or self._moved(x.mean(), len(x), now) or self._beyond(x)
            rescale = "scale them as the samples were, or calibrate with samples that are like them"
        else:
            margin = _SLACK * (self.high - self.low)
            inside = low >= self.low - margin and high <= self.high + margin
            meaning = None if inside else f"{now}; compiled for {self.text}"
            rescale = "give their --input-range, or samples of them (--calibrate)"
        if meaning is None and grid is not None:
            meaning, rescale = _limited(x, grid), "scale them as the inputs that the model was quantised for"
        if meaning is None and (size := max(-low, high)) and size < self.least <= self._usual_size:
            meaning = f"{now}; the format of the input holds them with less than {LEAST_BITS} bits"
            rescale = "scale them up, and the weights that read them down"
        return None if meaning is None else Mismatch(meaning, rescale)

    @property
    def _usual_size(self) -> float:
        """The median of the largest elements of samples; infinite if there are none."""
        peaks = self.magnitudes.get("peak")
        return 2.0 ** peaks[_POINTS // 2] if peaks else np.inf

    @cached_property
    def _densities(self) -> dict[str, _Density]:
        return {name: _Density(np.array(self.magnitudes[name]), self.count) for name in self.weights}

    def _factor(self, x: FloatArray) -> str | None:
        """Text with the factor by which inputs are larger or smaller than samples, if it is clear."""
        some = x[np.linspace(0, len(x) - 1, min(len(x), _LOOKED_AT)).astype(int)]
        magnitudes = _magnitudes(some, self.floor)
        if not magnitudes or not self.weights:
            return None
        gains = {name: density.gain(magnitudes[name], _SHIFTS) for name, density in self._densities.items()}
        total = sum((self.weights[name] * gain for name, gain in gains.items()), np.zeros(len(_SHIFTS)))
        total = np.where(np.minimum.reduce(list(gains.values())) >= _UNLIKE, total, -np.inf)
        best = int(total.argmax())
        needed = min(_ODDS_ALONE, _ODDS + _ODDS_FEW / len(magnitudes["peak"]) ** _ODDS_FALL)
        if total[best] < needed:
            return None
        rms = "root mean square"
        now, usual = (float(np.median(values)) for values in (magnitudes[rms], self.magnitudes[rms]))
        factor = 2.0 ** -_SHIFTS[best]
        times = f"{factor:.2g} times as large as" if factor > 1 else f"{1 / factor:.2g} times as small as"
        return f"about {times} the samples: root mean square {2**now:.3g}, that of the samples {2**usual:.3g}"

    def _moved(self, mean: float, count: int, now: str) -> str | None:
        """Text if the mean is away from those of samples."""
        least, most = self.means
        alone = _MOVED_ALONE * (most - least) / np.sqrt(min(count, _MOVED_MOST))
        margin = (_MOVED * self.deviation + alone) * (1 + 4 / self.count)
        if max(least - mean, mean - most) <= margin or not self.deviation:
            return None
        return f"{now} with the mean {mean:.4g}; means of samples are from {least:.4g} to {most:.4g}"

    def _beyond(self, x: FloatArray) -> str | None:
        """Text if elements lie too far beyond the range of samples: some of a batch, or a few very far."""
        lows, highs = x.min(axis=1), x.max(axis=1)
        span, few = self.high - self.low, 1 + 4 / self.count
        ends = [_NEAR * span + spread for spread in self.spreads]
        share = np.mean((lows < self.low - few * ends[0]) | (highs > self.high + few * ends[1]))
        far = few * _FAR * span
        if share <= _OUTLIERS and lows.min() >= self.low - far and highs.max() <= self.high + far:
            return None
        return f"values from {lows.min():g} to {highs.max():g}; compiled for {self.text}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InputRecord:
        """Inverse of :meth:`to_dict`; ``TypeError``, ``ValueError`` or ``LookupError`` for anything else."""
        numbers: dict[str, Any] = {k: float(values[k]) for k in ("low", "high", "deviation", "floor", "least")}
        (least, most), (below, above) = values["means"], values["spreads"]
        numbers |= {"means": (float(least), float(most)), "spreads": (float(below), float(above))}
        magnitudes = {name: tuple(map(float, points)) for name, points in values["magnitudes"].items()}
        weights = {name: float(weight) for name, weight in values["weights"].items() if name in magnitudes}
        texts: dict[str, Any] = {"source": str(values["source"]), "count": int(values["count"])}
        return cls(**texts, **numbers, magnitudes=magnitudes, weights=weights)


def _limited(x: FloatArray, grid: InputGrid) -> str | None:
    """Text if the host cuts off more than a few elements, or far more than a little of one."""
    least, greatest = np.ldexp(float(grid.least), grid.exponent), np.ldexp(float(grid.greatest), grid.exponent)
    share, margin = float(np.mean((x < least) | (x > greatest))), _SLACK * (greatest - least)
    if share <= _CUT_OFF and x.min() >= least - margin and x.max() <= greatest + margin:
        return None
    return f"{100 * share:.2g} % of the elements are cut off at {least:g} and {greatest:g}, the ends of the codes"
