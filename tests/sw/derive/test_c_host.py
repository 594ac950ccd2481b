"""Hosts in C: compiled with every warning, they give what the driver gives, bit for bit."""

import subprocess
import zlib
from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.ir.arrangement import InputGrid
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.derive.c_host.plan import GroupFormat, HostError, plan
from concord.derive.c_host.spans import spans
from concord.graph.equalised import ChannelScale
from concord.graph.ir import Node
from concord.host import connect
from concord.host.rtl import RtlTransport, find_library
from concord.image.columns import columns_of
from concord.spec.link import CRC_ONES, CRC_POLYNOMIAL
from concord.spec.memmap import Reg, RegionId
from concord.spec.presets import ECP5_25F, ECP5_85F, TINY, with_mantissas
from support import c_hosts, compiled_nets, fed_nets
from support.c_hosts import compared, needs_compiler, of_driver, perceptron, same, samples_of
from support.commands import run as command
from support.derived_modules import random_inputs
from support.expressions import ROOMY, graph_of
from support.fed_model import FedModel
from support.link_model import ModelTransport
from support.rtl_configs import FED, FED_AHEAD
from support.small_examples import SMALL
from support.spi_bus import ModelBus
from support.stateful_nets import integrator

pytestmark = needs_compiler

#: A matrix memory of a few tiles, and an external memory.
COPYING = ECP5_85F.replace(
    name="copying", native=8, lanes=4, integer_chains=False, matrix_depth=32, table_depth=2048, inbox=0, outbox=0
)


def test_the_checksum_is_that_of_zlib():
    crc = CRC_ONES
    for byte in b"123456789":
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (CRC_POLYNOMIAL if crc & 1 else 0)
    assert crc ^ CRC_ONES == zlib.crc32(b"123456789")


@pytest.mark.parametrize("seed", range(20))
def test_spans_are_the_numbers(seed):
    rng = np.random.default_rng(seed)
    numbers = np.concatenate(
        [
            np.arange(24).reshape(3, 4, 2).transpose(rng.permutation(3)).reshape(-1),
            rng.integers(-2, 5, rng.integers(1, 9)),
            np.full(rng.integers(1, 4), -1),
        ]
    )
    made = spans(numbers)
    assert np.array_equal(np.concatenate([span.numbers() for span in made]), numbers)
    assert len(spans(np.arange(96).reshape(2, 3, 16).transpose(2, 0, 1))) == 1


@pytest.mark.slow
def test_a_perceptron(tmp_path):
    run = compared(perceptron(), tmp_path, ModelTransport(FedModel(TINY)))
    assert run.repeated == 0 and [flags for *_, flags in run.calls] == ["0"] * 6


@pytest.mark.slow
@pytest.mark.parametrize("config", [COPYING, COPYING.replace(inbox=1024)], ids=["laid out", "fed"])
def test_copied_weights_are_read_in_pieces(config, tmp_path):
    """They are in no constants; a device that holds them gets them no second time, and another network's it does."""
    package, other = (
        compile_graph(compiled_nets.perceptron(*sizes), config).package for sizes in ((40, 40, 24), (40, 41, 24))
    )
    model = FedModel(config)
    folders = [tmp_path / name for name in ("first", "again", "other")]
    for folder, each, written in zip(folders, (package, package, other), (True, False, True), strict=True):
        folder.mkdir()
        columns = sum(len(part.data) for part in columns_of(each.image))
        model.writes.clear()
        compared(each, folder, ModelTransport(model), 2)
        assert f"#define NET_COLUMNS {columns}U" in (folder / "net.h").read_text()
        assert any(region is RegionId.DRAM for region, *_ in model.writes) == written
        assert model.kept


