"""Compiled folders and images: changed bytes, and changed contents with checksums that are right."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from concord.image.container import IMAGE as IMAGE_FILE
from concord.image.container import read_file, write_file
from concord.networks.folder import IMAGE, MODEL, NETWORK, NETWORK_FILE, NETWORK_FOLDER
from concord.utils.folders import MANIFEST
from support.fuzz.commands import call, damaged
from support.fuzz.ends import End, of_command

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 255, 1 << 14, 1 << 31, 1 << 70, -0.5, 1e300, "", "x", "narrow", "WIDE",
    "é" * 40, [], {}, [0], [[0]],
    {"x": 1}, [1, 2, 3],
)  # fmt: skip


def folder(rng: random.Random, place: Path, given: Path) -> End:
    """A command on a compiled network that has been damaged."""
    net = shutil.copytree(given / "net", place / "net")
    name = rng.choice((IMAGE, NETWORK, MODEL, MANIFEST))
    change = rng.choice(("bytes", "bytes", "header", "header", "header", "arrays", "file", "sealed"))
    if change == "header" and name in (IMAGE, NETWORK):
        _rewrite(net / name, lambda header, arrays: _change(rng, header))
    elif change == "arrays" and name in (IMAGE, NETWORK):
        _rewrite(net / name, lambda header, arrays: _change_array(rng, arrays))
    elif change == "file":
        _change_file(rng, net, name)
    else:
        (net / name).write_bytes(damaged(rng, (net / name).read_bytes()))
    there = all((net / part).is_file() for part in NETWORK_FOLDER.files)
    if change != "bytes" and there and not (net / MANIFEST).is_dir():
        NETWORK_FOLDER.seal(net)
    target = net if rng.random() < 0.7 or not (net / IMAGE).is_file() else net / IMAGE
    words = rng.choice((
        ["inspect", target], ["disasm", target], ["run", target, "-i", given / "x.npz", "-o", place / "y.npz"],
        ["run", net, "-i", given / "x.npz", "-o", place / "y.npz"], ["report", net, "-i", given / "x.npz"],
        ["compile", given / "net.onnx", "-o", net, "--preset", "tiny"],
    ))  # fmt: skip
    return of_command(*call(*words))


def _rewrite(path: Path, change: Any) -> None:
    """Change header or arrays of a file; its checksum is right afterwards."""
    kind = IMAGE_FILE if path.name == IMAGE else NETWORK_FILE
    header, arrays = read_file(path, kind)
    for key in ("format", "version", "sha256"):
        del header[key]
    change(header, arrays)
    write_file(path, header, arrays, kind)


def _change(rng: random.Random, header: dict[str, Any]) -> None:
    """Replace, remove or add something anywhere in JSON."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(header)
    for _ in range(rng.choice((1, 1, 2))):
        where, key = rng.choice(places)
        kind = rng.random()
        value = json.loads(json.dumps(rng.choice(_VALUES)))
        if isinstance(where, list):
            if key >= len(where):
                continue
            if kind < 0.2:
                where.append(where[key])
            elif kind < 0.3:
                del where[key]
            else:
                where[key] = _near(rng, where[key], value)
        elif kind < 0.15:
            where.pop(key, None)
        elif kind < 0.2:
            where["foo"] = value
        elif key in where:
            where[key] = _near(rng, where[key], value)


def _near(rng: random.Random, old: Any, value: Any) -> Any:
    """Something else, or a number near the old one."""
    return old + rng.choice((-1, 1, 2, -100, 1000)) if isinstance(old, int) and rng.random() < 0.5 else value


def _change_array(rng: random.Random, arrays: dict[str, Any]) -> None:
    name = rng.choice(list(arrays))
    array = arrays[name].copy()
    kind = rng.randrange(6)
    if kind == 0 and array.size:
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice((0, 1, 3, 127))
    elif kind == 1:
        array = array[: len(array) // 2] if array.ndim else array
    elif kind == 2:
        array = array[None]
    elif kind == 3:
        array = array.astype(rng.choice((np.float64, np.int8, np.uint64, np.complex64)))
    elif kind == 4:
        array = np.array(["a"])
    if kind == 5:
        del arrays[name]
    else:
        arrays[name] = array


def _change_file(rng: random.Random, net: Path, name: str) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        (net / name).unlink()
    elif kind == 1:
        (net / name).unlink()
        (net / name).mkdir()
    elif kind == 2:
        (net / name).write_bytes((net / rng.choice((IMAGE, NETWORK, MODEL))).read_bytes())
    else:
        (net / rng.choice(("notes", ".hidden", "report.html"))).write_bytes(b"text")
