"""Checkpoints: integers and exponents in an npz file, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.graph.ops.linear import AffineAttributes, is_fixed
from concord.train.layers.attention import Mask
from concord.train.layers.pointwise import ScaleLayer
from concord.train.network import TrainableNetwork
from concord.utils.files import replacing

_VERSION = 1
_HEADER = "header"


def fingerprint(network: TrainableNetwork, facts: dict[str, Any]) -> str:
    """Fingerprint of layers, shapes and settings, to which a checkpoint belongs."""
    layers = [(layer.name, layer.inputs, layer.outputs, layer.kind) for layer in network.layers]
    shapes = {name: p.blocks.shape for name, p in network.parameters.items()}
    parts = [layers, shapes, facts]
    if network.constants:  # as they were given
        parts.append(
            {n.name: _numbers(n.attributes(AffineAttributes).weight) for n in network.graph.nodes if is_fixed(n)}
        )
    if kept := {
        layer.name: _numbers(layer.attributes["constant"])
        for layer in network.layers
        if isinstance(layer, Mask | ScaleLayer)
    }:
        parts.append(kept)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _numbers(array: npt.NDArray[Any]) -> str:
    """A hash of the numbers of a constant."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def save(path: Path, network: TrainableNetwork, facts: dict[str, Any], progress: dict[str, Any]) -> None:
    """Write a checkpoint.

    Parameters
    ----------
    path : Path
        Of the npz file.
    network : TrainableNetwork
        Its parameters and constants are written.
    facts : dict
        What the checkpoint is only good for, see :func:`fingerprint`.
    progress : dict
        Where the training is; for JSON.
    """
    header = {"version": _VERSION, "fingerprint": fingerprint(network, facts), "progress": progress}
    arrays: dict[str, npt.NDArray[Any]] = {_HEADER: np.array(json.dumps(header))}
    for name, p in (network.parameters | network.constants).items():
        arrays |= {f"{name}/weight": p.weight, f"{name}/acc": p.acc, f"{name}/exp": p.exp}
        if p.velocity is not None:
            arrays |= {f"{name}/velocity": p.velocity, f"{name}/velocity_exp": np.array(p.velocity_exp, np.int16)}
    arrays |= {f"{name}/{key}": array for name, norm in network.norms.items() for key, array in norm.state.items()}
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def restore(path: Path, network: TrainableNetwork, facts: dict[str, Any]) -> dict[str, Any]:
    """Take parameters from a checkpoint, and return where the training was.

    Raises
    ------
    ValueError
        If it is damaged, or of another network or other settings. The network is as it was then.
    """
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop(_HEADER)))
        version, mark, progress = header["version"], header["fingerprint"], header["progress"]
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path} must be a checkpoint, and is none or is damaged: {error}") from error
    if version != _VERSION:
        raise ValueError(f"{path} must be a checkpoint of version {_VERSION}, not {version!r}")
    if mark != fingerprint(network, facts):
        raise ValueError(f"{path} must be of this network, with these settings and data, and is of others")
    new = {}
    numbers = network.parameters | network.constants
    wanted = {name: {"weight": p.weight, "acc": p.acc, "exp": p.exp} for name, p in numbers.items()}
    for name, there in (wanted | {name: norm.state for name, norm in network.norms.items()}).items():
        for key, old in there.items():
            array = arrays.get(f"{name}/{key}")
            if array is None or array.shape != old.shape or array.dtype != old.dtype:
                raise ValueError(f"{path} must have {old.dtype} {list(old.shape)} as {name}/{key}, and has not")
            new[name, key] = array
    for name, p in numbers.items():
        p.replace(*(new[name, key] for key in ("weight", "acc", "exp")))
        p.velocity = arrays.get(f"{name}/velocity")
        p.velocity_exp = int(arrays.get(f"{name}/velocity_exp", 0))
    for name, norm in network.norms.items():
        norm.state = {key: new[name, key] for key in norm.state}
    return dict(progress)
