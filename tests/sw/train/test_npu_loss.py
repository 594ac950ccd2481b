"""Losses on the NPU: alone and in whole trainings they have the bits of the host, and little travels for them."""

from fractions import Fraction

import numpy as np
import pytest

from concord.host import TrapError
from concord.host.emulated import EmulatedDevice
from concord.image import Image
from concord.spec.integers import judged_per_word
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN, TrainingFormats
from concord.train import Samples, Settings
from concord.train.losses import IGNORED, LOSSES, judged_count, squared_error
from concord.train.npu import training_config
from concord.train.npu.batch import TrainingBatch
from concord.train.npu.chains import ChainWriter
from concord.train.npu.features import Features
from concord.train.npu.loss_steps import LOSS_STEPS
from concord.train.npu.operations import TrainingOperations
from concord.train.npu.plan import planned
from concord.train.npu.transfers import read_tensor, write_tensor
from concord.train.npu.words import factor_word
from concord.train.parameters import UpdateCounts
from concord.train.tensor import Tensor, saturations, top_of
from support.integer_contents import LOSS_LARGE, LOSS_SMALL, LOSS_WHOLE
from support.npu_training import (
    LARGE,
    LOSS_ON_HOST,
    LoggedDevice,
    assert_same_steps,
    numbers,
    pair,
    random_case,
    random_images,
    some_digits,
)

FORMATS = TrainingFormats()
#: Memories for networks that are drawn, and for images.
ROOMY, IMAGES = training_config().replace(narrow_depth=4096, wide_depth=4096, program_depth=2048), LARGE
SMALL = [{"op": "dense", "outputs": 5}, {"op": "relu"}, {"op": "dense", "outputs": 3}]
WIDE_TOP = (1 << 31) - 1


# A loss alone -------------------------------------------------------------------------------------


def computed(loss, features, output, labels, config):
    """Gradient and figures of an output ``[samples, elements]``, from a program of the loss alone."""
    operations = TrainingOperations((), "y", "y", {"y": features})
    memory, writer = planned(operations, [len(output.mant)], config, False, loss), ChainWriter()
    batch = TrainingBatch(writer, memory, config, len(output.mant))
    start = batch.begin()
    steps, held = LOSS_STEPS[loss](batch, features), batch.new(features, Mem.WIDE)
    gradient = steps.gradient(held).whole
    resident = steps.release()
    writer.end()
    device = EmulatedDevice(config)
    device.load(Image(config, writer.words(config, [start]), ()))
    for place, factor in memory.factors.items():
        device.write(RegionId.FACTORS, place, [factor_word(factor)])
    write_tensor(device, held, output)
    resident.write(device, labels, FORMATS)
    device.start(start)
    device.wait()
    return read_tensor(device, gradient, len(output.mant)), resident.read(device, labels)


def drawn(rng, shape):
    """Wide integers whose greatest magnitude has any number of bits."""
    return rng.integers(-WIDE_TOP, WIDE_TOP + 1, shape) >> int(rng.integers(0, 31))


def assert_computed(loss, features, output, labels, config):
    """The NPU computes what the host does; the greatest magnitude of the gradient is exact."""
    want = LOSSES[loss](output, labels, FORMATS)
    gradient, figures = computed(loss, features, output, labels, config)
    assert (gradient.mant == want.gradient.mant.reshape(gradient.mant.shape)).all()
    assert (gradient.exp, gradient.peak) == (want.gradient.exp, top_of(want.gradient.mant))
    assert (figures.value, figures.right) == (want.value, want.right)
    return want


@pytest.mark.parametrize("config", [LOSS_SMALL, LOSS_WHOLE, LOSS_LARGE], ids=lambda config: config.name)
@pytest.mark.parametrize("classes", [1, 2, 7, 8, 9, 33])
@pytest.mark.parametrize("size", [1, 7, 33])
def test_cross_entropies(size, classes, config):
    rng = np.random.default_rng([size, classes])
    for _ in range(4):
        output = Tensor(drawn(rng, (size, classes)), int(rng.integers(-36, 2)), WIDE_TOP)
        labels = rng.integers(0, classes, size)
        assert_computed("cross_entropy", Features(classes), output, labels, config)
        some = np.where(rng.random(size) < 0.5, IGNORED, labels)[:, None]
        assert_computed("cross_entropy", Features(classes), output, some, config)


