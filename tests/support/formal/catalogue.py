"""All proofs."""

from __future__ import annotations

from . import arith, framing, hazards, lazy, products, rewrites, streams
from .proof import Proof

PROOFS: tuple[Proof, ...] = (
    *streams.PROOFS, *hazards.PROOFS, *framing.PROOFS, *arith.PROOFS, *products.PROOFS, *lazy.PROOFS,
    *rewrites.PROOFS,
)  # fmt: skip
