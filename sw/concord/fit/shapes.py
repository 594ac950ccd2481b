"""Shapes of configurations to try on a board, and the memories that go with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from concord.fit.resources import use_of
from concord.spec.blocks import in_single_port_rams
from concord.spec.config import SERIAL_ROWS, NpuConfig
from concord.spec.devices import DEVICES, SINGLE_PORT_RAM_SHAPE
from concord.spec.presets import presets_of, with_mantissas

#: Taps of a 3 x 3 window.
TAPS = 9
#: Least step of the depth of the matrix memory, and its greatest depth.
_STEP, _DEEPEST = 512, 16 * 1024
#: Sizes of the narrow and the wide vector memory, as multiples of those of the preset.
VECTORS = ((1, 1), (2, 1), (2, 2), (4, 1), (8, 2))


@dataclass(frozen=True)
class Shape:
    """Dimensions that decide about speed, beside mantissas and memories.

    Parameters
    ----------
    native, lanes, mfu_lanes, window_taps : int
        As those of :class:`concord.spec.config.NpuConfig`.
    """

    native: int
    lanes: int
    mfu_lanes: int
    window_taps: int = 0

    @property
    def name(self) -> str:
        """Name of configurations with this shape."""
        taps = f"-w{self.window_taps}" if self.window_taps else ""
        return f"n{self.native}-l{self.lanes}-p{self.mfu_lanes}{taps}"


def shape_of(config: NpuConfig) -> Shape:
    """The shape of a configuration."""
    return Shape(config.native, config.lanes, config.mfu_lanes, config.window_taps)


#: Pipelined shapes.
SHAPES = tuple(
    Shape(native, lanes, mfu_lanes, taps)
    for native in (8, 16, 32)
    for lanes in (2, 4, 8, 16)
    for mfu_lanes in (2, 4, 8)
    for taps in (0, TAPS)
    if lanes <= native > mfu_lanes and lanes >= taps
)
#: Element-serial shapes.
SERIAL_SHAPES = tuple(Shape(native, lanes, 1) for native in (4, 8, 16) for lanes in (1, 2, 4) if lanes <= native)


def shapes_of(board: str, windows: bool) -> list[Shape]:
    """Shapes for a board; with registers of windows only if the network can use them."""
    shapes = SERIAL_SHAPES if presets_of(board)[0].serial else SHAPES
    return [shape for shape in shapes if windows or not shape.window_taps]


def smallest(board: str, shape: Shape, mantissa: int) -> NpuConfig:
    """The configuration of a shape with the least memories."""
    base = presets_of(board)[0]
    config = base.replace(
        name=shape.name,
        native=shape.native,
        lanes=shape.lanes,
        mfu_lanes=shape.mfu_lanes,
        window_taps=shape.window_taps,
        matrix_depth=_STEP,
        narrow_depth=base.narrow_depth * base.native // shape.native,
        wide_depth=base.wide_depth * base.native // shape.native,
    )
    return with_mantissas(config, mantissa)


def widths(board: str, shape: Shape, mantissa: int) -> Iterator[NpuConfig]:
    """Configurations with mantissas of so many bits; also that with weights as in the preset, if only these differ."""
    config = smallest(board, shape, mantissa)
    yield config
    base = presets_of(board)[0]
    if base.act_mant == mantissa != base.wgt_mant:
        formats = ("act_mant", "wgt_mant", "wgt_exp_min", "wgt_exp_max", "acc_width")
        yield config.replace(name=shape.name, **{name: getattr(base, name) for name in formats})


def with_memories(config: NpuConfig, board: str, vectors: tuple[int, int]) -> NpuConfig | None:
    """A configuration with larger vector memories and the deepest matrix memory that the device has room for.

    ``None`` if there is no room.
    """
    narrow, wide = vectors
    try:
        config = config.replace(narrow_depth=config.narrow_depth * narrow, wide_depth=config.wide_depth * wide)
    except ValueError:  # addresses have too few bits
        return None
    device = DEVICES[board]
    if config.serial:
        full = config.replace(matrix_depth=SINGLE_PORT_RAM_SHAPE[0] * SERIAL_ROWS // config.rows)
        return full if in_single_port_rams(full) and use_of(full).fits(device) else None
    fitting = None
    for depth in range(_STEP, _DEEPEST + 1, _STEP):
        deeper = config.replace(matrix_depth=depth)
        if not use_of(deeper).fits(device):
            break
        fitting = deeper
    return fitting
