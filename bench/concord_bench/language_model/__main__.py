"""``python -m concord_bench.language_model``: train a language model of characters, and let the NPU write with it."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import onnx
from numpy.typing import NDArray

import concord
from concord.api import Network
from concord.cli.common import EXISTING, FILE, readable, wide_console
from concord.display.tables import text_table
from concord.host.rates import rates_by_link
from concord.utils.files import write_text
from concord_bench.language_model.decoder import Sizes, states_of_step, step_model
from concord_bench.language_model.text import decode, encode, text
from concord_bench.language_model.writing import Step, on_derived, on_device, write

#: Place of the model if nothing else is said.
MODEL = Path("build/language_model/step.onnx")
#: Characters of the text that formats are chosen with.
SAMPLES = 256
#: Machines that write, in this order; ``derived`` is ONNX Runtime.
WRITERS = ("emulator", "derived", "rtl")
_SIZES = Sizes()


@click.group()
def main() -> None:
    """Train a language model of characters, and let the NPU write with it."""


@main.command()
@click.option("--layers", default=_SIZES.layers, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--width", default=_SIZES.width, show_default=True, type=click.IntRange(min=1), help="Features of a character."
)
@click.option("--heads", default=_SIZES.heads, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--window", default=_SIZES.window, show_default=True, type=click.IntRange(min=2), help="Characters attended to."
)
@click.option("--steps", default=2200, show_default=True, type=click.IntRange(min=1), help="Steps of 24 sequences.")
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", default=MODEL, show_default=True, type=FILE, help="ONNX file of a step.")
@readable
def train(layers: int, width: int, heads: int, window: int, steps: int, seed: int, output: Path) -> None:
    """Train a decoder with PyTorch on the reference of the Python language that comes with Python."""
    from concord_bench.language_model import training

    if width % heads:
        raise ValueError(f"width must be a multiple of {heads} heads, not {width}")
    sizes, console, begin = Sizes(layers, width, heads, window, 4 * width), wide_console(), time.monotonic()
    with console.status("training") as status:
        weights, loss = training.train(
            sizes, steps, seed,
            lambda step, loss: status.update(f"step {step + 1} of {steps}, {loss:.2f} bits per character"),
        )  # fmt: skip
    output.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(step_model(sizes, weights), output)
    console.print(
        f"{output}: {sizes.weights:,} weights, {loss:.3f} bits per character on text that was held back, "
        f"{time.monotonic() - begin:.0f} s"
    )


@main.command(name="write")
@click.argument("model", default=MODEL, type=EXISTING)
@click.option(
    "--on", "writers", multiple=True, type=click.Choice(WRITERS), help="What writes; all of them if left out."
)
@click.option("--characters", default=10_000, show_default=True, type=click.IntRange(min=1), help="To write.")
@click.option(
    "--rtl-characters", default=200, show_default=True, type=click.IntRange(min=1), help="Of these, by the RTL."
)
@click.option("--start", default="The ", show_default=True, help="What is read first.")
@click.option("--temperature", default=0.6, show_default=True, type=click.FloatRange(min=0, min_open=True))
@click.option("--seed", default=0, show_default=True, help="Of what is drawn.")
@click.option("--preset", default="ecp5-85f", show_default=True, help="The NPU.")
@click.option("--config", "config_file", type=EXISTING, help="Another NPU instead.")
@click.option("--json", "json_file", type=FILE, help="JSON file for the figures and the text.")
@readable
def write_text_with(
    model: Path, writers: tuple[str, ...], characters: int, rtl_characters: int, start: str, temperature: float,
    seed: int, preset: str, config_file: Path | None, json_file: Path | None,
) -> None:  # fmt: skip
    """Compile a step for an NPU that keeps keys and values, and compare what the emulator and others write."""
    console, proto = wide_console(), onnx.load(model)
    states, first = states_of_step(proto), encode(start)
    if not len(first):
        raise ValueError("start must have at least one character, not none")
    with console.status("compiling"):
        network = concord.compile(
            proto, states=states, calibrate={"token": encode(text()[:SAMPLES]).reshape(-1, 1)}, quick=True,
            **({"preset": preset} if config_file is None else {"config": config_file}),
        )  # fmt: skip
    written: dict[str, NDArray[np.int64]] = {}
    seconds: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for writer in writers or WRITERS:
            count = rtl_characters if writer == "rtl" else characters
            with ExitStack() as stack:
                stack.enter_context(console.status(f"{count} characters: {writer}"))
                step = _step(stack, network, writer, Path(folder))
                begin = time.monotonic()
                written[writer] = write(step, first, count, temperature, seed)
                seconds[writer] = time.monotonic() - begin
    longest = max(written.values(), key=len)
    console.print(start + decode(longest[:1000]), markup=False, highlight=False)
    different = {name: int((tokens != longest[: len(tokens)]).sum()) for name, tokens in written.items()}
    rows = [
        (
            name,
            f"{len(tokens):,}",
            f"{len(tokens) / seconds[name]:.1f}",
            str(different[name]),
        )
        for name, tokens in written.items()
    ]
    console.print(
        text_table(
            "Written",
            ("by", "characters", "a second", "different"),
            right=("characters", "a second", "different"),
            rows=rows,
        )
    )
    rate = rates_by_link(network.image)
    cycles = rate[0].cycles
    at_clock = network.config.clock_hz / cycles
    console.print(f"{cycles:,} cycles a character: {at_clock:,.0f} a second at {network.config.clock_hz / 1e6:g} MHz")
    if json_file is not None:
        facts = {
            "npu": network.config.name, "cycles": cycles, "a_second": at_clock,
            "links": {each.link.name: each.single_per_second for each in rate}, "seconds": seconds,
            "characters": {name: len(tokens) for name, tokens in written.items()}, "different": different,
            "text": start + decode(longest),
        }  # fmt: skip
        write_text(json_file, json.dumps(facts, indent=1))
    if any(different.values()):
        raise ValueError("all must write the same characters")


def _step(stack: ExitStack, network: Network, writer: str, folder: Path) -> Step:
    if writer == "derived":
        return on_derived(network, folder / "derived.onnx")
    return on_device(network, stack.enter_context(concord.connect(writer, network)))


if __name__ == "__main__":
    main()
