"""Programs of training: sound by the verifier, and refused with what they need."""

from fractions import Fraction

import numpy as np
import pytest
from onnx import helper, numpy_helper

from concord.frontend import import_model
from concord.functions import trainable
from concord.host.emulated import EmulatedDevice
from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.program.integers import IntegerChain
from concord.program.trace import trace
from concord.program.verify import verify_phases
from concord.spec.integers import digit_span, digits_of
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F_256
from concord.spec.training import TrainingFormat, TrainingFormats
from concord.train import CannotTrain, Samples, Settings, Trainer, described
from concord.train.npu import NpuTrainer, training_config
from concord.train.npu.chains import ChainWriter
from concord.train.npu.plan import planned
from support.npu_training import LARGE, MLP, SHAPE, pair, phases_of, pointed, random_case, random_images, some_digits
from support.train_digits import FORMATS

CONFIG = training_config().replace(narrow_depth=4096, wide_depth=4096, program_depth=2048)
IMAGE_SEEDS = [seed for seed in range(24) if seed != 0]  # that of 0 needs more memory than there is
CONV, FLATTEN, DENSE = {"op": "conv", "channels": 2}, {"op": "flatten"}, {"op": "dense", "outputs": 10}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_programs_are_sound(seed):
    layers, shape, samples, settings = random_case(seed)
    _, npu = pair(settings, layers, shape, samples, config=CONFIG)
    constants, phases = phases_of(npu)
    assert verify_phases(npu.program.words, CONFIG, phases, constants=constants) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", IMAGE_SEEDS)
def test_programs_of_images_are_sound(seed):
    layers, shape, samples, settings = random_images(seed)
    _, npu = pair(settings, layers, shape, samples, config=LARGE)
    constants, phases = phases_of(npu)
    assert verify_phases(npu.program.words, LARGE, phases, constants=constants) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", IMAGE_SEEDS)
def test_everything_is_given_back(seed):
    layers, shape, samples, settings = random_images(seed)
    _, npu = pair(settings, layers, shape, samples, config=LARGE)
    momentum = bool(npu.optimiser.momentum.mant)
    fresh = planned(npu.memory.operations, npu.memory.sizes, LARGE, momentum)
    assert npu.memory.spaces.keys() == fresh.spaces.keys()
    for region, space in npu.memory.spaces.items():
        assert space.taken == fresh.spaces[region].taken, region


def test_chains_have_the_least_interval():
    _, npu = pair(Settings(1, 32))
    config = npu.device.config
    chains = [
        chain
        for pc in npu.program.starts
        for chain in trace(npu.program.words, config, pc).integers
        if isinstance(chain, IntegerChain)
    ]
    assert len(chains) > 50
    assert all(chain.steps.interval == chain.least_interval(config) for chain in chains)


def test_chains_that_are_split_leave_elements_out_of_the_last_vector_alone():
    writer = ChainWriter()
    start = writer.begin()
    source, place = VectorPlace(Mem.NARROW, Address(7, 3000, 2)), VectorPlace(Mem.WIDE, Address(100, 2, 6))
    writer.chain(ChainLoops(3, 4), source, vectors=place, valid=3)
    writer.end()
    chains = trace(writer.words(LARGE, [start]), LARGE, start).integers
    assert [(chain.rows, chain.source.base, chain.destination.address.base, chain.steps.valid) for chain in chains] == [
        (1, 7, 100, 0), (1, 3007, 102, 0), (1, 6007, 104, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_digits_hold_what_they_are_chosen_for(count):
    most = min(map(abs, digit_span(count)))
    assert digits_of(most) == count
    if count < 5:
        assert digits_of(most + 1) == count + 1
    else:
        assert digits_of((1 << 31) - 1) == count


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"formats": FORMATS["blocks"]}, "default, not others for weight, activation, gradient"),
        ({"formats": FORMATS["stochastic"]}, "default, not others for gradient, accumulator"),
        ({"formats": TrainingFormats(bias=TrainingFormat(9))}, "default, not others for bias"),
        ({"formats": pointed(9)}, r"accumulator\.point in 10\.\.15, not 9"),
        ({"formats": pointed(9, bits=12)}, "default, not others for accumulator"),
        ({"shards": 2}, "shards = 1, not 2"),
    ],
)
def test_settings_are_refused(settings, reason):
    with pytest.raises(CannotTrain, match=f"^training on the NPU needs .*{reason}"):
        pair(Settings(1, 8, **settings))


