"""The named configurations."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from concord.spec.boards import board_spec
from concord.spec.builds import clock_note, rated_hz
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_FRAC
from concord.spec.limits import ACC_WIDTH_MIN, INTEGER_MANT, SCALED_BITS_MAX
from concord.spec.names import unknown_name


def _read(file: Path) -> dict[str, NpuConfig]:
    """Configurations of a file, in its order."""
    presets: dict[str, dict[str, Any]] = tomllib.loads(file.read_text(encoding="utf-8"))
    for name, values in presets.items():
        values |= presets[values.pop("like")] | values if "like" in values else {}
        values["name"] = name
        if "board" in values:
            values["clock_hz"] = rated_hz(values["board"], name)
    return {name: NpuConfig(**values) for name, values in presets.items()}


#: The named configurations.
PRESETS = _read(Path(__file__).with_name("presets.toml"))
TINY, UP5K, ECP5_25F, ECP5_85F, ECP5_85F_256 = PRESETS.values()
#: Presets that there were, and those that take their place.
REMOVED = {"ecp5-85f-int8": "ecp5-85f", "ecp5-85f-train": "ecp5-85f", "ecp5-85f-mlp": "ecp5-85f-256"}


def note_of(config: NpuConfig) -> str:
    """Note about the clock of a preset on its board (:func:`concord.spec.builds.clock_note`); nothing of others."""
    return clock_note(config.board, config.name) if config.board and config.name in PRESETS else ""


def preset(name: str) -> NpuConfig:
    """Return a named configuration; ``ValueError`` lists the names, and says which one is meant or took its place."""
    if name not in PRESETS:
        raise unknown_name("preset", PRESETS, name, REMOVED)
    return PRESETS[name]


def presets_of(board: str, name: str | None = None) -> list[NpuConfig]:
    """The presets of a board, the first one with the clock that it has there.

    Parameters
    ----------
    board : str
        Name in :data:`concord.spec.boards.BOARD_SPECS`.
    name : str, optional
        Only this one of them.

    Raises
    ------
    ValueError
        If there is no such board or preset, or the preset is none of the board's.
    """
    spec = board_spec(board)
    if name is not None and preset(name).name not in spec.presets:
        raise ValueError(f"preset must be one of those of {board} ({', '.join(spec.presets)}), not {name!r}")
    return [
        on_board(PRESETS[listed], board).replace(**({"clock_hz": spec.clock_hz} if listed == spec.preset else {}))
        for listed in spec.presets
        if name in (None, listed)
    ]


def on_board(config: NpuConfig, board: str) -> NpuConfig:
    """The configuration on a board: without the external memory, if the board does not have it."""
    return without_missing_memory(config, board).replace(board=board)


def without_missing_memory(config: NpuConfig, board: str) -> NpuConfig:
    """The configuration without the external memory, if a board does not have it."""
    there = config.dram == board_spec(board).dram
    return config if there else config.replace(dram="", dram_refresh=0)


def with_mantissas(config: NpuConfig, mant: int) -> NpuConfig:
    """The configuration like ``config`` whose activations and weights have mantissas of ``mant`` bits, 3 to 12.

    Exponents of weights and the accumulator move with the width: blocks of the same magnitudes have their full
    precision as before, and sums of the same magnitude fit. An element-serial configuration keeps its grid where sums
    need it; one with ``code_scaling`` keeps that as long as codes can be made of its accumulators. Integer chains have
    mantissas of 8 bits alone.

    Raises
    ------
    ValueError
        If there is no such configuration.
    """
    if config.act_mant == config.wgt_mant == mant:
        return config
    more = mant - config.wgt_mant
    lowest = config.wgt_exp_min - more
    if config.serial:
        lowest = min(lowest, -BINARY16_FRAC - config.act_exp_min)
    acc_width = config.acc_width + config.wgt_exp_min - lowest
    return config.replace(
        name=f"{config.name}-m{mant}",
        act_mant=mant,
        wgt_mant=mant,
        wgt_exp_min=lowest,
        wgt_exp_max=config.wgt_exp_max - more,
        acc_width=acc_width,
        integer_chains=config.integer_chains and mant == INTEGER_MANT,
        code_scaling=config.code_scaling and acc_width + config.act_exp_min <= SCALED_BITS_MAX,
    )


def with_accumulator(config: NpuConfig, bits: int, *, weights: tuple[int, int], least: int | None = None) -> NpuConfig:
    """The configuration like ``config`` whose register adds up in ``bits`` bits, with exponents that a network uses.

    The grid moves with the least exponents, and the width that is kept with it: the same sums fit, as far as the
    register holds them. It has no registers of windows, no integer chains, and no matrices that programs write, whose
    exponents are those of data.

    Parameters
    ----------
    config : NpuConfig
    bits : int
        Bits of the register, sign included. As many as every sum fits in make it a configuration without one.
    weights : pair of int
        Least and greatest exponent of weights, within those of ``config``.
    least : int, optional
        Least exponent of activations, of which 0 is the greatest; that of ``config`` if left out.

    Raises
    ------
    ValueError
        If there is no such configuration.
    """
    low, high = weights
    if not config.wgt_exp_min <= low <= high <= config.wgt_exp_max:
        raise ValueError(
            f"weights must be a range within {config.wgt_exp_min}..{config.wgt_exp_max}, not {low!r}..{high!r}"
        )
    exponent = config.act_exp_min if least is None else min(least, 0)
    coarser = low - config.wgt_exp_min + exponent - config.act_exp_min
    acc_width = max(ACC_WIDTH_MIN, min(config.acc_width - coarser, bits))
    exact = config.replace(
        name=f"{config.name}-a{bits}",
        act_exp_min=exponent,
        wgt_exp_min=low,
        wgt_exp_max=high,
        acc_width=acc_width,
        acc_register=0,
        window_taps=0,
        integer_chains=False,
        writable_matrix=False,
        code_scaling=config.code_scaling and 2 <= acc_width + exponent <= SCALED_BITS_MAX,
    )
    return exact if bits >= exact.full_bits else exact.replace(acc_register=bits)
