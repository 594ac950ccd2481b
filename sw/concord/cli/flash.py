"""``concord flash``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from concord.cli.common import BOARD, FOLDER, PRESET, THING, echo, readable
from concord.cli.options import compile_options
from concord.host.bitstreams import find_bitstream, write_bitstream
from concord.networks.folder import load_image
from concord.spec.boards import DEFAULT_BOARD, board_spec
from concord.spec.presets import preset, without_missing_memory


@click.command()
@click.argument("network", type=THING, required=False)
@click.option("--board", type=BOARD, help=f"Default: the board of the network, or {DEFAULT_BOARD}.")
@click.option("--preset", "preset_name", type=PRESET, help="Without NETWORK. Default: the first preset of the board.")
@compile_options("link")
@click.option("--persistent", is_flag=True, help="Write the flash memory, which the board starts from, not the FPGA.")
@click.option("--build", type=FOLDER, default=Path("build"), show_default=True, help="Folder of bitstreams built here.")
@readable
def flash(
    network: Path | None, board: str | None, preset_name: str | None, link: str | None, persistent: bool, build: Path
) -> None:
    """Write the bitstream that the compiled NETWORK needs, or that of a preset, to a board.

    The bitstream is that of the package, or else one that was built here. openFPGALoader writes it, to the FPGA alone:
    it is gone when the board is switched off.
    """
    if network is None:
        where = board or DEFAULT_BOARD
        config, model = without_missing_memory(preset(preset_name or board_spec(where).preset), where), ""
    elif preset_name is not None:
        raise ValueError("--preset must be given without NETWORK, which has a configuration")
    else:
        config, model = load_image(network).config, "MODEL"
    board = board or config.board or DEFAULT_BOARD
    name = board_spec(board).link(link).name
    bitstream = find_bitstream(config, board, name, build, network, model)
    echo(f"{bitstream.origin}: {config.name} for {board}, {name}")
    with TemporaryDirectory() as folder:
        file = Path(folder) / bitstream.name
        file.write_bytes(bitstream.data)
        write_bitstream(file, board, persistent=persistent)
    echo("written; concord run NETWORK --on PORT computes on it")