@pytest.mark.parametrize("config", [LOSS_SMALL, LOSS_WHOLE, LOSS_LARGE], ids=lambda config: config.name)
@pytest.mark.parametrize("features", [Features(1), Features(3), Features(9), Features(33), Features(2, 3, 2)], ids=str)
@pytest.mark.parametrize("size", [1, 7, 16])
def test_squared_errors(size, features, config):
    rng = np.random.default_rng([size, features.elements, features.positions])
    for k in range(6):
        exp = int(rng.integers(-100, 60))
        mant = drawn(rng, (size, features.elements)) if k else np.zeros((size, features.elements), np.int64)
        targets = rng.normal(size=mant.shape) * 2.0 ** (exp + int(rng.integers(-40, 80))) * (k != 1)
        assert_computed("mse", features, Tensor(mant, exp, WIDE_TOP), targets, config.replace(wide_depth=1024))


def test_squared_errors_of_zeros_keep_the_exponent_of_the_output():
    for exp in (-7, 5):
        want = assert_computed("mse", Features(3), Tensor(np.zeros((2, 3)), exp, 0), np.zeros((2, 3)), LOSS_SMALL)
        assert not want.gradient.mant.any() and want.value == 0


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("beyond", "squares"), [(0, (2**31 - 1) ** 2 + 1 + 4), (1, (2**31 + 2) ** 2 + 4 + 4)])
def test_a_difference_of_a_power_of_two_saturates_as_on_the_host(beyond, squares, sign):
    """A magnitude of exactly 2**31 loses no bit, so it becomes one less; of 2**31 + 1 all elements lose one."""
    mant = sign * np.array([[(1 << 31) - 20000 + beyond, 1, 2]])
    targets = -sign * np.array([[20000, 0, 0]])
    assert assert_computed("mse", Features(3), Tensor(mant, 0, WIDE_TOP), targets, LOSS_SMALL).value == squares / 3


@pytest.mark.parametrize(("exp", "targets"), [(127, 2.0**127), (5, 2.0**-128)], ids=["greatest", "least"])
def test_a_squared_error_whose_exponents_are_beyond_those_of_the_npu_traps(exp, targets):
    """2 times the greatest exponent saturates on the host, and -128 is the least one there."""
    output = Tensor(np.array([[WIDE_TOP if exp > 5 else 0]]), exp, WIDE_TOP)
    want = squared_error(output, np.array([[targets]]), FORMATS)
    assert want.gradient.exp in (TRAIN_EXP_MAX, TRAIN_EXP_MIN + 1)
    with pytest.raises(TrapError, match="INTEGER_RANGE"):
        computed("mse", Features(1), output, np.array([[targets]]), LOSS_SMALL)


# Trainings ----------------------------------------------------------------------------------------


