"""Derived software as something that computes outputs: by NumPy, ONNX Runtime, PyTorch, a compiler of C."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from concord.derive import ir
from concord.derive.backends.registry import BACKENDS
from concord.derive.c.program import CProgram, compiler
from concord.derive.flags import by_layer
from concord.derive.modules import module_of
from concord.utils.arrays import FloatArray
from concord.utils.extras import install_command, missing

#: Inputs by name -> outputs by name.
Run = Callable[[Mapping[str, FloatArray]], Mapping[str, Any]]
#: Samples that raised a flag, by place and flag.
SamplesByFlag = Mapping[str, Mapping[str, list[int]]]
FlaggedRun = Callable[[Mapping[str, FloatArray]], tuple[Mapping[str, Any], SamplesByFlag]]


@dataclass(frozen=True)
class Runtime:
    """Runtime that executes derived software.

    Parameters
    ----------
    label : str
        For people.
    module, package, extra : str
        What must be there, its name for ``pip``, and the extra of the project that has it.
    backend : str
        Of :mod:`concord.derive`.
    asked : bool
        Whether it is run only if somebody asks for it.
    """

    label: str
    module: str
    package: str
    extra: str
    backend: str
    asked: bool = False

    @property
    def host(self) -> bool:
        """True if derived software includes the operations of the host."""
        return BACKENDS[self.backend].host

    @property
    def missing(self) -> str:
        """Reason for which the runtime cannot be used here; empty if it can."""
        if not missing([self.module]):
            return ""
        return f"{self.package} is not installed; {install_command(self.extra)}"

    @property
    def version(self) -> str:
        """Package with its version."""
        return f"{self.package} {version(self.package)}"

    def load_flagged(self, model: ir.Model, folder: Path, name: str) -> FlaggedRun:
        """Write a model to a file in ``folder``, and load that; a model without flags raises none."""
        backend = BACKENDS[self.backend]
        model = model if backend.host else model.npu_part
        path = folder / f"{name}_{self.backend}{backend.suffix}"
        backend.write(model, path)
        return _LOADERS[self.backend](path, model)

    def load(self, model: ir.Model, folder: Path, name: str) -> Run:
        """Load a model as :meth:`load_flagged` does, without flags."""
        run = self.load_flagged(model, folder, name)
        return lambda inputs: run(inputs)[0]


@dataclass(frozen=True)
class CompiledC(Runtime):
    """Files of C, compiled here."""

    @property
    def missing(self) -> str:
        """Reason for which the runtime cannot be used here; empty if it can."""
        return "" if compiler() else "there is no C compiler (cc, gcc or clang)"

    @property
    def version(self) -> str:
        """First line of what the compiler says of itself."""
        done = subprocess.run([str(compiler()), "--version"], capture_output=True, text=True, check=True)
        return done.stdout.partition("\n")[0]


def _python(path: Path, model: ir.Model) -> FlaggedRun:
    module, flags = module_of(path), model.flags is not None
    return lambda inputs: module.run(inputs, flags=True) if flags else (module.run(inputs), {})


def _c(path: Path, model: ir.Model) -> FlaggedRun:
    return CProgram(path, model, [str(compiler())]).run_with_flags


def _onnx(path: Path, model: ir.Model) -> FlaggedRun:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # threads that spin slow down what runs beside
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    facts = json.loads(session.get_modelmeta().custom_metadata_map.get("flags", "null"))

    def run(inputs: Mapping[str, FloatArray]) -> tuple[Mapping[str, Any], SamplesByFlag]:
        outputs = dict(zip(names, session.run(None, dict(inputs)), strict=True))
        if facts is None or facts["output"] not in outputs:
            return outputs, {}
        words = outputs.pop(facts["output"])
        return outputs, by_layer(dict(zip(facts["layers"], words.T, strict=True)))

    return run


_LOADERS: dict[str, Callable[[Path, ir.Model], FlaggedRun]] = {
    "numpy": _python,
    "torch": _python,
    "onnx": _onnx,
    "c": _c,
}

#: By the name on the command line.
RUNTIMES = {
    "numpy": Runtime("NumPy", "numpy", "numpy", "", "numpy"),
    "onnx": Runtime("ONNX Runtime", "onnxruntime", "onnxruntime", "prove", "onnx"),
    "torch": Runtime("PyTorch", "torch", "torch", "torch", "torch"),
    "c": CompiledC("C", "", "", "", "c", asked=True),
}
