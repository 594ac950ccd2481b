"""What helps when a network does not fit: larger presets, deeper memories, narrower mantissas."""

from __future__ import annotations

from collections.abc import Iterator

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph.ir import Graph
from concord.program.allocator import CapacityError
from concord.spec.boards import boards_with
from concord.spec.config import NpuConfig
from concord.spec.formats import MANT_MIN
from concord.spec.memmap import RegionId
from concord.spec.presets import PRESETS, with_mantissas

#: Parameters of a configuration by the memory whose words they count.
DEPTHS = {
    RegionId.PROGRAM: "program_depth",
    RegionId.MATRIX: "matrix_depth",
    RegionId.NARROW: "narrow_depth",
    RegionId.WIDE: "wide_depth",
}


def suggestions(graph: Graph, config: NpuConfig, formats: Formats, batch: int, error: CapacityError) -> list[str]:
    """Suggestions for a network that does not fit.

    Parameters
    ----------
    graph, config, formats, batch
        What was compiled, as for :func:`concord.compiler.model.compile_graph`.
    error : CapacityError
        Why it does not fit.

    Returns
    -------
    list of str
        A line each: larger presets that it fits into, the depths of an NPU of its own, what narrower mantissas mean.
    """

    def fits(other: NpuConfig) -> bool:
        try:
            compile_graph(graph, other, formats, batch=batch)
        except ValueError:  # or something else is in the way there
            return False
        return True

    lines = []
    if batch > 1:
        lines.append("fewer samples per run need less: --batch")
    names = [name for name, other in _larger_presets(config) if fits(other)]
    lines.append(f"it fits into {_places(names)}" if names else "it fits into no larger preset")
    if (larger := _larger(config, error)) is not None:
        depths = ", ".join(f"{name}={getattr(larger, name)}" for name in _depths(error))
        lines.append(f"in one piece it needs an NPU like {config.name} with {depths}{_narrower(config, larger)}")
    if RegionId.MATRIX in error.short or RegionId.NARROW in error.short:
        lines.append("--mantissa alone does not help: narrower mantissas make words smaller, not more")
    return lines


def _larger_presets(config: NpuConfig) -> Iterator[tuple[str, NpuConfig]]:
    """Presets with more memory than ``config``, with the same mantissas."""
    for name, preset in PRESETS.items():
        other = with_mantissas(preset, config.wgt_mant) if config.wgt_mant == config.act_mant else preset
        if _bits(other) > _bits(config):
            yield name, other


def _places(names: list[str]) -> str:
    """Presets, and with which option each can be had."""
    options: dict[str, list[str]] = {}
    for name in names:
        boards = boards_with(name)
        options.setdefault(f"--board {' or '.join(boards)}" if boards else f"--preset {name}", []).append(name)
    return "; ".join(f"{', '.join(presets)} ({option})" for option, presets in options.items())


def _depths(error: CapacityError) -> dict[str, int]:
    return {DEPTHS[region]: need for region, (_, need) in error.short.items()}


def _larger(config: NpuConfig, error: CapacityError) -> NpuConfig | None:
    """The configuration with the words that are needed; ``None`` if there is no such NPU."""
    try:
        return config.replace(**_depths(error)) if error.short else None
    except ValueError:
        return None


def _bits(config: NpuConfig) -> int:
    """Bits of the memories of weights and vectors."""
    matrix = config.matrix_depth * config.rows * config.matrix_row.width
    return matrix + config.narrow_depth * config.narrow_word.width + config.wide_depth * config.wide_word.width


def _narrower(config: NpuConfig, larger: NpuConfig) -> str:
    """Mantissas with which ``larger`` takes no more memory than ``config`` does."""
    if config.wgt_mant != config.act_mant:
        return ""
    widths = range(config.wgt_mant - 1, MANT_MIN - 1, -1)
    width = next((m for m in widths if _bits(with_mantissas(larger, m)) <= _bits(config)), None)
    more = f", {_bits(larger) / _bits(config):.2f} times the memory"
    return f"{more}; with mantissas of {width} bits in no more than now" if width else more
