"""Widths of mantissas with the least memory that keep a budget of accuracy on calibration data.

Every layer is measured once with narrow weights, all others as they are. The square of the error that its weights cause
grows fourfold with every bit that is taken from them, which predicts what each further bit costs: bits are taken where
they save most memory for the error they add. How far this goes is found by bisection with measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from rich.table import Table

from concord.compiler.calibration.calibration import Calibration, Follow, FormatChoice
from concord.compiler.calibration.equalisation import better
from concord.compiler.calibration.formats import rank_exponents, static_exponents
from concord.compiler.calibration.observed import observed
from concord.compiler.calibration.preference import FLAGGED, flags_text, worth_flags
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.memory.footprint import KIB
from concord.display.tables import text_table
from concord.spec.config import NpuConfig
from concord.spec.formats import MANT_MIN
from concord.spec.presets import with_mantissas

#: Bits of the weights of a layer when its share of the error is measured.
PROBE = 4
#: Samples of the calibration data in use at most.
MOST = 256


@dataclass(frozen=True)
class Budget:
    """Loss against double precision that a choice may have.

    Parameters
    ----------
    measure : str
        ``"accuracy"`` against labels, ``"agreement"`` of the class with double precision, or ``"error"`` of the result.
    points : float
        Greatest loss, in points of accuracy or agreement, or in percent of relative error.
    """

    measure: str
    points: float

    def loss(self, calibration: Calibration, candidate: FormatChoice) -> float:
        """Loss of a candidate, in points or percent."""
        if self.measure == "error":
            return 100 * candidate.error
        if self.measure == "agreement":
            return 100 * (1 - candidate.agreement)
        assert candidate.accuracy is not None
        return 100 * ((calibration.accuracy(calibration.best) or 0.0) - candidate.accuracy)


@dataclass(frozen=True)
class Choice:
    """Candidates that were measured, the chosen one first, the others by memory.

    Parameters
    ----------
    calibration : Calibration
        Calibration on which they were measured.
    budget : Budget
        Loss that is allowed.
    candidates : tuple of FormatChoice
        The chosen one first.
    """

    calibration: Calibration
    budget: Budget
    candidates: tuple[FormatChoice, ...]

    @property
    def chosen(self) -> FormatChoice:
        """The one with the least memory within the budget; if none is, the one that loses least."""
        return self.candidates[0]

    @property
    def met(self) -> bool:
        """True if the chosen candidate is within the budget."""
        return self.fits(self.chosen)

    def fits(self, candidate: FormatChoice) -> bool:
        """True if a candidate is within the budget."""
        return self.budget.loss(self.calibration, candidate) <= self.budget.points + 1e-9

    def table(self) -> Table:
        """All candidates, the chosen one in bold."""
        samples = len(self.calibration.best)
        limit = f"{self.budget.measure}, at most {self.budget.points:g} {'%' if self._relative else 'points lost'}"
        flags = any(candidate.flags for candidate in self.candidates)
        note = f"Flags: taken if less than {FLAGGED:.0%} of the memory is needed of what raises fewer."
        shown = [self.budget.measure]
        if self._relative:  # the class, if there is one
            shown = ["agreement"] if self.calibration.decides else []
        right = ["memory KiB", *shown, "error", "within"]
        columns = ["candidate", *right, *(["layers with flags"] if flags else [])]
        title = f"Mantissas on {samples} samples: {limit}"
        table = text_table(title, columns, right=right, whole=columns, caption=note if flags else "")
        for candidate in self.candidates:
            shares = {"accuracy": candidate.accuracy, "agreement": candidate.agreement}
            table.add_row(
                candidate.label,
                f"{candidate.bits / KIB:.1f}",
                *(f"{100 * (shares[name] or 0.0):.2f} %" for name in shown),
                f"{100 * candidate.error:.2f} %",
                "yes" if self.fits(candidate) else "no",
                *([flags_text(candidate)] if flags else []),
                style="bold" if candidate is self.chosen else None,
            )
        return table

    @property
    def _relative(self) -> bool:
        return self.budget.measure == "error"

    @property
    def widths(self) -> str:
        """Widths of the chosen one by layer, as text."""
        return ", ".join(f"{name}={mant}" for name, mant in self.chosen.compiled.package.formats.mantissas.items())


def choose_mantissas(
    calibration: Calibration,
    config: NpuConfig,
    budget: Budget,
    *,
    fixed: Mapping[str, int] | None = None,
    free: bool = False,
) -> Choice:
    """Find the widths with the least memory for weights and narrow vectors that keep a budget.

    Exponents are dynamic or static, biases and tables follow the data or not, whatever gives the least error with the
    mantissas of ``config``.

    Parameters
    ----------
    calibration : Calibration
        The network and samples; with labels, if the budget is one of accuracy.
    config : NpuConfig
        What to compile it for.
    budget : Budget
        What may be lost.
    fixed : mapping of str to int
        Widths of the weights of layers that are not to be chosen.
    free : bool
        Whether the NPU may be one with narrower mantissas.

    Raises
    ------
    NotFiniteError
        If the chosen one overflows where floating point does not, and its results show it.
    """
    calibration, _ = better(calibration, config, fixed or {})
    return _Search(calibration, config, budget, dict(fixed or {})).run(free)


class _Search:
    """The state of one search."""

    def __init__(self, calibration: Calibration, config: NpuConfig, budget: Budget, fixed: dict[str, int]):
        self.calibration, self.config, self.budget, self.fixed = calibration, config, budget, fixed
        self.base = rank_exponents(calibration, config, fixed).chosen
        layers = [layer for layer in self.base.compiled.lowered.layers if layer.weights]
        self.layers = {layer.name: layer for layer in layers if layer.name not in fixed}
        whole = replace(self.base, label=f"NPU of {config.wgt_mant} bits")
        self.measured: dict[tuple[int, tuple[tuple[str, int], ...]], FormatChoice] = {(config.wgt_mant, ()): whole}

    def run(self, free: bool) -> Choice:
        """Measure everything and choose."""
        order = self._order()
        for mant in range(self.config.wgt_mant, MANT_MIN - 1, -1):
            if mant < self.config.wgt_mant and (not free or mant < max(self.fixed.values(), default=0)):
                break
            if not self._fits(self._measure(mant, {})):
                break
            self._descend(mant, [name for name, width in order if width < mant])
        if not free:
            for mant in range(self.config.wgt_mant - 1, MANT_MIN - 1, -1):
                if not self._fits(self._measure(self.config.wgt_mant, dict.fromkeys(self.layers, mant))):
                    break
        candidates = list(self.measured.values())
        inside = [candidate for candidate in candidates if self._fits(candidate)]
        loss = partial(self.budget.loss, self.calibration)
        if inside:
            worth = [choice for choice in inside if worth_flags(choice, inside, lambda candidate: candidate.bits)]
            chosen = min(worth, key=lambda candidate: (candidate.bits, candidate.error))
        else:
            worth = [choice for choice in candidates if worth_flags(choice, candidates, loss)]
            chosen = min(worth, key=lambda candidate: (loss(candidate), candidate.error))
        others = sorted((c for c in candidates if c is not chosen), key=lambda c: (c.bits, c.error))
        return Choice(self.calibration, self.budget, (observed(chosen, self.calibration), *others))

    def _fits(self, candidate: FormatChoice) -> bool:
        return Choice(self.calibration, self.budget, (candidate,)).met

    def _measure(self, mant: int, widths: dict[str, int]) -> FormatChoice:
        """A candidate with mantissas of the NPU, and others in some layers."""
        key = mant, tuple(sorted(widths.items()))
        if key not in self.measured:
            self.measured[key] = self._candidate(mant, widths)
        return self.measured[key]

    def _candidate(self, mant: int, widths: dict[str, int]) -> FormatChoice:
        config = self.config if mant == self.config.wgt_mant else with_mantissas(self.config, mant)
        exponents = self._exponents(config)
        label = f"NPU of {mant} bits"
        if widths:
            least, most = min(widths.values()), max(widths.values()) if len(widths) == len(self.layers) else mant
            label += f", weights of {least}" + (f" to {most}" if most > least else "")
        best = self.base.compiled.package.formats
        formats = Formats(exponents, mantissas=self.fixed | widths, table_segments=best.table_segments)
        follow = self.base.follow
        if Follow.BIASES in follow:  # what is best at full width is not for narrow weights
            follow |= Follow.WEIGHTS
        return self.calibration.measure(label, config, formats, follow)

    def _exponents(self, config: NpuConfig) -> dict[str, int]:
        """Exponents of the kind that was best, for other mantissas."""
        best = dict(self.base.compiled.package.formats.exponents)
        if not best or config.act_mant == self.config.act_mant:
            return best
        tight = static_exponents(self.base.compiled, self.calibration.values) != best
        return static_exponents(self.base.compiled, self.calibration.values, int(tight), config)

    def _order(self) -> list[tuple[str, int]]:
        """Layers and the widths that they go down to, in the order in which bits are taken."""
        whole = self._measure(self.config.wgt_mant, {})
        scale = max(np.linalg.norm(self.calibration.values[name]) for name in self.calibration.graph.outputs)
        probe = min(PROBE, self.config.wgt_mant - 1)
        steps = []
        self.calibration.attempts.expect(len(self.layers))
        for index, (name, layer) in enumerate(self.layers.items()):
            narrowed = self._candidate(self.config.wgt_mant, {name: probe})
            error = max(np.linalg.norm(narrowed.outputs[out] - whole.outputs[out]) for out in narrowed.outputs) / scale
            words = max(sum(whole.compiled.allocations[item].count for item in layer.weights), 1)  # 0: of another layer
            for mant in range(self.config.wgt_mant - 1, MANT_MIN - 1, -1):
                steps.append((error**2 * 4.0 ** (probe - mant) / words, index, -mant, name))
        return [(name, -negative) for _, _, negative, name in sorted(steps)]

    def _descend(self, mant: int, names: list[str]) -> None:
        """Take bits from layers in order, as many as the budget allows."""
        good, bad = 0, len(names) + 1
        self.calibration.attempts.expect(len(names).bit_length())
        while bad - good > 1:
            taken = (good + bad) // 2
            widths = dict.fromkeys(self.layers, mant)
            for name in names[:taken]:
                widths[name] -= 1
            if self._fits(self._measure(mant, {name: width for name, width in widths.items() if width < mant})):
                good = taken
            else:
                bad = taken
