"""Widths of addresses in the rings of the feeder."""

from __future__ import annotations

from concord.spec.config import NpuConfig, clog2
from concord.spec.feeder import OUTBOX_SHARE


def pointer_bits(config: NpuConfig) -> int:
    """Bits of an address in the inbox: one more than it needs, so that full and empty differ."""
    return clog2(config.inbox) + 1


def result_bits(config: NpuConfig) -> int:
    """The same for the outbox."""
    return clog2(config.inbox // OUTBOX_SHARE) + 1
