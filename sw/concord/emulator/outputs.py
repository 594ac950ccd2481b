"""Results that are returned of every run of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from concord.emulator.lanes import Lanes, Memory
from concord.program import Span
from concord.program.access import VECTORS, depth
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem


class Outputs:
    """Vectors of the vector memories, as asked for from :meth:`Emulator.run_batch`."""

    def __init__(self, config: NpuConfig, spans: Sequence[Span]):
        self._spans = list(spans)
        for span in self._spans:
            limit = depth(config, VECTORS[span.region]) if span.region in VECTORS else 0
            if not 0 <= span.addr <= span.addr + span.count <= limit:
                raise ValueError(f"outputs must be vectors inside a vector memory, not {span!r}")

    @property
    def places(self) -> tuple[tuple[Mem, int, int], ...]:
        """Memory, first address and number of the vectors of every span."""
        return tuple((VECTORS[span.region], span.addr, span.count) for span in self._spans)

    def addresses(self, mem: Memory) -> set[int]:
        """Words of a memory that are returned."""
        return {word for region, at, count in self.places if region is mem for word in range(at, at + count)}

    def get(self, lanes: Lanes, count: int) -> list[Any]:
        """Contents in the first ``count`` lanes, by span."""
        parts: list[Any] = []
        for span in self._spans:
            at = slice(span.addr, span.addr + span.count)
            wide = VECTORS[span.region] is Mem.WIDE
            parts.append(lanes.get_wide(at, count) if wide else lanes.get_narrow(at, count))
        return parts

    def join(self, pieces: Sequence[Sequence[Any]]) -> list[Any]:
        """Contents of the whole batch, by span, from those of its chunks in order."""
        return [
            np.concatenate(parts)
            if VECTORS[span.region] is Mem.WIDE
            else tuple(np.concatenate(part) for part in zip(*parts, strict=True))
            for span, *parts in zip(self._spans, *pieces, strict=True)
        ]
