"""Simulation of a circuit as a shared library with the C functions of ``verilate.cpp``."""

from __future__ import annotations

from pathlib import Path

from concord_rtl.flow.cache import digest
from concord_rtl.flow.verilate import LIBRARY, SHARED, WRAPPER, _call, _scratch, announced, build_folder, find_compiler

ENGINE = Path(__file__).parent / "engine"
#: Characters of one literal: compilers limit them.
CHUNK = 60_000
FLAGS = ("-std=c++17", "-fPIC", "-DVM_TRACE=0")


def compile_circuit(text: str) -> Path:
    """Return the library of a circuit, as :meth:`concord_rtl.flow.gates.circuit.Circuit.text` gives it."""
    compiler = find_compiler()
    key = digest(WRAPPER, SHARED, Path(__file__), *sorted(ENGINE.iterdir()), compiler)[:24]
    engine = build_folder() / f"engine-{key}"
    if not engine.exists():
        with announced("Compiling the simulator of netlists"), _scratch(engine) as folder:
            source = ["-c", str(WRAPPER), "-o", "engine.o"]
            _call([*compiler, "-O3", *FLAGS, f"-I{ENGINE}", *source], folder)
    target = build_folder() / digest(key, text)[:24]
    if not target.exists():
        with _scratch(target) as folder:
            pieces = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
            literal = "\n".join(f'R"({piece})"' for piece in pieces)
            (folder / "circuit.cpp").write_text(f"extern const char kCircuit[];\nconst char kCircuit[] = {literal};\n")
            _call([*compiler, *FLAGS, "-shared", "circuit.cpp", str(engine / "engine.o"), "-o", LIBRARY], folder)
            (folder / "circuit.cpp").unlink()
    return target / LIBRARY
