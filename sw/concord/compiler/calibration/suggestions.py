"""Advice when a network does not fit: other presets, deeper memories, narrower mantissas."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph.ir import Graph
from concord.program.allocator import CapacityError
from concord.spec.blocks import LEAST_RAM_WORDS, shortages
from concord.spec.boards import DEFAULT_BOARD, board_spec, boards_with, preset_of
from concord.spec.config import NpuConfig
from concord.spec.config_file import config_lines
from concord.spec.formats import MANT_MIN
from concord.spec.memmap import RegionId
from concord.spec.presets import PRESETS, with_mantissas, without_missing_memory

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
        Presets that it fits into, the file of an NPU whose matrix memory programs write or of one with larger memories,
        and what its board lacks for it; what narrower mantissas mean.
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
    names = {name: _boards(name, other, fits) for name, other in _other_presets(config) if fits(other)}
    lines.append(f"it fits into {_places(names)}" if names else "it fits into no other preset")
    base = PRESETS.get(preset_of(config.name), PRESETS[board_spec(config.board or DEFAULT_BOARD).preset])
    if (writable := _writable(graph, config)) is not None and fits(writable):
        lines.append("it fits where programs write the matrix memory; in a file for --config that is")
        lines += [f"  {line}" for line in config_lines(writable, base)]
    if (larger := _larger(graph, config, formats, batch, error)) is not None:
        lines.append(f"it fits into an NPU of its own{_narrower(config, larger)}; in a file for --config that is")
        lines += [f"  {line}" for line in config_lines(larger, base)]
        lacking = shortages(larger)
        lines += [f"  {text}" for text in lacking]
        if lacking and not names:
            lines.append(
                f"`concord fit --board {larger.board}` looks for a configuration with room, of fewer bits or lanes"
            )
    if RegionId.MATRIX in error.short or RegionId.NARROW in error.short:
        lines.append("--mantissa alone does not help: narrower mantissas make words smaller, not more")
    return lines


def _writable(graph: Graph, config: NpuConfig) -> NpuConfig | None:
    """The configuration on whose tile engines tensors are multiplied; ``None`` if it is that, or nothing multiplies."""
    if config.writable_matrix or not any(node.op == "MatMul" for node in graph.nodes):
        return None
    with suppress(ValueError):  # an element-serial one has no such matrix memory
        return config.replace(writable_matrix=True)
    return None


def _other_presets(config: NpuConfig) -> list[tuple[str, NpuConfig]]:
    """The other presets, with the same mantissas; those that compute most are first, and none is for training alone."""
    presets = []
    for name, preset in PRESETS.items():
        if name == preset_of(config.name):
            continue
        with suppress(ValueError):  # there is none with these mantissas
            same = config.wgt_mant == config.act_mant
            presets.append((name, with_mantissas(preset, config.wgt_mant) if same else preset))
    return sorted(presets, key=lambda named: -named[1].macs * named[1].clock_hz)


def _boards(name: str, config: NpuConfig, fits: Callable[[NpuConfig], bool]) -> list[str]:
    """Boards on which a preset takes a network: with its external memory, or without if that does not matter."""
    boards = boards_with(name)
    lacking = [board for board in boards if board_spec(board).dram != config.dram] if config.dram else []
    if not lacking or fits(without_missing_memory(config, lacking[0])):
        return boards
    return [board for board in boards if board not in lacking]


def _places(names: dict[str, list[str]]) -> str:
    """Presets, and with which option each can be had, from their boards."""
    options: dict[str, list[str]] = {}
    for name, boards in names.items():
        options.setdefault(f"--board {' or '.join(boards)}" if boards else f"--preset {name}", []).append(name)
    return "; ".join(f"{', '.join(presets)} ({option})" for option, presets in options.items())


def _larger(graph: Graph, config: NpuConfig, formats: Formats, batch: int, error: CapacityError) -> NpuConfig | None:
    """The configuration with memories that hold the network; ``None`` if there is no such NPU."""
    larger, short = config, error.short
    for _ in DEPTHS:  # what is in the way behind one memory is told when that is large enough
        try:
            larger = larger.replace(**{DEPTHS[region]: _rounded(need) for region, (_, need) in short.items()})
            compile_graph(graph, larger, formats, batch=batch)
        except CapacityError as lacking:
            short = lacking.short
        except ValueError:
            return None
        else:
            return larger
        if not short:
            return None
    return None


def _rounded(words: int) -> int:
    """Number of words rounded up to those of which block RAMs are made."""
    return words if words < LEAST_RAM_WORDS else -(-words // LEAST_RAM_WORDS) * LEAST_RAM_WORDS


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
