"""The search for the fastest configuration, and its command."""

import re
from dataclasses import replace

import numpy as np
import pytest

import concord
from concord.compiler.calibration.mantissas import Budget
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.cycles import count
from concord.fit import Judge, candidates, search
from concord.fit.shapes import Shape
from concord.graph.execute import run as exact
from concord.graph.ir import Node
from concord.networks.boards import by_rates
from concord.program.allocator import CapacityError
from concord.spec.boards import BOARD_SPECS
from concord.spec.config_file import read_config
from concord.spec.devices import DEVICES
from concord.spec.memmap import RegionId
from concord.spec.presets import UP5K, preset
from support.commands import run, two_products
from support.compiled_nets import perceptron
from support.expressions import graph_of

#: Candidates of the presets of a board.
OF_PRESETS = candidates._Search._of_presets


@pytest.fixture(autouse=True)
def unplaced(monkeypatch):
    """Shapes alone are tried, and no presets beside them."""
    monkeypatch.setattr("concord.fit.candidates._Search._of_presets", lambda search: iter(()))


@pytest.fixture
def shapes(monkeypatch):
    """Few shapes, so that searches are short."""
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 2, 2), Shape(8, 2, 4), Shape(16, 16, 4)))


@pytest.fixture
def net(tmp_path, shapes):
    return two_products(tmp_path)


def depthwise(rng, channels=8, size=12):
    weight, attrs = rng.normal(0, 0.3, (channels, 1, 3, 3)), {"strides": (1, 1), "pads": (1, 1, 1, 1)}
    return graph_of(
        [Node("Conv", "dw", ("x",), ("y",), {"weight": weight, "bias": np.zeros(channels), "dilations": (1, 1),
                                             "group": channels, **attrs})],
        x=(1, channels, size, size),
    )  # fmt: skip


@pytest.mark.slow
def test_search(shapes):
    graph = perceptron(40, 16, 8)
    (small,), found = (search(graph, board).candidates for board in ("ulx3s-25f", "ulx3s-85f"))
    assert (small.config.native, small.config.lanes) == (8, 2) and small.use.fits(DEVICES["ulx3s-25f"])
    assert len(found) == 3 and found == by_rates(found)
    assert {one.rates.link.baud for one in found} == {3_000_000}
    for one in (small, *found):
        assert one.use.fits(DEVICES["ulx3s-85f"]) and one.config.act_mant == 8 and one.within
        assert one.cycles == count(compile_graph(graph, one.config).image.program, one.config).cycles
    with pytest.raises(ValueError, match="board must be one of"):
        search(graph, "arduino")


def test_ice40():
    """The preset itself, whose weights are narrower than its activations; and wider weights where lanes are fewer."""
    found = search(perceptron(40, 16, 8), "icebreaker").candidates
    best = found[0]
    assert best.config.fingerprint == UP5K.fingerprint and best.text("icebreaker") == "preset up5k"
    shown = [(one.config.lanes, one.config.act_mant, one.config.wgt_mant) for one in found]
    assert shown == [(4, 8, 7), (2, 8, 8), (1, 8, 8)]
    text = found[1].text("icebreaker")
    assert text.startswith("n4-l2-p1-m8: up5k with lanes=2, wgt_mant=8, ") and "clock_hz" not in text
    assert preset("up5k").replace(lanes=2, wgt_mant=8) != found[1].config  # exponents and accumulator differ, too


@pytest.mark.slow
def test_larger_vector_memories(monkeypatch):
    """Where the preset's are too small, there are larger ones and less matrix memory."""
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 2, 2),))
    graph = perceptron(8, 8)
    real = compile_graph

    def refusing(graph, config):
        if config.narrow_depth < 1024:
            raise CapacityError("too small")
        return real(graph, config)

    monkeypatch.setattr("concord.fit.candidates.compile_graph", refusing)
    race = search(graph, "ulx3s-25f", (8,))
    (found,) = race.candidates
    assert found.config.narrow_depth >= 1024 and found.use.fits(DEVICES["ulx3s-25f"])
    assert found.config.matrix_depth < preset("ecp5-25f").matrix_depth and len(race.refusals) == 1


@pytest.mark.slow
def test_a_few_words_more(monkeypatch):
    """Where sixteen words are missing in the matrix memory, they are logic."""
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 2, 2),))
    graph, real = perceptron(8, 8), compile_graph
    deepest = search(graph, "ulx3s-25f", (8,)).candidates[0].config.matrix_depth

    def refusing(graph, config):
        if config.matrix_depth < deepest + 16:
            raise CapacityError("too small", {RegionId.MATRIX: (config.matrix_depth, deepest + 16)})
        return real(graph, config)

    monkeypatch.setattr("concord.fit.candidates.compile_graph", refusing)
    assert [one.config.matrix_depth for one in search(graph, "ulx3s-25f", (8,)).candidates] == [deepest + 16]


