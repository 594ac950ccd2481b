"""``--json``: a command writes one object to the standard output, with the keys that docs/compiler.md lists."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from concord.spec.presets import note_of

if TYPE_CHECKING:
    from concord.fit import Candidate, Judge, Race
    from concord.host.measured import LinkComparison
    from concord.host.rates import Rates
    from concord.image import Image
    from concord.program.flags import FlagDiagnostic
    from concord.spec.config import NpuConfig

#: Adds the option to a command, whose parameter is ``as_json``.
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write one object in JSON to the standard output instead of text; warnings go to the standard error.",
)


def write_json(facts: Mapping[str, Any]) -> None:
    """Write an object to the standard output; numbers that are not finite become ``null``."""
    click.echo(json.dumps(_plain(facts), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """A value of Python alone, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    return [_plain(item) for item in value]


def npu_facts(config: NpuConfig) -> dict[str, Any]:
    """A configuration, as far as it tells one NPU from another."""
    return {
        "name": config.name,
        "board": config.board,
        "fingerprint": f"{config.fingerprint:016x}",
        "clock_hz": config.clock_hz,
        "clock_note": note_of(config),
        "macs_per_cycle": config.macs,
    }


def rate_facts(links: Iterable[Rates]) -> list[dict[str, Any]]:
    """Rates over every link."""
    return [
        {
            "link": speed.link.name,
            "samples_per_second": speed.per_second,
            "single_samples_per_second": speed.single_per_second,
            "limit": speed.limit,
            "bytes_in": speed.bytes_in,
            "bytes_out": speed.bytes_out,
            "cycles": speed.cycles,
            "assumed": speed.assumed,
            "input_route": speed.input_route,
        }
        for speed in links
    ]


def flag_facts(records: Iterable[FlagDiagnostic]) -> list[dict[str, Any]]:
    """Flags, each with the layer, the input or the result that it is about."""
    return [
        {
            "flag": record.flag,
            "layer": record.layer,
            "address": record.address,
            "meaning": record.meaning,
            "advice": record.advice,
        }
        for record in records
    ]


def array_facts(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Shape and type of arrays by name."""
    return {name: {"shape": value.shape, "type": value.dtype.name} for name, value in arrays.items()}


def comparison_facts(comparison: LinkComparison | None) -> dict[str, Any] | None:
    """Times of a batch beside the estimates of them; ``None`` if bytes took no time."""
    if comparison is None:
        return None
    figures = comparison.figures.items()
    return {
        "link": comparison.estimate.link.name,
        "simulated": comparison.simulated,
        "limit": comparison.measured.bottleneck,
        "figures": {name: {"measured": measured, "estimated": estimated} for name, (measured, estimated) in figures},
    }


def port_facts(image: Image) -> dict[str, list[dict[str, Any]]]:
    """Ports that the host writes and reads, and states that stay from a run to the next one."""
    ports = {"inputs": image.inputs, "outputs": image.outputs, "states": [state.port for state in image.states]}
    return {
        side: [
            {
                "name": port.name,
                "shape": port.shape,
                "type": str(port.dtype),
                "memory": port.region.name.lower(),
                "address": port.address,
            }
            for port in those
        ]
        for side, those in ports.items()
    }


def candidate_facts(candidate: Candidate, board: str) -> dict[str, Any]:
    """A configuration that fits, with what it takes and how fast it is."""
    config, use, verdict = candidate.config, candidate.use, candidate.verdict
    judged = {"accuracy": None, "agreement": None, "error": None, "loss": None}
    if verdict is not None:
        judged = {name: getattr(verdict, name) for name in judged}
    return {
        "name": candidate.text(board),
        "preset": config.name if candidate.is_preset else None,
        "native": config.native,
        "lanes": config.lanes,
        "mfu_lanes": config.mfu_lanes,
        "window_taps": config.window_taps,
        "matrix_depth": config.matrix_depth,
        "narrow_depth": config.narrow_depth,
        "wide_depth": config.wide_depth,
        "luts": use.luts,
        "multipliers": use.blocks.multipliers,
        "rams": use.blocks.rams,
        "single_port_rams": use.blocks.single_port_rams,
        "clock_hz": config.clock_hz,
        "cycles": candidate.cycles,
        "samples_per_second": candidate.rates.per_second,
        "computed_per_second": candidate.computed_per_second,
        **judged,
        "within": candidate.within,
    }


def race_facts(race: Race, judge: Judge | None, board: str, output: Path | None) -> dict[str, Any]:
    """Candidates of a search for a configuration, the best one first."""
    budget = None if judge is None else {"measure": judge.budget.measure, "points": judge.budget.points}
    return {
        "board": board,
        "output": output if race.kept else None,
        "link": race.candidates[0].rates.link.name,
        "samples": None if judge is None else judge.count,
        "budget": budget,
        "best": race.candidates.index(race.kept[0]) if race.kept else None,
        "candidates": [candidate_facts(candidate, board) for candidate in race.candidates],
        "refused": len(race.refusals),
    }


def program_facts(image: Image, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Instructions as texts by address, with the layer that they belong to."""
    begins, index = dict(image.metadata.get("program", ())), None
    facts = []
    for pc, text in enumerate(texts):
        index = begins.get(pc, index)
        facts.append({"address": pc, "text": text, "layer": index})
    return facts
