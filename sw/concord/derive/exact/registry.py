"""Formats in which a quantised network can be written, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from concord.derive.backends.python_library import NUMPY, TORCH, Library
from concord.derive.c_exact.source import write_exact
from concord.derive.exact.onnx_file import write_onnx
from concord.derive.exact.python_file import write_python
from concord.integer.network import IntegerNetwork


@dataclass(frozen=True)
class ExactBackend:
    """A kind of file.

    Parameters
    ----------
    suffix : str
    write : callable
        ``write(network, path, origin)``; ``ValueError`` for a network that such a file cannot hold. May return what
        there is to say of it. ``origin`` is the SHA-256 of the model, empty if it is left out; files in C have it.
    write_plain : callable or None
        The same without flags, if files have some.
    """

    suffix: str
    write: Callable[..., str | None]
    write_plain: Callable[..., str | None] | None = None


def _write_python(library: Library, network: IntegerNetwork, path: Path, origin: str = "") -> None:
    write_python(library, network, path)


def _write_onnx(network: IntegerNetwork, path: Path, origin: str = "") -> None:
    write_onnx(network, path)


def _write_c(flags: bool, network: IntegerNetwork, path: Path, origin: str = "") -> str:
    made = write_exact(network.graph, path, flags, origin)
    return f"{made.ram:,} bytes of RAM, {made.rom:,} of constants"


EXACT_BACKENDS = {
    "numpy": ExactBackend(".py", partial(_write_python, NUMPY)),
    "torch": ExactBackend(".py", partial(_write_python, TORCH)),
    "onnx": ExactBackend(".onnx", _write_onnx),
    "c": ExactBackend(".c", partial(_write_c, True), partial(_write_c, False)),
}


def exact_backend_for(path: Path, name: str | None) -> ExactBackend:
    """The backend with a name, or the one that the name of a file stands for.

    Of several with the same suffix it is the one whose name is part of the name of the file, else the first.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name is not None:
        if name not in EXACT_BACKENDS:
            raise ValueError(f"--to must be one of {', '.join(EXACT_BACKENDS)} with --exact, not {name}")
        return EXACT_BACKENDS[name]
    fitting = {key: backend for key, backend in EXACT_BACKENDS.items() if backend.suffix == path.suffix}
    if not fitting:
        raise ValueError(f"{path} must end in {' or '.join(sorted({b.suffix for b in EXACT_BACKENDS.values()}))}")
    return next((backend for key, backend in fitting.items() if key in path.stem), next(iter(fitting.values())))
