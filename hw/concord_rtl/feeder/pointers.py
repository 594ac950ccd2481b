"""Widths of addresses in the rings of the feeder."""

from __future__ import annotations

from concord.spec.config import NpuConfig, clog2
from concord.spec.memmap import Region, RegionId


def pointer_bits(config: NpuConfig) -> int:
    """Bits of an address in the inbox: one more than it needs, so that full and empty differ."""
    return clog2(config.inbox) + 1


def result_bits(config: NpuConfig) -> int:
    """Bits of an address in the outbox: one more than it needs, so that full and empty differ."""
    return clog2(config.outbox_depth) + 1


def depth_of(region: Region, config: NpuConfig) -> int:
    """Words of a region on the bus: of the outbox, whose addresses on the link have two parts, so many never end."""
    return 2 << result_bits(config) if region.id is RegionId.OUTBOX else region.depth