def assert_same_training(host, npu, folder):
    """All steps, and checkpoints of the same contents behind each."""
    assert npu.loss_on_host is None
    while not host.finished:
        assert_same_steps(host, npu, 1)
        host.save(folder / "host.npz")
        npu.save(folder / "npu.npz")
        first, second = (dict(np.load(folder / f"{name}.npz")) for name in ("host", "npu"))
        assert {key: a.tobytes() for key, a in first.items()} == {key: a.tobytes() for key, a in second.items()}


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
@pytest.mark.parametrize("config", [LOSS_SMALL, LOSS_WHOLE, LOSS_LARGE], ids=lambda config: config.name)
@pytest.mark.parametrize(("batch", "outputs"), [(1, 3), (7, 1), (7, 11), (33, 5)])
def test_a_training_is_that_of_the_host(batch, outputs, config, loss, tmp_path):
    """Three steps and a short one an epoch."""
    rng, count = np.random.default_rng(batch), 3 * batch + batch // 3
    y = rng.normal(size=(count, outputs)) if loss == "mse" else rng.integers(0, outputs, count)
    layers = [{"op": "dense", "outputs": 4}, {"op": "relu"}, {"op": "dense", "outputs": outputs}]
    samples = Samples(rng.normal(size=(count, 6)), y)
    settings = Settings(2, batch, rate=Fraction(1, 5), loss=loss, momentum=Fraction(9, 10))
    config = config.replace(narrow_depth=1024, program_depth=2048)
    host, npu = pair(settings, layers, (6,), samples, samples.part(slice(0, 5)), config=config)
    assert len(npu.memory.sizes) == 1 + (batch // 3 > 0)
    assert_same_training(host, npu, tmp_path)
    assert npu.finished


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 24))
def test_any_network_has_the_bits_of_the_host(seed):
    layers, shape, samples, settings = random_case(seed)
    host, npu = pair(settings, layers, shape, samples, config=ROOMY)
    assert npu.loss_on_host is None
    assert_same_steps(host, npu)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_any_network_of_images_has_the_bits_of_the_host(seed):
    layers, shape, samples, settings = random_images(seed)
    host, npu = pair(settings, layers, shape, samples, config=IMAGES)
    assert (npu.loss_on_host is None) == (npu.program.batches[npu.memory.sizes[0]].backward is None)
    assert_same_steps(host, npu, 2)


@pytest.mark.slow
def test_labels_that_do_not_count(tmp_path):
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, (21, 1))
    y[rng.random(21) < 0.4] = IGNORED
    y[8:16] = IGNORED  # a batch without one that counts
    host, npu = pair(Settings(2, 8), SMALL, (12,), Samples(rng.normal(size=(21, 12)), y), config=ROOMY)
    host._order = npu._order = np.arange(21)
    assert 0 < judged_count("cross_entropy", y) < 13
    assert_same_training(host, npu, tmp_path)


@pytest.mark.slow
def test_digits_have_the_bits_of_the_host(tmp_path):
    samples, test = some_digits(104)
    config = training_config()
    assert_same_training(*pair(Settings(1, 32), samples=samples, test=test, config=config), tmp_path)


def test_targets_beyond_the_greatest_exponent_are_counted():
    values = np.array([[2.0**145, 1, 0], [0, 0, 0]])
    samples, counts = Samples(np.zeros((2, 12)), np.zeros((2, 3))), UpdateCounts()
    npu = pair(Settings(1, 2, loss="mse"), SMALL, (12,), samples)[1]
    with saturations(counts):
        npu.program.batches[2].loss.write(npu.device, values, FORMATS)
    assert counts.saturated == 1


@pytest.mark.slow
def test_a_run_changes_between_all_three(tmp_path):
    """An epoch each: on the host, with the loss on the NPU, and with the loss on the host; then all once more."""
    settings = Settings(6, 32)
    (host, npu), (alone, other) = pair(settings), pair(settings, config=LOSS_ON_HOST)
    assert npu.loss_on_host is None and other.loss_on_host is not None
    alone.fit()
    for epoch in range(6):
        trainer = (host, npu, other)[epoch % 3]
        if epoch:
            trainer.restore(tmp_path / "run.npz")
        while trainer.epoch == epoch:
            trainer.step()
        trainer.save(tmp_path / "run.npz")
    assert numbers(trainer) == numbers(alone) and trainer.history == alone.history


# What travels -------------------------------------------------------------------------------------


def travelled(npu, steps):
    """The log of so many steps behind the first one."""
    npu.step()
    npu.device.log.clear()
    for _ in range(steps):
        npu.step()
    return npu.device.log


