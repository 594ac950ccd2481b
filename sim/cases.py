"""What is simulated: for every unit one or a few of its tests, chosen for stalls and corner cases."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from concord.spec.config import TINY, UP5K


@dataclass(frozen=True)
class Case:
    """One call of a test function.

    Parameters
    ----------
    module, function : str
        The test, in ``tests/rtl``.
    arguments : dict
        What it is called with.
    """

    module: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def call(self) -> None:
        """Run the test."""
        getattr(importlib.import_module(self.module), self.function)(**self.arguments)


CASES = {
    "half_mul": Case("test_arith_mul", "test_products"),
    "half_add": Case("test_arith_add", "test_corners"),
    "acc_to_half": Case("test_arith_convert", "test_acc_to_half", {"config": TINY}),
    "narrow_to_half": Case("test_arith_convert", "test_narrow_to_half", {"config": TINY}),
    "quantizer": Case("test_quantizer", "test_quantizer", {"config": TINY, "gap": 0.6}),
    "quantizer one lane": Case("test_quantizer", "test_quantizer", {"config": UP5K, "gap": 0.0}),
    "table": Case("test_table", "test_written_contents_and_host_reads", {"config": TINY}),
    "reduce": Case("test_reduce", "test_reduce", {"config": TINY, "gap": 0.5}),
    "mvm": Case("test_mvm", "test_random_jobs", {"config": TINY, "gap": 0.1, "wait": 0.8}),
    "mvm two engines": Case("test_mvm", "test_random_jobs", {"config": TINY.replace(engines=2), "gap": 0.4, "wait": 0.0}),
}
