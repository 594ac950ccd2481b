"""A network on codes with its program for an NPU, as a folder.

net.program, net.tables   the network on codes (:mod:`concord.integer.folder`)
npu.image                 program and constants (:mod:`concord.image`)
npu.ports                 arrangement of what the NPU reads and makes
manifest.json             their hashes (:mod:`concord.utils.folders`)
"""

from __future__ import annotations

from pathlib import Path

from concord.compiler.ir.arrangement import Arrangement
from concord.image import Image
from concord.image.container import FileKind, read_file, write_file
from concord.integer.folder import OF_NPU, WITH_NPU, ProgramError, network_of, write_network
from concord.integer.npu.network import CodesOnNpu, split_of

IMAGE, PORTS = OF_NPU
_PORTS = FileKind("ports of a network on codes", "ports of a network on codes", 1, ProgramError)


def is_codes_folder(path: Path) -> bool:
    """True if a folder is a network on codes for an NPU, or was one."""
    return (path / PORTS).exists()


def save_codes(codes: CodesOnNpu, folder: str | Path) -> None:
    """Write a network with its program to a folder, whole or not at all.

    Raises
    ------
    ProgramError
        If something else is there.
    OSError
        If it cannot be written; a network that was there is unchanged.
    """
    header, arrays = codes.arrangement.to_record()
    with WITH_NPU.replacing(folder) as part:
        write_network(codes.network, part)
        codes.image.save(part / IMAGE)
        write_file(part / PORTS, header, arrays, _PORTS)


def load_codes(folder: str | Path) -> CodesOnNpu:
    """Read a folder; :class:`ProgramError`, ``TransferError`` or ``ImageError`` if it is none, or damaged."""
    folder = Path(folder)
    data = WITH_NPU.read(folder)
    network, image = network_of(folder, data), Image.load(folder / IMAGE, data=data[IMAGE])
    header, arrays = read_file(folder / PORTS, _PORTS, data[PORTS])
    try:
        arrangement = Arrangement.of_record(header, arrays)
        made = CodesOnNpu(network, split_of(network, image.config), image, arrangement)
        if not arrangement.fits(image) or set(arrangement.outputs) != set(made.split.npu.outputs):
            raise LookupError("ports")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ProgramError(f"{folder / PORTS} has contents that are not valid here: {error!r}") from error
    return made
