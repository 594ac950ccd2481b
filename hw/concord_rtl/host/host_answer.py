"""Choice of the word that the host reads."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib.wiring import In

from concord.spec.config import NpuConfig
from concord.spec.memmap import FEEDER_REGIONS, RegionId, core_span, regions
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.host.bus import word_bits
from concord_rtl.host.host_port import VECTOR_REGIONS
from concord_rtl.parts.component import Component, Input, Output

#: Bits of an answer that share the registers which choose them.
GROUP = 32


def answer_bits(config: NpuConfig) -> dict[RegionId, int]:
    """Bits that the words of each readable region of the core have on the link."""
    return {
        region.id: 8 * region.nbytes
        for region in regions(config).values()
        if region.id not in FEEDER_REGIONS and region.readable
    }


class HostAnswer(Component):
    """Chooses the word of a region, near the memories and with registers between them and the bus.

    The words of the vector memories are in ``o`` at once; those of other regions, which stay, ``LATENCY`` cycles later.
    ``region`` must be there ``LATENCY`` cycles before a word. Bits above the bytes of a word are undefined.

    Each region that can be read has a port for its word, named by :meth:`name_of`.

    Parameters
    ----------
    config : NpuConfig
    """

    region = Input(lambda self: range(core_span(self.config)), "Region of the access that is going on.")
    o = Output(lambda self: word_bits(self.config), "The word of ``region``.")

    LATENCY = 1

    def __init__(self, config: NpuConfig):
        self.config = config
        self.bits = answer_bits(config)
        super().__init__({self.name_of(key): In(bits) for key, bits in self.bits.items()})

    @staticmethod
    def name_of(region: RegionId) -> str:
        """Name of the member with the word of a region; the memories themselves have the names of the regions."""
        return f"{region.name.lower()}_word"

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        words = {key: getattr(self, self.name_of(key)) for key in self.bits}
        vectors = {key: words.pop(key) for key in VECTOR_REGIONS}
        other = Signal(max(len(word) for word in words.values()), reset_less=True)
        m.d.sync += other.eq(_chosen([(self.region == key, word) for key, word in words.items()]))
        for start in range(0, len(self.o), GROUP):
            m.submodules[f"group{start}"] = here = KeptRegister(len(vectors))
            m.d.comb += here.i.eq(Cat(self.region == key for key in vectors))
            parts = [(here.o[k], word[start:]) for k, word in enumerate(vectors.values())]
            group = self.o[start : start + GROUP]
            m.d.comb += group.eq(_chosen([*parts, (Const(1), other[start:])]))
        return m


def _chosen(words: list[tuple[Value, Value]]) -> Value:
    """The word whose condition is set. Where words have ended they take no part; one of them must be chosen."""
    parts, start = [], 0
    for end in sorted({len(word) for _, word in words}):
        longer = [(condition, word[start:end]) for condition, word in words if len(word) >= end > start]
        if longer:
            value = longer[-1][1]
            for condition, word in reversed(longer[:-1]):
                value = Mux(condition, word, value)
            parts.append(value)
        start = end
    return Cat(parts)
