"""Configurations of NPUs as files that people write and read: what differs from a preset, in TOML."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from shlex import quote
from typing import Any

from concord.spec.boards import board_spec, preset_of
from concord.spec.config import FREE, REMOVED, NpuConfig, RemovedParameterError
from concord.spec.names import unknown_name
from concord.spec.presets import PRESETS, preset

#: The parameter of a file that names the preset whose other parameters a configuration has.
PRESET = "preset"
#: Names that a configuration can have: they are part of names of folders.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Parameters in which a configuration that is named after a preset may differ from it.
_NUMBERS = set(
    "act_mant wgt_mant act_exp_min wgt_exp_min wgt_exp_max acc_width acc_register window_taps code_scaling "
    "writable_matrix integer_chains".split()
)


def read_config(path: Path) -> NpuConfig:
    """Read a configuration.

    The file has parameters of :class:`concord.spec.config.NpuConfig` by name, and ``preset``: the preset that has all
    others. Without a ``name`` it is named after the file.

    Parameters
    ----------
    path : Path
        A file in TOML.

    Raises
    ------
    ValueError
        If it is no such file, or there is no NPU like that.
    OSError
        If it cannot be read.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a configuration in TOML: {error}") from error
    try:
        return _checked(values, path.stem)
    except RemovedParameterError as error:
        then = f"`concord compile MODEL --config {quote(str(path))}` then compiles its networks again"
        raise ValueError(f"{path}: {error}; {then}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _checked(values: dict[str, Any], name: str) -> NpuConfig:
    """The configuration with these parameters, named ``name`` if they do not say."""
    parameters = {field.name: field.type for field in fields(NpuConfig)}
    for key, value in values.items():
        if key in REMOVED:
            raise RemovedParameterError(key)
        if key not in (PRESET, *parameters):
            raise unknown_name("parameter", (PRESET, *parameters), key)
        kind = {"int": int, "bool": bool}.get(str(parameters.get(key)), str)
        if type(value) is not kind:
            words = {int: "an integer", bool: "true or false", str: "a text"}
            raise ValueError(f"{key} must be {words[kind]}, not {value!r}")
    changes = {"name": name, **values}
    base = changes.pop(PRESET, None)
    if changes.get("board"):
        board_spec(changes["board"])
    if base is not None:
        config = preset(base).replace(**changes)
    else:
        needed = [field.name for field in fields(NpuConfig) if field.default is MISSING]
        if missing := [key for key in needed if key not in changes]:
            raise ValueError(f"there must be a preset, or else {', '.join(missing)}")
        config = NpuConfig(**changes)
    check_name(config)
    return config


def check_name(config: NpuConfig) -> None:
    """Refuse a name that cannot be that of a folder, or is that of a preset that is another NPU.

    Raises
    ------
    ValueError
        With what the name must be.
    """
    if not _NAME.fullmatch(config.name):
        raise ValueError(f"name must be up to 100 letters, digits, dots, dashes or underscores, not {config.name!r}")
    if different := other_parameters(config):
        base = preset_of(config.name)
        raise ValueError(f"name must not be {config.name!r}: the preset {base} has another {', '.join(different)}")


def other_parameters(config: NpuConfig) -> list[str]:
    """Parameters in which a configuration differs from the preset that it is named after, but may not."""
    base = PRESETS.get(preset_of(config.name))
    if base is None:
        return []
    free = set(FREE) | (_NUMBERS if base.name != config.name else set())
    return [name for name in changes_of(config, base) if name not in free]


def changes_of(config: NpuConfig, base: NpuConfig) -> dict[str, Any]:
    """Parameters of a configuration that differ from those of another one, but for the name."""
    other = base.to_dict()
    return {name: value for name, value in config.to_dict().items() if value != other[name] and name != "name"}


def config_text(config: NpuConfig, base: NpuConfig) -> str:
    """A configuration as a file: the name of a preset, and what differs from it.

    Parameters
    ----------
    config : NpuConfig
        The configuration.
    base : NpuConfig
        The preset.
    """
    head = "# Configuration of an NPU, for `concord compile MODEL --config FILE`"
    if config.board:
        head += f' and\n# `make bitstream BOARD={config.board} ARGS="--config FILE"`'
    return "\n".join([f"{head}.", *config_lines(config, base, config.name), ""])


def config_lines(config: NpuConfig, base: NpuConfig, name: str | None = None) -> list[str]:
    """The lines of a file with a configuration, as :func:`config_text` has them, with or without a name."""
    named = {} if name is None else {"name": name}
    values = {PRESET: base.name, **named, **changes_of(config, PRESETS[base.name])}
    return [f"{key} = {json.dumps(value)}" for key, value in values.items()]
