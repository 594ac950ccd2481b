"""Accesses to the vector memories in the place of the host."""

from __future__ import annotations

from concord.spec.config import NpuConfig
from concord.spec.isa import VECTOR_ADDR_BITS
from concord_rtl.parts.component import Input, NpuInterface, Output


def vector_bits(config: NpuConfig) -> int:
    """Bits of the wider word of the vector memories."""
    return max(config.narrow_word.width, config.wide_word.width)


class VectorAccess(NpuInterface):
    """Words of the vector memories, seen from whoever reads and writes them while no chain is under way.

    One write a cycle. Bits of ``word`` above the word of the memory are undefined.

    Parameters
    ----------
    config : NpuConfig
    """

    busy = Output(1, "No access of the host begins.")
    owns = Output(1, "The others hold. Only while ``busy``, when an access of the host that has begun is over.")
    mem = Output(1, "The memory: 0 narrow, 1 wide.")
    addr = Output(VECTOR_ADDR_BITS, "Address of the word.")
    write = Output(1, "The word is written in this cycle.")
    data = Output(lambda self: vector_bits(self.config), "What is written.")
    word = Input(
        lambda self: vector_bits(self.config),
        "The word at ``addr``, from ``VECTOR_WORD`` (:mod:`concord.spec.timing`) cycles after the address on.",
    )