@pytest.mark.slow
def test_windows_slide_only_where_there_are_some(monkeypatch):
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(16, 16, 4), Shape(16, 16, 4, 9)))
    found = search(depthwise(np.random.default_rng(0)), "ulx3s-85f").candidates
    assert [one.config.window_taps for one in found] == [9, 0] and found[0].cycles < found[1].cycles
    rng = np.random.default_rng(0)  # exponents of positions differ: more steps for a window than are assumed
    samples = {"x": rng.normal(size=(4, 8, 12, 12)) * np.exp2(rng.integers(-8, 1, (4, 1, 12, 12)))}
    judge = Judge(depthwise(np.random.default_rng(0)), samples, Budget("error", 1000))
    measured = search(judge.graph, "ulx3s-85f", judge=judge).candidates
    assert measured[0].cycles > found[0].cycles and measured[1].cycles == found[1].cycles
    assert [one.config.window_taps for one in search(perceptron(40, 16, 8), "ulx3s-85f").candidates] == [0]


@pytest.mark.slow
def test_nothing_is_measured_that_is_too_slow(monkeypatch):
    """Only numbers of configurations that can be among the fastest, and each of them once."""
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 2, 2), Shape(16, 8, 2), Shape(16, 8, 4)))
    graph, rng, measured = perceptron(40, 16, 8), np.random.default_rng(1), []
    judge = Judge(graph, {"x": rng.normal(0, 1, (20, 40))}, Budget("agreement", 100))
    race = search(graph, "ulx3s-85f", judge=judge, most=2, say=measured.append)
    assert [one.config.native for one in race.candidates] == [16, 16]
    assert "trying n8-l2-p2: N 8 with mantissas of 8 bits" in measured  # which the bound had allowed
    assert [text for text in measured if text.startswith("measuring")] == [
        "measuring N 16 with mantissas of 8 bits on 20 samples"
    ]


@pytest.mark.slow
def test_the_budget_decides(monkeypatch):
    """A faster configuration that loses too much is shown, and is not the fastest one kept."""
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 4, 2), Shape(16, 8, 4)))
    graph, rng = perceptron(100, 40, 8), np.random.default_rng(1)
    inputs = {"x": rng.normal(0, 1, (40, 100))}
    errors = {n: Judge(graph, inputs, Budget("error", 100)).verdict(preset("ecp5-85f").replace(
        native=n, lanes=4, mfu_lanes=2)).error for n in (8, 16)}  # fmt: skip
    assert errors[8] < errors[16]
    between = 100 * (errors[8] + errors[16]) / 2
    race = search(graph, "ulx3s-85f", judge=Judge(graph, inputs, Budget("error", between)), most=1)
    assert [(one.config.native, one.within) for one in race.candidates] == [(16, False), (8, True)]
    assert [one.config.native for one in race.kept] == [8]


def test_verdicts():
    graph, rng = perceptron(40, 16, 8), np.random.default_rng(2)
    inputs = {"x": rng.normal(0, 1, (151, 40))}
    labels = exact(graph, inputs)[graph.outputs[0]].argmax(axis=1)
    judge = Judge(graph, inputs, Budget("accuracy", 0.5), labels)
    wide, narrow = (judge.verdict(UP5K.replace(act_mant=bits, acc_width=48)) for bits in (8, 3))
    assert judge.accuracy == 1 and judge.count == 151 and judge.classes
    assert wide.accuracy == wide.agreement > narrow.accuracy == narrow.agreement
    assert narrow.loss == pytest.approx(100 * (1 - narrow.accuracy)) and not narrow.within
    assert wide.signal_to_noise > narrow.signal_to_noise + 10
    assert wide.signal_to_noise == pytest.approx(-20 * np.log10(wide.error))
    plain = Judge(graph, {"x": inputs["x"][:50]}, Budget("agreement", 100))
    assert plain.accuracy is None and plain.verdict(UP5K).accuracy is None
    with pytest.raises(ValueError, match="at least 2 samples, not 1"):
        Judge(graph, {"x": inputs["x"][:1]}, Budget("error", 5))


