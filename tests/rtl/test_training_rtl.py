"""Training on the compiled RTL: after every step what the host and the emulator have, in the cycles of the model."""

from fractions import Fraction

import numpy as np
import pytest

from concord.host import connect
from concord.host.emulated import EmulatedDevice
from concord.host.rtl import find_library
from concord.train import Samples, Settings, Trainer, described
from concord.train.npu import NpuTrainer
from concord.train.npu.plan import has_samples_as_lanes
from support.integer_contents import TRAIN_SMALL
from support.npu_training import numbers, pointed

pytestmark = pytest.mark.slow

LAYERS = [{"op": "dense", "outputs": 12}, {"op": "relu"}, {"op": "dense", "outputs": 5}]
DEPTHWISE = [
    {"op": "depthwise", "kernel": 2, "stride": 2, "pad": 1}, {"op": "relu"}, {"op": "depthwise", "kernel": 2},
    {"op": "global_average"}, {"op": "dense", "outputs": 5},
]  # fmt: skip
CONVOLUTION = [
    {"op": "conv", "channels": 3, "kernel": 2, "stride": 2}, {"op": "relu"}, {"op": "conv", "channels": 7, "pad": 1},
    {"op": "global_average"}, {"op": "dense", "outputs": 5},
]  # fmt: skip


@pytest.fixture(scope="module")
def device():
    with connect("rtl", TRAIN_SMALL, library=find_library(TRAIN_SMALL)) as device:
        yield device


def trainers(device, settings, layers=LAYERS, shape=(19,), count=25, classes=5):
    """The same training on the host, on the RTL and on the emulator."""
    draw = np.random.default_rng(settings.seed)
    x = draw.normal(size=(count, *shape)).astype(np.float32)
    samples = Samples(
        x, draw.normal(size=(count, classes)) if settings.loss == "mse" else draw.integers(0, classes, count)
    )
    graph = described(layers, shape)
    both = device, EmulatedDevice(device.config)
    npus = [NpuTrainer(each, graph, samples, settings, random=True) for each in both]
    return Trainer(graph, samples, settings, random=True), *npus


def assert_same_on_all(host, rtl, emulator):
    """Train, and compare cycles and parameters after every step."""
    while not host.finished:
        for trainer in (host, rtl, emulator):
            trainer.step()
        assert rtl.device.counters() == emulator.device.counters()
        rtl.synchronise()
        assert numbers(rtl) == numbers(host), f"epoch {host.epoch}, step {host.done}"
    assert rtl.history == host.history


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
@pytest.mark.parametrize("momentum", [0, Fraction(9, 10)], ids=["plain", "momentum"])
def test_every_step(device, momentum, loss):
    """Two epochs of a batch of 16 and one of 9 samples each, whose program is another one."""
    settings = Settings(
        batch=16, epochs=2, rate=Fraction(3, 17), momentum=Fraction(momentum), loss=loss, seed=4,
        formats=pointed(15 if loss == "mse" else 11 if momentum else 13),
    )  # fmt: skip
    assert_same_on_all(*trainers(device, settings))


def test_every_step_of_depthwise_convolutions(device):
    """Sums of the gradient of one are taken as a whole, those of the other, which no Relu follows, in two parts."""
    settings = Settings(batch=12, epochs=2, rate=Fraction(1, 16), seed=6)
    assert_same_on_all(*trainers(device, settings, DEPTHWISE, (10, 3, 3), 24))


def test_every_step_of_convolutions(device):
    """The host gathers windows of the first one; gradients of the weights of the other one have samples as lanes."""
    settings = Settings(batch=8, epochs=2, rate=Fraction(1, 16), seed=7)
    host, rtl, emulator = trainers(device, settings, CONVOLUTION, (2, 6, 4), 16)
    first, second, _ = rtl.memory.products.values()
    assert rtl.memory.operations.packed_samples is first.step
    assert has_samples_as_lanes(second.step, 8, TRAIN_SMALL)
    assert_same_on_all(host, rtl, emulator)


def test_a_run_goes_on_elsewhere(device, tmp_path):
    """Host, RTL and emulator take an epoch each, by way of checkpoints: the last one is that of the host alone."""
    settings = Settings(batch=16, epochs=3, rate=Fraction(1, 8), seed=5)
    host, rtl, emulator = trainers(device, settings)
    moved, *_ = trainers(device, settings)
    for epoch, trainer in enumerate((moved, rtl, emulator)):
        if epoch:
            trainer.restore(tmp_path / f"{epoch}.npz")
        while trainer.epoch == epoch:
            trainer.step()
        trainer.save(tmp_path / f"{epoch + 1}.npz")
    host.fit()
    host.save(tmp_path / "host.npz")
    assert (tmp_path / "3.npz").read_bytes() == (tmp_path / "host.npz").read_bytes()
