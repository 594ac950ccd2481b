"""Cycles of large recurrent cells on an NPU of the size of Brainwave's, which no device here can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from concord.cycles import count
from concord.examples.base import Example
from concord.examples.recurrent import gru, lstm
from concord.spec.config import NpuConfig
from concord_bench.results import Results

#: Name of the table.
GROUP = "Large recurrent cells"
#: Cells by name, and sizes of the hidden state: those of the benchmark of ISCA 2018.
CELLS: dict[str, tuple[Callable[..., Example], tuple[int, ...]]] = {
    "GRU": (gru, (512, 1024, 1536, 2048, 2560, 2816)),
    "LSTM": (lstm, (256, 512, 1024, 1536, 2048)),
}
#: Steps of the runs that the cycles of a step are the difference of.
_STEPS = (6, 7)
NOTE = (
    "The size of Brainwave: {macs:,} multiply-accumulates per cycle, N = {native}, {engines} tile engines, {lanes} "
    "lanes each, {mfu} lanes of the multifunction units; the sizes of the cells are those of its benchmark (ISCA "
    "2018). Cycles of one more step, counted by `concord.cycles`, which agrees with the RTL at the sizes that can be "
    "built. Least: the tile steps of a step. Inputs are as wide as the state. `python -m concord_bench --only "
    "large_cells` measures them alone."
)


@dataclass(frozen=True, kw_only=True)
class LargeConfig(NpuConfig):
    """A configuration that is larger than the generator makes: its size is not checked."""

    def __post_init__(self) -> None:
        """Check nothing: a large configuration is not built."""


BRAINWAVE = LargeConfig(
    name="brainwave", native=400, lanes=40, engines=6, mfu_lanes=40, matrix_depth=1 << 18, narrow_depth=1 << 14,
    wide_depth=1 << 14, program_depth=512, table_depth=1024, max_terms=4096, inflight=32,
)  # fmt: skip


def measure_large_cells(_: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per cell: cycles of a step, and the share of the multipliers that work."""
    config = BRAINWAVE
    results.notes[GROUP] = NOTE.format(
        macs=config.macs, native=config.native, engines=config.engines, lanes=config.lanes, mfu=config.mfu_lanes
    )
    for name, (cell, sizes) in CELLS.items():
        for hidden in sizes:
            say(f"{name} {hidden}")
            examples = [cell(config, hidden=hidden, inputs=hidden, steps=steps, seed=None) for steps in _STEPS]
            few, many = (count(example.words(), config) for example in examples)
            cycles, macs = many.cycles - few.cycles, examples[1].macs - examples[0].macs
            results.row(
                GROUP,
                f"{name} {hidden}",
                {
                    "cycles of a step": f"{cycles:,}",
                    "least": f"{many.dense_steps - few.dense_steps:,}",
                    "MACs busy": f"{100 * macs / (cycles * config.macs):.1f} %",
                },
            )
