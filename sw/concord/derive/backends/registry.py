"""The backends by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from concord.derive.backends.onnx_file import write_onnx
from concord.derive.backends.python_file import write_numpy, write_torch
from concord.derive.c.source import write_c
from concord.derive.c_host.source import write_c_host
from concord.derive.ir import Model


@dataclass(frozen=True)
class Backend:
    """A kind of file that a model is written as.

    Parameters
    ----------
    suffix : str
        Of the file.
    write : callable
        ``write(model, path)``.
    flags : bool
        Whether files have the sticky flags if nothing else is asked for.
    host : bool
        Whether they have what the host computes.
    """

    suffix: str
    write: Callable[[Model, Path], None]
    flags: bool
    host: bool = True


@dataclass(frozen=True)
class HostBackend:
    """A kind of files with a host for the NPU: nothing is derived from the program, which goes into them as it is.

    Parameters
    ----------
    suffix : str
        Of the file that names the others.
    write : callable
        ``write(network, path, bytes_of, npu_part)`` for the folder of a compiled network or the file of an image; the
        others are those of :func:`concord.derive.c_host.plan.plan`. Returns what it has written, for people.
    """

    suffix: str
    write: Callable[[Path, Path, Mapping[str, tuple[float, float]], bool], str]


BACKENDS = {
    "numpy": Backend(".py", write_numpy, True),
    "torch": Backend(".py", write_torch, True),
    "onnx": Backend(".onnx", write_onnx, False),
    "c": Backend(".c", write_c, True, host=False),
}
HOSTS = {"c-host": HostBackend(".c", write_c_host)}


def target_names() -> list[str]:
    """Names of everything that can be written."""
    return [*BACKENDS, *HOSTS]


def target_for(path: Path, name: str | None) -> Backend | HostBackend:
    """Backend of :func:`backend_for`, or a host."""
    hosts = {key: host for key, host in HOSTS.items() if key == name or (name is None and host.suffix == path.suffix)}
    return next(iter(hosts.values())) if hosts else backend_for(path, name)


def backend_for(path: Path, name: str | None) -> Backend:
    """The backend with a name, or the one that the name of a file stands for.

    Of several backends with the same suffix it is the one whose name is part of the name of the file, else the first.
    """
    if name is not None:
        return BACKENDS[name]
    fitting = {key: backend for key, backend in BACKENDS.items() if backend.suffix == path.suffix}
    if not fitting:
        known = {backend.suffix for backend in BACKENDS.values()} | {host.suffix for host in HOSTS.values()}
        suffixes = " or ".join(sorted(known))
        raise ValueError(f"{path} must end in {suffixes}")
    named = [backend for key, backend in fitting.items() if key in path.stem]
    return (named or list(fitting.values()))[0]
