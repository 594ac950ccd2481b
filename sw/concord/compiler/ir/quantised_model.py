"""Distance of a compiled network from the quantised model that it was made of, as it was measured when compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from concord.compiler.ir.expected_error import TOO_LARGE, error_percent

_ADVICE = "wider mantissas (--mantissa 10), or an export whose scales are powers of two"


@dataclass(frozen=True)
class QuantisedModel:
    """Distance of a compiled network from the codes of a quantised model.

    Parameters
    ----------
    tensors, weights : int
        Number of tensors, and number of weights of layers, that have codes.
    inexact : int
        How many of both are not held or not rounded exactly; :class:`concord.compiler.ir.quantized.Inexact` says why.
    error : float or None
        Root mean square error of the result against the quantised model, in which every pair of QuantizeLinear and
        DequantizeLinear rounds and saturates, relative to the root mean square of its result; of several results the
        largest. ``None`` if it is not finite.
    equal : bool
        Whether all results are those of the quantised model, rounded to binary16.
    samples : str
        Which samples it was measured on, in words.
    stay : tuple of str
        Pairs that are computed because they changed their tensors much on these samples, as
        :func:`concord.frontend.import_model` takes them.
    """

    tensors: int
    weights: int
    inexact: int
    error: float | None
    equal: bool
    samples: str
    stay: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """True if all codes are reproduced."""
        return self.equal and not self.inexact

    @property
    def text(self) -> str:
        """One line about the codes."""
        counted = {"tensor": self.tensors, "weight": self.weights}
        each = " and ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counted.items() if count)
        if self.exact:
            return f"quantised model: the codes of {each} are reproduced exactly, on {self.samples}"
        if self.inexact:
            some = f"those of {self.inexact} of {self.tensors + self.weights} tensors and weights are not"
            why = f"codes are not reproduced exactly ({some}; concord inspect names them)"
        else:
            why = f"formats hold the codes of {each}, but sums are rounded to binary16 before they become codes"
        helps = f"; what helps: {_ADVICE}" if self.too_large else ""
        distance = f"the result is {error_percent(self.error)} from that of the model, on {self.samples}"
        return f"quantised model: {why}; {distance}{helps}"

    @property
    def too_large(self) -> bool:
        """True if the distance is a warning."""
        return self.error is None or self.error > TOO_LARGE

    @property
    def warnings(self) -> list[str]:
        """Warnings to a user, at most one line; none if all codes are reproduced."""
        return [] if self.exact else [self.text]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QuantisedModel:
        """Inverse of :meth:`to_dict`; ``TypeError``, ``ValueError`` or ``LookupError`` for anything else."""
        tensors, weights, inexact = (int(values[name]) for name in ("tensors", "weights", "inexact"))
        error = None if values["error"] is None else float(values["error"])
        return cls(tensors, weights, inexact, error, bool(values["equal"]), str(values["samples"]),
                   tuple(map(str, values["stay"])))  # fmt: skip