@pytest.mark.slow
def test_a_changed_memory_is_loaded_again(tmp_path):
    """The digest is still there, and somebody has written to the weights since."""
    package = compile_graph(compiled_nets.perceptron(40, 40, 24), COPYING).package
    model = FedModel(COPYING)
    for folder in (tmp_path / "first", tmp_path / "again"):
        folder.mkdir()
        compared(package, folder, ModelTransport(model), 2)
        model.device.write(RegionId.DRAM, 0, [1] * 64)
        model.kept = False


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["source", "memory"])
def test_columns_that_cannot_be_loaded(fault, tmp_path):
    package = compile_graph(compiled_nets.perceptron(40, 40, 24), COPYING).package
    made = c_hosts.write_host(package.image, package, tmp_path)
    c_hosts.build(tmp_path)
    model = FedModel(COPYING)
    if fault == "source":
        (tmp_path / "samples.columns").write_bytes(bytes(10))
    else:
        model.word = lambda region, addr: (
            0 if (region, addr) == (RegionId.REGS, Reg.STATUS) else FedModel.word(model, region, addr)
        )
    run = c_hosts.run(made, tmp_path, samples_of(package, 1), ModelTransport(model))
    text = (
        "the columns of the network cannot be read"
        if fault == "source"
        else "the external memory of the device does not work"
    )
    assert run.code == 1 and text in run.text and not model.kept


@pytest.mark.slow
def test_several_samples_in_a_run(tmp_path):
    compared(perceptron(batch=2), tmp_path, ModelTransport(FedModel(TINY)))


@pytest.mark.slow
def test_states_stay_on_the_device(tmp_path):
    """The host writes their first values, and neither reads nor writes them then."""
    package = compile_graph(integrator(), TINY).package
    run = compared(package, tmp_path, ModelTransport(FedModel(TINY)))
    assert package.image.states and [flags for *_, flags in run.calls] == ["0"] * 6


