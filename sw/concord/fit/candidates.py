"""Search for the configuration that computes a network fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from concord.compiler.lowering.lower import Unsupported
from concord.compiler.model import compile_graph
from concord.cycles import count
from concord.fit.resources import Use, use_of
from concord.graph.ir import Graph
from concord.program.allocator import CapacityError
from concord.spec.boards import BOARD_SPECS
from concord.spec.config import NpuConfig
from concord.spec.devices import ECP5_DEVICES, Device
from concord.spec.presets import preset, with_mantissas

#: Native dimensions, lanes per row, lanes of the multifunction units.
SHAPES = [(n, lanes, mfu) for n in (8, 16, 32) for lanes in (2, 4, 8, 16) for mfu in (2, 4, 8) if lanes <= n > mfu]
#: Least step of the depth of the matrix memory.
_STEP = 512


@dataclass(frozen=True)
class Candidate:
    """A configuration that fits and holds the network.

    Parameters
    ----------
    config : NpuConfig
        The configuration.
    use : Use
        What it takes.
    cycles : int
        Of a run, as the hardware counts them.
    """

    config: NpuConfig
    use: Use
    cycles: int

    @property
    def per_second(self) -> float:
        """Runs per second at the estimated clock."""
        return 1e6 * self.use.clock_mhz / self.cycles


def search(
    graph: Graph, board: str, mantissas: Sequence[int] = (8, 7, 6, 5), say: Callable[[str], None] = lambda _: None
) -> list[Candidate]:
    """Configurations for a board that hold a network, the fastest first.

    Every shape has the widest mantissas of ``mantissas`` with which the network fits, and as much matrix memory as the
    device has left. Vector memories have as many elements as those of the preset of the board.

    Parameters
    ----------
    graph : Graph
        The network.
    board : str
        Name in :data:`concord.spec.devices.ECP5_DEVICES`.
    mantissas : sequence of int
        Widths to try, the best first.
    say : callable
        Gets the name of what is tried.

    Raises
    ------
    ValueError
        If there is nothing known of the board.
    """
    if board not in ECP5_DEVICES:
        raise ValueError(f"board must be one of {', '.join(ECP5_DEVICES)}, not {board!r}")
    found = []
    for shape in SHAPES:
        for config in _configs(board, shape, mantissas):
            say(config.name)
            try:
                image = compile_graph(graph, config).image
            except (CapacityError, Unsupported):
                continue
            cycles = sum(count(image.program, config, phase.pc).cycles for phase in image.schedule())
            found.append(Candidate(config, use_of(config), cycles))
            break
    return sorted(found, key=lambda one: -one.per_second)


def _configs(board: str, shape: tuple[int, int, int], mantissas: Sequence[int]) -> Iterator[NpuConfig]:
    """Configurations of one shape that fit, with the largest matrix memory."""
    base, device = preset(BOARD_SPECS[board].preset), ECP5_DEVICES[board]
    native, lanes, mfu_lanes = shape
    for mantissa in mantissas:
        config = with_mantissas(
            base.replace(
                name=f"n{native}-l{lanes}-p{mfu_lanes}",
                native=native,
                lanes=lanes,
                mfu_lanes=mfu_lanes,
                window_taps=base.window_taps if base.window_taps <= lanes else 0,
                matrix_depth=_STEP,
                narrow_depth=base.narrow_depth * base.native // native,
                wide_depth=base.wide_depth * base.native // native,
            ),
            mantissa,
        )
        deepest = _deepest(config, device)
        if deepest is not None:
            yield deepest


def _deepest(config: NpuConfig, device: Device) -> NpuConfig | None:
    """The configuration with as much matrix memory as there is room for."""
    fitting = None
    for depth in range(_STEP, 16 * 1024 + 1, _STEP):
        deeper = config.replace(matrix_depth=depth)
        if not use_of(deeper).fits(device):
            break
        fitting = deeper
    return fitting
