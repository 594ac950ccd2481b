"""Operations of two tensors of few bits are tables with two indices: the same codes, where the bytes pay."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from concord.frontend.codes import load
from concord.frontend.codes.importer import import_integer_graph
from concord.integer.operations import CodePairTable, CodeSum
from concord.integer.pairs import pair_table, with_pair_tables
from concord.transfer import CodeRange, Codes
from support.integer_nets import stored
from support.onnx_models import info, model, node, onnxruntime_results

KINDS = {2: "UINT2", 4: "UINT4", 8: "UINT8"}


def network(op, bits, nodes=(), *, single=False, b_sizes=(3, 4), seed=0, outputs=("y",), last="e", target=None):
    """A model of an operation of two inputs of some bits, between pairs, with nodes behind it."""
    rng = np.random.default_rng(seed)
    widths = {"a": bits[0], "b": bits[1], "y": target or bits[0]}
    scales = {f"{name}s": np.float32(rng.uniform(0.05, 0.2)) for name in widths}
    middle = [node("DequantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}d"]) for name in "ab"]
    proto = model([*middle, node(op, ["ad", "ad" if single else "bd"], ["e"], name="two"), *nodes,
                   node("QuantizeLinear", [last, "ys", "yz"], ["y"])], {}, outputs, scales, opset=25)  # fmt: skip
    for name, width in widths.items():
        kind, zero = getattr(TensorProto, KINDS[width]), int(rng.integers(0, 1 << width))
        proto.graph.initializer.append(helper.make_tensor(f"{name}z", kind, [], [zero]))
        if name != "y" and not (single and name == "b"):
            sizes = ("N", *((3, 4) if name == "a" else b_sizes))
            proto.graph.input.append(info(name, sizes, kind))
    if single:
        del proto.graph.node[1]
    return proto


def samples(bits, b_sizes=(3, 4), single=False):
    rng = np.random.default_rng(5)
    x = {"a": rng.integers(0, 1 << bits[0], (50, 3, 4)), "b": rng.integers(0, 1 << bits[1], (50, *b_sizes))}
    return {"a": x["a"]} if single else x


def kinds(loaded):
    return [type(operation).__name__ for operation in loaded.graph.operations]


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
@pytest.mark.parametrize("bits", [(4, 4), (2, 4), (4, 2), (2, 2)])
@pytest.mark.parametrize("b_sizes", [(3, 4), (3, 1), (1, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_results_are_the_same(op, bits, b_sizes, seed):
    proto, x = network(op, bits, b_sizes=b_sizes, seed=seed), samples(bits, b_sizes)
    plain, loaded = load(proto, compose=False), load(proto)
    assert kinds(plain) != ["CodePairTable"] == kinds(loaded)
    assert np.array_equal(plain.run(x)["y"], loaded.run(x)["y"])
    assert loaded.tables.report().nbytes == 1 << sum(bits)
    assert "1 of 1 operations of two tensors are tables, which pay up to 256 bytes" in loaded.report()
    loaded.tables.check()


@pytest.mark.parametrize("bits, pays", [((4, 4), True), ((8, 2), False), ((8, 8), False)])
def test_bytes_decide(bits, pays):
    loaded = load(network("Add", bits))
    assert (kinds(loaded) == ["CodePairTable"]) == pays
    assert f"{int(pays)} of 1 operations of two tensors are tables" in loaded.report()


def test_a_greater_limit():
    graph = with_pair_tables(import_integer_graph(network("Add", (8, 2))), 1 << 10)
    assert [type(operation) for operation in graph.operations] == [CodePairTable]
    assert len(with_pair_tables(import_integer_graph(network("Add", (8, 2))), (1 << 10) - 1).operations) == 1


def test_tables_around_it_are_in_it():
    """A function of the first operand, and one behind: three tables and a sum are one table."""
    quantised = [node("QuantizeLinear", ["e", "as", "az"], ["eq"]), node("DequantizeLinear", ["eq", "as", "az"], ["f"]),
                 node("Tanh", ["f"], ["g"])]  # fmt: skip
    proto = network("Add", (4, 4), quantised, last="g")
    add = next(item for item in proto.graph.node if item.name == "two")
    add.input[0] = "h"
    front = [node("LeakyRelu", ["ad"], ["r"], alpha=0.3), node("QuantizeLinear", ["r", "bs", "bz"], ["rq"]),
             node("DequantizeLinear", ["rq", "bs", "bz"], ["h"])]  # fmt: skip
    for k, item in enumerate(front):
        proto.graph.node.insert(2 + k, item)
    plain, loaded, x = load(proto, compose=False), load(proto), samples((4, 4))
    assert kinds(plain) == ["CodeTable", "CodeFloats", "CodeTable"] and kinds(loaded) == ["CodePairTable"]
    assert np.array_equal(plain.run(x)["y"], loaded.run(x)["y"]) and len(np.unique(loaded.run(x)["y"])) > 3
    assert loaded.graph.operations[0].inputs == ("a", "b")
    loaded.tables.check()


@pytest.mark.parametrize("output", ["rq", "eq"])
def test_what_is_an_output_or_read_twice_stays(output):
    quantised = [node("QuantizeLinear", ["e", "as", "az"], ["eq"]), node("DequantizeLinear", ["eq", "as", "az"], ["f"]),
                 node("Tanh", ["f"], ["g"])]  # fmt: skip
    proto = network("Add", (4, 4), quantised, last="g")
    next(item for item in proto.graph.node if item.name == "two").input[0] = "h"
    front = [node("LeakyRelu", ["ad"], ["r"], alpha=0.3), node("QuantizeLinear", ["r", "bs", "bz"], ["rq"]),
             node("DequantizeLinear", ["rq", "bs", "bz"], ["h"])]  # fmt: skip
    for k, item in enumerate(front):
        proto.graph.node.insert(2 + k, item)
    x, plain, loaded = (
        samples((4, 4)),
        load(proto, ["y", output], compose=False),
        load(proto, ["y", output]),
    )
    assert sorted(kinds(loaded)) == ["CodePairTable", "CodeTable"]
    want, made = plain.run(x), loaded.run(x)
    assert all(np.array_equal(want[name], made[name]) for name in ("y", output))


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_tensor_with_itself_is_a_function_of_one_code(op, bits):
    proto, x = network(op, (bits, bits), single=True), samples((bits, bits), single=True)
    plain, loaded = load(proto, compose=False), load(proto)
    assert kinds(loaded) == ["CodeTable"] and loaded.tables.report().nbytes == 1 << bits
    assert np.array_equal(plain.run(x)["y"], loaded.run(x)["y"])
    loaded.tables.check()


def test_two_functions_of_one_tensor():
    """Different functions of the same codes are the operands; the table has both codes as indices."""
    proto = network("Add", (4, 4), single=True)
    add = next(item for item in proto.graph.node if item.name == "two")
    add.input[0], add.input[1] = "h0", "h1"
    for k, op in enumerate(("LeakyRelu", "Tanh")):
        for item in [node(op, ["ad"], [f"r{k}"]), node("QuantizeLinear", [f"r{k}", "bs", "bz"], [f"rq{k}"]),
                     node("DequantizeLinear", [f"rq{k}", "bs", "bz"], [f"h{k}"])]:  # fmt: skip
            proto.graph.node.insert(len(proto.graph.node) - 2, item)
    plain, loaded, x = load(proto, compose=False), load(proto), samples((4, 4), single=True)
    assert kinds(loaded) == ["CodePairTable"] and loaded.graph.operations[0].inputs == ("a", "a")
    assert np.array_equal(plain.run(x)["y"], loaded.run(x)["y"])
    loaded.tables.check()


def test_equal_tables_of_pairs_are_stored_once(tmp_path):
    """And they are in the file beside the program."""
    proto = network("Add", (4, 4))
    proto.graph.node.extend([node("DequantizeLinear", ["y", "ys", "yz"], ["yd"]), node("Add", ["ad", "bd"], ["k"]),
                             node("QuantizeLinear", ["k", "ys", "yz"], ["m"])])  # fmt: skip
    loaded, x = load(proto, ["y", "m"]), samples((4, 4))
    report = loaded.tables.report()
    assert (report.sites, report.tables, report.nbytes, report.unshared) == (2, 1, 256, 512)
    again = stored(loaded, tmp_path / "net")
    assert again.report() == loaded.report()
    assert all(np.array_equal(codes, again.run(x)[name]) for name, codes in loaded.run(x).items())


@pytest.mark.slow
def test_a_sum_whose_order_counts_stays():
    """With one operand broadcast, ONNX Runtime adds in the other order; here an entry depends on it."""
    scheme, rng, none = Codes(4, 1.0, 0, CodeRange.UNSIGNED), np.random.default_rng(1), 0
    a, b = np.repeat(np.arange(16), 16), np.tile(np.arange(16), 16)
    for _ in range(4000):
        near = 1 + rng.integers(-9, 10, 2) * 2.0**-23
        ratios = tuple(np.float32(rng.choice([1, 3, 5, 7], 2) / 8 * near))
        zeros = tuple(map(int, rng.integers(0, 16, 2)))
        operation = CodeSum(
            name="s", inputs=("a", "b"), output="y", ratios=ratios, zeros=zeros, zero_point=7, low=0, high=15
        )
        orders = [operation.run(a, b), operation.run(a[:, None], np.stack([b, b], 1))[:, 0]]
        table = pair_table(operation, [scheme, scheme], [None, None], scheme)
        assert (table is None) == (not np.array_equal(*orders))
        none += table is None
    assert none > 0


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
def test_codes_of_onnxruntime(op):
    """It computes in floats between the pairs; with these scales nothing is rounded there but the codes."""
    scales = {"as": np.float32(0.5), "bs": np.float32(0.25), "ys": np.float32(1)}
    nodes = [node("QuantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}q"]) for name in "ab"]
    nodes += [node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [f"{name}d"]) for name in "ab"]
    nodes += [node(op, ["ad", "bd"], ["e"]), node("QuantizeLinear", ["e", "ys", "yz"], ["yq"]),
              node("DequantizeLinear", ["yq", "ys", "yz"], ["y"])]  # fmt: skip
    proto = model(nodes, {"a": ["N", 256], "b": ["N", 256]}, ("y",), scales, opset=21)
    for name, zero in (("az", 3), ("bz", 9), ("yz", 6)):
        proto.graph.initializer.append(helper.make_tensor(name, TensorProto.UINT4, [], [zero]))
    codes = np.arange(256)
    x = {"a": np.float32([(codes // 16 - 3) * 0.5]), "b": np.float32([(codes % 16 - 9) * 0.25])}
    loaded = load(proto)
    assert kinds(loaded) == ["CodePairTable"]
    (theirs,) = onnxruntime_results(proto, x)
    assert np.array_equal(theirs + 6, loaded.run(x)["y"]) and len(np.unique(theirs)) > 6
