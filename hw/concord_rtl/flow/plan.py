"""Plan of a build: a board, a configuration, contents, a clock and a bit rate; and its first steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import amaranth
import click
from rich.console import Console

import concord_boards
from concord.spec.blocks import blocks_of, shortage
from concord.spec.boards import BOARD_SPECS, preset_of
from concord.spec.config import NpuConfig
from concord.spec.config_file import read_config
from concord.spec.links import LINKS, LinkKind, LinkSpec, uart
from concord.spec.memmap import RegionId
from concord.spec.name_choice import NameChoice
from concord.spec.operations import Op
from concord.spec.presets import PRESETS, REMOVED, preset, without_missing_memory
from concord.spec.stored import remedy
from concord.utils.cache import digest, source_digest
from concord_boards.board import Board, Placement
from concord_rtl.core.implementation import Contents
from concord_rtl.core.top import NpuTop
from concord_rtl.dram.pins import BOARD_PHASES
from concord_rtl.families import family_named
from concord_rtl.flow import contents as memories
from concord_rtl.flow.bitstream import Flow
from concord_rtl.flow.board_top import BoardTop, check_link
from concord_rtl.flow.bram import BlockRams, Layout, Store
from concord_rtl.flow.clocking import clock_of, tunable
from concord_rtl.flow.report import MHZ

BOARD, PRESET = NameChoice("board", concord_boards.BOARDS), NameChoice("preset", PRESETS, REMOVED)

board_option = click.option("--board", "board_name", type=BOARD, required=True)
preset_option = click.option(
    "--preset",
    "preset_name",
    type=PRESET,
    help="Default: the configuration of the image; without one, the board's preset.",
)
config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A configuration in TOML, as `concord fit -o` writes it, instead of --preset.",
)
image_option = click.option("--image", type=click.Path(exists=True, path_type=Path), help="Contents of the memories.")
build_option = click.option(
    "--build", type=click.Path(path_type=Path), default=Path("build"), show_default=True, help="Folder of the results."
)
clock_option = click.option(
    "--clock", "clock_mhz", type=float, help="Clock in MHz that must be reached; default: what is possible."
)
link_option = click.option(
    "--link",
    "link_name",
    type=NameChoice("link", LINKS),
    help="What carries bytes to the host; default: the board's first one.",
)
baud_option = click.option("--baud", type=int, help="Bit rate of the serial port; default: the board's.")


def source_key() -> str:
    """Hash of everything a design is generated from."""
    return digest(source_digest(("concord_rtl", "concord.spec", "concord_boards")), amaranth.__version__)


def configuration(board: Any, preset_name: str | None, image: Path | None, config_file: Path | None) -> NpuConfig:
    """The configuration to build: that of a file, a preset by name, that of the image, or the preset of the board.

    ``click.ClickException`` if there is a file and a name, or a file cannot be used.
    """
    if config_file is not None:
        if preset_name is not None:
            raise click.ClickException("--preset and --config must not be given together")
        try:
            return read_config(config_file)
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error)) from error
    if preset_name is not None or image is None:
        return without_missing_memory(preset(preset_name or board.preset), board.name)
    try:
        return memories.configuration(image)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


@dataclass(frozen=True)
class Filled:
    """Block RAMs with their contents.

    Parameters
    ----------
    rams : BlockRams
        The block RAMs.
    layout : Layout
        Where the memories are.
    wanted : list of Store
        The memories that can have contents.
    lost : list of str
        Those whose contents have no place.
    """

    rams: BlockRams
    layout: Layout
    wanted: list[Store]
    lost: list[str]


@dataclass
class Plan:
    """Plan of what a command builds.

    Parameters
    ----------
    board : Board
    config : NpuConfig
    link : LinkSpec
    flow : Flow
        The steps, in a folder of their own.
    contents : Contents
        Those of the image in the memories.
    fixed : dict
        Those that are part of the design, by memory.
    image : Path or None
        Where contents come from.
    """

    board: Board
    config: NpuConfig
    link: LinkSpec
    flow: Flow
    contents: Contents
    fixed: dict[str, list[int]]
    image: Path | None = None

    @classmethod
    def of(
        cls,
        board_name: str,
        preset_name: str | None,
        image: Path | None,
        build: Path,
        console: Console,
        *,
        config: NpuConfig | Path | None = None,
        link_name: str | None = None,
        short_chains: bool = False,
    ) -> Plan:
        """Plan from the options of a command.

        Parameters
        ----------
        board_name, preset_name, image, build
            As the options of the commands.
        console : Console
            Where progress is shown.
        config : NpuConfig, Path or None
            A configuration of its own, or the file that it is in, instead of a preset or that of the image.
        link_name : str or None
            Name of a link of the board; its first one without.
        short_chains : bool
            Whether carry chains have the fewest cells, whatever the board says of a preset.

        Raises
        ------
        click.ClickException
            If the image or the configuration cannot be used, the board has no such link, or its family no chains that
            can be shortened.
        """
        board = concord_boards.board_named(board_name)
        if not isinstance(config, NpuConfig):
            config = configuration(board, preset_name, image, config)
        if image is not None and (advice := remedy(config, image)):
            console.print(f"{image}: {advice}", markup=False, highlight=False)
        spec = BOARD_SPECS[board.name]
        if config.dram not in ("", spec.dram):
            raise click.ClickException(f"{board.name} must have the external memory of {config.name}, {config.dram}")
        try:
            link = spec.link(link_name)
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        parts = [
            board.name,
            *([] if config.name == board.preset else [config.name]),
            *([] if link == spec.link() else [link.name]),
        ]
        folder = build / "-".join(parts)
        flow = Flow(board, folder, console, _placement(board, config, short_chains), _smaller(board, config, link))
        try:
            contents = memories.load(image, config, folder / "image")
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error)) from error
        return cls(board, config, link, flow, contents, memories.fixed(config, flow.family, contents), image)

    def choose(self, clock_mhz: float | None, baud: int | None) -> None:
        """Choose clock and bit rate; ``click.ClickException`` if the board cannot make them.

        Sets ``wanted`` and ``hz``, the clock asked for and made, ``link``, if it has another bit rate, ``aim``, the
        target of place and route, ``measures``, whether the design measures its clock, and ``tunes``, whether the
        clock follows from what is reached.
        """
        spec = BOARD_SPECS[self.board.name]
        if baud is not None:
            if self.link.kind is not LinkKind.UART:
                raise click.ClickException(f"--baud must be without --link {self.link.name}, which has no bit rate")
            self.link = uart(baud, self.link.adapter)
        own = preset_of(self.config.name) == spec.preset
        usual = spec.clock_hz if own else self.config.clock_hz
        self.wanted = round(clock_mhz * MHZ) if clock_mhz else usual
        try:
            self.hz, _ = clock_of(self.board, self.wanted)
            check_link(self.hz, self.link)
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        self.check_memory_clock(self.hz)
        self.measures = tunable(self.board, self.wanted)
        self.tunes = self.measures and not clock_mhz
        self.aim: float = self.hz
        if self.tunes:
            self.aim = self.flow.placement.aim_hz or (spec.aim_hz if own else self.hz)

    def check_memory_clock(self, hz: float) -> None:
        """``click.ClickException`` if the external memory, where there is one, is not refreshed or read in time."""
        if self.config.has(Op.COPY):
            slowest, fastest = self.config.sdram.clocks(self.config.dram_refresh)
            if not slowest <= hz <= fastest:
                limits = f"{slowest / MHZ:.1f} to {fastest / MHZ:.1f} MHz"
                raise click.ClickException(
                    f"clock must be {limits} for the external memory with dram_refresh={self.config.dram_refresh}, "
                    f"not {hz / MHZ:.2f} MHz"
                )

    def generate(self) -> None:
        """Write the design in RTLIL, with pseudo-random contents in its block RAMs."""
        hardware = self.config.replace(board="", clock_hz=0)  # which are those of the board that is built for
        self.flow.generate(
            lambda: BoardTop(self._top(), self.board, clock_hz=self.wanted, link=self.link),
            digest(source_key(), hardware.to_dict(), self.fixed, self.wanted, self.link.name, self.link.baud),
        )

    def _top(self) -> NpuTop:
        """The NPU; the clock of its external memory has as many phases as a PLL may make."""
        return NpuTop(self.config, self._marked(), phases=BOARD_PHASES)

    def synthesize(self) -> None:
        """Make the design and its netlist."""
        self.generate()
        self.flow.synthesize()

    def fill(self, text: str) -> Filled:
        """The block RAMs of ``text``, as nextpnr writes them, with their contents."""
        family = self.flow.family
        chosen = memories.fillable(self.config, family)
        rams = BlockRams(family.geometry, text)
        layout = rams.locate(memories.stores(self.config, self._marked(), chosen))
        wanted = memories.stores(self.config, self.contents, chosen)
        lost = [store.name for store in wanted if any(store.words) and store.name in layout.missing]
        if self.contents.matrix and RegionId.MATRIX not in chosen:
            lost.append("matrix")
        layout.write(rams, wanted)
        return Filled(rams, layout, wanted, lost)

    def _marked(self) -> Contents:
        return memories.marked(self.config, self.flow.family, self.contents)


def _placement(board: Board, config: NpuConfig, short_chains: bool) -> Placement:
    """Settings of place and route, with the shortest carry chains if wanted."""
    placement = board.placements.get(preset_of(config.name), Placement())
    if not short_chains:
        return placement
    family = family_named(board.family)
    if family.carry_chains is None:
        raise click.ClickException(f"--short-chains must be left out for {board.name}: {family.name} has none")
    return replace(placement, short_chains=True, fold_carries=True)


def _smaller(board: Board, config: NpuConfig, link: LinkSpec) -> str:
    """Options for smaller designs: other links than USB, presets, and parameters of a configuration."""
    links = BOARD_SPECS[board.name].links if link.kind is LinkKind.USB else ()
    multipliers = blocks_of(config).multipliers
    options = [f"--link {other.name}" for other in links if other.kind is not LinkKind.USB]
    options += [
        f"--preset {name}"
        for name, other in PRESETS.items()
        if other.serial == config.serial
        and blocks_of(other).multipliers < multipliers
        and not shortage(other, board.name)
    ]
    least = "mfu_lanes" if config.mfu_lanes > 1 else "lanes"
    return ", ".join([*options, f"a --config with fewer {least}"])
