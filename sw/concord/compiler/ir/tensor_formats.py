"""Number formats that are chosen per tensor or per layer, and what of them a compiled network keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from concord.compiler.ir.layers import AnyLayer
from concord.compiler.ir.table_specs import Domain
from concord.functions.segmented import TableSegment
from concord.graph.equalised import ChannelScale
from concord.spec.config import NpuConfig
from concord.spec.formats import MANT_MIN
from concord.utils.arrays import FloatArray


@dataclass(frozen=True)
class Formats:
    """Formats with which a network is compiled, beside the formats of the configuration.

    Parameters
    ----------
    exponents : mapping of str to int
        Static exponents by tensor; of narrow tensors that are not there exponents are dynamic.
    ranges : mapping of str to pair of floats
        Least and greatest values that functions read in samples, by tensor: what their tables have to cover. Of a
        normalisation, ``/mean`` and ``/variance`` after its name; without them it is made for numbers of any size.
    bounds : mapping of str to pair of floats
        Ranges of functions where there are no samples, from bounds that are carried through the network
        (:mod:`concord.compiler.lowering.bounds`).
    inputs : mapping of str to pair of floats
        Ranges of inputs that are known: where such bounds begin.
    mantissas : mapping of str to int
        Bits of the mantissas of weights by layer; of layers that are not there those of the configuration. Narrower
        ones are numbers of the configuration all the same: the words of the matrix memory hold them exactly.
    means : mapping of str to tuple of float
        Mean of every input channel of a convolution or product, by node. Where there is a bias, it takes over what the
        rounding of the weights changes in the mean of the result.
    table_segments : mapping of str to tuple of TableSegment
        Tables of functions that have several, by node; all others have one.
    plain : tuple of str
        Functions, by node, that are one table although :mod:`concord.compiler.lowering.decomposition` has a rule for
        them: one table is good enough for what they read.
    input_offsets : mapping of str to float
        The number that the host subtracts from all elements of an input, by name, where the convolution that reads it
        can make up for it (:attr:`concord.compiler.lowering.lowered.Lowered.offsettable`).
    narrow : tuple of str
        Outputs that leave the NPU as mantissas with an exponent per native vector, as activations do; all others as
        binary16.
    channel_scales : mapping of str to ChannelScale
        Powers of two that channels are divided by, by input or tensor that a product computes
        (:mod:`concord.graph.equalised`). All else is for the network with these.
    weights : mapping of str to array
        Weights of convolutions and products as they are rounded, by node and in its shape; all others are rounded to
        the nearest. Not in comparisons.
    """

    exponents: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, Domain] = field(default_factory=dict)
    bounds: Mapping[str, Domain] = field(default_factory=dict)
    inputs: Mapping[str, Domain] = field(default_factory=dict)
    mantissas: Mapping[str, int] = field(default_factory=dict)
    means: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    table_segments: Mapping[str, tuple[TableSegment, ...]] = field(default_factory=dict)
    plain: tuple[str, ...] = ()
    input_offsets: Mapping[str, float] = field(default_factory=dict)
    narrow: tuple[str, ...] = ()
    channel_scales: Mapping[str, ChannelScale] = field(default_factory=dict)
    weights: Mapping[str, FloatArray] = field(default_factory=dict, compare=False, repr=False)

    def domain(self, tensor: str) -> Domain | None:
        """Least and greatest value of a tensor that a function reads, from samples or else from bounds."""
        return self.ranges.get(tensor, self.bounds.get(tensor))

    def mantissa(self, layer: AnyLayer, config: NpuConfig) -> int:
        """Bits of the mantissas of the weights of a layer."""
        return self.mantissas.get(layer.name, config.wgt_mant)

    def check(self, layers: Iterable[AnyLayer], config: NpuConfig) -> None:
        """``ValueError`` if something is for a layer that is not there or has no weights, or a width does not fit."""
        layers = list(layers)
        nodes = {node for layer in layers if layer.weights for node in layer.nodes}
        if unknown := sorted(set(self.weights) - nodes):
            raise ValueError(f"weights must be for nodes that have some, not {', '.join(unknown)}")
        known = [layer.name for layer in layers if layer.weights]
        for name, width in self.mantissas.items():
            if name not in known:
                raise ValueError(f"layers with a mantissa width must be among {', '.join(known)}, not {name}")
            if not MANT_MIN <= width <= config.wgt_mant:
                raise ValueError(f"mantissas of {name} must have {MANT_MIN}..{config.wgt_mant} bits, not {width!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values of everything but the weights."""
        names = ("exponents", "ranges", "bounds", "inputs", "mantissas", "means")
        segments = {name: [asdict(segment) for segment in segments] for name, segments in self.table_segments.items()}
        return {name: dict(getattr(self, name)) for name in names} | {
            "centres": dict(self.input_offsets),
            "parts": segments,
            "plain": list(self.plain),
            "narrow": list(self.narrow),
            "channel scales": {name: asdict(scale) for name, scale in self.channel_scales.items()},
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], weights: Mapping[str, FloatArray] | None = None) -> Formats:
        """Inverse of :meth:`to_dict`."""
        spans: dict[str, Any] = {
            k: {name: (low, high) for name, (low, high) in values[k].items()} for k in ("ranges", "bounds", "inputs")
        }
        plain: dict[str, Any] = {k: dict(values[k].items()) for k in ("exponents", "mantissas")}
        plain |= {k: tuple(values[k]) for k in ("plain", "narrow")}
        return cls(
            **spans,
            **plain,
            means={name: tuple(mean) for name, mean in values["means"].items()},
            table_segments={n: tuple(TableSegment(**part) for part in parts) for n, parts in values["parts"].items()},
            input_offsets=dict(values["centres"].items()),
            channel_scales={n: ChannelScale.from_dict(scale) for n, scale in values["channel scales"].items()},
            weights=weights or {},
        )


#: Everything as the configuration has it, exponents dynamic.
DEFAULT = Formats()
