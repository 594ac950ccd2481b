"""Programs that write rows of the matrix memory: derived software computes what the reference machine does."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive import evaluate, ir
from concord.derive.backends.numpy_functions import exact_sums_of, product_of
from concord.derive.backends.products import steps_of
from concord.derive.flags import by_layer
from concord.derive.model import derive_image, derive_package
from concord.graph.ir import Node
from concord.image import MemorySegment, pack_matrix, pack_vectors
from concord.image.packing import pack_narrow
from concord.spec.formats import BlockFormat
from concord.spec.memmap import RegionId
from support.derive_models import Maker
from support.derived_backends import with_c
from support.derived_modules import random_inputs, same
from support.expressions import ROOMY, graph_of
from support.rtl_configs import WRITABLE, WRITABLE_ENGINES
from support.written_rows import CONFIGS, GROWING, OVERWRITTEN, image_of, on_reference, products_of, random_image

#: Random programs with products of written rows: loops, groups of matrices, and several products.
PROGRAMS = [
    ("tiny", 9), ("tiny", 11), ("two engines", 31), ("two engines", 27), ("windows", 19), ("wide", 9), ("wide", 11),
]  # fmt: skip


@pytest.mark.slow
@with_c
@pytest.mark.parametrize(("config", "seed"), PROGRAMS)
def test_random_programs(config, seed, backend, tmp_path):
    image = random_image(CONFIGS[config], seed)
    inputs = random_inputs(image, 2, seed)
    want, want_flags = on_reference(image, inputs)
    model = derive_image(image, flags=True)
    assert products_of(model)
    found, flags = backend(model, tmp_path, inputs)
    same(found, want)
    assert flags == want_flags


@pytest.mark.parametrize(("config", "seed"), PROGRAMS)
def test_the_golden_model(config, seed):
    image = random_image(CONFIGS[config], seed)
    inputs = random_inputs(image, 2, seed)
    want, want_flags = on_reference(image, inputs)
    words = {}
    same(evaluate.run(derive_image(image, flags=True), inputs, words), want)
    assert by_layer(words) == want_flags
    same(evaluate.run(derive_image(image), inputs), want)


WRITE = "set_iters inner=4\nv_rd wide, 8, inner=1\nm_wr 8, inner=1\nset_iters\n"
PRODUCT = "v_rd narrow, 0\nmv_mul 8\nv_wr wide, 40\nhalt"


def some_inputs(seed=0, samples=4):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(samples, 12, 4)) * np.exp2(rng.integers(-3, 4, (samples, 1, 1)))
    return {"state": rng.normal(size=(samples, 4)), "rows": rows}


@with_c
@pytest.mark.parametrize("text", [OVERWRITTEN, GROWING], ids=["overwritten", "growing"])
def test_rows_that_change_between_products(text, backend, tmp_path):
    image = image_of(text)
    inputs = some_inputs()
    want, want_flags = on_reference(image, inputs)
    found, flags = backend(derive_image(image, flags=True), tmp_path, inputs)
    same(found, want)
    assert flags == want_flags


def test_rows_that_are_overwritten_are_a_recurrence():
    model = derive_image(image_of(OVERWRITTEN))
    (loop,) = [node for node in model.body if isinstance(node, ir.Loop)]
    assert loop.count == 3 and any(isinstance(node, ir.ProductOf) for node in loop.body)


@pytest.mark.parametrize(("old", "new"), [
    ("m_wr 8, inner=1", "m_wr 8, inner=-1, reg=3"),  # rows in another order
    ("set_iters inner=4\nset_quant", "set_iters inner=3\nset_quant"),  # the last row stays what it is
    ("inc_addr 1, 4", "inc_addr 1, 3"),  # a row of the iteration before
], ids=["order", "missing", "stale"])  # fmt: skip
def test_a_wrong_row_is_noticed(old, new):
    text = OVERWRITTEN.replace("loop 3", "set_addr 3, 3\nloop 3")
    assert old in text
    inputs = some_inputs()
    found = evaluate.run(derive_image(image_of(text)), inputs)
    same(found, on_reference(image_of(text), inputs)[0])
    other = image_of(text.replace(old, new))
    want = on_reference(other, inputs)[0]
    with pytest.raises(AssertionError):
        same(found, want)
    same(evaluate.run(derive_image(other), inputs), want)


@with_c
def test_exponents_beyond_those_of_weights(backend, tmp_path):
    """A row whose exponent is cut off raises ``SATURATED``, from the first number on that asks for a greater one."""
    image = image_of(WRITE.replace("inner=4", "inner=8") + PRODUCT, WRITABLE_ENGINES)
    inputs = {"state": np.ones((6, 8)), "rows": np.zeros((6, 12, 8))}
    inputs["rows"][:, 2, 5] = [3.0, 3.998, 4.0, -4.0, 65504.0, 2.0**-14]
    inputs["rows"][:, 1, :2] = 2.0**-9, -(2.0**-9)
    want, want_flags = on_reference(image, inputs)
    found, flags = backend(derive_image(image, flags=True), tmp_path, inputs)
    same(found, want)
    (place,) = flags.values()
    assert place == {"SATURATED": [2, 3, 4]} and flags == want_flags


TURNED = """
set_iters inner=4
v_rd wide, 8, inner=1
m_wr 8, inner=1
v_rd narrow, 1, inner=1
mv_mul 8
v_wr wide, 40, inner=1
halt
"""


@pytest.mark.parametrize(("vectors", "kinds"), [
    (np.eye(4), {ir.Transpose}),
    (np.eye(4)[[0, 2, 2, 1]], {ir.Gather}),
    (np.eye(4) + 0.25, {ir.MatMul, ir.Transpose}),
], ids=["unit", "chosen", "others"])  # fmt: skip
def test_products_of_constant_vectors(vectors, kinds):
    """A product of unit vectors moves elements in derived software; that of other constants has weights."""
    segment = MemorySegment.from_words(RegionId.NARROW, 1, pack_narrow(vectors, WRITABLE), WRITABLE)
    image = replace(image_of(TURNED), segments=(segment,))
    model = derive_image(image)
    assert {type(node) for node in model.body} & {ir.MatMul, ir.ProductOf, ir.Transpose, ir.Gather} == kinds
    inputs = some_inputs()
    same(evaluate.run(model, inputs), on_reference(image, inputs)[0])


def test_rows_of_constants_are_weights():
    """Written rows are constants, and so is one that nobody writes."""
    rng = np.random.default_rng(1)
    text = WRITE.replace("inner=4", "inner=3").replace("v_rd wide, 8", "v_rd wide, 32") + PRODUCT
    image = replace(image_of(text), segments=(
        MemorySegment.from_words(RegionId.WIDE, 32, pack_vectors(rng.normal(size=(3, 4)), WRITABLE), WRITABLE),
        MemorySegment.from_words(RegionId.MATRIX, 32, pack_matrix(rng.normal(size=(4, 4)), WRITABLE), WRITABLE),
    ))  # fmt: skip
    model = derive_image(image)
    assert not products_of(model)
    inputs = some_inputs()
    same(evaluate.run(model, inputs), on_reference(image, inputs)[0])


@with_c
def test_constants_beside_written_rows(backend, tmp_path):
    words = pack_matrix(np.random.default_rng(1).normal(size=(4, 4)), WRITABLE)
    segment = MemorySegment.from_words(RegionId.MATRIX, 32, words, WRITABLE)
    image = replace(image_of(GROWING), segments=(segment,))
    inputs = some_inputs()
    same(backend(derive_image(image), tmp_path, inputs)[0], on_reference(image, inputs)[0])


@pytest.mark.parametrize(("text", "changes", "message"), [
    (WRITE + PRODUCT.replace("8", "8, mode=depthwise"), {}, "must be dense and read whole tiles"),
    (WRITE + PRODUCT.replace("8", "9"), {}, "must be dense and read whole tiles"),
    (WRITE + PRODUCT, {"acc_width": 32, "acc_register": 32},
     "must not be able to leave the acc_register of 32 bits"),
], ids=["depthwise", "part of a tile", "register"])  # fmt: skip
def test_what_is_refused(text, changes, message):
    with pytest.raises(ValueError, match=message):
        derive_image(image_of(text, WRITABLE.replace(**changes)))


def test_constants_that_are_no_binary16_numbers_are_refused():
    config = WRITABLE.replace(act_mant=12, wgt_mant=12, wgt_exp_max=8, acc_width=60)
    words = pack_matrix(np.full((4, 4), 2047 * 2.0**8), config)
    segment = MemorySegment.from_words(RegionId.MATRIX, 32, words, config)
    with pytest.raises(ValueError, match="weights beside rows that m_wr has written must be binary16 numbers"):
        derive_image(replace(image_of(GROWING, config), segments=(segment,)))


def test_sums_that_float64_may_not_hold():
    """Added up in integers where they need it, row by row."""
    x = np.array([[65504.0, 2.0**-24, 1.0], [3.0, 2.0**-20, 1.0]], np.float32)[None]
    matrix = np.array([[65504.0, 2.0**-24, 1.0], [1.0, 1.0, -1.0]], np.float32)[None]
    total = exact_sums_of(product_of(x.astype(np.float64), matrix, 0), x, matrix, groups=0, unit=2.0**-48)
    exact = [
        sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, other, strict=True))
        for row in x[0]
        for other in matrix[0]
    ]
    assert [Fraction(value) for value in product_of(x.astype(np.float64), matrix, 0).ravel().tolist()] != exact
    for value, want in zip(total.ravel().tolist(), exact, strict=True):  # 52 bits, and whether there are more
        low = 2 ** max(0, (abs(want) * 2**48).numerator.bit_length() - 53)
        assert abs(Fraction(value) - want) * 2**48 < low and (Fraction(value) == want or low > 1)


@pytest.mark.parametrize(("forms", "message"), [
    ((BlockFormat(12, 8, -24, 5), BlockFormat(12, 8, -24, 5)), "more than 3 sums"),
    ((BlockFormat(8, 8, -15, 9), BlockFormat(8, 8, -15, 0)), ""),
])  # fmt: skip
def test_values_of_too_many_bits(forms, message):
    m = Maker()
    product = m.product_of(m.input((5, 8)), m.input((6, 8)), forms, frac=48)
    (node,) = (node for node in m.nodes if node.output is product)
    if not message:
        assert len(steps_of(node)[1]) == 1
        return
    with pytest.raises(ValueError, match=message):
        steps_of(node)


def attention(positions, channels):
    """Scores of all positions, their softmax, and sums of values by it."""
    rng = np.random.default_rng(3)
    weights = {name: {"weight": rng.normal(0, 0.5, (channels, channels)), "bias": rng.normal(0, 0.1, channels)}
               for name in "qkv"}  # fmt: skip
    return graph_of(
        [
            *(Node("Dense", name, ("x",), (name,), attrs) for name, attrs in weights.items()),
            Node("Transpose", "turn", ("k",), ("kt",), {"perm": (0, 2, 1)}),
            Node("MatMul", "scores", ("q", "kt"), ("s",)),
            Node("Softmax", "softmax", ("s",), ("a",), {"axis": 2}),
            Node("MatMul", "mixed", ("a", "v"), ("y",)),
        ],
        x=(1, positions, channels),
    )


@pytest.mark.slow
@with_c
@pytest.mark.parametrize("engines", [1, 2])
def test_attention(engines, backend, tmp_path):
    config = ROOMY.replace(writable_matrix=True, engines=engines, lanes=2 * engines)
    package = compile_graph(attention(6, 5), config).package
    x = {"x": np.random.default_rng(0).normal(size=(4, 6, 5)) * np.array([1.0, 8.0, 90.0, 0.01])[:, None, None]}
    outputs, want_flags = on_reference(package.image, package.arrangement.pack(x))
    model = derive_package(package, flags=True)
    assert products_of(model)
    found, flags = backend(model, tmp_path, x)
    same(found, package.arrangement.unpack(outputs, 4))
    assert flags == want_flags and "SATURATED" in flags["scores/product"]