def test_what_cannot_be_computed(shapes, monkeypatch):
    graph = perceptron(40, 16, 8)
    with pytest.raises(ValueError, match=r"clock must be at most \d+ MHz, the most that is expected on ulx3s-85f, not"):
        search(graph, "ulx3s-85f", least_mhz=500)
    with pytest.raises(ValueError, match="mantissa must be narrower for ulx3s-25f, not 12: no configuration fits"):
        monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(16, 16, 4),))
        search(graph, "ulx3s-25f", (12,))

    def refused(graph, config):
        raise Unsupported("test", ["Loop"])

    monkeypatch.setattr("concord.fit.candidates.compile_graph", refused)
    with pytest.raises(Unsupported, match="Loop"):
        search(graph, "ulx3s-85f")


@pytest.mark.slow
def test_the_command_without_samples(net):
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-25f", "--mantissa", "6")
    text = " ".join(output.split())
    assert code == 0 and "Best configurations for net.onnx on ulx3s-25f" in text
    assert " 6 " in output and re.search(r"estimates, within \d+% and \d+% of the \d presets that", text)
    assert "accuracy was not judged: --input SAMPLES measures what is lost" in text and "accuracy " not in output[:200]
    assert re.search(r"^best: n8-l2-p2-m6: ecp5-25f with .*act_mant=6", output, re.M)
    assert "no ready bitstream fits it; -o FILE writes it for concord compile --config FILE" in output


@pytest.mark.slow
def test_the_command_with_labels(net):
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-25f", "-i", net / "xy.npz", "--samples", "150")
    text = " ".join(output.split())
    limit = "at most 0.5 points of accuracy lost on 150 samples; accuracy in double precision: 100.00 %"
    assert code == 0 and limit in text
    assert "One sample is 0.67 points" in text and "not judged" not in text
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-25f", "-i", net / "xy.npz", "--mantissa", "3")
    assert code == 0 and " no " in output and "nothing keeps the budget" in output and "best:" not in output


def test_the_command_without_labels(net):
    code, output = run("fit", net / "net.onnx", "--board", "icebreaker", "-i", net / "x.npz", "--budget", "5%")
    text = " ".join(output.split())
    assert code == 0 and "agrees" in text and "at most 5 % of error lost on 300 samples" in text
    assert "SPRAM" in text and "8/7" in text and "best: preset up5k" in text


@pytest.mark.slow
def test_the_table_fits_into_a_terminal(net, monkeypatch):
    monkeypatch.setattr("concord.cli.common._WIDTH", 80)
    for board in ("ulx3s-25f", "icebreaker"):
        code, output = run("fit", net / "net.onnx", "--board", board, "-i", net / "xy.npz")
        rows = [line for line in output.splitlines() if line.endswith(" yes  ") or " within" in line]
        assert code == 0 and len(rows) > 1 and "…" not in output and "matrix" not in rows[0]


def test_a_network_that_fits_nowhere(net, monkeypatch):
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 2, 2),))

    def refused(graph, config):
        raise CapacityError(
            "does not fit: matrix memory has 512 words, but 9000 are needed", {RegionId.MATRIX: (512, 9000)}
        )

    monkeypatch.setattr("concord.fit.candidates.compile_graph", refused)
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-25f")
    assert code == 1 and "net.onnx fits into no configuration for ulx3s-25f" in output
    assert "nearest: it does not fit: matrix memory has 512 words, but 9000 are needed" in output
    assert "the preset of no larger board holds it" in output and "more words: --mantissa 4" in output
    code, output = run("fit", net / "net.onnx", "--board", "icebreaker")
    assert code == 1 and "fits into no configuration for icebreaker" in output and "more words" not in output
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-25f", "--budget", "1")
    assert code == 1 and "--budget must be given with --input" in output


@pytest.mark.slow
def test_the_link_decides_before_the_core(shapes, monkeypatch):
    """The slower core of which the link lets more through; of equal rates, the faster core."""
    graph = perceptron(40, 16, 8)
    fastest, *_ = sorted(search(graph, "ulx3s-85f").candidates, key=lambda one: -one.computed_per_second)
    real = candidates.rates

    def slower(image, batch, steps, link, **more):
        found = real(image, batch, steps, link, **more)
        slow = image.config.native == fastest.config.native
        return replace(found, period=2 * found.period) if slow else found

    monkeypatch.setattr(candidates, "rates", slower)
    best, *_ = search(graph, "ulx3s-85f").candidates
    assert best.config.native != fastest.config.native and best.computed_per_second < fastest.computed_per_second


@pytest.mark.slow
def test_a_slower_core_is_tried_where_inputs_do_not_travel_raw(monkeypatch):
    """Its link may let more through: the bound by the core holds only where no fewer bytes can travel."""
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(16, 16, 4), Shape(8, 2, 2)))
    graph, real, tried = perceptron(400, 160, 80), candidates.rates, []

    def rates(image, batch, steps, link, **more):
        tried.append(image.config.native)
        laid_out = image.config.native == 16 and not raw
        found = real(image, batch, steps, link, **more)
        return replace(found, layout=None if laid_out else 0.0, period=200_000.0 if laid_out else 20_000.0)

    monkeypatch.setattr(candidates, "rates", rates)
    for raw in (True, False):
        tried.clear()
        race = search(graph, "ulx3s-85f", (8,), most=1)
        assert (8 in tried) != raw
        assert race.candidates[0].config.native == (16 if raw else 8)