@pytest.mark.slow
def test_a_perceptron_on_the_rtl(tmp_path):
    compared(perceptron(), tmp_path, RtlTransport(find_library(TINY)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_images_by_hand(name, tmp_path):
    image = SMALL[name]().image()
    made = c_hosts.write_host(image, None, tmp_path)
    c_hosts.build(tmp_path)
    inputs = {key: values.astype(np.float32) for key, values in random_inputs(image, 2, 1).items()}
    with connect("emulator", image.config) as device:
        device.load(image)
        want = device.run(inputs)
    same(c_hosts.run(made, tmp_path, inputs, ModelTransport(FedModel(image.config))), want)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["run", "stream"])
@pytest.mark.parametrize("name", ["residual", "gru", "row tiles"])
def test_through_the_feeder(name, mode, tmp_path):
    """Windows, a recurrence, and a sample in several phases, through a model of the device."""
    package = compile_graph(fed_nets.NETWORKS[name](), FED).package
    compared(package, tmp_path, ModelTransport(FedModel(FED)), mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [pytest.param(FED, marks=pytest.mark.deep), FED_AHEAD], ids=lambda config: config.name
)
@pytest.mark.parametrize("mode", ["run", "stream"])
@pytest.mark.parametrize("name", ["residual", "lstm", "row tiles"])
def test_through_the_feeder_of_the_rtl(name, mode, config, tmp_path):
    nets = {**fed_nets.NETWORKS, "lstm": lambda: compiled_nets.recurrent("LSTM", 5, 3, 6)}
    compared(compile_graph(nets[name](), config).package, tmp_path, RtlTransport(find_library(config)), 6, mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("mantissa", [3, 5, 8, 12])
@pytest.mark.parametrize("inbox", [0, 1024])
def test_outputs_of_blocks(mantissa, inbox, tmp_path):
    """Mantissas of every width with an exponent per vector, in words of the memory and as the feeder sends them."""
    config = with_mantissas(ROOMY.replace(inbox=inbox, request_buffer=512), mantissa)
    graph = compiled_nets.perceptron(22, 9, 7)
    package = compile_graph(graph, config, Formats(narrow=tuple(graph.outputs))).package
    assert package.image.outputs[0].region is RegionId.NARROW
    compared(package, tmp_path, ModelTransport(FedModel(config)))


@pytest.mark.slow
def test_samples_that_wait_for_room(tmp_path):
    """More samples than the outbox holds the results of, and blocks of mantissas with exponents."""
    config = ECP5_25F.replace(outbox=128)
    package = compile_graph(compiled_nets.perceptron(24, 16, 12), config).package
    made = plan(package.image, package)
    assert made.route is not None and made.route.depth == 5
    assert [part.format for part in made.route.inputs] == [GroupFormat.BLOCKS]
    run = compared(package, tmp_path, ModelTransport(FedModel(config)), 40, mode="stream")
    assert [call for call, *_ in run.calls[2:]] == ["put"] * 5 + ["get", "put"] * 35 + ["get"] * 5


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_inputs_of_bytes(channels, tmp_path):
    """Bytes go to the feeder as they are, with a page for all channels, or for each."""
    config = ECP5_25F.replace(code_pages=4)
    package = compile_graph(fed_nets.NETWORKS["residual"](), config).package
    pixels = np.random.default_rng(4).integers(0, 256, (5, 2, 4, 4))
    scale = ChannelScale((2, 1, 1), (1, -2), (0.25, 0.5)) if channels > 1 else ChannelScale((1, 1, 1), (2,))
    package = with_arrangement(package, channel_scales={"x": scale})
    made = c_hosts.write_host(package.image, package, tmp_path, bytes_of={"x": (-1.0, 2.0)})
    assert [part.format for part in made.route.inputs] == [GroupFormat.CODES]
    assert len(made.route.codes) == 256 * min(channels, 2) and "uint8_t x[2][4][4];" in (tmp_path / "net.h").read_text()
    c_hosts.build(tmp_path)
    want = of_driver(package, {"x": -1.0 + 3.0 * pixels / 255})
    same(c_hosts.run(made, tmp_path, {"x": pixels}, ModelTransport(FedModel(config)), mode="stream"), want)


@pytest.mark.slow
def test_pages_that_depend_on_the_position_are_none(tmp_path):
    """Rows of an image with scales of their own: the host looks bytes up."""
    config = ECP5_25F.replace(code_pages=4)
    package = compile_graph(fed_nets.NETWORKS["residual"](), config).package
    package = with_arrangement(package, channel_scales={"x": ChannelScale((1, 4, 1), (0, 1, 2, 3))})
    made = c_hosts.write_host(package.image, package, tmp_path, bytes_of={"x": (0, 255)})
    assert made.route is not None and GroupFormat.CODES not in [part.format for part in made.route.inputs]
    c_hosts.build(tmp_path)
    pixels = {"x": np.random.default_rng(4).integers(0, 256, (3, 2, 4, 4))}
    same(c_hosts.run(made, tmp_path, pixels, ModelTransport(FedModel(config))), of_driver(package, pixels))


@pytest.mark.slow
def test_the_zeros_of_codes_have_signs(tmp_path):
    """What is rounded to zero, or is zero, keeps its sign; what is limited to it has none."""
    graph = graph_of([Node("Mul", "twice", ("x",), ("y",), {"constant": np.full(8, 2.0)})], x=(1, 8))
    package = compile_graph(graph, TINY).package
    inputs = {"x": np.array([[-0.4, 0.4, -0.0, 0.0, 0.5, -0.5, 1.5, -9.0]] * 2, np.float32)}
    for least in (-4, 0):
        package = with_arrangement(package, grids={"x": InputGrid(0, least, 7)})
        want = of_driver(package, inputs)
        assert np.signbit(want["y"][0]).sum() == (4 if least else 3)
        made = c_hosts.write_host(package.image, package, tmp_path)
        c_hosts.build(tmp_path)
        same(c_hosts.run(made, tmp_path, inputs, ModelTransport(FedModel(TINY))), want)


def with_arrangement(package, **fields):
    return replace(package, arrangement=replace(package.arrangement, **fields))


@pytest.mark.slow
@pytest.mark.parametrize("laid", ["bytes", "floats"])
def test_numbers_are_prepared_as_by_the_driver(laid, tmp_path):
    """Codes of a quantised model, offsets and scales of channels, where the host lays them out."""
    config = TINY.replace(narrow_depth=256, wide_depth=256, matrix_depth=1024)
    package = compile_graph(compiled_nets.residual(), config).package
    package = with_arrangement(
        package,
        grids={"x": InputGrid(-3, -12, 20)},
        input_offsets={"x": 0.5},
        channel_scales={"x": ChannelScale((2, 1, 4), (0, 1, 2, -3, 1, 0, -2, 3), tuple(np.arange(8) / 7))},
    )
    bytes_of = {"x": (-4.0, 4.0)} if laid == "bytes" else {}
    made = c_hosts.write_host(package.image, package, tmp_path, bytes_of=bytes_of)
    assert made.route is None and made.laid_out == "tiny has no inbox"
    c_hosts.build(tmp_path)
    rng = np.random.default_rng(8)
    pixels, floats = rng.integers(0, 256, (6, 2, 4, 4)), (rng.integers(-80, 80, (6, 2, 4, 4)) / 32).astype(np.float32)
    floats[0, 0, 0] = -0.0, 0.0, -1e-30, 65504
    inputs, sent = (-4.0 + 8.0 * pixels / 255, pixels) if laid == "bytes" else (floats, floats)
    run = c_hosts.run(made, tmp_path, {"x": sent}, ModelTransport(FedModel(config)))
    same(run, of_driver(package, {"x": inputs}))


@pytest.mark.slow
def test_flags_are_told_by_layer(tmp_path):
    package = perceptron()
    made = c_hosts.write_host(package.image, package, tmp_path)
    c_hosts.build(tmp_path)
    inputs = samples_of(package, 3)
    inputs["x"][1] = np.sign(inputs["x"][1]) * 65000
    run = c_hosts.run(made, tmp_path, inputs, ModelTransport(FedModel(TINY)))
    with connect("emulator", TINY) as device:
        device.load(package.image)
        with np.errstate(all="ignore"):
            want = package.run(device, inputs)
        flags = {(record.layer, record.flag) for record in package.flags(device.flags())}
    same(run, want)
    assert flags and run.flags == flags
    assert [int(code) for _, code, *_ in run.calls] == [0, 0, 0, 1, 0]
    assert "run: 1 done, but a flag was raised: numbers were cut off; flags" in run.text


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, FED], ids=lambda config: config.name)
def test_traps_are_told(config, tmp_path):
    """A program without an end runs behind the end of the memory, laid out by the host and fed."""
    package = perceptron(config)
    image = package.image
    stopped = replace(image, program=(*image.program[:-1], 63))
    made = c_hosts.write_host(stopped, replace(package, image=stopped), tmp_path)
    assert (made.route is None) == (config is TINY)
    c_hosts.build(tmp_path)
    inputs = samples_of(package, 3)
    run = c_hosts.run(made, tmp_path, inputs, RtlTransport(find_library(config)))
    assert run.code == 1 and run.calls[-1][1:3] == ("3", "the program has trapped"), run.text
    assert f"trap BAD_OPCODE at {len(image.program) - 1}," in run.text


