"""Quantised networks that are compiled as they are, on their codes."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from concord.api.compiling import Compilation
from concord.api.targets import Target
from concord.compiler.codes.package import compile_codes
from concord.frameworks import onnx_bytes
from concord.frontend.codes import load
from concord.frontend.selection import Selection
from concord.integer import IntegerNetwork
from concord.spec.compile_options import CompileOptions
from concord.utils.foreign import tflite_contents


def codes_to_compile(model: Any, selection: Selection, options: CompileOptions) -> tuple[IntegerNetwork, bytes]:
    """A quantised network on its codes, and the file of it: as the user brought it, or the part that is taken.

    Parameters
    ----------
    model : str, Path, bytes, or onnx.ModelProto
        A file of ONNX or TensorFlow Lite, or its contents.
    selection : Selection
        The part of it; all of a TensorFlow Lite file.
    options : CompileOptions
        Its rule of rounding, and whether it is for an NPU, which has no tables with two indices.

    Raises
    ------
    ValueError
        As :func:`concord.frontend.codes.load` has it, or if a part of a TensorFlow Lite file is asked for.
    """
    tflite = tflite_contents(model)
    if tflite is not None and selection != Selection():
        parts = "--shape, --inputs, --outputs and --fix"
        raise ValueError(f"a network on codes must be given without {parts} if it is a TensorFlow Lite file")
    contents = onnx_bytes(model) if tflite is None else tflite
    part = contents if tflite is not None else selection.of(contents)
    named = isinstance(model, str | PathLike) and part is contents
    network = load(Path(model) if named else part, pairs=not options.names_npu, rounding=options.rounding)
    return network, part


def compile_exact(network: IntegerNetwork, options: CompileOptions) -> Compilation:
    """Compile a network on codes for the NPU that the options name; errors as of :func:`compile_codes`."""
    compiled = compile_codes(network, Target.of(options).configs[0])
    return Compilation(compiled.graph, compiled)
