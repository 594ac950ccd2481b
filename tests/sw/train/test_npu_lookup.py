"""Training with functions by table on the NPU has the bits of training on the host, after every step."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from concord.functions import FUNCTIONS, function, trainable
from concord.golden.lookup import entry_numbers
from concord.host.emulated import EmulatedDevice
from concord.program.chains import Address
from concord.program.integers import IntegerChain
from concord.program.trace import trace
from concord.program.verify import verify_phases
from concord.spec.isa import Mem
from concord.spec.lookup import BINADE_MIN, table_words
from concord.spec.operations import IntegerSource
from concord.train import CannotTrain, Samples, Settings, Trainer, described
from concord.train.layers.pointwise import table
from concord.train.npu import NpuTrainer, training_config
from concord.train.npu.chains import ChainLoops, ChainWriter, TableSource, VectorPlace
from concord.train.npu.plan import planned
from concord.train.npu.tables import function_tables
from concord_bench.npu_training import NETWORKS
from support.npu_training import (
    LARGE,
    LOSS_ON_HOST,
    SHAPE,
    assert_same_steps,
    pair,
    phases_of,
    random_case,
    random_depthwise,
    random_images,
    some_digits,
    with_functions,
)

NAMES = [record.name for record in trainable()]
FLATTEN, RELU, DENSE = {"op": "flatten"}, {"op": "relu"}, {"op": "dense", "outputs": 10}
SMALL = {"op": "dense", "outputs": 21}
#: Random networks of every kind that take little time.
FAST = range(1, 6)
CASES = {"vectors": random_case, "images": random_images, "depthwise": random_depthwise}


def mlp(first, second):
    """Products whose widths are no multiples of N, and what is between them."""
    return [FLATTEN, {"op": "dense", "outputs": 37}, {"op": first}, SMALL, {"op": second}, DENSE]


def reals(count, *shape, seed=0):
    """Samples with numbers to be learned."""
    rng = np.random.default_rng(seed)
    return Samples(rng.normal(size=(count, *shape)), rng.normal(size=(count, 3)))


# Tables ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_entries_are_those_of_the_host(name):
    """Every code, with exponents far below and above those of the tables."""
    codes = np.arange(-127, 128)
    for exp in (-127, *range(-40, 41), 127):
        for want, made in zip(table(name, exp, 127), function_tables(name), strict=True):
            numbers = entry_numbers(codes, exp, made.binades, 8)
            assert made.entries.reshape(-1)[numbers].tolist() == want.tolist(), exp


def test_tables_have_the_least_binades():
    assert {name: [made.binades for made in function_tables(name)] for name in NAMES} == {
        "sigmoid": [22, 22], "softsign": [33, 26], "tanh": [21, 21]
    }  # fmt: skip
    for name in NAMES:
        for made in function_tables(name):
            first, *_, before, last = made.entries
            assert np.ptp(last, axis=1).tolist() == [0, 0] and np.ptp(before) > 0 and np.ptp(first) == 0
            assert (before != last).any()


@pytest.mark.parametrize(
    ("exact", "reason"),
    [
        (
            lambda x: max(min(x * 3 / 2, Fraction(1)), Fraction(-1)),
            rf"constant up to 2\*\*{BINADE_MIN + 1}, not strange",
        ),
        (lambda x: x / (2**60 + abs(x)), r"constant from 2\*\*45 on, not strange"),
        (lambda x: Fraction(min(abs(x), 1) if x < 2**100 else 0), r"constant from 2\*\*45 on, not strange"),
    ],
    ids=["steep", "wide", "falls late"],
)
def test_functions_without_a_table_are_refused(monkeypatch, exact, reason):
    monkeypatch.setitem(FUNCTIONS, "strange", replace(function("softsign"), name="strange", exact=exact))
    with pytest.raises(ValueError, match=f"^a function that is looked up must be {reason}$"):
        function_tables("strange")


def test_chains_that_are_split_keep_their_table_and_what_is_valid():
    """Vectors that are too far apart for a chain: elements are left out of the last vector alone."""
    writer = ChainWriter()
    start = writer.begin()
    source = TableSource(Address(7, 3000, 2), 500, 5)
    place = VectorPlace(Mem.WIDE, Address(100, 2, 6))
    writer.chain(ChainLoops(3, 4), source, vectors=place, valid=3)
    writer.end()
    chains = trace(writer.words(LARGE, [start]), LARGE, start).integers
    assert [chain.kind for chain in chains] == [IntegerSource.TABLE] * 3
    assert [chain.steps.valid for chain in chains] == [0, 0, 3]
    assert [(chain.rows, chain.source.base, chain.destination.base) for chain in chains] == [
        (1, 7, 100), (1, 3007, 102), (1, 6007, 104)
    ]  # fmt: skip
    words = range(500, 500 + table_words(5, 8, LARGE.native))
    assert all(chain.table(LARGE) == words and chain.steps.interval == LARGE.native for chain in chains)


# Networks --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [Fraction(0), Fraction(9, 10)], ids=["plain", "momentum"])
@pytest.mark.parametrize(
    ("first", "second"), [(name, name) for name in NAMES] + [("tanh", "relu"), ("relu", "sigmoid")]
)
def test_digits_have_the_bits_of_the_host(first, second, momentum):
    samples, test = some_digits(72)
    settings = Settings(2, 32, momentum=momentum, decay=Fraction(1, 100))
    host, npu = pair(settings, mlp(first, second), samples=samples, test=test, config=LARGE)
    assert npu.memory.sizes == (32, 8)
    assert_same_steps(host, npu)


@pytest.mark.slow
def test_training_learns():
    samples, test = some_digits(800)
    _, npu = pair(Settings(6, 32), mlp("tanh", "sigmoid"), samples=samples, test=test, config=LARGE)
    npu.fit()
    assert npu.history[-1].test_accuracy > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 32])
@pytest.mark.parametrize("name", NAMES)
def test_batches_of_any_size(name, size):
    samples = some_digits(2 * size + 1)[0]
    assert_same_steps(*pair(Settings(1, size), mlp(name, name), samples=samples, config=LARGE))


@pytest.mark.slow
@pytest.mark.parametrize("config", [LARGE, LOSS_ON_HOST.replace(wide_depth=4096)], ids=["npu", "host"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("name", NAMES)
def test_functions_at_the_end(name, loss, config):
    samples = reals(20, 12)
    samples = samples if loss == "mse" else Samples(samples.x, np.arange(20) % 3)
    layers = [{"op": "dense", "outputs": 9}, RELU, {"op": "dense", "outputs": 3}, {"op": name}]
    assert_same_steps(*pair(Settings(2, 8, loss=loss), layers, (12,), samples, config=config))


@pytest.mark.parametrize("size", [15, 16, 17])
def test_what_is_beyond_the_last_channel_is_not_seen(size):
    """The sigmoid of zero, which lies there, is greater than those of the channels."""
    rng = np.random.default_rng(0)
    samples = Samples(-2 - 3 * rng.random((20, size)), rng.normal(size=(20, 3)))
    layers = [{"op": "sigmoid"}, {"op": "dense", "outputs": 3}]
    assert_same_steps(*pair(Settings(2, 8, loss="mse"), layers, (size,), samples))


@pytest.mark.slow
@pytest.mark.parametrize(
    "layers",
    [
        [{"op": "conv", "channels": 6}, {"op": "tanh"}, {"op": "conv", "channels": 17, "stride": 2}, {"op": "sigmoid"}],
        [{"op": "sigmoid"}, {"op": "conv", "channels": 5, "pad": 1}, {"op": "softsign"}, {"op": "max_pool"}],
        [{"op": "conv", "channels": 5}, {"op": "max_pool"}, {"op": "tanh"}, {"op": "average_pool"}, {"op": "tanh"}],
        [{"op": "conv", "channels": 18}, RELU, {"op": "tanh"}, {"op": "depthwise", "pad": 1}, {"op": "sigmoid"}, RELU],
        [{"op": "conv", "channels": 3}, {"op": "tanh"}, {"op": "sigmoid"}, {"op": "softsign"}],
    ],
    ids=["between", "padded", "pools", "depthwise", "in a row"],
)
def test_images_have_the_bits_of_the_host(layers):
    samples = some_digits(18)[0]
    host, npu = pair(Settings(2, 12), [*layers, FLATTEN, DENSE], SHAPE, samples, config=LARGE)
    assert_same_steps(host, npu)


@pytest.mark.slow
def test_two_readers_of_a_result():
    """A sum around a convolution: the gradient is that of both."""
    layers = [
        {"op": "conv", "channels": 5, "pad": 1}, {"op": "tanh", "name": "a"}, {"op": "conv", "channels": 5, "pad": 1},
        {"op": "add", "to": "a"}, {"op": "sigmoid"}, FLATTEN, DENSE,
    ]  # fmt: skip
    assert_same_steps(*pair(Settings(2, 12), layers, SHAPE, some_digits(18)[0], config=LARGE))


@pytest.mark.slow
@pytest.mark.parametrize("other", ["sum", "product", "relu"])
def test_two_readers_of_what_is_looked_up(other):
    before = [{"op": "dense", "outputs": 19, "name": "a"}, {"op": "sigmoid", "name": "b"}]
    if other == "sum":
        layers = [*before, {"op": "add", "to": "a"}, {"op": "dense", "outputs": 3}]
    else:
        layers = [*before, {"op": "dense", "outputs": 19} if other == "product" else RELU, {"op": "add", "to": "b"}]
        layers.append({"op": "dense", "outputs": 3})
    graph = described(layers, (12,))
    if other != "sum":
        beside = graph.nodes[2]
        graph.nodes[2] = replace(beside, inputs=("a",))
    samples, settings = reals(20, 12), Settings(2, 8, loss="mse")
    host = Trainer(graph, samples, settings, random=True)
    npu = NpuTrainer(EmulatedDevice(LARGE), graph, samples, settings, random=True)
    assert len(npu.memory.operations.readers("a")) == 2
    assert_same_steps(host, npu)


@pytest.mark.parametrize("exp", [-100, -40, -17, 5, 30, 100])
@pytest.mark.parametrize("name", NAMES)
def test_samples_of_any_size_are_looked_up(name, exp):
    samples = reals(16, 12)
    samples = Samples(samples.x * 2.0**exp, samples.y)
    layers = [{"op": name}, {"op": "dense", "outputs": 3}]
    host, npu = pair(Settings(2, 8, loss="mse"), layers, (12,), samples)
    assert npu.memory.functions[name].slopes is None, "no gradient goes through it"
    assert_same_steps(host, npu)


@pytest.mark.parametrize("exp", [-30, 9, 40])
@pytest.mark.parametrize("name", NAMES)
def test_inputs_of_any_size_have_slopes(name, exp):
    """Far outside of the tables slopes are those of zero, or zero themselves.

    Beside tiny products a bias that has learned leaves the range, so they have a single step.
    """
    layers = [{"op": "dense", "outputs": 19}, {"op": name}, {"op": "dense", "outputs": 3}]
    trainers = pair(Settings(2, 8, loss="mse", momentum=Fraction(0)), layers, (12,), reals(16, 12))
    for trainer in trainers:
        first = next(iter(trainer.network.parameters.values()))
        first.replace(first.weight, first.acc, first.exp + exp)
    assert_same_steps(*trainers, 1 if exp < 0 else None)


def test_gradients_whose_exponents_are_beyond_training_end_it():
    """The host rounds such products to the least exponent; they trap though a Relu in front would round them again."""
    layers = [{"op": "dense", "outputs": 19}, RELU, {"op": "tanh"}, {"op": "dense", "outputs": 3}]
    for smaller in (96, 99):
        trainers = pair(
            Settings(1, 8, loss="mse", momentum=Fraction(0)), layers, (12,), reals(8, 12), config=LARGE
        )  # fmt: skip
        for trainer in trainers:
            _, _, weight, _ = trainer.network.parameters.values()
            weight.replace(weight.weight, weight.acc, weight.exp - smaller)
        if smaller < 99:
            assert_same_steps(*trainers)
        else:
            with pytest.raises(OverflowError, match="within its range"):
                trainers[1].step()


@pytest.mark.slow
def test_gradients_of_zero_leave_the_exponents_of_the_host():
    layers = [SMALL, {"op": "softsign"}, {"op": "dense", "outputs": 3}, {"op": "tanh"}]
    samples = Samples(np.zeros((20, 12)), np.zeros((20, 3)))
    host, npu = pair(Settings(3, 8, loss="mse"), layers, (12,), samples)
    assert_same_steps(host, npu)
    assert host.history[-1].loss == 0


@pytest.mark.parametrize(("native", "lanes"), [(8, 4), (16, 4), (32, 4)])
def test_any_shape_of_the_npu_has_the_same_bits(native, lanes):
    config = LARGE.replace(native=native, lanes=lanes, mfu_lanes=4)
    layers, samples = mlp("sigmoid", "tanh"), some_digits(40)[0]
    assert_same_steps(*pair(Settings(1, 20), layers, samples=samples, config=config))


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, marks=pytest.mark.slow if seed in FAST else pytest.mark.deep)
        for kind in CASES
        for seed in range(1, 24)
    ],
)
def test_any_network_has_the_bits_of_the_host(kind, seed):
    layers, shape, samples, settings = with_functions(CASES[kind](seed), seed)
    assert_same_steps(*pair(settings, layers, shape, samples, config=LARGE))


def test_random_networks_have_every_place():
    seen = Counter()
    for kind, make in CASES.items():
        for seed in FAST:
            layers, *_ = with_functions(make(seed), seed)
            kinds = [layer["op"] for layer in layers]
            seen.update(kinds)
            seen.update([(kind, any(name in NAMES for name in kinds)), kinds[0] in NAMES, kinds[-1] in NAMES])
    assert min(seen[key] for key in (*NAMES, "relu", *((kind, True) for kind in CASES), True, False)) > 1


# Programs --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("seed", FAST)
def test_programs_are_sound_and_give_everything_back(kind, seed):
    layers, shape, samples, settings = with_functions(CASES[kind](seed), seed)
    config = LARGE.replace(integer_loss=seed % 2 > 0)
    _, npu = pair(settings, layers, shape, samples, config=config)
    constants, phases = phases_of(npu)
    assert verify_phases(npu.program.words, config, phases, constants=constants) == []
    memory, momentum = npu.memory, bool(npu.optimiser.momentum.mant)
    fresh = planned(memory.operations, memory.sizes, config, momentum, settings.loss).workspace
    for name in ("narrow", "wide", "tiles", "registers"):
        assert getattr(memory.workspace, name).taken == getattr(fresh, name).taken, name


def test_functions_have_their_tables_once():
    layers = [*mlp("tanh", "tanh")[:-1], SMALL, {"op": "softsign"}, DENSE]
    plain, npu = (
        pair(Settings(1, 8), chosen, samples=some_digits(8)[0], config=LARGE)[1]
        for chosen in ([{"op": "relu"} if layer["op"] in NAMES else layer for layer in layers], layers)
    )
    words = [
        table_words(made.binades, 8, LARGE.native) for name in ("tanh", "softsign") for made in function_tables(name)
    ]
    assert words == [168, 168, 264, 208] and list(npu.memory.functions) == ["tanh", "softsign"]
    first = [placed.first for memory in npu.memory.functions.values() for placed in memory.tables]
    start = plain.memory.accumulators + plain.memory.state_words * 3
    assert first == (start + np.cumsum([0, *words[:-1]])).tolist(), "behind accumulators and momentum"


@pytest.mark.slow
def test_a_function_without_a_gradient_has_no_slopes():
    functions = [
        pair(Settings(1, 8), [{"op": first}, *mlp("sigmoid", "sigmoid")], samples=some_digits(8)[0], config=LARGE)[1]
        .memory.functions
        for first in NAMES
    ]  # fmt: skip
    for first, made in zip(NAMES, functions, strict=True):
        assert made["sigmoid"].slopes is not None
        assert first == "sigmoid" or made[first].slopes is None


@pytest.mark.slow
def test_the_default_configuration_trains_small_networks():
    """Its wide memory has no room for the momentum of these."""
    layers, samples = list(NETWORKS["tanh"]), some_digits(72)[0]
    assert_same_steps(*pair(Settings(1, 32, momentum=Fraction(0)), layers, samples=samples), 1)
    with pytest.raises(ValueError, match="needs 2121 words of the wide memory, not 2048"):
        pair(Settings(1, 32), layers, samples=samples)


def test_gradients_of_16_bits_are_not_rounded_once_more():
    """Behind a Relu they have these already."""
    samples = some_digits(8)[0]
    chains = []
    for last in ([RELU], []):
        layers = [FLATTEN, SMALL, {"op": "tanh"}, *last, DENSE]
        _, npu = pair(Settings(1, 8), layers, samples=samples, config=LARGE)
        items = trace(npu.program.words, LARGE, npu.program.batches[8].forward).integers
        chains.append([item.steps for item in items if isinstance(item, IntegerChain)])
    before = [steps[[step.mul for step in steps].index(1) - 2] for steps in chains]
    assert [(step.peak, step.round1) for step in before] == [(1, 0), (0, 1)]


# Refusals --------------------------------------------------------------------------------------


def test_a_configuration_without_tables_is_refused():
    config = training_config().replace(name="plain", integer_tables=False)
    with pytest.raises(CannotTrain, match=r"needs a configuration with integer_tables for tanh1, sigmoid1, not plain$"):
        pair(Settings(1, 8), mlp("tanh", "sigmoid"), config=config)
    assert_same_steps(*pair(Settings(1, 32), mlp("relu", "relu"), config=config), 1)


def test_tables_that_do_not_fit_are_named():
    config = training_config().replace(wide_depth=1024)
    with pytest.raises(ValueError, match=r"needs \d+ words of the wide memory, not 1024"):
        pair(Settings(1, 8, momentum=Fraction(0)), mlp("softsign", "tanh"), config=config)
