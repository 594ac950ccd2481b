"""Simulation of a circuit as a shared library with the C functions of ``verilate.cpp``."""

from __future__ import annotations

from pathlib import Path

from concord.utils.cache import CacheEntry, digest
from concord.utils.simulations import LIBRARY
from concord_rtl.flow.verilate import SHARED, WRAPPER, _call, announced, find_compiler

ENGINE = Path(__file__).parent / "engine"
#: Characters of one literal: compilers limit them.
CHUNK = 60_000
FLAGS = ("-std=c++17", "-fPIC", "-DVM_TRACE=0")


def compile_circuit(text: str) -> Path:
    """Return the library of a circuit, as :meth:`concord_rtl.flow.gates.circuit.Circuit.text` gives it."""
    compiler = find_compiler()
    key = digest(WRAPPER, SHARED, Path(__file__), *sorted(ENGINE.iterdir()), compiler)[:24]

    def compile_engine(folder: Path) -> None:
        with announced("Compiling the simulator of netlists"):
            source = ["-c", str(WRAPPER), "-o", "engine.o"]
            _call([*compiler, "-O3", *FLAGS, f"-I{ENGINE}", *source], folder)

    def compile_into(folder: Path) -> None:
        engine = CacheEntry("engines", key).made(compile_engine) / "engine.o"
        pieces = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
        literal = "\n".join(f'R"({piece})"' for piece in pieces)
        (folder / "circuit.cpp").write_text(f"extern const char kCircuit[];\nconst char kCircuit[] = {literal};\n")
        _call([*compiler, *FLAGS, "-shared", "circuit.cpp", str(engine), "-o", LIBRARY], folder)
        (folder / "circuit.cpp").unlink()

    return CacheEntry("circuits", digest(key, text)[:24]).made(compile_into) / LIBRARY
