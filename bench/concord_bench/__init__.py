"""Measured figures: cycles of the RTL, networks, speed of simulation and emulator, bytes on the link, synthesis.

``python -m concord_bench`` measures everything and writes ``build/bench.json``; ``--docs`` renders ``docs/bench.md``
from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from concord.spec.config import NpuConfig
from concord_bench.accumulators import measure_accumulators
from concord_bench.c_host import measure_c_host
from concord_bench.c_networks import measure_c_networks
from concord_bench.calibration import measure_calibration
from concord_bench.exact_networks import measure_exact_networks
from concord_bench.feature_scales import measure_feature_scales
from concord_bench.functions import measure_functions
from concord_bench.graph_training import measure_graph_training
from concord_bench.hardware import RTL_MEASURES, Rtl
from concord_bench.large_cells import measure_large_cells
from concord_bench.networks import measure_networks, measure_widths
from concord_bench.npu_codes import measure_npu_codes
from concord_bench.overflow import measure_overflow
from concord_bench.overflow_training import measure_overflow_training
from concord_bench.published import measure_published
from concord_bench.rates import measure_rates
from concord_bench.results import Figure, Results
from concord_bench.software import emulator_speed, synthesis
from concord_bench.training import measure_training
from concord_bench.unit_areas import code_scaling_cells, integer_cells

Say = Callable[[str], None]
#: Parts that need the RTL, by name: what measures them on it.
ON_RTL: dict[str, Callable[[Rtl, Results, Say], None]] = {
    **{part.__name__: (lambda rtl, results, _, part=part: part(rtl, results)) for part in RTL_MEASURES},  # type: ignore[misc]
    "networks": lambda rtl, results, say: measure_networks(rtl.device, rtl.config, results, say),
}
#: Parts that need no RTL of the preset.
WITHOUT_RTL: dict[str, Callable[[NpuConfig, Results, Say], None]] = {
    "published": measure_published,
    "rates": measure_rates,
    "widths": measure_widths,
    "calibration": measure_calibration,
    "functions": measure_functions,
    "feature_scales": measure_feature_scales,
    "overflow": measure_overflow,
    "accumulators": measure_accumulators,
    "training": measure_training,
    "overflow_training": measure_overflow_training,
    "graph_training": measure_graph_training,
    "emulator_speed": lambda config, results, _: emulator_speed(config, results),
    "c_host": lambda config, results, _: measure_c_host(results),
    "c_networks": measure_c_networks,
    "exact_networks": lambda config, results, say: measure_exact_networks(results, say),
    "npu_codes": lambda config, results, say: measure_npu_codes(results, say),
    "synthesis": lambda config, results, _: synthesis(results),
    "large_cells": measure_large_cells,
    "code_scaling": lambda config, results, _: code_scaling_cells(results),
    "integers": lambda config, results, _: integer_cells(results),
}
#: Names of all parts, in order.
PARTS = (*ON_RTL, *WITHOUT_RTL)


def measure(config: NpuConfig, results: Results, say: Say, only: Collection[str] = PARTS) -> None:
    """Measure on one configuration; ``say`` is told what is being measured, ``only`` are the names of parts."""
    if any(part in only for part in ON_RTL):
        say("RTL simulation")
        with Rtl.open(config) as rtl:
            for name, measure_rtl in ON_RTL.items():
                if name in only:
                    say(name.replace("_", " "))
                    measure_rtl(rtl, results, say)
    for name, measure_software in WITHOUT_RTL.items():
        if name in only:
            say(name.replace("_", " "))
            measure_software(config, results, say)


__all__ = ["ON_RTL", "PARTS", "RTL_MEASURES", "WITHOUT_RTL", "Figure", "Results", "Rtl", "measure"]
