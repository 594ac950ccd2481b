"""Bits that weights and narrow tensors need."""

from __future__ import annotations

from collections.abc import Mapping

from concord.compiler.layers import AnyLayer
from concord.sheet import Item
from concord.spec.config import NpuConfig

#: Bits of a KiB.
KIB = 8192


def weight_bits(layer: AnyLayer, items: Mapping[str, Item], config: NpuConfig, mant: int) -> int:
    """Bits of the weights of a layer in words of a matrix memory for mantissas of ``mant`` bits, padding included."""
    words = sum(items[name].count for name in layer.weights)
    return words * config.rows * (config.lanes * mant + config.wgt_exp_width)
