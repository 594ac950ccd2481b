"""Tables that are trained: rows as they are, gradients that are exact sums, and indices that nobody rounds."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto

import concord
from concord.cli.main import main
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Graph, Node
from concord.spec.training import TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described, export_onnx
from concord.train.indices import index_lookups, only_indices
from concord.train.layers.base import PassContext
from concord.train.layers.embedding import row_sums
from concord.train.losses import cross_entropy
from concord.train.network import CannotTrain, TrainableNetwork, batch
from concord.train.noise import uniform
from concord.train.overflow_settings import OverflowSettings
from concord.train.tensor import Tensor
from support import onnx_models as onnx
from support.exact_numbers import slopes
from support.sequences import LENGTH, WORDS, sentences
from support.train_digits import FORMATS, assert_a_break_changes_nothing

LAYERS = [
    {"op": "embedding", "rows": WORDS + 1, "outputs": 12, "name": "words"}, {"op": "flatten"},
    {"op": "dense", "outputs": 32}, {"op": "relu"}, {"op": "dense", "outputs": WORDS},
]  # fmt: skip


def samples(count=60, place=0):
    """Sentences, and the translation of their third word."""
    words, labels = sentences(count, place)
    return Samples(words, labels[:, 2])


def trainer(train=None, test=None, layers=LAYERS, **settings):
    return Trainer(described(layers, (LENGTH,)), train or samples(), Settings(**settings), test, random=True)


def table_graph(table, shape=(1, 5), more=(), source="x"):
    """Rows of a table, and what else there is in front."""
    node = Node("Lookup", "table", (source,), ("y",), {"table": table, "axis": 0})
    inner = (*shape, *table.shape[1:]) if source == "x" else (1, 3, *table.shape[1:])
    shapes = {"x": shape, "y": inner} | ({} if source == "x" else {source: (1, 3)})
    return Graph("net", [*more, node], ["x"], ["y"], shapes, {"x", "y"})


@pytest.mark.parametrize("bits_of_sum", [30, 40, 52, 58])
def test_sums_of_rows_are_exact(bits_of_sum):
    rng = np.random.default_rng(bits_of_sum)
    top = 1 << min(bits_of_sum - 6, 53)
    values = rng.integers(-top, top + 1, (64, 3))
    values[:9] = np.array([top, -top, top - 1] * 3)[:, None]
    places = rng.choice([0, 2, 3, 6], 64)
    got, bound = row_sums(values.astype(np.float64 if top <= 1 << 53 else np.int64), top, places, 8)
    want = [[0] * 3 for _ in range(8)]
    for row, place in zip(values.tolist(), places.tolist(), strict=True):
        want[place] = [a + b for a, b in zip(want[place], row, strict=True)]
    assert got.astype(np.int64).tolist() == want and bound == top * 64
    assert not row_sums(np.zeros((0, 3), np.float32), 0, np.zeros(0, int), 2)[0].any()


@pytest.mark.parametrize("formats", FORMATS)
def test_rows_and_gradients_by_hand(formats):
    rng = np.random.default_rng(2)
    network = TrainableNetwork(table_graph(rng.normal(size=(300, 3)) * 40), FORMATS[formats])
    x = rng.integers(-300, 300, (6, 5))
    x[0] = 299, -1, -300, 0, 299  # the same rows from both ends
    context = PassContext(FORMATS[formats])
    y, memories = network.forward(batch(x.astype(float), network.graph, FORMATS[formats]), context)
    table = network.layers[0].weight.tensor
    rows = table.mant.astype(np.int64).tolist()
    want = [[[rows[k] for k in sample]] for sample in x.tolist()]
    assert y.exp == table.exp and y.mant.astype(np.int64).tolist() == want and y.mant.shape == (6, 1, 5, 3)
    top = (1 << 31) - 1
    mant = rng.integers(-top, top + 1, y.mant.shape)
    mant[0, 0, :2] = top
    changes = network.backward(Tensor(mant.astype(np.float64), -20, top), memories, context)
    sums = [[0] * 3 for _ in range(300)]
    for k, row in zip(x.reshape(-1).tolist(), mant.reshape(-1, 3).tolist(), strict=True):
        sums[k] = [a + b for a, b in zip(sums[k], row, strict=True)]
    most = max(abs(number) for row in sums for number in row)
    drop = max(most - 1, 0).bit_length() - 31 if most > top else 0  # the rule for integers
    assert drop > 0
    rounded = [[_rounded(number, drop) for number in row] for row in sums]
    change = changes["table.table"]
    assert change.exp == -20 + drop and change.mant.astype(np.int64).tolist() == rounded


def _rounded(number, drop):
    size = min((2 * abs(number) + (1 << drop)) >> drop + 1, (1 << 31) - 1)
    return size if number >= 0 else -size


def test_values_are_those_of_the_graph_and_gradients_those_of_differences():
    formats = TrainingFormats(weight=TrainingFormat(20), activation=TrainingFormat(20), gradient=TrainingFormat(24))
    network = TrainableNetwork(described(LAYERS, (LENGTH,)), formats, seed=3)
    data = samples(12)
    context = PassContext(formats)
    y, memories = network.forward(batch(data.x.astype(float), network.graph, formats), context)
    graph = network.trained()

    def loss():
        z = execute.run(graph, {"x": data.x.astype(float)})["y" if "y" in graph.shapes else graph.outputs[0]]
        z = z - z.max(axis=1, keepdims=True)
        return float(np.sum(np.log(np.exp(z).sum(axis=1)) - z[np.arange(12), data.y]))

    changes = network.backward(cross_entropy(y, data.y, formats).gradient, memories, context)
    (table,) = [node.attrs["table"] for node in graph.nodes if node.op == "Lookup"]
    assert np.array_equal(table, network.parameters["words.table"].values)
    got = changes["words.table"].values
    assert np.array_equal(got.any(axis=1), np.isin(np.arange(WORDS + 1), data.x))
    for at, want in slopes(table, [(0, 0), (1, 3), (3, 11), (6, 5)], loss):
        assert abs(got[at] - want) < 1e-3 * max(1, abs(got[at]))


def test_indices_are_read_as_they_are_wherever_they_are_moved():
    table = np.arange(2000.0).reshape(1000, 2)
    moves = [Node("Slice", "s", ("x",), ("part",), {"axes": (1,), "starts": (1,), "stops": (4,), "steps": (1,)})]
    graph = table_graph(table, more=moves, source="part")
    assert [node.name for node in index_lookups(graph)] == ["table"] and only_indices(graph)
    wide = TrainingFormats(weight=TrainingFormat(24))
    network = TrainableNetwork(graph, wide)
    x = np.array([[5, 998, 997, 3, 6]])
    y, _ = network.forward(batch(x.astype(float), graph, wide), PassContext(wide))
    assert y.values.tolist() == [[[[1996, 1997], [1994, 1995], [6, 7]]]]
    Samples(x * 1000 - 7000, np.zeros(1, int), 0.001, -7000).check_inputs("test", graph)
    with pytest.raises(ValueError, match="must be rows of the table table: indices must be whole numbers from -1000"):
        Samples(x + np.array([0, 0, 0, 997, 0]), np.zeros(1, int)).check_inputs("test", graph)
    Samples(x + np.array([9999, 0, 0, 0, -9999]), np.zeros(1, int)).check_inputs("test", graph)  # those are not read


def test_a_table_begins_within_one():
    one = trainer(seed=4)
    want = uniform(4, (1, 0), (WORDS + 1) * 12).reshape(WORDS + 1, 12)
    parameter = one.network.parameters["words.table"]
    assert np.abs(parameter.values - want).max() <= 2.0 ** (int(parameter.exp[0]) - 1) and np.abs(want).max() > 0.9


@pytest.mark.slow
def test_words_are_learned_and_compile():
    train, test = samples(1000), samples(100, 1)
    one = trainer(train, test, epochs=10, rate=Fraction(1, 16))
    figures = one.fit()
    assert figures[0].test_accuracy < 0.7 and figures[-1].test_accuracy > 0.95
    before = trainer(train).network.parameters["words.table"].values
    assert not np.array_equal(one.network.parameters["words.table"].values, before)
    graph = import_model(export_onnx(one.trained()))
    assert graph.element_types == {graph.inputs[0]: "int64"}
    (table,) = [node.attrs["table"] for node in graph.nodes if node.op == "Lookup"]
    assert np.array_equal(table, one.network.parameters["words.table"].values)
    inputs = {graph.inputs[0]: test.x.astype(float)}
    assert np.array_equal(
        execute.run(graph, inputs)[graph.outputs[0]],
        execute.run(one.trained(), {"x": test.x.astype(float)})[one.trained().outputs[0]],
    )
    (y,) = concord.compile(export_onnx(one.trained()), preset="ecp5-85f").run(test.x).values()
    assert abs((y.reshape(100, -1).argmax(axis=1) == test.y).mean() - figures[-1].test_accuracy) < 0.03


@pytest.mark.parametrize("formats", FORMATS)
def test_a_break_and_shards_change_nothing(formats, tmp_path):
    settings = {"epochs": 2, "batch": 16, "shards": 2, "formats": FORMATS[formats], "decay": Fraction(1, 100)}
    assert_a_break_changes_nothing(lambda: trainer(test=samples(20, 1), **settings), tmp_path / "c.npz")


def test_rows_that_nobody_reads_stay_and_tables_do_not_decay():
    data = samples()
    data = replace(data, x=np.where(data.x == 3, 4, data.x))
    one = trainer(data, epochs=1, decay=Fraction(1, 2))
    before = one.network.parameters["words.table"].total.reshape(WORDS + 1, 12).copy()
    one.fit()
    same = (one.network.parameters["words.table"].total.reshape(WORDS + 1, 12) == before).all(axis=1)
    assert same.tolist() == [k == 3 for k in range(WORDS + 1)]


def test_a_bias_for_every_position_is_trained():
    rng = np.random.default_rng(3)
    e, p, w = rng.normal(size=(7, 4)), rng.normal(size=(5, 4)), rng.normal(size=(4, 3))
    nodes = [onnx.node("Gather", ["e", "x"], ["a"], name="words"), onnx.node("Add", ["a", "p"], ["b"], name="places"),
             onnx.node("MatMul", ["b", "w"], ["y"], name="product")]  # fmt: skip
    constants = {name: values.astype(np.float32) for name, values in {"e": e, "p": p, "w": w}.items()}
    model = onnx.model(nodes, {"x": (1, 5)}, ["y"], constants)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    network = TrainableNetwork(import_model(model.SerializeToString()), TrainingFormats())
    assert list(network.parameters) == ["words.table", "places.constant", "product.weight", "product.bias"]
    context = PassContext(network.formats)
    y, memories = network.forward(batch(np.array([[1.0, 2, 3, 4, 0]]), network.graph, network.formats), context)
    assert y.mant.shape == (1, 1, 5, 3)
    assert set(network.backward(Tensor(np.ones((1, 1, 5, 3)), 0, 1), memories, context)) == set(network.parameters)


def test_what_cannot_be_trained_is_refused():
    table = np.ones((4, 5))
    other = Node("Lookup", "table", ("x",), ("y",), {"table": np.ones((3, 4)), "axis": 1})
    with pytest.raises(CannotTrain, match=r"table \(Lookup, not of whole rows at indices that are the input"):
        TrainableNetwork(Graph("net", [other], ["x"], ["y"], {"x": (1, 2), "y": (3, 1, 2)}), TrainingFormats())
    relu = [Node("Relu", "relu", ("x",), ("part",))]
    for graph in (
        table_graph(table, more=relu, source="part"),  # computed indices
        Graph("net", [*relu, *table_graph(table).nodes], ["x"], ["y"], table_graph(table).shapes | {"part": (1, 5)}),
    ):
        with pytest.raises(CannotTrain, match=r"table \(Lookup, .* and read by nothing else\)"):
            TrainableNetwork(graph, TrainingFormats())
    with pytest.raises(ValueError, match=r"layers must be none of tables, .* with \[overflow\]: words"):
        trainer(overflow=OverflowSettings(accumulator_bits=16), epochs=1)
    data = samples()
    for bad in (data.x + 1, data.x + 0.5, -data.x - 2):
        with pytest.raises(ValueError, match="training data must be rows of the table words: indices must be whole"):
            trainer(Samples(bad, data.y))


def test_the_command_trains_a_table(tmp_path):
    train, test = samples(), samples(20, 1)
    np.savez(tmp_path / "data.npz", x_train=train.x, y_train=train.y, x=test.x, y=test.y)
    (tmp_path / "t.toml").write_text(
        f'[model]\ninput = [{LENGTH}]\nlayers = [{{op = "embedding", rows = {WORDS + 1}, outputs = 4}}, '
        f'{{op = "flatten"}}, {{op = "dense", outputs = {WORDS}}}]\n[data]\nfile = "data.npz"\n[train]\nepochs = 1\n'
    )
    result = CliRunner().invoke(main, ["train", str(tmp_path / "t.toml"), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    graph = import_model(tmp_path / "out" / "network.onnx")
    assert graph.nodes[0].op == "Lookup"
