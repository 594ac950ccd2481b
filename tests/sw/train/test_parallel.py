"""Work that several processes share gives the bits of one, even if one of them dies."""

import os
import signal
import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("distributed")

from concord.cli.workers import several
from concord.golden.training import quantize
from concord.spec.formats import Rounding
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described
from concord.train.overflow_settings import OverflowSettings
from concord.train.shards import split, together
from concord.utils.parallel import Engine
from support.commands import run
from support.sequences import LENGTH, WORDS, sentences

LAYERS = [
    {"op": "conv", "channels": 4, "pad": 1}, {"op": "batch_norm"}, {"op": "relu"}, {"op": "max_pool"},
    {"op": "flatten"}, {"op": "dense", "outputs": 5},
]  # fmt: skip
NOISE = TrainingFormats(
    gradient=TrainingFormat(12, rounding=Rounding.STOCHASTIC),
    accumulator=AccumulatorFormat(12, rounding=Rounding.STOCHASTIC),
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def engine():
    with Engine(workers=1) as found:
        yield found


def some(count=23):
    rng = np.random.default_rng(3)
    return Samples(rng.integers(0, 256, (count, 1, 6, 6)).astype(np.uint8), rng.integers(0, 5, count), 1 / 256)


def trainer(engine=None, shards=4, **settings):
    settings = {"epochs": 2, "batch": 10, "decay": Fraction(1, 100), **settings}
    return Trainer(described(LAYERS, (1, 6, 6)), some(), Settings(shards=shards, **settings), some(11), True, engine)


def numbers(one):
    """Everything that a step leaves."""
    found = {}
    for name, p in one.network.parameters.items():
        velocity = None if p.velocity is None else p.velocity.tolist()
        found[name] = [p.weight.tolist(), p.acc.tolist(), p.exp.tolist(), velocity, p.velocity_exp]
    norms = {name: {k: v.tolist() for k, v in norm.state.items()} for name, norm in one.network.norms.items()}
    return found, norms, one.history


def steps(one):
    """Numbers after every step."""
    found = []
    one.fit(lambda t: bool(found.append(numbers(t))))
    return found


@pytest.mark.slow
def test_one_two_and_four_workers_leave_the_same_numbers_after_every_step(engine):
    wanted = {key: steps(trainer(formats=formats)) for key, formats in (("plain", TrainingFormats()), ("noise", NOISE))}
    assert wanted["plain"] != wanted["noise"] and len(wanted["plain"]) == 6
    for workers in (1, 2, 4):
        engine.grow(workers)
        assert len(engine.processes()) == workers
        kind = "noise" if workers == 4 else "plain"
        formats = NOISE if workers == 4 else TrainingFormats()
        assert steps(trainer(engine, formats=formats)) == wanted[kind]


@pytest.mark.slow
def test_a_worker_that_dies_costs_nothing_but_time(engine):
    wanted, one, killed = steps(trainer()), trainer(engine), []
    found = []

    def after(current):
        found.append(numbers(current))
        if current.done == 1 and not killed:
            pids = engine.processes()
            killed.extend(pids.values())
            threading.Timer(0.02, os.kill, (killed[0], signal.SIGKILL)).start()
        return False

    one.fit(after)
    assert found == wanted
    assert killed and killed[0] not in engine.processes().values()


def test_what_saturates_on_workers_is_counted(engine):
    counts = []
    for one in (None, engine):
        graph = described([{"op": "flatten"}, {"op": "dense", "outputs": 4}, {"op": "dense", "outputs": 5}], (1, 6, 6))
        for node in graph.nodes:
            if node.op == "Dense":
                node.attrs["weight"] = np.full(node.attrs["weight"].shape, 2.0**33)
        huge = [replace(some(count), scale=2.0**100) for count in (23, 11)]
        found = Trainer(graph, huge[0], Settings(shards=2, epochs=1, batch=10), huge[1], False, one)
        counts.append([figures.counts for figures in found.fit()])
    assert counts[0] == counts[1] and counts[0][0].saturated >= 4 * (23 + 11)


@pytest.mark.slow
def test_workers_share_sentences(engine):
    """Indices, normalised positions and labels that do not count travel as everything does."""
    layers = [{"op": "embedding", "rows": WORDS + 1, "outputs": 6}, {"op": "layer_norm"}, {"op": "relu"},
              {"op": "dense", "outputs": WORDS}]  # fmt: skip
    sets = [Samples(*sentences(count, place)) for place, count in enumerate((26, 11))]
    got = []
    for one in (None, engine):
        settings = Settings(shards=3, epochs=2, batch=10)
        got.append(steps(Trainer(described(layers, (LENGTH,)), sets[0], settings, sets[1], True, one)))
    assert got[0] == got[1] and len(got[0]) == 6


def test_shards_have_exponents_and_noise_of_their_own():
    assert [len(part) for part in split(np.arange(10), 4)] == [3, 3, 2, 2]
    assert [part.tolist() for part in split(np.arange(2), 4)] == [[0], [1]]
    whole, four = steps(trainer(shards=1)), steps(trainer(shards=4))
    assert whole[0] != four[0]


def test_the_sum_of_shards_does_not_depend_on_their_order():
    one, found = trainer(shards=4), []
    each = one.passes.map
    one.passes.map = lambda compute, calls: found.extend(each(compute, calls)) or found[-len(calls) :]
    one.step()
    forwards, backwards = (together(order, one.settings.formats) for order in (found[:4], found[3::-1]))
    for name, gradient in forwards.items():
        assert gradient.exp == backwards[name].exp and np.array_equal(gradient.mant, backwards[name].mant)
        parts = [shard.gradients[name] for shard in found[:4]]
        grid = min(part.exp for part in parts if part.mant.any())
        exact = sum(part.mant.astype(np.int64) << max(part.exp - grid, 0) for part in parts).reshape(1, -1)
        want = quantize(exact, [grid], one.settings.formats.intermediate)
        assert want.exp[0] == gradient.exp and np.array_equal(want.mant.ravel(), gradient.mant.ravel())


@pytest.mark.slow
def test_commands_share_their_work(engine, tmp_path):
    (tmp_path / "net.toml").write_text(
        '[model]\ninput = [1, 6, 6]\nlayers = [{op = "conv", channels = 4}, {op = "relu"}, {op = "flatten"}, '
        '{op = "dense", outputs = 5}]\n[data]\nfile = "d.npz"\nx = "x"\ny = "y"\nscale = 0.01\n'
        "[train]\nepochs = 1\nbatch = 12\nshards = 2\n"
    )
    np.savez(tmp_path / "d.npz", x=some().x, y=some().y)
    shared = ("--cluster", engine.address)
    for folder, more in (("one", ()), ("many", shared)):
        code, shown = run("train", tmp_path / "net.toml", "-o", tmp_path / folder, *more)
        assert code == 0, shown
    assert (tmp_path / "one" / "network.onnx").read_bytes() == (tmp_path / "many" / "network.onnx").read_bytes()
    code, shown = run("compile", tmp_path / "one" / "network.onnx", "-o", tmp_path / "net", "--preset", "tiny")
    assert code == 0, shown
    x = np.random.default_rng(1).normal(size=(600, 1, 6, 6)) * 1000
    np.savez(tmp_path / "x.npz", x=x)
    texts = []
    for name, more in (("a", ()), ("b", shared)):
        code, shown = run("run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / f"{name}.npz", *more)
        assert code == 0, shown
        texts.append(shown.replace(f"{name}.npz", ""))
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert all(np.array_equal(a[key], b[key]) for key in a.files) and set(a.files) == set(b.files)
    assert texts[0] == texts[1]


def test_options_that_do_not_fit():
    with pytest.raises(ValueError, match="--workers must be given without --cluster"):
        several(2, "tcp://127.0.0.1:1")


def test_accumulators_of_few_bits_are_trained_in_one_process(engine, tmp_path):
    message = "must have shards = 1, and neither --workers nor --cluster"
    layers, settings = (
        [{"op": "flatten"}, {"op": "dense", "outputs": 5}],
        {"overflow": OverflowSettings(accumulator_bits=16)},
    )
    for shards, one in ((2, None), (1, engine)):
        with pytest.raises(ValueError, match=message):
            Trainer(described(layers, (1, 6, 6)), some(), Settings(shards=shards, **settings), random=True, engine=one)
    assert Trainer(described(layers, (1, 6, 6)), some(), Settings(**settings), random=True).monitor is not None
    (tmp_path / "net.toml").write_text(
        '[model]\ninput = [1, 6, 6]\nlayers = [{op = "flatten"}, {op = "dense", outputs = 5}]\n'
        '[data]\nfile = "d.npz"\nx = "x"\ny = "y"\n[train]\nepochs = 1\n[overflow]\naccumulator_bits = 16\n'
    )
    for more in (("--cluster", "tcp://127.0.0.1:1"), ("--workers", 2)):  # before anyone is asked or started
        code, shown = run("train", tmp_path / "net.toml", "-o", tmp_path / "out", *more)
        assert code == 1 and message in shown and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_numbers_of_workers_are_checked():
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        Engine(workers=0)
    with pytest.raises(ValueError, match="and not both"):
        Engine(workers=1, cluster="tcp://127.0.0.1:1")
