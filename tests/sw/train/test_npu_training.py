"""Training on the NPU has the bits of training on the host, after every step."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from concord.spec.integers import TENSOR_WORD, TENSORS
from concord.spec.memmap import RegionId
from concord.train import Samples, Settings
from concord.train.losses import IGNORED, judged_count
from concord.train.npu import NpuTrainer, training_config
from support.npu_training import (
    LARGE,
    MLP,
    LoggedDevice,
    assert_same_steps,
    numbers,
    pair,
    random_case,
    some_digits,
)

ROOMY = training_config().replace(narrow_depth=4096, wide_depth=4096, program_depth=2048)
SMALL = [{"op": "dense", "outputs": 5}, {"op": "relu"}, {"op": "dense", "outputs": 3}]
OPTIMISERS = {
    "plain": {"momentum": Fraction(0)},
    "momentum": {},
    "decay": {"momentum": Fraction(0), "decay": Fraction(1, 100)},
    "both": {"decay": Fraction(1, 100), "schedule": ((1, Fraction(1, 2)),)},
}


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_digits_have_the_bits_of_the_host(optimiser):
    samples, test = some_digits(104)
    host, npu = pair(Settings(2, 32, **OPTIMISERS[optimiser]), samples=samples, test=test)
    assert npu.memory.sizes == (32, 8), "the last batch is a short one"
    assert_same_steps(host, npu)
    assert npu.history[-1].test_accuracy is not None and npu.finished


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_any_network_has_the_bits_of_the_host(seed):
    layers, shape, samples, settings = random_case(seed)
    assert_same_steps(*pair(settings, layers, shape, samples, config=ROOMY))


def test_random_networks_have_every_kind():
    seen = Counter()
    for seed in range(24):
        layers, _, samples, settings = random_case(seed)
        last = len(samples) % settings.batch
        kinds = ("relu",) if {"op": "relu"} in layers else ("linear",)
        seen.update([settings.loss, len([1 for layer in layers if layer["op"] == "dense"]), *kinds])
        seen.update(["short"] * bool(last) + ["momentum"] * bool(settings.momentum) + ["decay"] * bool(settings.decay))
    assert min(seen[key] for key in ("mse", "cross_entropy", 1, 2, 3, 4, "relu", "linear", "short", "momentum")) > 1
    assert min(seen["decay"], seen["short"], seen["mse"]) > 5


@pytest.mark.slow
@pytest.mark.parametrize(("native", "lanes"), [(8, 4), (8, 8), (16, 4), (32, 4)])
def test_any_shape_of_the_npu_has_the_same_bits(native, lanes):
    config = ROOMY.replace(native=native, lanes=lanes, mfu_lanes=4, wide_depth=8192)
    assert_same_steps(*pair(Settings(1, 40, decay=Fraction(1, 50)), config=config))


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_gradients_of_zero_leave_the_exponents_of_the_host(loss):
    y = np.zeros((20, 3)) if loss == "mse" else np.zeros(20, np.int64)
    settings = Settings(3, 8, loss=loss)
    assert_same_steps(*pair(settings, SMALL, (12,), Samples(np.zeros((20, 12)), y)))


@pytest.mark.slow
def test_exponents_grow_as_on_the_host():
    rng = np.random.default_rng(3)
    samples = Samples(rng.normal(size=(48, 12)), 200 + 50 * rng.normal(size=(48, 3)))
    host, npu = pair(Settings(24, 16, rate=Fraction(1, 4), loss="mse"), SMALL, (12,), samples)
    assert_same_steps(host, npu)
    assert sum(figures.counts.grown for figures in npu.history) > 0
    assert sum(figures.counts.refused for figures in npu.history) > 0


@pytest.mark.parametrize("optimiser", ["plain", "momentum"])
def test_checkpoints_are_those_of_the_host(optimiser, tmp_path):
    host, npu = pair(Settings(2, 32, **OPTIMISERS[optimiser]))
    paths = tmp_path / "host.npz", tmp_path / "npu.npz"
    for _ in range(3):
        host.step()
        npu.step()
    host.save(paths[0])
    npu.save(paths[1])
    first, second = (dict(np.load(path)) for path in paths)
    assert first.keys() == second.keys()
    assert all(first[key].tobytes() == second[key].tobytes() and first[key].dtype == second[key].dtype for key in first)


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["plain", "momentum"])
def test_a_training_goes_on_here_and_there(optimiser, tmp_path):
    settings, path = Settings(4, 32, **OPTIMISERS[optimiser]), tmp_path / "checkpoint.npz"
    alone, _ = pair(settings)
    alone.fit()
    turns = pair(settings)
    for number in range(8):  # half an epoch each
        trainer = turns[number % 2]
        if number:
            trainer.restore(path)
        for _ in range(2):
            trainer.step()
        trainer.save(path)
    assert numbers(turns[1]) == numbers(alone) and turns[1].history == alone.history
    assert turns[1].trained().nodes[1].attrs["weight"].tobytes() == alone.trained().nodes[1].attrs["weight"].tobytes()


@pytest.mark.slow
def test_between_steps_little_travels():
    device = LoggedDevice(training_config())
    _, npu = pair(Settings(2, 32, schedule=((1, Fraction(1, 2)),)), device=device)
    npu.step()
    device.log.clear()
    npu.step()
    batch = npu.program.batches[32]
    inputs = [
        ("write", "NARROW", batch.source.first, 32 * 4), ("write", "TENSORS", batch.source.register, 1),
        ("start", batch.forward),
    ]  # fmt: skip
    wide, register = ("WIDE", batch.output.first, 2 * 32), ("TENSORS", batch.output.register, 1)
    losses = [("read", *wide), ("read", *register), ("write", *wide), ("write", *register), ("start", batch.backward)]
    assert device.log == inputs + losses
    while npu.epoch == 0:
        npu.step()
    device.log.clear()
    npu.step()
    factors = [entry for entry in device.log if entry[1] == "FACTORS"]
    assert factors == [("write", "FACTORS", 0, 1), ("write", "FACTORS", 1, 1)], "the rate, and 1/n behind a short batch"
    assert len(device.log) == len(factors) + len(inputs) + len(losses)


def test_registers_that_others_have_left():
    host, npu = pair(Settings(1, 8), SMALL, (12,), Samples(np.eye(16, 12), np.arange(16) % 3))
    npu.device.write(RegionId.TENSORS, 0, [TENSOR_WORD.pack(top=1 << 40, exp=9)] * TENSORS)
    assert_same_steps(host, npu)


def test_labels_that_do_not_count():
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, (21, 1))
    y[rng.random(21) < 0.4] = IGNORED
    y[8:16] = IGNORED  # a batch without one that counts
    host, npu = pair(Settings(2, 8), SMALL, (12,), Samples(rng.normal(size=(21, 12)), y))
    host._order = npu._order = np.arange(21)
    assert 0 < judged_count("cross_entropy", y) < 13
    assert_same_steps(host, npu)


@pytest.mark.slow
def test_outputs_with_several_positions():
    rng = np.random.default_rng(0)
    samples = Samples(rng.normal(size=(6, 2, 3, 3)), rng.integers(0, 3, (6, 4, 3)))
    layers = [{"op": "conv", "channels": 4, "kernel": 1}]
    assert_same_steps(*pair(Settings(1, 4), layers, (2, 3, 3), samples, config=LARGE))


def test_what_leaves_the_range_ends_the_training(tmp_path):
    samples = Samples(np.random.default_rng(0).normal(size=(40, 12)) * 2.0**-110, np.arange(40) % 3)
    _, npu = pair(Settings(1, 8), SMALL, (12,), samples)
    with pytest.raises(OverflowError, match=r"keep integers and exponents within its range.*on the host.*without --on"):
        npu.step()
    for call in (npu.step, lambda: npu.save(tmp_path / "x.npz"), npu.trained):
        with pytest.raises(ValueError, match="left half done"):
            call()


@pytest.mark.slow
def test_a_checkpoint_heals_a_step_that_was_left_half_done(tmp_path):
    host, npu = pair(Settings(1, 32), MLP)
    npu.save(tmp_path / "start.npz")
    npu._broken = True
    npu.restore(tmp_path / "start.npz")
    assert_same_steps(host, npu)


def test_an_error_in_the_middle_of_a_step_leaves_it_half_done(monkeypatch):
    _, npu = pair(Settings(1, 32))
    after_step = npu._parameters.after_step
    monkeypatch.setattr(npu._parameters, "after_step", lambda: (_ for _ in ()).throw(OSError("the line is dead")))
    with pytest.raises(OSError, match="dead"):
        npu.step()
    monkeypatch.setattr(npu._parameters, "after_step", after_step)
    with pytest.raises(ValueError, match="left half done"):
        npu.step()


@pytest.mark.slow
def test_a_device_may_compute_something_else_once_parameters_were_read(tmp_path):
    host, npu = pair(Settings(1, 32, momentum=Fraction(9, 10)))
    other = NpuTrainer(npu.device, npu.network.graph, npu.samples, Settings(1, 16, seed=9), random=True)
    for _ in range(2):
        host.step()
        npu.step()
        npu.synchronise()
        other.step()
        other.synchronise()
    assert numbers(npu) == numbers(host)
    npu.save(tmp_path / "two.npz")
    npu.step()
    other.device.load(other._image)
    for call in (npu.step, npu.synchronise, npu.trained):
        with pytest.raises(ValueError, match="must not be loaded with another image"):
            call()
    npu.restore(tmp_path / "two.npz")
    assert_same_steps(host, npu)


@pytest.mark.slow
def test_an_end_of_an_epoch_that_has_failed_is_made_up_for(monkeypatch, tmp_path):
    for k in (0, 1):
        host, npu = pair(Settings(2, 32))
        trainer = (host, npu)[k]
        close = trainer._close
        monkeypatch.setattr(trainer, "_close", lambda: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(OSError, match="gone"):
            while True:
                trainer.step()
        monkeypatch.setattr(trainer, "_close", close)
        trainer.save(tmp_path / f"{k}.npz")
        trainer.fit()
        whole, restored = pair(Settings(2, 32))[0], pair(Settings(2, 32))[1 - k]
        restored.restore(tmp_path / f"{k}.npz")
        restored.fit()
        whole.fit()
        restored.trained()
        assert numbers(trainer) == numbers(whole) == numbers(restored)
        assert trainer.history == whole.history == restored.history


def test_a_product_whose_exponent_is_beyond_training_ends_it():
    samples = Samples(np.full((8, 12), 2.0**120), np.arange(8) % 3)
    _, npu = pair(Settings(1, 8, momentum=Fraction(0)), [{"op": "dense", "outputs": 3}], (12,), samples)
    weight = next(iter(npu.network.parameters.values()))
    weight.replace(weight.weight, weight.acc, weight.exp + 45)
    with pytest.raises(OverflowError, match="within its range"):
        npu.step()


def test_a_gradient_whose_exponent_is_beyond_training_ends_it():
    rng = np.random.default_rng(0)
    samples = Samples(rng.normal(size=(8, 12)) * 2.0**76, rng.normal(size=(8, 3)) * 2.0**76)
    settings = Settings(1, 8, rate=Fraction(1, 1 << 12), momentum=Fraction(0), loss="mse")
    _, npu = pair(settings, SMALL, (12,), samples)
    with pytest.raises(OverflowError, match="within its range"):
        npu.step()


def test_what_is_judged_are_the_parameters_as_they_are_now():
    samples, test = some_digits(64)
    host, npu = pair(Settings(1, 16), samples=samples, test=test)
    for trainer in (host, npu):
        trainer.step()
    assert npu.judge_outputs(test) == host.judge_outputs(test)
    for trainer in (host, npu):
        trainer.step()
    assert npu.judge(test) == host.judge(test)
