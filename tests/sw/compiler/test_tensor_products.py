"""Products of two tensors on the tile engines: programs write the matrix."""

import math
from itertools import pairwise

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph.cost import macs
from concord.graph.execute import run
from concord.host import connect
from concord.networks.calibrated import emulate
from concord.program import trace
from concord.spec.isa import Op
from concord.spec.presets import ECP5_85F
from support.compiled_nets import attention, heads, random_product
from support.expressions import ROOMY, check, exact, network, tensor

WRITABLE = {
    "tiny": ROOMY.replace(writable_matrix=True),
    "two engines": ROOMY.replace(writable_matrix=True, engines=2),
    "ecp5-85f": ECP5_85F.replace(writable_matrix=True, narrow_depth=4096, wide_depth=4096, matrix_depth=16384),
}


def rows_of(compiled):
    """Layers whose matrix the program writes."""
    return [layer for layer in compiled.lowered.layers if layer.rows is not None]


def written(compiled):
    """Vectors that the program writes as rows."""
    chains = trace(compiled.image.program, compiled.image.config).chains
    return sum(chain.vectors for chain in chains if chain.into_matrix is not None)


@pytest.fixture
def always(monkeypatch):
    """Let the compiler write matrices wherever it can."""
    monkeypatch.setattr("concord.compiler.lowering.tensor_products.cycles", lambda lowering, node: 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", WRITABLE)
def test_any_shapes(name, seed, always):
    """With and without batch axes, broadcast or not, either factor transposed: small integers stay exact."""
    rng = np.random.default_rng(seed)
    graph, inner = random_product(rng, 21)
    compiled = check(graph, rng, WRITABLE[name])
    assert rows_of(compiled) and written(compiled)
    assert macs(graph) == macs(compiled.graph) == math.prod(graph.shapes["y"]) * inner


@pytest.mark.parametrize("name", WRITABLE)
@pytest.mark.parametrize("shape", [(5, 7), (3, 2), (1, 5), (9, 1), (20, 18)])
def test_a_tensor_times_itself(name, shape, always):
    x = tensor(*shape)
    for y in (x @ x.transpose(1, 0), x.transpose(1, 0) @ x):
        assert rows_of(exact(y, WRITABLE[name]))


@pytest.mark.parametrize("name", WRITABLE)
@pytest.mark.parametrize("stack, width, columns", [(1, 4, 9), (2, 4, 7), (3, 3, 5), (4, 5, 20), (2, 16, 33), (1, 6, 2)])
def test_a_row_for_each_of_a_stack(name, stack, width, columns, always, monkeypatch):
    """Columns are read, and the rows are written side by side: small integers stay exact."""
    monkeypatch.setattr("concord.compiler.lowering.tensor_products.cycles_by_columns", lambda lowering, node: -1)
    size = stack * width
    keys = tensor(1, columns, size, name="z").same().reshape(1, columns, stack, width)
    compiled = exact(tensor(1, size).reshape(1, stack, 1, width) @ keys.transpose(0, 2, 3, 1), WRITABLE[name])
    (layer,) = rows_of(compiled)
    assert layer.rows.count == stack and layer.source.height * layer.source.width == columns


def test_keys_that_do_not_lie_beside_each_other(always, monkeypatch):
    """Then each product of a stack has its own columns as its matrix."""
    monkeypatch.setattr("concord.compiler.lowering.tensor_products.cycles_by_columns", lambda lowering, node: -1)
    compiled = exact(tensor(1, 3, 1, 4) @ tensor(1, 3, 4, 7, name="z"), WRITABLE["tiny"])
    assert not any(layer.rows is not None and layer.out[1] == 7 for layer in compiled.lowered.layers)


CASES = {
    "one head": (20, 1, 32, 1), "four heads": (16, 4, 8, 1), "few tokens": (5, 4, 8, 1), "wide heads": (12, 2, 24, 1),
    "many tokens": (35, 2, 16, 1), "shared keys": (16, 4, 8, 2), "the same keys for all": (9, 4, 8, 4),
}  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_attention(case, causal):
    """As accurate as with vectors of eight bits, on an NPU with 128 multipliers."""
    tokens, stack, width, shared = CASES[case]
    mask = np.triu(np.full((tokens, tokens), -30000.0), 1) if causal else None
    graph = heads(tokens, stack, width, shared, mask)
    compiled = compile_graph(graph, WRITABLE["ecp5-85f"].replace(program_depth=1024))
    x = {"x": np.random.default_rng(7).normal(0, 1, (5, tokens, stack * width))}
    want, got = run(graph, x)["y"], emulate(compiled, x)["y"]
    assert 0 < np.linalg.norm(got - want) < 0.03 * np.linalg.norm(want)
    assert rows_of(compiled)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("level", [-25.0, 12.0])
def test_scores_far_from_zero(op, level, always):
    """Lanes without a key hold zero, which must not be the maximum, nor part of the sum."""
    scores = tensor(6, 8) @ tensor(8, 5, name="z")
    graph, rng = network(scores.softmax(1, op).same()), np.random.default_rng(8)
    compiled = compile_graph(graph, WRITABLE["ecp5-85f"])
    x = {"x": rng.uniform(0.5, 1.5, (5, 6, 8)), "z": rng.uniform(0.8, 1.2, (5, 8, 5)) * level / 8}
    want, got = run(graph, x)["y"], emulate(compiled, x)["y"]
    assert rows_of(compiled) and np.linalg.norm(got - want) < 0.05 * np.linalg.norm(want)


def test_heads_are_one_product():
    """Projections are written where each head has vectors of its own; what fills up a tile needs no mask."""
    compiled = compile_graph(heads(8, 4, 8), WRITABLE["ecp5-85f"])
    layers = {layer.name: layer for layer in compiled.lowered.layers}
    assert [layer.stack for layer in rows_of(compiled)] == [4, 4, 4]
    assert layers["q"].out == layers["scores"].out == layers["mix"].out == (1, 8, 4)
    assert "softmax/masked" not in layers
    chains = trace(compiled.image.program, compiled.image.config).chains
    assert sum(chain.reduce is Op.MV_MUL and chain.matrix < 8 for chain in chains) == 3


def test_keys_of_several_heads_are_written_once():
    separate, shared = (compile_graph(heads(20, 4, 8, count), WRITABLE["ecp5-85f"]) for count in (1, 2))
    assert written(separate) - written(shared) == 2 * (20 + 20)  # of two heads: keys, and values to transpose


def several_products(*shapes):
    """Products of two inputs each, ``[rows, inner] @ [inner, columns]``."""
    products = {}
    for k, (rows, inner, columns) in enumerate(shapes):
        factors = tensor(rows, inner, name=f"x{k}"), tensor(inner, columns, name=f"z{k}")
        products[f"y{k}"] = factors[0].combined("MatMul", factors[1], name=f"product{k}")
    return products


def places(compiled):
    """First word, and words, of every part of the matrix memory that the program writes."""
    listed = [each for each in compiled.image.metadata["map"] if each["name"].startswith("written matrix")]
    return {each["name"]: (each["address"], each["words"]) for each in listed}


@pytest.mark.parametrize("name", WRITABLE)
@pytest.mark.parametrize("large", [0, 1])
def test_matrices_with_the_same_rows_left_zero_share_their_words(name, large, always):
    """The one with the most vectors a row says how many, wherever it is."""
    config = WRITABLE[name]
    inner = [2 * config.native, 5 * config.native]
    columns = config.rows + 1 if name == "tiny" else config.rows - 1
    products = several_products((3, inner[large], columns), (3, inner[1 - large], columns))
    compiled = exact(**products, config=config)
    by_words = {kind: words for kind, (_, words) in places(compiled).items()}
    tall = max(math.ceil(columns / config.rows), 1) * 5 * config.steps
    assert max(by_words.values()) >= tall


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITABLE)
def test_matrices_with_other_rows_left_zero_lie_apart(name, always):
    config = WRITABLE[name]
    sizes = [config.rows - 1, config.rows, config.rows - 2, config.rows - 1]
    compiled = exact(**several_products(*((2, config.native, columns) for columns in sizes)), config=config)
    spans = sorted(places(compiled).values())
    assert len(spans) >= 3
    assert all(addr + words <= after for (addr, words), (after, _) in pairwise(spans))
    assert spans[0][0] == 0  # in front of all weights


