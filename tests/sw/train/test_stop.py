"""A training that has converged ends, at the same epoch with the same bits however it was interrupted."""

import re
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.train import Samples, Settings, Trainer, described
from concord.train.console import convergence
from concord.train.overflow_settings import OverflowSettings
from concord.train.settings import Convergence, read_plan
from support.train_digits import bits, digits, few

LAYERS = [{"op": "flatten"}, {"op": "dense", "outputs": 10}]


def trainer(stop=None, test=True, epochs=12):
    """Of few samples one by one with a large rate: no figure becomes better all the time."""
    settings = Settings(epochs=epochs, batch=1, rate=Fraction(1, 2), stop=stop)
    return Trainer(described(LAYERS, (1, 8, 8)), few(24), settings, others() if test else None, random=True)


def others():
    """Samples that are not learned."""
    _, samples = digits()
    return Samples(samples.x[:60], samples.y[:60], samples.scale)


@pytest.mark.parametrize(("metric", "figures", "ends"), [
    ("loss", [3, 2, 1, 2, 1, 0.5], 5),
    ("loss", [3, 2, 1, 2, 0.9, 0.5], None),
    ("test_loss", [1, 1, 1], 3),
    ("accuracy", [0.1, 0.5, 0.4, 0.5, 0.6], 4),
    ("test_accuracy", [0.1, 0.2, 0.3, 0.4], None),
    ("loss", [1], None),
])  # fmt: skip
def test_when_it_has_converged(metric, figures, ends):
    """Behind two epochs that are not better than the best; as good is no better."""
    stop = Convergence(metric, 2)
    over = [k for k in range(1, len(figures) + 1) if stop.converged(figures[:k])]
    assert (over[0] if over else None) == ends


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["loss", "accuracy", "test_loss", "test_accuracy"])
def test_it_ends_where_a_longer_one_has_its_best_figure(metric):
    """The epochs before are those of a training that does not stop, bit for bit."""
    stop, whole = Convergence(metric, 1), trainer()
    short = trainer(stop)
    short.fit()
    whole.fit()
    figures = [getattr(each, metric) for each in whole.history]
    ends = next(k for k in range(1, 13) if stop.converged(figures[:k]) or k == 12)
    assert ends < 12, "or there is nothing to see"
    assert short.history == whole.history[:ends] and short.converged and short.finished
    again = trainer(epochs=ends)
    again.fit()
    assert bits(again.network) == bits(short.network)
    assert f"converged in epoch {ends} of 12: {metric.replace('_', ' ')} was best in epoch" in convergence(short)[0]
    assert convergence(whole) == convergence(again) == []
    with pytest.raises(ValueError, match=f"training must have epochs left, and it has converged in epoch {ends}"):
        short.step()


def test_a_checkpoint_knows_what_was_best(tmp_path):
    whole = trainer(Convergence("test_loss", 1))
    whole.fit()
    first = trainer(Convergence("test_loss", 1))
    first.fit(lambda current: current.epoch == whole.epoch - 1)
    assert not first.finished
    first.save(tmp_path / "checkpoint.npz")
    second = trainer(Convergence("test_loss", 1))
    second.restore(tmp_path / "checkpoint.npz")
    second.fit()
    assert second.epoch == whole.epoch and bits(second.network) == bits(whole.network)


def test_a_run_may_be_made_longer(tmp_path):
    """With more patience, or without an end."""
    whole = trainer(Convergence("test_loss", 1))
    whole.fit()
    whole.save(tmp_path / "checkpoint.npz")
    for stop in (None, Convergence("test_loss", 11)):
        longer = trainer(stop, epochs=whole.epoch + 1)
        longer.restore(tmp_path / "checkpoint.npz")
        assert not longer.finished
        longer.fit()
        assert longer.epoch == whole.epoch + 1


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Convergence("error", 2), "stop.metric must be one of loss, .* test_accuracy, not 'error'"),
    (lambda: Convergence("loss", 0), "stop.patience must be a whole number from 1 on, not 0"),
    (lambda: Convergence("loss", 1.5), "stop.patience must be a whole number from 1 on, not 1.5"),
    (lambda: Settings(loss="mse", stop=Convergence("accuracy", 1)), "stop.metric must be a loss with mse"),
    (lambda: trainer(Convergence("test_loss", 1), test=False), "stop.metric must be of the samples that are"),
    (lambda: Settings(stop=Convergence("loss", 1), overflow=OverflowSettings(accumulator_bits=16)), "stop must not"),
])  # fmt: skip
def test_what_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


CONFIG = """
[model]
layers = [{op = "flatten"}, {op = "dense", outputs = 10}]
input = [1, 8, 8]
[data]
file = "x.npz"
scale = 0.0625
[train]
epochs = 12
batch = 1
rate = 0.5
stop = {metric = "test_loss", patience = 1}
"""


def test_the_command_says_it(tmp_path):
    samples, test = few(24), others()
    np.savez(tmp_path / "x.npz", x_train=samples.x, y_train=samples.y, x=test.x, y=test.y)
    (tmp_path / "net.toml").write_text(CONFIG)
    assert read_plan(tmp_path / "net.toml").settings.stop == Convergence("test_loss", 1)
    done = CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "converged in epoch" in done.output and "weights are those of the last epoch" in done.output
    for broken, message in (
        ("stop = 3", "must have a table [stop]"),
        ('stop = {metric = "loss", patience = 1, best = true}', "must have metric, patience, output only, not best"),
        ('stop = {metric = "loss"}', "patience"),
    ):
        (tmp_path / "net.toml").write_text(CONFIG.replace('stop = {metric = "test_loss", patience = 1}', broken))
        with pytest.raises(ValueError, match=re.escape(message)):
            read_plan(tmp_path / "net.toml")