def test_between_steps_samples_and_labels_travel():
    device = LoggedDevice(training_config())
    npu = pair(Settings(2, 32), device=device)[1]
    batch = npu.program.batches[32]
    step = [
        ("write", "NARROW", batch.source.first, 32 * 4), ("write", "TENSORS", batch.source.register, 1),
        ("write", "NARROW", batch.loss.labels, 32),
        ("start", batch.forward),
        ("read", "WIDE", batch.loss.judged, -(-32 // judged_per_word(device.config.native))),
    ]  # fmt: skip
    assert travelled(npu, 2) == 2 * step


def test_between_steps_samples_and_targets_travel():
    rng, device = np.random.default_rng(0), LoggedDevice(training_config())
    samples = Samples(rng.normal(size=(32, 12)), rng.normal(size=(32, 3)))
    npu = pair(Settings(2, 8, loss="mse"), SMALL, (12,), samples, device=device)[1]
    batch = npu.program.batches[8]
    target, difference = batch.loss.target, batch.loss.difference
    step = [
        ("write", "NARROW", batch.source.first, 8), ("write", "TENSORS", batch.source.register, 1),
        ("write", "WIDE", target.first, 2 * 8), ("write", "TENSORS", target.register, 1),
        ("start", batch.forward),
        ("read", "WIDE", difference.first, 2 * 8), ("read", "TENSORS", difference.register, 1),
    ]  # fmt: skip
    assert travelled(npu, 2) == 2 * step


# Where it is computed, and what goes wrong ---------------------------------------------------------


@pytest.mark.slow
def test_the_host_computes_what_the_npu_cannot():
    rng = np.random.default_rng(0)
    image = [{"op": "conv", "channels": 4, "kernel": 1}]
    samples = Samples(rng.normal(size=(6, 2, 3, 3)), rng.integers(0, 3, (6, 4, 3)))
    host, npu = pair(Settings(1, 4), image, (2, 3, 3), samples, config=IMAGES)
    assert npu.loss_on_host == "the output has several positions"
    assert npu.notes == ["the host computes the loss, as the output has several positions: a step is two starts"]
    assert host.notes == []
    assert_same_steps(host, npu)
    pixels = Samples(rng.normal(size=(6, 2, 1, 1)), np.zeros((6, 4), np.int64))
    host, npu = pair(Settings(1, 4), image, (2, 1, 1), pixels, config=IMAGES)
    assert npu.loss_on_host == "the output has several positions", "a label for each channel, of one class"
    assert_same_steps(host, npu)
    npu = pair(Settings(1, 32), config=LOSS_ON_HOST)[1]
    assert npu.loss_on_host == "loss-on-host has no integer_loss"
    assert pair(Settings(1, 32), config=ROOMY)[1].notes == ["the NPU computes the loss: a step is one start"]


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_a_trap_leaves_the_training_half_done(loss, tmp_path):
    draw = np.random.default_rng(0)
    y = draw.normal(size=(40, 3)) if loss == "mse" else np.arange(40) % 3
    samples = Samples(draw.normal(size=(40, 12)) * 2.0**-110, y)
    npu = pair(Settings(1, 8, loss=loss), SMALL, (12,), samples, config=ROOMY)[1]
    with pytest.raises(OverflowError, match=r"keep integers and exponents within its range.*on the host.*without --on"):
        npu.step()
    for call in (npu.step, lambda: npu.save(tmp_path / "x.npz"), npu.trained):
        with pytest.raises(ValueError, match="left half done"):
            call()


@pytest.mark.slow
def test_a_step_whose_figures_do_not_come_back_is_half_done(tmp_path, monkeypatch):
    device = LoggedDevice(ROOMY)
    host, npu = pair(Settings(1, 32), device=device)
    npu.save(tmp_path / "start.npz")
    read = device.read

    def dead(region, addr, count=1):
        if region is RegionId.WIDE:
            raise OSError("the line is dead")
        return read(region, addr, count)

    monkeypatch.setattr(device, "read", dead)
    with pytest.raises(OSError, match="dead"):
        npu.step()
    monkeypatch.setattr(device, "read", read)
    with pytest.raises(ValueError, match="left half done"):
        npu.step()
    npu.restore(tmp_path / "start.npz")
    assert_same_steps(host, npu)
