"""Compiled networks as they are stored: names of files, and help where the preset was removed or has changed."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from concord.spec.boards import DEFAULT_BOARD, preset_of
from concord.spec.config import NpuConfig
from concord.spec.config_file import other_parameters
from concord.spec.presets import PRESETS, REMOVED

#: The image in the folder of a network, and the model that it was compiled from, one of ONNX or of TensorFlow Lite.
IMAGE, MODEL, TFLITE = "npu.image", "model.onnx", "model.tflite"
#: Operations and tables of a network on codes.
PROGRAM, TABLES = "net.program", "net.tables"


def model_in(folder: Path) -> Path | None:
    """The model in the folder of a network; ``None`` if it has none, as those of networks on codes had before."""
    return next((folder / name for name in (MODEL, TFLITE) if (folder / name).exists()), None)


def outdated(config: NpuConfig) -> str:
    """Text about a configuration of a preset that was removed, or is another one today; empty for all others.

    A configuration with other mantissas or another accumulator is one of the preset that it is named after.
    """
    base = preset_of(config.name)
    if base in PRESETS:
        today = PRESETS[base].to_dict()
        changed = [f"{name}: {getattr(config, name)!r} / {today[name]!r}" for name in other_parameters(config)]
        fate = f"is not the preset {base} of today; then / today: {', '.join(changed)}" if changed else ""
    else:
        fate = f"is of a preset that was removed: {REMOVED[base]} takes its place" if base in REMOVED else ""
    return fate and f"{config.name} with fingerprint {config.fingerprint:016x} {fate}"


def compile_again(place: Path, name: str, board: str, model: str = "MODEL") -> str:
    """Command that compiles a network again, for presets of today.

    Parameters
    ----------
    place : Path
        Folder of the network, or its image, in the folder or anywhere else.
    name, board : str
        Name of its configuration, and of the board of that; empty if it has none.
    model : str
        The file that it was compiled from, if the folder has none; a name without a suffix is that of no file.
    """
    model = model if Path(model).suffix else "MODEL"
    folder = place if place.is_dir() else place.parent
    exact = (folder / PROGRAM).exists()
    base = preset_of(name)
    preset = base if base in PRESETS else REMOVED.get(base)
    stored = model_in(folder)
    known = exact or stored is not None
    words = ["concord", "compile", quote(model if stored is None else str(stored))]
    if exact:
        words.append("--exact")
    if preset is not None and (exact or not board):
        words += ["--preset", preset]
    elif board not in ("", DEFAULT_BOARD):
        words += ["--board", board]
    return " ".join([*words, "-o", quote(str(folder)) if known else "FOLDER"])


def again(config: NpuConfig, place: Path, model: str = "MODEL") -> str:
    """Sentence with the command of :func:`compile_again`; ``place`` and ``model`` are its parameters."""
    return f"`{compile_again(place, config.name, config.board, model)}`, with the options of then, compiles it again"


def remedy(config: NpuConfig, place: Path, model: str = "MODEL") -> str:
    """Text about an outdated configuration, and what to do; empty for all others. As :func:`again` for the rest."""
    what = outdated(config)
    return what and f"no ready bitstream fits {what}. {again(config, place, model)}"