@pytest.mark.parametrize(
    ("layers", "shape", "reason"),
    [
        (
            [{**CONV, "channels": 4, "groups": 2}, *MLP],
            (2, 8, 8),
            r"conv \(groups = 1\), depthwise, relu, .*, not conv1 \(Conv\)",
        ),
        ([CONV, {"op": "batch_norm"}, *MLP], SHAPE, r"not conv1 \(Normalised\)"),
        ([*MLP, {"op": "relu"}], SHAPE, "a product, an average or a sum at the end"),
        ([{"op": "max_pool", "kernel": 3, "stride": 2}, *MLP], SHAPE, "do not overlap, not as max_pool1"),
        ([{"op": "average_pool", "pad": 1}, *MLP], SHAPE, "inside the image, not as average_pool1"),
        (
            [CONV, {"op": "global_average"}, DENSE, {"op": "relu"}, DENSE],
            (1, 66, 8),
            "at most 63 rows and columns, not 66",
        ),
        (
            [
                {**CONV, "pad": 1, "name": "a"},
                {"op": "relu"},
                {"op": "add", "to": "a"},
                {"op": "add", "to": "a"},
                FLATTEN,
                DENSE,
            ],
            SHAPE,
            "at most 2 readers of a tensor, not as a",
        ),
        ([{**CONV, "name": "a"}, {"op": "add", "to": "a"}, FLATTEN, DENSE], SHAPE, "sums of two tensors.*not as add1"),
        ([{"op": "dense", "outputs": 4}, *MLP], SHAPE, r"vectors, not of \[1, 8, 8\]|products of vectors"),
    ],
)
def test_networks_are_refused(layers, shape, reason):
    samples = Samples(np.zeros((40, *shape)), np.zeros(40, np.int64))
    with pytest.raises(CannotTrain, match=reason):
        pair(Settings(1, 8), layers, shape, samples)


def test_windows_over_what_a_reshape_has_made_are_refused():
    draw = np.random.default_rng(0)
    tensors = {
        "w": draw.normal(size=(1, 1, 1, 1)), "v": draw.normal(size=(2, 1, 3)), "d": draw.normal(size=(68, 3)),
        "line": np.array([0, 1, 36]), "flat": np.array([0, 68]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="a"),
        helper.make_node("Reshape", ["a", "line"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], name="c"),
        helper.make_node("Reshape", ["c", "flat"], ["e"]),
        helper.make_node("MatMul", ["e", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 1, 6, 6])],
        [helper.make_tensor_value_info("y", 1, [1, 3])],
        [
            numpy_helper.from_array(v.astype(np.int64 if v.ndim == 1 else np.float32), k) for k, v in tensors.items()
        ],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    samples = Samples(draw.normal(size=(8, 1, 6, 6)), np.arange(8) % 3)
    network = import_model(model)
    Trainer(network, samples, Settings(1, 8))
    with pytest.raises(CannotTrain, match=r"windows over images that no reshape has made, not \[.*36\] as c"):
        NpuTrainer(EmulatedDevice(LARGE), network, samples, Settings(1, 8))


def test_all_reasons_come_at_once():
    layers = [
        {"op": "conv", "channels": 4}, {**CONV, "channels": 8, "groups": 4}, {"op": "batch_norm"}, {"op": "tanh"}, *MLP
    ]  # fmt: skip
    with pytest.raises(CannotTrain) as error:
        pair(Settings(1, 8, shards=2, formats=FORMATS["even"]), layers, config=CONFIG)
    reasons = "activation", "shards = 1", "conv2 (Normalised)", "tanh1 (tanh); relu in the place of these functions"
    assert all(text in str(error.value) for text in reasons)


