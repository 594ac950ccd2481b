"""A label for each position: what counts, what does not, and what comes out."""

from fractions import Fraction

import numpy as np
import pytest

from concord.spec.softmax import powers
from concord.spec.training import TrainingFormats
from concord.train import Augmentation, Samples, Settings, Trainer, augmented, described
from concord.train.layers.base import PassContext
from concord.train.losses import ONLY, OutputLoss, cross_entropy, judged_count
from concord.train.noise import NoiseStream
from concord.train.settings import Convergence
from concord.train.shards import computed, together
from concord.train.tensor import Tensor, top_of
from support.sequences import LENGTH, WORDS, pairs
from support.train_digits import assert_a_break_changes_nothing, bits

FORMATS = TrainingFormats()
#: Words one by one, with their neighbours.
LAYERS = [{"op": "dense", "outputs": 32}, {"op": "relu"}, {"op": "dense", "outputs": WORDS}]


def trainer(samples=None, test=None, **settings):
    graph = described(LAYERS, (LENGTH, 2 * (WORDS + 1)))
    return Trainer(graph, samples or pairs(60), Settings(**settings), test, random=True)


def logits(rng, *shape, exp=-10):
    mant = rng.integers(-9000, 9000, shape).astype(np.float64)
    return Tensor(mant, exp, top_of(mant))


def by_hand(row, exp, label):
    """The gradient of one position, in Python integers."""
    scale, coarse, fine = powers()
    numbers, shift = [], 16 + exp
    for z in row:
        below = max(row) - z
        d = below << shift if shift >= 0 else (below + (1 << -shift >> 1)) >> -shift
        t = (min(d, 64 << 16) * scale + (1 << 29)) >> 30
        k, f = t >> 16, t & 65535
        power = (coarse[f >> 8] * fine[f & 255] + (1 << 29)) >> 30
        numbers.append(power if not k else (power + (1 << k - 1)) >> k)
    whole = sum(numbers)
    shares = [((power << 31) + whole) // (2 * whole) for power in numbers]
    return [0] * len(row) if label < 0 else [p - (1 << 30) * (k == label) for k, p in enumerate(shares)]


@pytest.mark.parametrize("shape", [(4, 5, 7), (4, 1, 5, 7), (4, 5, 1, 7), (3, 2, 3, 4)])
def test_gradients_by_hand(shape):
    rng = np.random.default_rng(len(shape))
    output, labels = logits(rng, *shape, exp=-12), rng.integers(-1, shape[-1], shape[:-1])
    labels.reshape(-1)[:2] = -1, shape[-1] - 1
    got = cross_entropy(output, labels, FORMATS)
    rows = output.mant.reshape(-1, shape[-1]).astype(np.int64).tolist()
    want = [by_hand(row, output.exp, label) for row, label in zip(rows, labels.reshape(-1).tolist(), strict=True)]
    assert got.gradient.mant.shape == shape and got.gradient.exp == -30
    assert got.gradient.mant.reshape(-1, shape[-1]).astype(np.int64).tolist() == want
    best = [row.index(max(row)) for row in rows]
    assert got.right == sum(a == b for a, b in zip(best, labels.reshape(-1).tolist(), strict=True))


def test_gradients_are_those_of_the_loss_in_double_precision():
    rng = np.random.default_rng(3)
    output, labels = logits(rng, 5, 6, 4, exp=-11), rng.integers(-1, 4, (5, 6))

    def loss(z):
        z = z - z.max(axis=-1, keepdims=True)
        chances = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
        hit = np.take_along_axis(chances, np.maximum(labels, 0)[..., None], -1)[..., 0]
        return -np.log(hit)[labels >= 0].sum()

    got, z, step = cross_entropy(output, labels, FORMATS), output.values, 1e-6
    assert abs(got.value - loss(z)) < 1e-2
    for at in np.ndindex(z.shape):
        move = np.zeros_like(z)
        move[at] = step
        assert abs(got.gradient.values[at] - (loss(z + move) - loss(z - move)) / (2 * step)) < 2.0**-14


def test_what_does_not_count_has_no_part_in_anything():
    rng = np.random.default_rng(4)
    output, labels = logits(rng, 6, 5, 4), rng.integers(-1, 4, (6, 5))
    other = np.where((labels < 0)[..., None], rng.integers(-9000, 9000, output.mant.shape), output.mant)
    first, second = (cross_entropy(Tensor(m, -10, 9000), labels, FORMATS) for m in (output.mant, other))
    assert (other != output.mant).any() and np.array_equal(first.gradient.mant, second.gradient.mant)
    assert (first.value, first.right) == (second.value, second.right)
    none = cross_entropy(output, np.full((6, 5), -1), FORMATS)
    assert not none.gradient.mant.any() and (none.value, none.right) == (0.0, 0)


def test_one_label_a_sample_is_as_one_position():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 9, 8).astype(np.uint8)
    one, position = (cross_entropy(logits(np.random.default_rng(6), 8, 1, 9), y, FORMATS)
                     for y in (labels, labels.astype(int)[:, None]))  # fmt: skip
    assert np.array_equal(one.gradient.mant, position.gradient.mant)
    assert (one.value, one.right) == (position.value, position.right)
    whole = cross_entropy(logits(np.random.default_rng(6), 8, 3, 3), labels, FORMATS)  # all outputs are classes
    assert np.array_equal(whole.gradient.mant.reshape(8, 9), one.gradient.mant.reshape(8, 9))