@pytest.mark.slow
def test_presets_of_the_board_take_part(monkeypatch):
    """With the clock of their bitstreams, and under their names."""
    monkeypatch.setattr("concord.fit.candidates._Search._of_presets", OF_PRESETS)
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(16, 16, 4),))
    found = search(perceptron(40, 16, 8), "ulx3s-85f").candidates
    presets = {one.config.name: one for one in found if one.is_preset}
    assert set(presets) == {"ecp5-85f-256", "ecp5-85f"} and len(found) == 3
    for name, one in presets.items():
        assert one.config == preset(name) and one.rates.clock_hz == preset(name).clock_hz
        assert one.text("ulx3s-85f") == f"preset {name}"
    fast = search(perceptron(40, 16, 8), "ulx3s-85f", least_mhz=74).candidates
    assert {one.config.name for one in fast if one.is_preset} == {"ecp5-85f-256"}


@pytest.mark.slow
def test_from_fit_to_a_compiled_network(net):
    """The file that the command writes is the configuration that it shows, for compile and for Python."""
    path = net / "best.toml"
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-85f", "-i", net / "x.npz", "-o", path)
    assert code == 0 and f"{path}: concord compile {net / 'net.onnx'} --config {path}" in output
    assert f'make bitstream BOARD=ulx3s-85f ARGS="--config {path}"' in output
    best = read_config(path)
    assert re.search(rf"^best: {best.name}: ecp5-85f-256 with ", output, re.M) and best.board == "ulx3s-85f"
    row = next(line.split() for line in output.splitlines() if line.split()[:2] == [str(best.native), str(best.lanes)])
    code, output = run("compile", net / "net.onnx", "--config", path, "--calibrate", net / "x.npz", "-o", net / "net")
    assert code == 0 and "does not fit" not in output
    network = concord.load(net / "net")
    assert network.config == best == concord.compile(net / "net.onnx", config=path).config
    assert f"{network.rates.cycles:,}" in row and f"{best.clock_hz / 1e6:.0f}" in row
    assert f"at {best.clock_hz / 1e6:g} MHz and 3 Mbit/s" in output
    x = dict(np.load(net / "x.npz"))
    assert np.array_equal(network.run(x)["y"], concord.compile(net / "net.onnx", config=best, calibrate=x).run(x)["y"])


@pytest.mark.slow
def test_a_file_for_nothing_is_not_written(net):
    path = net / "best.toml"
    arguments = ("--board", "ulx3s-25f", "-i", net / "xy.npz", "--mantissa", "3", "-o", path)
    code, output = run("fit", net / "net.onnx", *arguments)
    assert code == 1 and f"{path}: not written" in output and not path.exists()
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-25f", "-o", net / "net.onnx" / "best.toml")
    assert code == 1 and "net.onnx must be a folder" in output and "Best configurations" not in output


@pytest.mark.slow
def test_the_link_that_is_named(net):
    """Rates are those over it, and so is the order; the commands that follow have it, too."""
    code, output = run("fit", net / "net.onnx", "--board", "ulx3s-85f", "--link", "spi", "-o", net / "best.toml")
    assert code == 0, output
    used = BOARD_SPECS["ulx3s-85f"].link("spi")
    assert f"link/s: samples per second over spi, {used.text}, in a batch" in " ".join(output.split())
    assert f"--config {net / 'best.toml'} --link spi" in output
    assert f'ARGS="--config {net / "best.toml"} --link spi"' in output
    graph = perceptron(40, 16, 8)
    slow, fast = (search(graph, "ulx3s-85f", link=name).candidates for name in (None, "spi"))
    assert {one.rates.link for one in slow} == {BOARD_SPECS["ulx3s-85f"].link()}
    assert {one.rates.link for one in fast} == {used} and fast == by_rates(fast)
    assert min(one.rates.per_second for one in fast) > max(one.rates.per_second for one in slow)


def test_a_link_that_the_board_has_not(net):
    code, output = run("fit", net / "net.onnx", "--board", "icebreaker", "--link", "usb")
    assert code == 1 and "link must be one of uart, spi, not 'usb'" in output
    with pytest.raises(ValueError, match="link must be one of uart, spi, not 'usb'"):
        search(perceptron(40, 16, 8), "icebreaker", link="usb")
