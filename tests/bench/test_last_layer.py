"""A last layer learns new classes on the NPU: the example, small."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

import concord_bench.last_layer as example
from concord.graph import execute
from concord.graph.last_layer import joined, split_last_layer, with_classes
from concord.host import connect
from concord.train import Samples, Settings, Trainer, export_onnx
from concord.train.npu import NpuTrainer
from support.clothes import network, pictures
from support.frameworks import needs
from support.trained import DATA, needs_data

SETTINGS = Settings(epochs=6, batch=16, rate=Fraction(1, 16), momentum=Fraction(0))


@pytest.mark.slow
def test_one_device_computes_features_and_learns_from_them():
    features, last = split_last_layer(network())
    last, (x, y) = with_classes(last, example.CLASSES), pictures(40)
    with example.CountingDevice(example.CONFIG) as device:
        computed = example.results_of(features, device, x * example.SCALE)
        exact = execute.run(features, {"x": x * example.SCALE})[features.outputs[0]]
        assert computed.shape == (40, 64) and np.abs(computed - exact).max() < 0.05 * np.abs(exact).max()
        samples = Samples(computed, y)
        layer = example.learned(device, last, samples, SETTINGS)
        scores = example.results_of(joined(features, layer.last), device, x * example.SCALE)
    host = Trainer(last, samples, SETTINGS)
    host.fit()
    assert layer.last.nodes[0].attrs["weight"].tobytes() == host.trained().nodes[0].attrs["weight"].tobytes()
    assert layer.last.nodes[0].attrs["bias"].tobytes() == host.trained().nodes[0].attrs["bias"].tobytes()
    assert layer.steps == 6 * 3 and layer.cycles > 1000
    assert layer.sent > 16 * 64 and layer.received > 16 * 10 * 4 and layer.image_bytes > layer.sent
    assert example.shares(scores, y)[2] == np.mean(scores.argmax(axis=1) == y)


def test_accuracies_are_those_of_known_and_of_new_classes():
    y = np.arange(10)
    scores = np.eye(10)
    scores[[0, 9], :] = scores[[9, 0], :]
    assert example.shares(scores, y) == pytest.approx((6 / 7, 2 / 3, 0.8))


def test_float32_takes_the_same_steps():
    """With updates that weights of 8 bits take, integers stay close to float32."""
    rng = np.random.default_rng(5)
    _, last = split_last_layer(network())
    last, y = with_classes(last, example.CLASSES), np.arange(40) % example.CLASSES
    samples = Samples(rng.uniform(0, 1, (40, 64)) + np.eye(example.CLASSES)[y].repeat(7, axis=1)[:, :64], y)
    settings = replace(SETTINGS, epochs=60, rate=Fraction(1, 256))
    host = Trainer(last, samples, settings)
    host.fit()
    changed = example.learned_in_float32(last, samples, settings).nodes[0].attrs
    before, after = last.nodes[0].attrs, host.trained().nodes[0].attrs
    away, moved = (np.abs(changed["weight"] - other["weight"]).max() for other in (after, before))
    step = 2.0 ** int(host.network.parameters[f"{last.nodes[0].name}.weight"].exp[0])
    assert away < 0.6 * step and moved > 10 * step, "rounding to weights takes half a step"


def test_samples_of_each_class_are_drawn_by_a_seed():
    y = np.arange(50) % 10
    rows = example.some_of_each(y, 3, 1)
    assert np.bincount(y[rows]).tolist() == [3] * 10 and len(set(rows.tolist())) == 30
    assert rows.tolist() == example.some_of_each(y, 3, 1).tolist() != example.some_of_each(y, 3, 2).tolist()


@needs("torch")
@pytest.mark.slow
def test_the_frozen_network_learns():
    x, y = pictures(280)
    y = y % example.KNOWN
    graph = example.trained_network(x, y, epochs=1)
    assert len(graph.nodes[0].attrs["bias"].nonzero()[0]) == 16 and graph.shapes[graph.outputs[0]] == (1, 7)


def test_pictures_must_be_there(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    done = CliRunner().invoke(example.main, [])
    assert done.exit_code == 1 and done.output == "Error: CONCORD_DATA must name the folder with the pictures\n"


@needs_data
@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(example, "SETTINGS", replace(example.SETTINGS, epochs=2))
    path = tmp_path / "clothes.onnx"
    path.write_bytes(export_onnx(network()))
    words = ["--network", str(path), "--samples", "2", "--seeds", "1", "--tests", "40"]
    done = CliRunner().invoke(example.main, words, env={"CONCORD_DATA": str(DATA)})
    assert done.exit_code == 0, done.output
    for text in ("before", "2 of each, NPU", "2 of each, float32", "step of 16 samples", "cycles"):
        assert text in done.output


@pytest.mark.deep
def test_the_rtl_has_the_same_bits():
    features, last = split_last_layer(network())
    last, (x, y) = with_classes(last, example.CLASSES), pictures(20)
    settings, states = replace(SETTINGS, epochs=1), list[object]()
    for where in ("emulator", "rtl"):
        with connect(where, example.CONFIG) as device:
            computed = example.results_of(features, device, x * example.SCALE)
            cycles = [device.counters()["CYCLES"]]
            trainer = NpuTrainer(device, last, Samples(computed, y), settings)
            while not trainer.finished:
                trainer.step()
                cycles.append(device.counters()["CYCLES"])
            attrs = trainer.trained().nodes[0].attrs
            states.append((computed.tobytes(), cycles, attrs["weight"].tobytes(), attrs["bias"].tobytes()))
    assert states[0] == states[1]
