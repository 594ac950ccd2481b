"""Which preset of a board a network gets."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import concord
from concord.api import compiling, targets
from concord.compiler.ir.tensor_formats import DEFAULT
from concord.networks import boards
from concord.networks.boards import rank
from concord.program.allocator import CapacityError
from concord.spec.boards import BOARD_SPECS
from concord.spec.compile_options import CompileOptions
from concord.spec.presets import ECP5_85F, ECP5_85F_256, TINY, presets_of
from support.commands import run, two_products
from support.compiled_nets import perceptron
from support.onnx_models import floats, model, node
from support.trained import DATA, needs_data

MODELS = sorted((DATA / "models").glob("*.onnx"))
#: Networks that are compiled for all presets in every run of the tests: of rates that are equal, of rates that are not,
#: and one that a single preset takes.
WHOLE = ("digits_mlp", "digits_cnn", "kws_gru154")


def dense(folder, *widths):
    """``net.onnx`` of products from each width to the next one, without functions."""
    nodes, constants, value = [], {}, "x"
    for k, (inputs, outputs) in enumerate(pairwise(widths)):
        constants[f"w{k}"] = floats(inputs, outputs) / np.float32(np.sqrt(inputs))
        nodes.append(node("Gemm", [value, f"w{k}"], [value := f"h{k}"], name=f"fc{k}"))
    path = folder / "net.onnx"
    path.write_bytes(model(nodes, {"x": (1, widths[0])}, [value], constants).SerializeToString())
    return path


def ranked(monkeypatch, **per_second):
    """Ranking of the presets of ulx3s-85f with these rates, samples per second by link and by core."""
    known = {name.replace("_", "-"): values for name, values in per_second.items()}
    real = boards.rates

    def rates(image, batch, **options):
        link, core = known[image.config.name]
        clock = image.config.clock_hz
        return replace(real(image, batch, **options), period=clock / link, cycles=round(clock / core))

    monkeypatch.setattr(boards, "rates", rates)
    return rank(perceptron(8, 8), presets_of("ulx3s-85f"), DEFAULT)


@pytest.mark.slow
def test_the_link_decides_before_the_core(monkeypatch):
    found = ranked(monkeypatch, ecp5_85f_256=(80, 9000), ecp5_85f=(100, 500))
    assert [one.config.name for one in found.candidates] == ["ecp5-85f", "ecp5-85f-256"]
    assert found.text("ulx3s-85f", ECP5_85F, ()) == (
        "preset ecp5-85f of ulx3s-85f: 100 samples/s over its link (ecp5-85f-256 80.0)"
    )


@pytest.mark.slow
def test_of_equal_rates_the_faster_core(monkeypatch):
    found = ranked(monkeypatch, ecp5_85f_256=(99.5, 900), ecp5_85f=(100, 500))
    assert [one.config.name for one in found.candidates] == ["ecp5-85f-256", "ecp5-85f"]
    assert found.text("ulx3s-85f", ECP5_85F_256, ()) == (
        "preset ecp5-85f-256 of ulx3s-85f: 99.5 samples/s over its link (ecp5-85f 100), "
        "and of equal rates the fastest core (900/s)"
    )


@pytest.mark.slow
def test_a_network_that_one_preset_takes(tmp_path):
    """266,240 weights, as many as ``ecp5-85f-256`` has room for."""
    path = dense(tmp_path, 1024, 256, 16)
    whole = run("compile", path, "--board", "orangecrab-85f", "-o", tmp_path / "net")
    assert whole[0] == 0 and concord.load(tmp_path / "net").config.name == "ecp5-85f-256"
    assert re.search(
        r"^preset ecp5-85f-256 of orangecrab-85f, the only one that takes the network; "
        r"ecp5-85f refused: matrix memory has 2048 words of 2080$", whole[1], re.M,
    )  # fmt: skip
    network = concord.compile(path, board="orangecrab-85f")
    assert network.config.name == "ecp5-85f-256" and network.preset_text in whole[1]
    assert "ecp5-85f " in concord.compile(path).preset_text, "on the default board copies of weights make it fit"
    assert concord.compile(path, preset="ecp5-85f-256").preset_text == ""


@pytest.mark.slow
def test_every_preset_says_why_it_refuses(tmp_path):
    path = dense(tmp_path, 1024, 1024, 8)
    board = "orangecrab-85f"
    code, output = run("compile", path, "--board", board, "-o", tmp_path / "net")
    first, *lines = output.splitlines()
    assert code == 1 and first == f"Error: net fits into no preset of {board}:" and not (tmp_path / "net").exists()
    for line, name in zip(lines, ("ecp5-85f-256", "ecp5-85f"), strict=False):
        assert re.match(rf"  {name}: matrix memory has \d+ words, but \d+ are needed \(weight.fc0 ", line)
    assert "it fits into ecp5-85f (--board ulx3s-85f)" in output
    code, output = run("compile", path, "--board", board, "--preset", "ecp5-85f", "-o", tmp_path / "net")
    assert code == 1 and output.startswith("Error: does not fit into ecp5-85f: matrix memory has ")


@pytest.mark.slow
def test_reasons_that_presets_share_are_told_once(tmp_path):
    """Elements of a window are too far apart; those of an input the host would bring together."""
    nodes = [node("Relu", ["x"], ["a"]), node("Conv", ["a", "w"], ["y"], name="n", dilations=[1, 40])]
    proto = model(nodes, {"x": (1, 8, 100, 100)}, constants={"w": floats(4, 8, 1, 3)})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    helps = "  --partition any lets the host compute what the NPU does not take\n"  # it computes the Relu
    for board, presets, advice in (
        ("ulx3s-85f", "ecp5-85f-256, ecp5-85f: ", helps), ("icebreaker", "", ""),
    ):  # fmt: skip
        code, output = run("compile", tmp_path / "net.onnx", "--board", board, "-o", tmp_path / "net")
        place = board if presets else "up5k"
        assert code == 1
        assert output == (
            f"Error: net cannot be compiled for {place}:\n"
            f"  {presets}Conv 'n': dilation must be at most 31, not 40\n{advice}"
        )


@pytest.mark.slow
def test_a_preset_that_samples_refuse_is_passed_over(tmp_path, monkeypatch):
    """The first of the ranking takes the plain formats alone; the next one is taken, and the line says so."""
    two_products(tmp_path)
    real, tried = compiling.choose_formats, []

    def choose(graph, config, *arguments, **options):
        tried.append(config.name)
        if len(tried) == 1:
            raise CapacityError("does not fit with these formats")
        return real(graph, config, *arguments, **options)

    monkeypatch.setattr(compiling, "choose_formats", choose)
    samples = dict(np.load(tmp_path / "x.npz"))
    network = concord.compile(tmp_path / "net.onnx", board="ulx3s-85f", calibrate=samples)
    assert network.config.name == tried[1] != tried[0] and len(tried) == 2
    assert f"preset {tried[1]} of ulx3s-85f" in network.preset_text
    assert f"{tried[0]} refused: does not fit with these formats" in network.preset_text


@pytest.mark.slow
def test_formats_are_searched_for_one_preset_only(tmp_path, monkeypatch):
    two_products(tmp_path)
    real, tried = compiling.choose_formats, []
    monkeypatch.setattr(compiling, "choose_formats", lambda *a, **k: tried.append(a[1].name) or real(*a, **k))
    network = concord.compile(tmp_path / "net.onnx", calibrate=dict(np.load(tmp_path / "x.npz")))
    assert tried == [network.config.name]


def test_board_and_preset_together(tmp_path):
    for board, spec in BOARD_SPECS.items():
        for name in spec.presets:
            (config,) = targets.Target.of(CompileOptions(board=board, preset=name)).configs
            assert (config.name, config.board) == (name, board)
    two_products(tmp_path)
    board, spec = next(iter(BOARD_SPECS.items()))
    name = spec.presets[-1]
    code, output = run("compile", tmp_path / "net.onnx", "--board", board, "--preset", name, "-o", tmp_path / "n")
    assert code == 0 and "preset " not in output
    config = concord.load(tmp_path / "n").config
    assert (config.name, config.board) == (name, board)
    code, output = run("compile", tmp_path / "net.onnx", "--board", "icebreaker", "--preset", "ecp5-85f")
    assert code == 1 and "preset must be one of those of icebreaker (up5k), not 'ecp5-85f'" in output


@pytest.mark.slow
def test_the_rate_is_that_of_the_board(tmp_path):
    """The preset of two boards, at the clock of each."""
    two_products(tmp_path)
    for board in ("ulx3s-25f", "ulx3s-45f"):
        output = run("compile", tmp_path / "net.onnx", "--board", board, "-o", tmp_path / "net")[1]
        assert f"at {BOARD_SPECS[board].clock_hz / 1e6:g} MHz" in output


@pytest.mark.slow
def test_without_options_it_is_the_usual_board(tmp_path):
    two_products(tmp_path)
    outputs = []
    for options in ((), ("--board", "ulx3s-85f")):
        code, output = run("compile", tmp_path / "net.onnx", *options, "-o", tmp_path / "net")
        outputs.append((code, output, (tmp_path / "net" / "npu.image").read_bytes()))
    assert outputs[0] == outputs[1] and outputs[0][0] == 0


@pytest.mark.slow
def test_mantissas_of_every_preset(tmp_path):
    two_products(tmp_path)
    code, output = run("compile", tmp_path / "net.onnx", "--mantissa", "5", "-o", tmp_path / "net")
    assert code == 0 and re.search(r"^preset ecp5-85f\S*-m5 of ulx3s-85f: ", output, re.M)
    assert concord.compile(tmp_path / "net.onnx", config=TINY, board="icebreaker", input_range=(-1, 1)).warnings == []


@pytest.mark.parametrize(
    ("command", "option", "meant"),
    [
        ("compile", "--board=ulx3s", "ulx3s-85f"),
        ("compile", "--preset=ecp5_85f", "ecp5-85f"),
        ("fit", "--board=icebraker", "icebreaker"),
        ("demo", "--preset=tinny", "tiny"),
    ],
)
def test_names_typed_wrongly(tmp_path, command, option, meant):
    two_products(tmp_path)
    arguments = [] if command == "demo" else [tmp_path / "net.onnx"]
    code, output = run(command, *arguments, option)
    assert code == 2 and f"did you mean {meant}?" in " ".join(output.split())


@needs_data
@pytest.mark.slow
def test_a_speech_network_needs_a_configuration_of_its_own(tmp_path):
    """294,912 weights, for which no preset of a board without external memory has room; mantissas of 7 bits have."""
    path = DATA / "models" / "silero_vad_16k.onnx"
    code, output = run("compile", path, "--board", "orangecrab-85f", "-o", tmp_path / "net")
    assert code == 1
    for name, words in (("ecp5-85f-256", 1040), ("ecp5-85f", 2048)):
        assert re.search(rf"{name}: matrix memory has {words} words, but [12]\d+ are needed", output)
    assert "it fits into ecp5-85f (--board ulx3s-85f)" in output
    own = tmp_path / "own.toml"
    lines = 'preset = "ecp5-85f"', "integer_chains = false", "act_mant = 7", "wgt_mant = 7", "matrix_depth = 2560"
    own.write_text("\n".join(lines), encoding="utf-8")
    code, output = run("compile", path, "--config", own, "-o", tmp_path / "net")
    assert code == 0, output


@needs_data
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=() if path.stem in WHOLE else pytest.mark.deep) for path in MODELS]
)
@pytest.mark.slow
def test_every_network_compiles_for_the_board(path, monkeypatch):
    """None of the presets that take it gives more samples per second, and each is compiled for once."""
    if path.stem == "silero_vad_16k":
        pytest.skip("294,912 weights: no preset of the board has room for them")
    rankings, real = [], targets.rank
    monkeypatch.setattr(targets, "rank", lambda *arguments: rankings.append(real(*arguments)) or rankings[-1])
    network = concord.compile(path, board="ulx3s-85f")
    (found,) = rankings
    assert network.config in presets_of("ulx3s-85f") and found.candidates[0].config == network.config
    for candidate in found.candidates:
        assert candidate.rates.per_second <= network.rates.per_second / (1 - boards.TIE)
    for refusal in found.refusals:
        assert refusal.config.name in network.preset_text


@pytest.mark.slow
def test_rates_are_asked_for_by_who_chooses(tmp_path, monkeypatch):
    """Once for every preset that takes the network, if there are several, and never to compile."""
    asked, real = [], boards.rates
    monkeypatch.setattr(boards, "rates", lambda image, *a, **k: asked.append(image.config.name) or real(image, *a, **k))
    two_products(tmp_path)
    concord.compile(tmp_path / "net.onnx", board="ulx3s-85f")
    assert sorted(asked) == ["ecp5-85f", "ecp5-85f-256"]
    asked.clear()
    concord.compile(tmp_path / "net.onnx", preset="tiny")
    assert concord.compile(dense(tmp_path, 1024, 256, 16), board="orangecrab-85f").config.name == "ecp5-85f-256"
    assert asked == []


@pytest.mark.slow
def test_a_network_is_compiled_once_for_every_preset(tmp_path, monkeypatch):
    compiled, real = [], boards.compile_graph
    for module in (boards, compiling):
        monkeypatch.setattr(module, "compile_graph", lambda *a, **k: compiled.append(a[1].name) or real(*a, **k))
    monkeypatch.setattr(compiling, "for_weights", lambda *arguments: {})
    two_products(tmp_path)
    network = concord.compile(tmp_path / "net.onnx", board="ulx3s-85f")
    assert sorted(compiled) == ["ecp5-85f", "ecp5-85f-256"] and network.config.name in compiled


@pytest.mark.slow
def test_a_configuration_in_a_file(tmp_path):
    two_products(tmp_path)
    (tmp_path / "mine.toml").write_text('preset = "ecp5-85f-256"\nnarrow_depth = 512\nclock_hz = 70000000\n')
    options = ("--config", tmp_path / "mine.toml", "-o", tmp_path / "net")
    code, output = run("compile", tmp_path / "net.onnx", *options)
    assert code == 0 and "at 70 MHz and 3 Mbit/s" in output, "the bit rate is that of the board"
    network = concord.load(tmp_path / "net")
    assert network.config == ECP5_85F_256.replace(name="mine", narrow_depth=512, clock_hz=70_000_000)
    assert concord.compile(tmp_path / "net.onnx", config=tmp_path / "mine.toml").config == network.config
    code, output = run("compile", tmp_path / "net.onnx", *options, "--preset", "tiny")
    assert code == 1 and "preset and config must not be given together" in output


@pytest.mark.slow
def test_a_configuration_that_is_too_large_for_its_board(tmp_path):
    two_products(tmp_path)
    (tmp_path / "mine.toml").write_text('preset = "ecp5-85f-256"\nnarrow_depth = 16384\n')
    code, output = run("compile", tmp_path / "net.onnx", "--config", tmp_path / "mine.toml", "-o", tmp_path / "net")
    assert code == 0 and "does not fit on ulx3s-85f: mine needs " in output
    code, output = run("compile", tmp_path / "net.onnx", *("--config", tmp_path / "mine.toml", "--board", "ulx3s-25f"))
    assert code == 0 and "does not fit on ulx3s-25f: mine needs " in output
