"""Corners of derived models: what is left out of blocks, sums that float64 cannot hold, recurrences that are none."""

import numpy as np
import pytest

from concord.derive import evaluate, ir
from concord.derive.backends.numpy_functions import depthwise, ended, exact_sums, product, round_to_half
from concord.derive.backends.products import plan
from concord.derive.backends.python_nodes import slices as slice_texts
from concord.derive.classes import components
from concord.derive.model import derive_image
from concord.image import Image, MemorySegment, Port, pack_matrix, pack_vectors
from concord.program.assembler import assemble
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.derive_models import Maker, assert_equal
from support.derived_backends import with_c
from support.derived_modules import emulated, image_of_memories, load_derived, program_rng, random_inputs, same
from support.program_gen import random_program

PROGRAM = """
set_shape rows={rows}
v_rd narrow, 0
mv_mul 0
vv_add 0, row=1
v_wr narrow, 8, row=1
halt
"""


def block_image(weight, bias, outputs):
    """A product and a sum, converted."""
    rows = len(weight) // 4
    segments = (
        MemorySegment.from_words(RegionId.MATRIX, 0, pack_matrix(weight, TINY), TINY),
        MemorySegment.from_words(RegionId.WIDE, 0, pack_vectors(bias, TINY), TINY),
    )
    ports = (Port("x", RegionId.NARROW, 0, (4,)),), (Port("y", RegionId.NARROW, 8, outputs),)
    return Image(TINY, tuple(assemble(PROGRAM.format(rows=rows))), segments, *ports)


def check(image, folder):
    """Derive and compare; returns the model."""
    model = derive_image(image)
    inputs = {"x": np.random.default_rng(3).normal(size=(5, 4))}
    same(load_derived(model, folder).run(inputs), emulated(image, inputs))
    return model


def test_constant_lanes_count_for_the_exponent(tmp_path):
    weight = np.zeros((4, 4))
    weight[:2] = 0.5
    weight[1, 0] = 0.25
    model = check(block_image(weight, np.array([0.0, 0.0, 900.0, 900.0]), (2,)), tmp_path)
    (block,) = [node for node in model.body if isinstance(node, ir.Quantise) and 1 in node.pcs]
    assert (block.blocks, block.peaks) == ((2,), (900.0,))