def test_labels_are_counted_for_figures():
    assert judged_count("cross_entropy", np.array([[0, -1, 2], [-1, -1, 1]])) == 3
    assert judged_count("cross_entropy", np.array([0, 3], np.uint8)) == 2
    assert judged_count("mse", np.array([[-1.0, 0], [1, 2], [3, 4]])) == 3


def test_figures_are_per_label_that_counts():
    samples, test = pairs(60), pairs(40, 1)
    one = trainer(samples, test, epochs=1, batch=25)
    before = trainer(samples, test, epochs=1, batch=25)
    outputs, _ = before._forward(before.samples, np.arange(60), PassContext(FORMATS, training=False))
    (output,) = outputs.values()
    one.step()
    labels = samples.y[one._order[:25]]
    assert one.running.startswith(f"loss {one._sums[ONLY][0] / (labels >= 0).sum():.4f}, accuracy ")
    share = 100 * one._sums[ONLY][1] / (labels >= 0).sum()
    assert one.running.endswith(f"accuracy {share:.1f} %")
    sums = one._sums[ONLY]
    while one.done:
        last = one._sums[ONLY]
        one.step()
    assert 0 < sums[0] < last[0]
    loss, accuracy = before.judge(samples)
    judgement = cross_entropy(output, samples.y, FORMATS)
    assert (loss, accuracy) == (judgement.value / (samples.y >= 0).sum(), judgement.right / (samples.y >= 0).sum())
    assert 0 < one.history[0].accuracy <= 1 and one.history[0].test_accuracy == one.judge(test)[1]


def test_a_batch_without_a_label_that_counts_changes_nothing():
    samples = pairs(20)
    samples.y[:19] = -1
    one = trainer(samples, epochs=1, batch=1, momentum=Fraction(0))
    start, changes = bits(one.network), []
    for number in range(20):
        counts = samples.y[one._shuffled(0)[number]].max() >= 0
        before = bits(one.network)
        one.step()
        changes.append((bool(counts), bits(one.network) != before))
        assert one.done == 0 or ((one.running == "") == (bits(one.network) == start))
    assert sorted(set(changes)) == [(False, False), (True, True)]


@pytest.mark.slow
def test_words_are_learned():
    train, test = pairs(300), pairs(100, 1)
    one = trainer(train, test, epochs=12, rate=Fraction(1, 16), stop=Convergence("test_accuracy", 12))
    figures = one.fit()
    assert figures[0].test_accuracy < 0.7 and figures[-1].test_accuracy > 0.97


@pytest.mark.parametrize("shards", [1, 3])
def test_a_break_changes_nothing(shards, tmp_path):
    settings = {"epochs": 2, "batch": 16, "shards": shards}
    assert_a_break_changes_nothing(lambda: trainer(test=pairs(20, 1), **settings), tmp_path / "c.npz")


def test_shards_are_batches_of_their_own():
    one = trainer(epochs=1, batch=12, shards=3)
    rows = one._shuffled(0)[:12]
    noise = NoiseStream(1, (3, 0))
    got = one._shards(rows, noise)
    fixed = FORMATS, {ONLY: OutputLoss()}, None, noise
    parts = [computed(one.network, one.samples.part(rows[4 * k : 4 * k + 4]), *fixed, k) for k in range(3)]
    for key, change in together(got, FORMATS).items():
        other = together(parts[::-1], FORMATS)[key]
        assert change.exp == other.exp and np.array_equal(change.mant, other.mant)
    assert [shard.losses[0].right for shard in got] == [shard.losses[0].right for shard in parts]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y[:, :-1], r"one per sample or one for each of the positions \[8\], not int64 \[60, 7\]"),
        (lambda y: y.astype(float), r"one per sample or .* not float64 \[60, 8\]"),
        (lambda y: np.where(y == 0, -2, y), r"in -1\.\.5, not -2\.\.5"),
        (lambda y: np.where(y == 0, 6, y), r"in -1\.\.5, not -1\.\.6"),
        (lambda y: np.full_like(y, -1), "one that counts, and all are -1"),
        (lambda y: y[:, 7], r"in 0\.\.47, not -1\.\.4"),  # a sample without a label is none
    ],
)
def test_labels_that_do_not_fit_are_refused(change, message):
    samples = pairs(60)
    for which in ("training", "test"):
        sets = [samples, samples]
        sets[which == "test"] = Samples(samples.x, change(samples.y))
        with pytest.raises(ValueError, match=f"labels of the {which} data must (be|have) .*{message}"):
            trainer(*sets, epochs=1)


def test_positions_with_labels_are_not_moved():
    samples = pairs(4)
    for change in (Augmentation(shift=(1, 0)), Augmentation(flip=0)):
        with pytest.raises(ValueError, match="shift and flip must not be set with a label per position"):
            augmented(samples, change, 1)
    assert len(augmented(samples, Augmentation(noise=0.1), 1)) == 8
    assert len(augmented(Samples(samples.x, samples.y[:, 0]), Augmentation(flip=0), 1)) == 8


def test_targets_that_are_whole_numbers_are_no_labels():
    samples = Samples(np.arange(24.0).reshape(4, 6), np.arange(12).reshape(4, 3))
    assert len(augmented(samples, Augmentation(flip=0), 1, "mse")) == 8
