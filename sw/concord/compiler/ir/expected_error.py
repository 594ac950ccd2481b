"""The error that a compiled network is expected to have, as it was measured when it was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: An error of the result from which on it is a warning.
TOO_LARGE = 0.05


@dataclass(frozen=True)
class LayerError:
    """Error of a layer: root mean square, relative to that of the reference; ``None`` if it is not finite.

    Parameters
    ----------
    layer : str
        Its name.
    relative : float or None
        Of its tensor.
    own : float or None
        If the reference computes this layer alone, from the tensors as the NPU has them.
    """

    layer: str
    relative: float | None
    own: float | None


@dataclass(frozen=True)
class Cause:
    """A layer that the error of the result is from: what is so, and what helps."""

    layer: str
    meaning: str
    advice: str

    @property
    def text(self) -> str:
        """One line about the error of the layer."""
        return f"{self.layer}: {self.meaning}; what helps: {self.advice}"


@dataclass(frozen=True)
class ExpectedError:
    """Errors against double precision on some samples.

    Parameters
    ----------
    samples : str
        Which samples, in words.
    result : float or None
        Of the result, the part of the host included; of several outputs the largest. ``None`` if it is not finite.
    layers : tuple of LayerError
        By layer; nothing if values between layers cannot be had.
    causes : tuple of Cause
        Where the error is from, if it is too large: the worst first.
    doubts : tuple of str
        Warnings about other inputs than those samples, and about samples whose part of the error is small, a line each.
    """

    samples: str
    result: float | None
    layers: tuple[LayerError, ...] = ()
    causes: tuple[Cause, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line about the error of the result."""
        return f"expected error of the result: {error_percent(self.result)}, on {self.samples}"

    @property
    def too_large(self) -> bool:
        """True if the error is a warning."""
        return self.result is None or self.result > TOO_LARGE

    @property
    def warnings(self) -> list[str]:
        """Warnings to a user, a line each; none if the error is small and there is no doubt."""
        too_large = [self.text, *(cause.text for cause in self.causes)] if self.too_large else []
        return [*too_large, *self.doubts]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ExpectedError:
        """Inverse of :meth:`to_dict`; ``TypeError``, ``ValueError`` or ``LookupError`` for anything else."""
        errors = ((str(entry["layer"]), _error(entry["relative"]), _error(entry["own"])) for entry in values["layers"])
        texts = ((str(entry["layer"]), str(entry["meaning"]), str(entry["advice"])) for entry in values["causes"])
        layers, causes = tuple(LayerError(*error) for error in errors), tuple(Cause(*text) for text in texts)
        doubts = tuple(str(line) for line in values.get("doubts", ()))
        return cls(str(values["samples"]), _error(values["result"]), layers, causes, doubts)


def _error(value: Any) -> float | None:
    return None if value is None else float(value)


def error_percent(error: float | None) -> str:
    """An error in percent, or that it is not finite."""
    return "not finite" if error is None else f"{100 * error:.2f} %"