@pytest.mark.parametrize("config", [TINY, FED], ids=lambda config: config.name)
def test_headers_are_those_of_another_language_too(config, tmp_path):
    package = perceptron(config)
    c_hosts.write_host(package.image, package, tmp_path)
    (tmp_path / "main.cpp").write_text('#include "net.h"\nint main() { static net_npu npu; return net_load(&npu); }\n')
    for file, options in (("main.cpp", ["-x", "c++", "-std=c++11"]), ("net.c", c_hosts.STRICT)):
        command = [c_hosts.COMPILERS[0], *options, "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", file]
        assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert "concord_load" not in subprocess.run(["nm", "main.o"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert " net_load" in subprocess.run(["nm", "main.o"], cwd=tmp_path, capture_output=True, text=True).stdout


def test_arithmetic_that_is_none_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="-ffast-math changes results"):
        c_hosts.write_host((package := perceptron()).image, package, tmp_path)
        c_hosts.build(tmp_path, ["-ffast-math"])


@pytest.mark.slow
@pytest.mark.parametrize("line", ["uart", "spi"])
def test_the_example_for_the_pico(line, tmp_path):
    """Its program against a stand-in for the SDK: three runs of a sample of zeros."""
    package = perceptron()
    c_hosts.write_host(package.image, package, tmp_path)
    c_hosts.build_pico(tmp_path, [*c_hosts.CHECKED, *(["-DNPU_SPI"] if line == "spi" else [])])
    model = FedModel(TINY)
    device = ModelBus(model, 5) if line == "spi" else ModelTransport(model)
    code, text = c_hosts.connected(lambda line, clock: [tmp_path / "host"], device)
    want = of_driver(package, {"x": np.zeros((1, 22))})["fc1.out"][0]
    shown = "done: " + " ".join(f"{value:g}" for value in want)
    assert (code, text.splitlines()) == (0, [shown] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -65520.0])
