"""Number formats that are chosen per tensor or per layer, and what of them a compiled network keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from concord.compiler.layers import AnyLayer, Domain
from concord.parts import Part
from concord.spec.config import NpuConfig
from concord.spec.formats import MANT_MIN


@dataclass(frozen=True)
class Formats:
    """What a network is compiled with, beside the formats of the configuration.

    Parameters
    ----------
    exponents : mapping of str to int
        Static exponents by tensor; of narrow tensors that are not there exponents are dynamic.
    ranges : mapping of str to pair of floats
        Least and greatest values of tensors that functions read: what their tables have to cover. Without them a table
        covers a default range, and inputs beyond it have the value of its nearest end.
    mantissas : mapping of str to int
        Bits of the mantissas of weights by layer; of layers that are not there those of the configuration. Narrower
        ones are numbers of the configuration all the same: the words of the matrix memory hold them exactly.
    means : mapping of str to tuple of float
        Mean of every input channel of a convolution or product, by node. Where there is a bias, it takes over what the
        rounding of the weights changes in the mean of the result.
    parts : mapping of str to tuple of Part
        Tables of functions that have several, by node; all others have one.
    """

    exponents: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, Domain] = field(default_factory=dict)
    mantissas: Mapping[str, int] = field(default_factory=dict)
    means: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)

    def mantissa(self, layer: AnyLayer, config: NpuConfig) -> int:
        """Bits of the mantissas of the weights of a layer."""
        return self.mantissas.get(layer.name, config.wgt_mant)

    def check(self, layers: Iterable[AnyLayer], config: NpuConfig) -> None:
        """``ValueError`` if there is a width for something that has no weights, or one that does not fit."""
        known = [layer.name for layer in layers if layer.weights]
        for name, width in self.mantissas.items():
            if name not in known:
                raise ValueError(f"layers with a mantissa width must be among {', '.join(known)}, not {name}")
            if not MANT_MIN <= width <= config.wgt_mant:
                raise ValueError(f"mantissas of {name} must have {MANT_MIN}..{config.wgt_mant} bits, not {width!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = {name: dict(getattr(self, name)) for name in ("exponents", "ranges", "mantissas", "means")}
        return plain | {"parts": {name: [asdict(part) for part in parts] for name, parts in self.parts.items()}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Formats:
        """Inverse of :meth:`to_dict`."""
        ranges = {name: (low, high) for name, (low, high) in values["ranges"].items()}
        means = {name: tuple(mean) for name, mean in values["means"].items()}
        parts = {name: tuple(Part(**part) for part in found) for name, found in values["parts"].items()}
        return cls(values["exponents"], ranges, values["mantissas"], means, parts)


#: Everything as the configuration has it, exponents dynamic.
DEFAULT = Formats()