def test_rows_that_no_vector_belongs_to_are_not_written(always):
    """They are zero from the start: five keys are five rows, not sixteen."""
    compiled = compile_graph(network(**several_products((3, 16, 5))), WRITABLE["ecp5-85f"])
    (layer,) = (layer for layer in rows_of(compiled) if layer.name == "product0")
    assert layer.rows.count == 5
    assert written(compiled) <= 5 + 16  # and the second factor, as it is transposed


def test_the_fastest_way_is_taken():
    """A few small products have fewer cycles element by element."""
    graph = attention()
    assert not rows_of(compile_graph(graph, ROOMY))
    assert not rows_of(compile_graph(graph, WRITABLE["two engines"]))
    assert rows_of(compile_graph(heads(20, 1, 32), WRITABLE["two engines"]))


def test_rows_that_exponents_of_weights_do_not_hold_are_told():
    """Keys above the range of weights are limited, with a flag."""
    x, keys = tensor(12, 16), tensor(12, 16, name="z").transpose(1, 0)
    graph = network(x.combined("MatMul", keys, name="product"))
    compiled = compile_graph(graph, WRITABLE["ecp5-85f"])
    assert rows_of(compiled)
    values = {"x": np.ones((1, 12, 16)), "z": np.full((1, 12, 16), 500.0)}
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        np.testing.assert_array_equal(compiled.run(device, values)["y"], 16 * 127.0)
        (told,) = compiled.package.flags(device.flags())
    assert (told.flag, told.layer) == ("SATURATED", "product/second transposed.0")
    assert told.text.endswith(
        "rows of a matrix have values of 128 or more, which weights cannot hold, and were cut off"
    )


def test_a_matrix_that_does_not_fit_is_told():
    with pytest.raises(ValueError, match=r"matrix memory has 16 words, but .* are needed \(written matrix"):
        compile_graph(heads(40, 1, 32), WRITABLE["ecp5-85f"].replace(matrix_depth=16), Formats())


def test_integers_stay_exact_between_lanes_that_hold_others():
    """Channels of another head lie in the same vectors: they do not count."""
    x = tensor(20, 10)
    a, b = x[:, :5], x[:, 5:]
    compiled = exact(b @ b.transpose(1, 0) @ a, WRITABLE["ecp5-85f"], limit=1)
    assert len(rows_of(compiled)) == 3