def test_inputs_that_are_no_binary16_are_refused(value, tmp_path):
    package = perceptron()
    made = c_hosts.write_host(package.image, package, tmp_path)
    c_hosts.build(tmp_path)
    inputs = samples_of(package, 1)
    inputs["x"][0, 3] = value
    run = c_hosts.run(made, tmp_path, inputs, ModelTransport(FedModel(TINY)))
    assert run.code == 1 and run.calls[-1][2] == "an input is no finite number of binary16"


@pytest.mark.slow
def test_elements_that_are_not_sent_are_zero(tmp_path):
    """An image of a network by itself has outputs of whole vectors, of which some lanes are not sent."""
    image = perceptron(FED).image
    made = c_hosts.write_host(image, None, tmp_path)
    assert not made.outputs[0].complete
    assert made.laid_out == "an element of 'x' is in several windows, and may differ there", (
        "spare lanes are elements here"
    )
    c_hosts.build(tmp_path)
    inputs = {"x": np.random.default_rng(7).normal(size=(3, *made.inputs[0].shape)).astype(np.float32)}
    with connect("emulator", FED) as device:
        device.load(image)
        want = device.run(inputs)
    assert (want["fc1.out"][..., 3] == 0).all()
    same(c_hosts.run(made, tmp_path, inputs, ModelTransport(FedModel(FED))), want)


def with_softmax():
    nodes = [*compiled_nets.perceptron(22, 9, 3).nodes, Node("Softmax", "end", ("fc1.out",), ("y",), {"axis": 1})]
    return compile_graph(graph_of(nodes, x=(1, 22)), TINY).package


def test_what_the_host_computes_is_refused():
    package = with_softmax()
    with pytest.raises(HostError, match="the host computes Softmax behind the NPU, which a host in C does not"):
        plan(package.image, package)


@pytest.mark.slow
def test_what_the_host_computes_is_left_out_if_somebody_says_so(tmp_path):
    package = with_softmax()
    made = c_hosts.write_host(package.image, package, tmp_path, npu_part=True)
    assert "/* Left out: Softmax behind the NPU. */" in (tmp_path / "net.h").read_text()
    c_hosts.build(tmp_path)
    inputs = samples_of(package, 3)
    run = c_hosts.run(made, tmp_path, inputs, ModelTransport(FedModel(TINY)))
    same(run, of_driver(replace(package, host_graph=None), inputs))


@pytest.mark.slow
def test_the_command(tmp_path):
    perceptron().image.save(tmp_path / "x.image")
    code, text = command("derive", tmp_path / "x.image", "-o", tmp_path / "net.c")
    assert code == 0 and "net.c: 1 inputs, 1 outputs, " in text
    assert {path.name for path in tmp_path.glob("*.[ch]")} == {
        "net.c", "net.h", "concord_host.c", "concord_host.h", "concord_spec.h"
    }  # fmt: skip
    c_hosts.build(tmp_path, ["-Os"])
    for options, reason in (
        (["-o", tmp_path / "net.c", "--no-flags"], "a host reads the flags of the NPU in every run"),
        (["-o", tmp_path / "net.c", "--bytes", "x=1"], "--bytes must be NAME=LOW,HIGH, not 'x=1'"),
        (["-o", tmp_path / "net.c", "--bytes", "z=0,1"], "bytes must be of ['x'], not of ['z']"),
        (
            ["-o", tmp_path / "net.c", "--bytes", "x=0,70000"],
            "bytes of input 'x' must hold finite numbers within ±65504",
        ),
        (["-o", tmp_path / "net.py", "--npu-part"], "--npu-part is for files in C"),
        (["--to", "c-host", "-o", tmp_path / "2.c"], "output must be a file like net.c"),
        (["--to", "c-host", "-o", tmp_path / "concord_host.c"], "output must be a file like net.c"),
    ):
        code, text = command("derive", tmp_path / "x.image", *options)
        assert code == 1 and reason in text
