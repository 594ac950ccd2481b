"""Measured figures: cycles of the RTL, networks, speed of simulation and emulator, bytes on the link, synthesis.

``concord bench`` measures everything and writes ``build/bench.json``; ``--docs`` renders ``docs/bench.md`` from it.
"""

from __future__ import annotations

from collections.abc import Callable

from concord.spec.config import NpuConfig

from .hardware import RTL_MEASURES, Rtl
from .networks import measure_networks
from .results import Figure, Results
from .software import emulator_speed, synthesis

#: What is measured without the RTL.
MEASURES: tuple[Callable[[NpuConfig, Results], None], ...] = (emulator_speed, synthesis)


def measure(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """Measure everything on one configuration; ``say`` is told what is being measured."""
    say("RTL simulation")
    with Rtl.open(config) as rtl:
        for measure_rtl in RTL_MEASURES:
            say(measure_rtl.__name__.replace("_", " "))
            measure_rtl(rtl, results)
        measure_networks(rtl.device, config, results, say)
    for measure_software in MEASURES:
        say(measure_software.__name__.replace("_", " "))
        measure_software(config, results)


__all__ = ["MEASURES", "RTL_MEASURES", "Figure", "Results", "Rtl", "measure"]