def test_equal_lanes_of_two_blocks_are_two(tmp_path):
    weight = np.full((8, 4), 0.3)
    weight[:3] = np.arange(12).reshape(3, 4) / 12
    bias = np.array([500.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    check(block_image(weight, bias, (2, 4)), tmp_path)


def test_sums_beyond_53_bits():
    """2049 is halfway between two binary16 numbers; the last bit, 61 bits below, decides."""
    x, weight = np.ones((2, 2), np.float32), np.array([[2049.0], [2.0**-50]])

    def rounded(total, *operands):
        return round_to_half(exact_sums(total, *operands, norm=2050.0, most=0.0, unit=2.0**-50)).tolist()

    assert rounded(product(x, weight), x, weight) == [[2050.0], [2050.0]]
    assert rounded(product(x, -weight), x, -weight) == [[-2050.0], [-2050.0]]
    assert rounded(product(x, weight), x, weight, np.array([-(2.0**-50)])) == [[2048.0], [2048.0]]
    taps = np.ones((2, 2, 1), np.float32)
    assert rounded(depthwise(taps, weight), taps, weight) == [[2050.0], [2050.0]]
    groups, weights = x[:, None], np.stack([weight])
    assert rounded(product(groups, weights), groups, weights) == [[[2050.0]], [[2050.0]]]


def test_a_sum_of_zero_is_positive():
    zeros = np.zeros((1, 1, 1), np.float32)
    assert not np.signbit(round_to_half(depthwise(zeros, np.array([[-1.0]])))).any()


@pytest.mark.parametrize(
    "name, changes",
    [
        ("swide119", {"act_mant": 12, "wgt_mant": 12, "wgt_exp_max": 4, "acc_width": 68}),
        ("sm3238", {"act_mant": 3}),
    ],
)
def test_circles_that_are_no_recurrence(name, changes, tmp_path):
    """The first iteration reads of itself what others read of the one before, or different elements in one place."""
    words, memories = random_program(TINY.replace(**changes), program_rng(name), {"swide119": 27, "sm3238": 26}[name])
    image = image_of_memories(words, memories)
    inputs = random_inputs(image, 2, 1)
    same(load_derived(derive_image(image), tmp_path).run(inputs), emulated(image, inputs))


@with_c
@pytest.mark.parametrize("kind", [ir.MatMul, ir.Depthwise])
def test_sums_between_24_and_25_bits(kind, backend, tmp_path):
    """One unit above the middle of two binary16 numbers: float32 has no such unit from 2**24 units on."""
    m = Maker()
    shape, weight = ((3,), [[8192, 8192, 1]]) if kind is ir.MatMul else ((3, 1), [[8192], [8192], [1]])
    y = m.product(kind, m.input(shape), weight, (1,), exponent=-16, unit=-16, bound=2.0**8 + 2.0**-2)
    model = m.model(y)
    x = np.array([[2048.0, 1.0, 1.0], [2048.0, 1.0, 0.0], [-2048.0, -1.0, -1.0]]).reshape(3, *shape)
    found, _ = backend(model, tmp_path, {"input:0": x})
    assert found["output/0"].ravel().tolist() == [256.25, 256.0, -256.25]
    assert_equal(found, evaluate.run(model, {"input:0": x}))


@pytest.mark.parametrize("bits", range(22, 28))
def test_float32_adds_up_what_it_holds(bits):
    m = Maker()
    m.product(ir.MatMul, m.input((2,)), [[1, 1]], (1,), exponent=0, unit=0, bound=2.0**bits - 1, width=60, frac=0)
    assert plan(m.nodes[-1]).single == (bits <= 24)


def slices():
    """Every slice of five elements with steps of either sign: those that end at, and before, element 0, too."""
    for step in (-4, -3, -2, -1, 1, 2, 3, 5):
        for start in range(5):
            most = (4 - start) // step + 1 if step > 0 else start // -step + 1
            yield from ((start, step, count) for count in range(1, most + 1))


def test_the_text_of_every_slice():
    """Places in falling order are an index behind it."""
    for start, step, count in slices():
        m = Maker()
        m.add(ir.Slice, (count,), x=m.input((5,)), starts=(start,), steps=(step,))
        (text,) = slice_texts(m.nodes[-1])
        want = [start + k * step for k in range(count)] if step > 0 else [0, 1, 2, 3, 4]
        assert eval(f"np.arange(5)[{text}]").tolist() == want, (start, step, count)


@with_c
def test_every_slice(backend, tmp_path):
    m = Maker()
    x, found, listed = m.input((5, 2)), [], list(slices())
    for start, step, count in listed:
        found.append(m.add(ir.Slice, (count, 2), x=x, starts=(start, 0), steps=(step, 1)))
    given = np.arange(20.0).reshape(2, 5, 2)
    results, _ = backend(m.model(*found), tmp_path, {"input:0": given})
    for k, (start, step, count) in enumerate(listed):
        assert np.array_equal(results[f"output/{k}"], given[:, [start + i * step for i in range(count)]]), listed[k]


@with_c
@pytest.mark.parametrize("kind", [ir.MatMul, ir.Depthwise])
def test_sums_between_53_and_54_bits(kind, backend, tmp_path):
    """One unit above the middle of two binary16 numbers: float64 has no such unit from 2**53 units on."""
    m = Maker()
    weight = np.array([[2.0**30, 2.0**30, 1.0]])
    shape, weight = ((3,), weight) if kind is ir.MatMul else ((3, 1), weight.T)
    wide = {"exponent": -33, "unit": -45, "bound": 2.0**8 + 2.0**-2, "frac": 45, "width": 60}
    model = m.model(m.product(kind, m.input(shape), weight, (1,), **wide))
    x = np.array([[2048.0, 1.0, 2.0**-12], [2048.0, 1.0, 0.0], [-2048.0, -1.0, -(2.0**-12)]]).reshape(3, *shape)
    found, _ = backend(model, tmp_path, {"input:0": x})
    assert found["output/0"].ravel().tolist() == [256.25, 256.0, -256.25]


def test_the_ends_of_a_register():
    """It holds minus the power of two, and not the power of two; what has ended stays."""
    x = np.array([[4, 4], [-4, -4], [-8, 0], [8, -4], [-8, 4], [-8, -1], [3, 4]], np.float32)
    weight = np.ones((2, 1))
    found = ended(product(x, weight), x, weight, end=8.0, norm=2.0, starts=[0, 1])
    assert found.ravel().tolist() == [np.inf, -8.0, -8.0, np.inf, -4.0, -np.inf, 7.0]
    taps = x[..., None]
    assert np.array_equal(ended(depthwise(taps, weight), taps, weight, end=8.0, norm=2.0, starts=[0, 1]), found)


@pytest.mark.parametrize("seed", range(20))
def test_components_by_their_definition(seed):
    """Two nodes are in one component if each is reached from the other; components come after what they depend on."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    edges = rng.random((count, count)) < 1.5 / count
    found = components(range(count), {node: np.flatnonzero(row).tolist() for node, row in enumerate(edges)})
    reached = np.linalg.matrix_power(edges | np.eye(count, dtype=bool), count)
    assert sorted(node for component in found for node in component) == list(range(count))
    for place, component in enumerate(found):
        first, later = component[0], [node for other in found[place + 1 :] for node in other]
        assert sorted(component) == np.flatnonzero(reached[first] & reached[:, first]).tolist()
        assert not reached[first, later].any()
