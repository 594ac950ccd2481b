"""Cases that are simulated: for every unit one or a few of its tests, chosen for stalls and corner cases."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from concord.spec.presets import TINY, UP5K


@dataclass(frozen=True)
class Case:
    """One call of a test function.

    Parameters
    ----------
    module, function : str
        The test, in ``tests``.
    arguments : dict
        What it is called with.
    """

    module: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def call(self) -> None:
        """Run the test."""
        getattr(importlib.import_module(self.module), self.function)(**self.arguments)


TWO_ENGINES = TINY.replace(engines=2)

CASES = {
    "binary16_mul": Case("rtl.arith.test_mul", "test_products"),
    "binary16_add": Case("rtl.arith.test_add", "test_corners"),
    "acc_to_binary16": Case("rtl.arith.test_convert", "test_acc_to_binary16", {"config": TINY}),
    "narrow_to_binary16": Case("rtl.arith.test_convert", "test_narrow_to_binary16", {"config": TINY}),
    "multiplier": Case("rtl.cells.test_dsp", "test_product_appears_after_the_latency", {"widths": (8, 8)}),
    "vector_memory": Case("rtl.memories.test_memories", "test_vector_memory", {"depth": 1539}),
    "matrix_memory": Case("rtl.memories.test_memories", "test_matrix_memory", {"config": TWO_ENGINES}),
    "quantizer": Case("rtl.vector.test_quantizer", "test_quantizer", {"config": TINY, "gap": 0.6}),
    "quantizer one lane": Case("rtl.vector.test_quantizer", "test_quantizer", {"config": UP5K, "gap": 0.0}),
    "table": Case("rtl.vector.test_table", "test_written_contents_and_host_reads", {"config": TINY}),
    "reduce": Case("rtl.vector.test_reduce", "test_reduce", {"config": TINY, "gap": 0.5}),
    "mfu": Case("rtl.vector.test_mfu", "test_mfu", {"config": TINY, "gap": 0.5}),
    "mvm": Case("rtl.mvm.test_mvm", "test_random_jobs", {"config": TINY, "gap": 0.1, "wait": 0.8}),
    "mvm two engines": Case("rtl.mvm.test_mvm", "test_random_jobs", {"config": TWO_ENGINES, "gap": 0.4, "wait": 0.0}),
    "lazy update": Case("rtl.pipe.integers.lazy.test_lazy_update", "test_blocks_that_do_not_grow"),
    "lazy growth": Case("rtl.pipe.integers.lazy.test_lazy_update", "test_growth", {"name": "8/16/32 point 0"}),
    "register slice": Case("rtl.parts.test_register_slice", "test_transfers_under_stalls", {"stalls": (0.4, 0.4)}),
    "hazard": Case("rtl.pipe.test_hazard", "test_no_read_overtakes_a_write", {"seed": 0}),
    "walkers": Case("rtl.pipe.test_walkers", "test_addresses", {"config": TINY, "stall": 0.5}),
    "sequencer": Case("rtl.sequencer.test_sequencer", "test_legal_programs", {"seed": 0, "stall": 0.8}),
    "framer": Case("rtl.link.test_units", "test_framer", {"stalls": (0.5, 0.5)}),
    "deframer": Case("rtl.link.test_units", "test_deframer_on_arbitrary_bytes"),
    "crc": Case("rtl.link.test_units", "test_crc"),
    "uart": Case("rtl.link.test_uart", "test_both_ways_at_once", {"divisor": 5}),
    "messages": Case("rtl.link.test_message_faults", "test_random_traffic_with_faults"),
    "messages stalled": Case(
        "rtl.link.test_message_processor", "test_every_region_is_written_and_read_back", {"config": TINY, "stall": 0.4}
    ),
    "messages truncated": Case("rtl.link.test_message_faults", "test_truncation_at_every_byte", {"closed": False}),
    "grid adder": Case("rtl.element_serial.test_units", "test_sums_on_the_grid_are_those_of_binary16"),
    "counters": Case("rtl.element_serial.test_units", "test_counters_count_from_the_last_clear"),
    "column memory": Case("rtl.element_serial.test_units", "test_columns_are_written_alone"),
    "core": Case("rtl.core.test_core", "test_tiny", {"seed": 0}),
    "top": Case("top_bench", "traffic", {"config": TINY, "seed": 1, "stall": 0.0}),
    "top stalled": Case("top_bench", "traffic", {"config": TINY, "seed": 2, "stall": 0.3}),
}

#: Cases that run before a change lands: the whole NPU, and units where simulators differ most, which are memories with
#: their collisions and initial contents, signed arithmetic, and what waits for edges from outside.
LANDING = ("vector_memory", "matrix_memory", "quantizer", "mvm two engines", "uart", "top stalled")
