"""Evidence that training in block floating point works: the same networks beside float32, several seeds each.

``python -m concord_bench.evidence`` runs what is not there yet and keeps every result; the page is
``docs/training-evidence.md``.
"""

from __future__ import annotations

from concord_bench.evidence.store import Result, Store

__all__ = ["Result", "Store"]
