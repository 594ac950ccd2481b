"""Hosts in C: compiled with every warning, they give what the driver gives, bit for bit."""

import zlib

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive.c_host.plan import HostError, plan
from concord.derive.c_host.spans import spans
from concord.graph.ir import Node
from concord.host import connect
from concord.host.rtl import RtlTransport, find_library
from concord.spec.link import CRC_ONES, CRC_POLYNOMIAL
from concord.spec.presets import TINY
from support import c_hosts, compiled_nets
from support.c_hosts import needs_compiler
from support.commands import run as command
from support.compiled_nets import graph_of
from support.derived_modules import random_inputs
from support.fed_model import FedModel
from support.link_model import ModelTransport
from support.small_examples import SMALL

pytestmark = needs_compiler


def perceptron(config=TINY, **options):
    return compile_graph(compiled_nets.perceptron(22, 9, 3), config, **options).package


def samples_of(package, count, seed=1):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(count, *shape)).astype(np.float32) for name, shape in package.input_shapes.items()}


def of_driver(package, inputs):
    with connect("emulator", package.config) as device:
        device.load(package.image)
        return package.run(device, inputs)


def same(run, want):
    assert run.code == 0, run.text
    assert set(run.outputs) == set(want)
    for name, values in want.items():
        found = run.outputs[name].reshape(values.shape)
        assert np.array_equal(found.view(np.uint32), values.astype(np.float32).view(np.uint32)), name


def compared(package, folder, transport, count=4, **options):
    """Run a host on samples, and compare with the driver."""
    made = c_hosts.write_host(package.image, package, folder)
    c_hosts.build(folder)
    inputs = samples_of(package, count)
    run = c_hosts.run(made, folder, inputs, transport, **options)
    same(run, of_driver(package, inputs))
    return run


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


def test_a_perceptron(tmp_path):
    run = compared(perceptron(), tmp_path, ModelTransport(FedModel(TINY)))
    assert run.repeated == 0 and [flags for *_, flags in run.calls] == ["0"] * 6


def test_several_samples_in_a_run(tmp_path):
    compared(perceptron(batch=2), tmp_path, ModelTransport(FedModel(TINY)))


@pytest.mark.slow
def test_a_perceptron_on_the_rtl(tmp_path):
    compared(perceptron(), tmp_path, RtlTransport(find_library(TINY)))


#: Programs by hand that fast tests run: tables and a recurrence, windows, sums of two vectors.
FAST = ("lstm", "conv3x3", "residual")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SMALL]
)
def test_images_by_hand(name, tmp_path):
    image = SMALL[name]().image()
    made = c_hosts.write_host(image, None, tmp_path)
    c_hosts.build(tmp_path)
    inputs = {key: values.astype(np.float32) for key, values in random_inputs(image, 2, 1).items()}
    with connect("emulator", image.config) as device:
        device.load(image)
        want = device.run(inputs)
    same(c_hosts.run(made, tmp_path, inputs, ModelTransport(FedModel(image.config))), want)


def test_what_the_host_computes_is_refused():
    nodes = compiled_nets.perceptron(22, 9, 3).nodes
    package = compile_graph(
        graph_of([*nodes, Node("Softmax", "end", ("fc1.out",), ("y",), {"axis": 1})], x=(1, 22)), TINY
    ).package
    with pytest.raises(HostError, match="the host computes Softmax behind the NPU, which a host in C does not"):
        plan(package.image, package)


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
        (["--to", "c-host", "-o", tmp_path / "2.c"], "output must be a file like net.c"),
        (["--to", "c-host", "-o", tmp_path / "concord_host.c"], "output must be a file like net.c"),
    ):
        code, text = command("derive", tmp_path / "x.image", *options)
        assert code == 1 and reason in text