@pytest.mark.parametrize("name", [record.name for record in trainable()])
def test_functions_by_table_are_refused_with_what_to_do(name):
    layers = [FLATTEN, {"op": "dense", "outputs": 9}, {"op": name, "name": "middle"}, DENSE]
    with pytest.raises(CannotTrain) as error:
        pair(Settings(1, 8), layers)
    assert str(error.value).endswith(
        f", not middle ({name}); relu in the place of these functions; or train this network on the host, without --on"
    )


def test_memories_that_are_too_small_are_named():
    config = training_config().replace(narrow_depth=512, wide_depth=1024, matrix_depth=64)
    with pytest.raises(
        ValueError, match=r"narrow memory has 512 vectors, but \d+ are needed \(for some time \d+, .* more\); wide"
    ):
        pair(Settings(1, 32), config=config)
    with pytest.raises(ValueError, match=r"program memory has 256 words, but \d+ are needed"):
        pair(Settings(1, 32), config=training_config().replace(program_depth=256))


@pytest.mark.slow
def test_what_fits_to_the_word_is_trained():
    _, npu = pair(Settings(1, 32))
    space = npu.memory
    needed = {
        "narrow_depth": space.used(RegionId.NARROW), "wide_depth": space.used(RegionId.WIDE),
        "matrix_depth": space.used(RegionId.MATRIX), "program_depth": len(npu.program.words),
    }  # fmt: skip
    config = training_config()
    for name, words in needed.items():
        with pytest.raises(ValueError, match=rf"{name.removesuffix('_depth')} memory has \d+ \w+, but {words} are"):
            pair(Settings(1, 32), config=config.replace(**{name: words // 2}))


def test_tensor_registers_run_out():
    layers = [{"op": "dense", "outputs": 3}] * 9
    samples = Samples(np.zeros((4, 3)), np.zeros(4, np.int64))
    with pytest.raises(ValueError, match=r"register file has 64 tensor registers, but \d+ are needed"):
        pair(Settings(1, 4), layers, (3,), samples, config=CONFIG)
    assert pair(Settings(1, 4), layers[:8], (3,), samples, config=CONFIG)[1].memory.used(RegionId.TENSORS) <= 64


def test_dense_programs_are_as_short_as_they_can_be():
    short, long = (pair(Settings(1, 32, momentum=momentum))[1] for momentum in (Fraction(0), Fraction(9, 10)))
    assert (len(short.program.words), len(long.program.words)) <= (429, 579)


def test_averages_over_too_many_sizes_are_refused():
    averages = [{"op": "average_pool", "kernel": kernel} for kernel in (2, 3, 5)]
    layers = [{**CONV, "kernel": 1}, *averages, {"op": "global_average"}, DENSE]
    samples = Samples(np.zeros((2, 1, 30, 30)), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="averages over at most 3 numbers of elements, not 4"):
        pair(Settings(1, 2), layers, (1, 30, 30), samples, config=LARGE)


def test_sums_of_too_many_terms_are_refused():
    samples = Samples(np.zeros((4, 300)), np.zeros(4, np.int64))
    config = CONFIG.replace(max_terms=16, acc_width=56, code_scaling=False)
    with pytest.raises(ValueError, match="at most 16 native products"):
        pair(Settings(1, 4, momentum=Fraction(0)), [{"op": "dense", "outputs": 2}], (300,), samples, config=config)


def test_an_npu_without_integer_chains_is_refused():
    with pytest.raises(ValueError, match="needs a configuration with integer_chains, not ecp5-85f-256"):
        NpuTrainer(EmulatedDevice(ECP5_85F_256), described(MLP, SHAPE), some_digits(8)[0], Settings(1, 8))
