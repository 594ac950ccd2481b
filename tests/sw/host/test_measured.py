"""What a batch took beside what is estimated: on lines that take as long as they should, and on others."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.model import compile_graph, expecting
from concord.host.measured import compared_run, stream_runs
from concord.host.rates import rates
from concord.host.timed_line import TimedLine
from concord.image.feeder_layout import Feeding
from concord.networks.folder import load
from concord.spec.boards import BOARD_SPECS, link_of
from concord.spec.builds import in_brackets
from concord.spec.presets import ECP5_85F_256, note_of
from support.commands import run, two_products
from support.compiled_nets import perceptron
from support.timed_devices import TimedDevice

LINKS = ("uart", "usb", "spi")


@pytest.fixture(scope="module")
def network():
    return compile_graph(perceptron(300, 8, 16), ECP5_85F_256)


def batch_of(compiled, count, kind="few"):
    rng = np.random.default_rng(1)
    (name,) = compiled.graph.inputs
    shape = count, *compiled.graph.sample_shape(name)
    values = rng.integers(-20, 20, shape) / 8 if kind == "few" else rng.normal(0, 1, shape)
    return compiled.package.arrangement.pack({name: values})


def compared(image, batch, name, **options):
    outputs, comparison = compared_run(TimedDevice(image, link_of("ulx3s-85f", name), **options), batch)
    (values,) = outputs.values()
    assert len(values) == len(next(iter(batch.values())))
    return comparison


def shown(comparison):
    """Cells of the table by the first one of a row."""
    first, *columns = comparison.table().columns
    return dict(zip(first.cells, zip(*(column.cells for column in columns), strict=True), strict=True))


@pytest.mark.parametrize("kind", ["few", "many"])
@pytest.mark.parametrize("name", LINKS)
def test_a_line_as_it_should_be(network, name, kind):
    batch = batch_of(network, 400, kind)
    found = compared(network.image, batch, name)
    assert found.is_stream and not found.remark and found.simulated
    assert found.differences == pytest.approx(dict.fromkeys(found.figures, 0.0), abs=0.05)
    assert found.differences["alone"] == pytest.approx(0, abs=0.02)
    assert found.measured.bottleneck == found.estimate.bottleneck
    rows = shown(found)
    assert rows["limited by"] == (found.estimate.bottleneck, found.estimate.bottleneck, "")
    assert all(difference.endswith(" %") for name, (*_, difference) in rows.items() if name != "limited by")
    assert found.title.endswith("in simulated time") and f"over {name} at" in found.title


@pytest.mark.parametrize("name", LINKS)
def test_the_host_lays_out(network, name):
    image = replace(network.image, feeding=Feeding())
    found = compared(image, batch_of(network, 5), name)
    assert found.is_stream and not found.estimate.raw
    assert found.differences == pytest.approx(dict.fromkeys(found.figures, 0.0), abs=0.02)


@pytest.mark.parametrize("name", LINKS)
def test_a_line_with_more_latency(network, name):
    """It shows where replies are waited for, and is what limits."""
    image = replace(network.image, feeding=Feeding())
    found = compared(image, batch_of(network, 5), name, later=5e-3)
    assert found.differences["stream"] < -0.3 and found.differences["alone"] > 0.5
    assert found.differences["sent"] == pytest.approx(0, abs=0.02)
    assert found.measured.bottleneck == "latency"
    rows = shown(found)
    assert float(rows["ms for a run alone"][2].removesuffix(" %")) == pytest.approx(
        100 * found.differences["alone"], abs=0.06
    )
    assert rows["samples/s in a stream"][2].startswith("-")


def test_more_cycles_than_expected(network):
    batch = batch_of(network, 5)
    device = TimedDevice(network.image, link_of("ulx3s-85f", "spi"))
    device.computed *= 2
    _, found = compared_run(device, batch)
    assert found.differences["cycles"] == pytest.approx(1)


@pytest.mark.slow
def test_too_few_samples_for_a_stream(network):
    found = compared(network.image, batch_of(network, 8), "uart")
    assert not found.is_stream and "stream" not in found.figures
    assert found.differences["batch"] == pytest.approx(0, abs=0.02)  # with begin and end on both sides
    enough = stream_runs(found.estimate)
    assert found.remark == f"Too few samples for a stream, as begin and end count: about {enough:,} would do."
    assert found.table().caption == found.remark and "samples/s in a stream" not in shown(found)
    assert compared(network.image, batch_of(network, round(1.3 * enough)), "uart").is_stream


def test_a_single_sample(network):
    found = compared(network.image, batch_of(network, 1), "usb")
    assert not found.is_stream and found.differences["alone"] == pytest.approx(0, abs=1e-3)


@pytest.mark.slow
def test_samples_of_a_run(network):
    """Four samples a run are four times as many a second, and a quarter of the bytes each."""
    batch = batch_of(network, 700)
    device = TimedDevice(network.image, link_of("ulx3s-85f", "spi"))
    _, found = compared_run(device, batch, 4)
    alone = compared(network.image, batch, "spi")
    assert np.divide(found.figures["stream"], alone.figures["stream"]) == pytest.approx([4, 4], rel=0.01)
    assert np.divide(found.figures["sent"], alone.figures["sent"]) == pytest.approx([0.25, 0.25], rel=0.01)
    assert "samples/s, this batch of 2,800" in shown(found)


def test_bytes_that_take_no_time(network):
    batch = batch_of(network, 3)
    device = TimedDevice(network.image, None)
    outputs, found = compared_run(device, batch)
    assert found is None and len(outputs) == 1


def test_values_that_other_samples_have_do_not_count(network):
    """A batch of few values of which the first sample has fewer: alone, these travel."""
    batch = batch_of(network, 40)
    (name,) = batch
    batch[name][0] = 0.5
    found = compared(network.image, batch, "uart")
    assert found.differences["alone"] == pytest.approx(0, abs=1e-3)
    assert found.estimate.latency < rates(found_image(network), link="uart").latency


def found_image(network):
    """The image as it is expected to travel if inputs have few values."""
    (name,) = network.graph.inputs
    values = np.random.default_rng(1).integers(-20, 20, (40, *network.graph.sample_shape(name))) / 8
    return expecting(network, {name: values}).image


class Wall(TimedLine):
    """A line of no simulation."""

    cycles = None


def test_wall_time(network):
    found = compared(network.image, batch_of(network, 4), "usb", line=Wall)
    assert not found.simulated and found.title.endswith("in wall time")
    seconds = found.run.line.cycles / found.estimate.clock_hz
    assert 0 < seconds <= found.run.whole < 60
    assert found.figures["batch"][0] == pytest.approx(4 / seconds)


@pytest.fixture
def folder(tmp_path):
    two_products(tmp_path)
    code, output = run("compile", tmp_path / "net.onnx", "--preset", "ecp5-85f-256", "-o", tmp_path / "net")
    assert code == 0, output
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LINKS, None])
def test_the_command_shows_it(folder, monkeypatch, name):
    """With the link that is named; without one, how to get it."""

    def connected(on, config, link=None):
        assert on == "rtl" and link == name
        loaded, _ = load(folder / "net")
        return TimedDevice(loaded, None if link is None else link_of(config.board, link))

    monkeypatch.setattr("concord.host.connect", connected)
    options = [] if name is None else ["--link", name]
    code, output = run("run", folder / "net", "-i", folder / "x.npz", "-o", folder / "y.npz", "--on", "rtl", *options)
    assert code == 0, output
    if name is None:
        assert "bytes took no time: --link simulates a line and measures it (uart, usb, spi)\n" in output
        assert "Measured" not in output
        return
    clock = f"{BOARD_SPECS['ulx3s-85f'].clock_hz / 1e6:g} MHz{in_brackets(note_of(ECP5_85F_256))}"
    words = output.split()
    title = f"Measured over {name} at {clock} and {link_of('ulx3s-85f', name).text}, in simulated time"
    assert title in " ".join(words)
    for text in ("samples/s, this batch of", "ms for a run alone", "bytes in", "bytes out", "requests", "limited by"):
        assert text in output
    assert words.count("%") >= 6
