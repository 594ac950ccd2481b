"""``python -m concord_bench.transformers``: train small transformers, and measure them on an NPU."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import onnx
from numpy.typing import NDArray

import concord
from concord.api import Network
from concord.cli.common import EXISTING, FILE, readable, wide_console
from concord.derive.backends.onnx_file import write_onnx
from concord.derive.model import derive_package
from concord.display.tables import text_table
from concord.frontend import import_model
from concord.graph import execute
from concord.host.rates import rates_by_link
from concord.utils.files import write_text
from concord_bench.tasks import folder
from concord_bench.transformers.encoder import encoder_model
from concord_bench.transformers.samples import RECOGNITIONS, Samples
from concord_bench.transformers.training import train as trained

#: Folder of the models.
MODELS = Path("build/transformers")
#: The NPU that they are measured on if nothing else is said.
CONFIG = Path(str(files("concord_bench") / "attention.toml"))
#: Ways to choose formats, and what they are for :func:`concord.compile`.
FORMATS = ("none", "quick", "search")
#: Samples that formats are chosen with.
CALIBRATION = 100
_NAME = click.argument("name", type=click.Choice(list(RECOGNITIONS)))


@click.group()
def main() -> None:
    """Train small transformers, and measure them on an NPU whose matrix memory programs write."""


def samples_of(name: str) -> Samples:
    """Samples that a transformer learns from and is measured with."""
    if (data := folder()) is None:
        raise ValueError("CONCORD_DATA must name the folder with the data")
    return RECOGNITIONS[name].samples(data)


@main.command()
@_NAME
@click.option("--steps", type=click.IntRange(min=1), help="In the place of those of the task.")
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", type=FILE, help=f"ONNX file, {MODELS}/NAME.onnx if left out.")
@readable
def train(name: str, steps: int | None, seed: int, output: Path | None) -> None:
    """Train an encoder with PyTorch on recorded words (keywords) or pictures of clothes."""
    recognition, console, begin = RECOGNITIONS[name], wide_console(), time.monotonic()
    if steps is not None:
        recognition = replace(recognition, steps=steps)
    samples = samples_of(name)
    with console.status("training") as status:
        weights = trained(
            recognition, samples, seed,
            lambda step, loss: status.update(f"step {step + 1} of {recognition.steps}, loss {loss:.3f}"),
        )  # fmt: skip
    model = encoder_model(recognition.sizes, weights)
    path = output or MODELS / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    right = share_right(in_floats(model, samples.held), samples.classes)
    console.print(
        f"{path}: {recognition.sizes.weights:,} weights, {right:.2%} right of {len(samples.held):,} samples that were "
        f"held back, {time.monotonic() - begin:.0f} s"
    )


def in_floats(model: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Logits in double precision."""
    graph = import_model(model)
    parts = [execute.run(graph, {"x": x[k : k + 500].astype(np.float64)})["logits"] for k in range(0, len(x), 500)]
    return np.concatenate(parts).reshape(len(x), -1)


def share_right(logits: NDArray[np.floating[Any]], y: NDArray[np.int64]) -> float:
    """Share of samples whose greatest logit is that of their class."""
    return float(np.mean(logits.reshape(len(y), -1).argmax(axis=1) == y))


@main.command()
@_NAME
@click.argument("model", required=False, type=EXISTING)
@click.option(
    "--formats", multiple=True, type=click.Choice(FORMATS), help="How formats are chosen; all ways if left out."
)
@click.option("--samples", type=click.IntRange(min=1), help="Of those held back, all if left out.")
@click.option("--derived-samples", default=300, show_default=True, type=click.IntRange(min=0))
@click.option("--rtl-samples", default=3, show_default=True, type=click.IntRange(min=0))
@click.option("--config", default=CONFIG, type=EXISTING, help="The NPU; one with 256 multipliers if left out.")
@click.option("--json", "json_file", type=FILE, help="JSON file for the figures.")
@readable
def measure(
    name: str, model: Path | None, formats: tuple[str, ...], samples: int | None, derived_samples: int,
    rtl_samples: int, config: Path, json_file: Path | None,
) -> None:  # fmt: skip
    """Compile a trained encoder, and show how often it is right on the NPU and in floats."""
    console, proto = wide_console(), onnx.load(model or MODELS / f"{name}.onnx")
    known = samples_of(name)
    x, y = known.held[:samples], known.classes[:samples]
    few = known.learned[:: max(1, len(known.learned) // CALIBRATION)][:CALIBRATION]
    floats = in_floats(proto, x)
    facts: dict[str, Any] = {"samples": len(x), "float": share_right(floats, y), "formats": {}}
    with TemporaryDirectory() as place:
        for way in formats or FORMATS:
            with console.status(f"formats: {way}"):
                choice: dict[str, Any] = {} if way == "none" else {"calibrate": {"x": few}, "quick": way == "quick"}
                network = concord.compile(proto, config=config, **choice)
                got = np.asarray(network.run({"x": x}, on="emulator")["logits"]).reshape(len(x), -1)
            with console.status(f"formats: {way}, derived and RTL"):
                others = {"derived": (_derived, derived_samples), "rtl": (_on_rtl, rtl_samples)}
                different = {
                    other: int((run(network, x[:count], Path(place)) != got[:count]).sum())
                    for other, (run, count) in others.items()
                    if count
                }
            facts["formats"][way] = {
                "right": share_right(got, y), "cycles": rates_by_link(network.image)[0].cycles, "different": different,
                "same class": float(np.mean(got.argmax(axis=1) == floats.argmax(axis=1))),
            }  # fmt: skip
    rows: list[tuple[str, ...]] = [("floats", f"{facts['float']:.2%}", "", "", "", "")]
    for way, each in facts["formats"].items():
        counts = (str(each["different"].get(other, "not run")) for other in ("derived", "rtl"))
        rows.append(
            (
                f"NPU, formats: {way}",
                f"{each['right']:.2%}",
                f"{each['same class']:.2%}",
                f"{each['cycles']:,}",
                *counts,
            )
        )
    titles = ("computed", "right", "as in floats", "cycles", "derived differs", "RTL differs")
    console.print(text_table(f"{name}, {len(x):,} samples", titles, right=titles[1:], rows=rows))
    if json_file is not None:
        write_text(json_file, json.dumps(facts, indent=1))
    if any(count for each in facts["formats"].values() for count in each["different"].values()):
        raise ValueError("emulator, derived software and RTL must compute the same logits")


def _derived(network: Network, x: NDArray[np.float32], place: Path) -> NDArray[Any]:
    """Logits of the derived model in ONNX Runtime."""
    import onnxruntime

    path = place / "derived.onnx"
    write_onnx(derive_package(network.package), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["logits"], {"x": x.astype(np.float64)})[0]).reshape(len(x), -1)


def _on_rtl(network: Network, x: NDArray[np.float32], _: Path) -> NDArray[Any]:
    """Logits of the compiled RTL."""
    with concord.connect("rtl", network) as device:
        return np.asarray(network.run({"x": x}, on=device)["logits"]).reshape(len(x), -1)


if __name__ == "__main__":
    main()
