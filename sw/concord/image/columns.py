"""Columns of an image, which are loaded into the external memory, and the digest that says that they are there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from concord.image.image import Image, MemorySegment
from concord.spec.config import NpuConfig
from concord.spec.isa import Op, decode
from concord.spec.memmap import RegionId, regions

#: Bytes of the digest of what was loaded, in the last columns of the memory.
DIGEST_BYTES = hashlib.sha256().digest_size


def columns_of(image: Image) -> list[MemorySegment]:
    """Segments of the external memory."""
    return [segment for segment in image.segments if segment.region is RegionId.DRAM]


def digest_of(segments: Iterable[MemorySegment]) -> bytes:
    """SHA-256 of columns and their places."""
    digest = hashlib.sha256()
    for segment in segments:
        digest.update(segment.start.to_bytes(4, "little") + len(segment.data).to_bytes(4, "little") + segment.data)
    return digest.digest()


def digest_start(segments: Sequence[MemorySegment], config: NpuConfig) -> int | None:
    """First column of the digest; ``None`` if segments leave no room for it."""
    region = regions(config)[RegionId.DRAM]
    start = region.depth - DIGEST_BYTES // region.nbytes
    free = all(segment.start + len(segment.data) // region.nbytes <= start for segment in segments)
    return start if free else None


def writes_columns(words: Iterable[int]) -> bool:
    """True if a program copies vectors to the external memory, over whatever was loaded there."""
    copies = (fields for instruction, fields in map(decode, words) if instruction.op is Op.V_COPY)
    return any(fields["out"] for fields in copies)
