"""Settings of training for an accumulator of few bits [overflow]."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from concord.overflow.kinds import KINDS, IntegerSettings, settings_of
from concord.spec.formats import MANT_MIN
from concord.spec.limits import ACC_WIDTH_MIN
from concord.spec.training import TrainingFormats
from concord.spec.widths import largest, needed_width

#: Reactions of training: none, to what the predictor counts, or by a bound that holds for every input.
METHODS = ("plain", "evidence", "bound")
#: Parts with one grid: the network, as the accumulators of the NPU have it, or every layer.
GRIDS = ("network", "layer")
#: Widest register: that of an intermediate.
MOST_BITS = 32


@dataclass(frozen=True, kw_only=True)
class OverflowSettings:
    """Training for an accumulator of few bits.

    Parameters
    ----------
    accumulator_bits : int
        P, bits of the register that adds up, sign included: 8 to 32.
    method : str
        ``plain``: sums that leave the register end, and are counted; nothing else. ``evidence``: also, ranges are
        scaled until the predictor counts no more than the threshold. ``bound``: weights are kept where no input can
        make a sum leave the register.
    grid : str
        ``network``: all inputs of products have one exponent, and all weights, as the NPU has one grid. ``layer``:
        every layer its own.
    lanes : int
        Products that are added up before the register, 1 to 64. They always fit: mantissas are as narrow as that takes.
    samples, every : int
        The predictor counts the first ``samples`` of a batch, in the first and in every ``every``-th step.
    kind : str
        Of network, which says the defaults of what follows (:data:`concord.overflow.KINDS`). Empty: by its operators.
    threshold : int or None
        Values of a layer that may leave the register, among those counted in a step.
    weight_share, per_bit, least, most : float or None
        By how much ranges grow: see :class:`concord.overflow.kinds.IntegerSettings`. Here they grow by whole bits.
    """

    accumulator_bits: int
    method: str = "evidence"
    grid: str = "network"
    lanes: int = 8
    samples: int = 16
    every: int = 8
    kind: str = ""
    threshold: int | None = None
    weight_share: float | None = None
    per_bit: float | None = None
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        ranges = {
            "accumulator_bits": (ACC_WIDTH_MIN, MOST_BITS),
            "lanes": (1, 64),
            "samples": (1, 1 << 20),
            "every": (1, 1 << 20),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} must be a whole number in {low}..{high}, not {value!r}")
        for name, known in (("method", METHODS), ("grid", GRIDS), ("kind", ("", *KINDS))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(filter(None, known))}, not {getattr(self, name)!r}")
        self.counting("cnn", 8, 8)

    def counting(self, kind: str, input_width: int, weight_width: int) -> IntegerSettings:
        """Settings of the predictor for a kind of network; ``ValueError`` for those that are not possible."""
        return settings_of(self.kind or kind).replace(
            width=self.accumulator_bits,
            output_width=self.accumulator_bits,
            input_width=input_width,
            weight_width=weight_width,
            threshold=self.threshold,
            weight_share=self.weight_share,
            per_bit=self.per_bit,
            least=self.least,
            most=self.most,
        )

    def check(self, formats: TrainingFormats) -> None:
        """``ValueError`` unless a network can be trained with these formats."""
        for name in ("weight", "activation"):
            fmt = getattr(formats, name)
            if fmt.block:
                raise ValueError(
                    f"{name} must have one exponent per tensor, block = 0, with [overflow], not {fmt.block}"
                )
            if fmt.bits < MANT_MIN:
                raise ValueError(f"{name} must have at least {MANT_MIN} bits with [overflow], not {fmt.bits}")
        need = needed_width(self.lanes * largest(MANT_MIN) ** 2)
        if self.method != "plain" and need > self.accumulator_bits:
            raise ValueError(
                f"accumulator_bits must be at least {need} for {self.lanes} lanes, whose products of {MANT_MIN} bits "
                f"must fit, not {self.accumulator_bits}; fewer lanes need less"
            )

    @property
    def facts(self) -> dict[str, Any]:
        """Settings as texts and numbers."""
        return asdict(self)

    @classmethod
    def read(cls, table: dict[str, Any], where: str) -> OverflowSettings:
        """Settings from a table of a TOML file; ``ValueError`` says what is wrong with it."""
        names = [f.name for f in fields(cls)]
        if unknown := sorted(set(table) - set(names)):
            raise ValueError(f"{where} must have {', '.join(names)} only, not {', '.join(unknown)}")
        if "accumulator_bits" not in table:
            raise ValueError(f"{where} must have accumulator_bits, the bits of the accumulator")
        for name in ("weight_share", "per_bit", "least", "most"):
            if name in table and (isinstance(table[name], bool) or not isinstance(table[name], int | float)):
                raise ValueError(f"{where} {name} must be a number, not {table[name]!r}")
        return cls(**table)
