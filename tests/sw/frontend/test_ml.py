"""Operators of ``ai.onnx.ml``, one by one, against ONNX Runtime."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import concord
from concord import onnx_backend
from concord.cli.main import main
from concord.frontend import import_model
from concord.frontend.errors import UnsupportedModel
from concord.graph import execute
from concord.graph.element_types import as_places, of_type, texts_at
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_rules import has_operations
from concord.networks.folder import load_package
from concord.prove import prove
from concord.prove.derived import Subject
from support.onnx_models import sample_results

FEATURES = 5
FLOAT, INT64, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
RNG = np.random.default_rng(11)


def model(nodes, outputs, constants=None, kind=FLOAT, more=()):
    graph = helper.make_graph(
        nodes,
        "learned",
        [helper.make_tensor_value_info("x", kind, [1, FEATURES]), *more],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    for output in graph.output:
        output.type.tensor_type.shape.SetInParent()
    opsets = [
        helper.make_opsetid("", 18),
        helper.make_opsetid("ai.onnx.ml", 5 if any(item.HasField("t") for item in nodes[0].attribute) else 3),
    ]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(proto)
    return proto


def learned(op, outputs=None, inputs=("x",), constants=None, kind=FLOAT, **attrs):
    outputs = outputs or {"y": FLOAT}
    node = helper.make_node(op, list(inputs), list(outputs), domain="ai.onnx.ml", **attrs)
    return model([node], outputs, constants, kind)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32).reshape(-1).tolist()


def forest(trees, depth, outputs, prefix, ids, mode="BRANCH_LEQ", positive=False):
    """Attributes of complete trees, whose nodes have numbers of their own."""
    attrs = {key: [] for key in (
        "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values", "nodes_truenodeids",
        "nodes_falsenodeids", f"{prefix}_treeids", f"{prefix}_nodeids", ids, f"{prefix}_weights",
    )}  # fmt: skip
    for tree in range(trees):
        count, first = 2 ** (depth + 1) - 1, 2**depth - 1
        for node in range(count):
            leaf = node >= first
            attrs["nodes_treeids"].append(tree)
            attrs["nodes_nodeids"].append(node)
            attrs["nodes_featureids"].append(0 if leaf else int(RNG.integers(FEATURES)))
            attrs["nodes_modes"].append("LEAF" if leaf else mode)
            attrs["nodes_values"].append(0.0 if leaf else float(RNG.integers(-2, 3)) / 2)
            attrs["nodes_truenodeids"].append(0 if leaf else 2 * node + 1)
            attrs["nodes_falsenodeids"].append(0 if leaf else 2 * node + 2)
            for target in range(outputs) if leaf else ():
                attrs[f"{prefix}_treeids"].append(tree)
                attrs[f"{prefix}_nodeids"].append(node)
                attrs[ids].append(target)
                weight = float(RNG.integers(1, 16) if positive else RNG.integers(-16, 16)) / 16
                attrs[f"{prefix}_weights"].append(weight / (trees if positive else 1))
    return attrs


def regressor(mode="BRANCH_LEQ", **more):
    trees = forest(3, 3, 2, "target", "target_ids", mode)
    return learned("TreeEnsembleRegressor", n_targets=2, **trees, **more)


def ensemble(mode, aggregate, transform=0):
    """Two trees: one of three nodes, and one of a single node, whose leaves have numbers of their own."""
    tensors = {"nodes_splits": np.float32([0.5, -0.5, 1.0, 0.0]), "nodes_modes": np.full(4, mode, np.uint8),
               "leaf_weights": np.float32([0.5, -1.0, 2.0, 0.25, 1.5, -0.75])}  # fmt: skip
    return learned(
        "TreeEnsemble", tree_roots=[0, 3], n_targets=2, aggregate_function=aggregate, post_transform=transform,
        nodes_featureids=[0, 1, 2, 3], nodes_truenodeids=[1, 0, 2, 4], nodes_trueleafs=[0, 1, 1, 1],
        nodes_falsenodeids=[2, 1, 3, 5], nodes_falseleafs=[0, 1, 1, 1], leaf_targetids=[0, 1, 0, 1, 1, 0],
        **{name: numpy_helper.from_array(value, name) for name, value in tensors.items()},
    )  # fmt: skip


def classifier(labels, **more):
    trees = forest(4, 2, len(labels), "class", "class_ids", positive=True)
    outputs = {"label": INT64, "y": FLOAT}
    return learned("TreeEnsembleClassifier", outputs, classlabels_int64s=labels, **trees, **more)


def machine(classes, kernel="RBF", post="NONE", shares=False, **more):
    """A classifier by support vectors: a score for every pair of classes, with or without shares made of them."""
    pairs, count = classes * (classes - 1) // 2, [2 + k for k in range(classes)]
    attrs = {"vectors_per_class": count, "support_vectors": numbers(sum(count), FEATURES), "kernel_type": kernel,
             "coefficients": numbers(classes - 1, sum(count)), "rho": numbers(pairs), "post_transform": post,
             "kernel_params": KERNELS[kernel], "classlabels_ints": [7 - k for k in range(classes)]}  # fmt: skip
    if shares:
        attrs |= {"prob_a": [-1.0 - k / 4 for k in range(pairs)], "prob_b": numbers(pairs)}
    return learned("SVMClassifier", {"label": INT64, "y": FLOAT}, **attrs | more)


def planes(classes, **more):
    """The same without support vectors."""
    attrs = {"coefficients": numbers(classes, FEATURES), "rho": [0.25], "classlabels_ints": [*range(classes)]}
    more |= {"kernel_type": "LINEAR", "kernel_params": KERNELS["LINEAR"]}
    return learned("SVMClassifier", {"label": INT64, "y": FLOAT}, **attrs, **more)


def scores_alone(proto):
    """The model without its labels."""
    del proto.graph.output[0]
    return proto


def extractor(count):
    """Labels at computed places."""
    return model(
        [
            helper.make_node("TopK", ["x", "k"], ["best", "places"], axis=1),
            helper.make_node("Reshape", ["places", "line"], ["flat"]),
            helper.make_node("ArrayFeatureExtractor", ["labels", "flat"], ["y"], domain="ai.onnx.ml"),
        ],
        {"y": TEXT},
        {"labels": np.array(["p", "q", "r", "s", "t"], object), "line": np.array([-1]), "k": np.array([count])},
    )


def encoder_by_tensors(keys, values, default, outputs, kind):
    tensors = {"keys_tensor": keys, "values_tensor": values, "default_tensor": default}
    attrs = {name: numpy_helper.from_array(np.array(value), name) for name, value in tensors.items()}
    return learned("LabelEncoder", {"y": outputs}, kind=kind, **attrs)


def texts_that_become_equal():
    """Two texts become one, which a category is."""
    nodes = [
        helper.make_node("LabelEncoder", ["x"], ["l"], domain="ai.onnx.ml", keys_strings=["a", "c", "dd"],
                         values_strings=["p", "p", "q"], default_string="q"),
        helper.make_node("OneHotEncoder", ["l"], ["y"], domain="ai.onnx.ml", cats_strings=["q", "p"]),
    ]  # fmt: skip
    return model(nodes, {"y": FLOAT}, kind=TEXT)


def texts_of_classes(op):
    """A classifier whose labels are texts."""
    proto = {"SVMClassifier": lambda: machine(3), "trees": lambda: classifier([0, 1, 2])}.get(
        op, lambda: learned(op, {"label": INT64, "y": FLOAT}, classlabels_ints=[0, 1, 2], **LINEAR))()  # fmt: skip
    (node,) = proto.graph.node
    kept = [item for item in node.attribute if not item.name.startswith("classlabels")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("classlabels_strings", ["red", "green", "grün"])])
    proto.graph.output[0].type.tensor_type.elem_type = TEXT
    return proto


def two_classes(positive, post):
    """Converters write one score where there are two classes."""
    trees = forest(4, 2, 1, "class", "class_ids", positive=positive)
    outputs = {"label": INT64, "y": FLOAT}
    return learned("TreeEnsembleClassifier", outputs, classlabels_int64s=[0, 1], post_transform=post, **trees)


LINEAR = {"coefficients": numbers(3, FEATURES), "intercepts": numbers(3)}
KERNELS = {"LINEAR": [0.0, 0, 0], "POLY": [0.5, 1.0, 3.0], "RBF": [0.2, 0, 0], "SIGMOID": [0.3, 0.1, 0]}
CASES = {
    "Scaler": learned("Scaler", offset=numbers(FEATURES), scale=numbers(FEATURES)),
    "Scaler of all": learned("Scaler", offset=[0.5], scale=[3.0]),
    **{f"Normalizer {norm}": learned("Normalizer", norm=norm) for norm in ("L1", "L2")},
    "Binarizer": learned("Binarizer", threshold=0.5),
    "Imputer of NaN": learned("Imputer", imputed_value_floats=numbers(FEATURES), replaced_value_float=np.nan),
    "Imputer of NaN by a number": learned("Imputer", imputed_value_floats=[0.25], replaced_value_float=np.nan),
    "Imputer of a number": learned("Imputer", imputed_value_floats=numbers(FEATURES), replaced_value_float=0.5),
    "Imputer of infinity": learned("Imputer", imputed_value_floats=[0.25], replaced_value_float=-np.inf),
    "Imputer of whole numbers": learned("Imputer", {"y": INT64}, kind=INT64, imputed_value_int64s=[7, 8, 9, 10, 11],
                                        replaced_value_int64=-2),
    **{f"OneHotEncoder {kind}": learned("OneHotEncoder", kind=kind, cats_int64s=[2, -1, 0]) for kind in (FLOAT, INT64)},
    "ArrayFeatureExtractor": learned("ArrayFeatureExtractor", inputs=("x", "k"), constants={"k": np.array([3, 0, 3])}),
    "LabelEncoder": learned("LabelEncoder", {"y": INT64}, kind=INT64, keys_int64s=[0, 1, -2], values_int64s=[7, 9, 5],
                            default_int64=-3),
    **{f"ArrayFeatureExtractor of texts {k}": extractor(k) for k in (1, 4)},
    "LabelEncoder to texts": learned("LabelEncoder", {"y": TEXT}, kind=INT64, keys_int64s=[0, 1, -2],
                                     values_strings=["x", "y", "z"], default_string="other"),
    "LabelEncoder to usual texts": learned("LabelEncoder", {"y": TEXT}, keys_floats=[0, 1.5],
                                           values_strings=["x", "y"]),
    "LabelEncoder of texts": learned("LabelEncoder", {"y": INT64}, kind=TEXT, keys_strings=["a", "dd"],
                                     values_int64s=[7, 8], default_int64=-3),
    "LabelEncoder of texts to floats": learned("LabelEncoder", kind=TEXT, keys_strings=["a", ""],
                                               values_floats=[0.5, 0.25]),
    "LabelEncoder of texts to texts": learned("LabelEncoder", {"y": TEXT}, kind=TEXT, keys_strings=["a", "c"],
                                              values_strings=["b", "d"]),
    "LabelEncoder of texts by tensors": encoder_by_tensors(np.array(["a", "c"], object), [7, 8], [9], INT64, TEXT),
    "LabelEncoder to whole floats by tensors": encoder_by_tensors([0, 1], np.float32([7, 8]), np.float32([0.5]), FLOAT,
                                                                  INT64),
    "texts that become equal": texts_that_become_equal(),
    "OneHotEncoder of texts": learned("OneHotEncoder", kind=TEXT, cats_strings=["dd", "a", "", "unused"]),
    "LinearRegressor": learned("LinearRegressor", targets=3, **LINEAR),
    **{f"LinearClassifier {post} {labels}": learned(
        "LinearClassifier", {"label": INT64, "y": FLOAT}, classlabels_ints=labels, post_transform=post, **LINEAR)
       for post in ("NONE", "SOFTMAX", "LOGISTIC") for labels in ([0, 1, 2], [4, 7, 5])},
    **{f"SVMRegressor {kernel}": learned(
        "SVMRegressor", kernel_type=kernel, kernel_params=parameters, n_supports=4, coefficients=numbers(4),
        support_vectors=numbers(4, FEATURES), rho=[0.25]) for kernel, parameters in KERNELS.items()},
    "a class alone": learned(
        "SVMRegressor", kernel_type="RBF", kernel_params=KERNELS["RBF"], n_supports=4, coefficients=numbers(4),
        support_vectors=numbers(4, FEATURES), rho=[0.1], one_class=1),
    **{f"SVMClassifier {kernel} {classes}": machine(classes, kernel) for kernel in KERNELS for classes in (2, 3, 5)},
    **{f"SVMClassifier shares {classes} {post}": machine(classes, post=post, shares=True)
       for classes in (2, 3, 6) for post in ("NONE", "LOGISTIC", "SOFTMAX")},
    **{f"SVMClassifier {post} 3": machine(3, post=post) for post in ("LOGISTIC", "SOFTMAX")},
    "SVMClassifier LOGISTIC 2": machine(2, post="LOGISTIC"),
    "planes": planes(3),
    "planes, shares": planes(4, post_transform="SOFTMAX"),
    **{f"trees {mode}": regressor(f"BRANCH_{mode}") for mode in ("LEQ", "LT", "GTE", "GT")},
    "trees with base": regressor(base_values=[0.5, -1.0]),
    "mean of trees": regressor(aggregate_function="AVERAGE"),
    "trees that follow missing values": regressor(nodes_missing_value_tracks_true=[1] * 45),
    **{f"ensemble {mode} {aggregate}": ensemble(mode, aggregate) for mode in range(4) for aggregate in (0, 1)},
    "CategoryMapper to texts": learned("CategoryMapper", {"y": TEXT}, kind=INT64, cats_int64s=[0, 2, -1],
                                       cats_strings=["x", "y", "z"], default_string="other"),
    "CategoryMapper of texts": learned("CategoryMapper", {"y": INT64}, kind=TEXT, cats_int64s=[4, 2, -1],
                                       cats_strings=["a", "c", ""], default_int64=9),
    "classes by trees": classifier([0, 1, 2]),
    **{f"{op} with texts": texts_of_classes(op) for op in ("LinearClassifier", "SVMClassifier", "trees")},
    "labels by trees": classifier([3, 1, 8], post_transform="SOFTMAX"),
    "two classes, shares": two_classes(True, "NONE"),
    "two classes, scores": two_classes(False, "LOGISTIC"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_operator(name):
    """Features are multiples of 1/2, so that comparisons meet equal numbers."""
    proto = CASES[name]
    kind = proto.graph.input[0].type.tensor_type.elem_type
    x = RNG.integers(-4, 5, (40, FEATURES)).astype(np.float32 if kind == FLOAT else np.int64)
    x = x / 2 if kind == FLOAT else np.array(["a", "c", "", "dd", "no"])[x % 5].astype(object) if kind == TEXT else x
    if "NaN" in name:
        x[::3, 1:4], x[5] = np.nan, np.nan
    want = sample_results(proto, x=x)
    graph = import_model(proto)
    inputs = as_places({"x": x}, graph.texts)
    outputs = [execute.run(graph, inputs)]
    if all(map(has_operations, graph.nodes)):
        outputs.append(run_on_host(graph, inputs))
    for results in outputs:
        for output, expected in zip(proto.graph.output, want, strict=True):
            if expected.dtype == object:
                assert (
                    texts_at(results[output.name], graph.texts[output.name]).ravel().tolist()
                    == expected.ravel().tolist()
                )
                continue
            value = of_type(results[output.name], graph.element_types.get(output.name))
            size = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(value.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6 * size)


def survey():
    """Texts in front and behind: a column of texts, a linear model, classes with names, scores by name."""
    nodes = [
        helper.make_node("OneHotEncoder", ["kind"], ["h"], domain="ai.onnx.ml", cats_strings=["cat", "dog", "bird"]),
        helper.make_node("Reshape", ["h", "flat"], ["hot"]),
        helper.make_node("FeatureVectorizer", ["x", "hot"], ["f"], domain="ai.onnx.ml", inputdimensions=[5, 3]),
        helper.make_node("LinearClassifier", ["f"], ["label", "s"], domain="ai.onnx.ml", intercepts=[0.1, 0.0, -0.1],
                         coefficients=numbers(3, 8), classlabels_strings=["no", "maybe", "yes"],
                         post_transform="SOFTMAX"),
        helper.make_node("Identity", ["label"], ["answer"]),
        helper.make_node("ZipMap", ["s"], ["shares"], domain="ai.onnx.ml", classlabels_strings=["no", "maybe", "yes"]),
    ]  # fmt: skip
    kind = helper.make_tensor_value_info("kind", TEXT, [1, 1])
    proto = model(nodes, {"answer": TEXT}, {"flat": np.array([1, 3])}, more=[kind])
    maps = helper.make_map_type_proto(TEXT, helper.make_tensor_type_proto(FLOAT, []))
    proto.graph.output.append(helper.make_value_info("shares", helper.make_sequence_type_proto(maps)))
    return proto


def kinds(count):
    x = RNG.normal(size=(count, FEATURES)).astype(np.float32)
    return {"x": x, "kind": RNG.choice(["cat", "dog", "bird", "other"], (count, 1))}


def wanted_of(proto, values):
    session, count = onnxruntime.InferenceSession(proto.SerializeToString()), len(values["x"])
    rows = [{name: x[k : k + 1].astype(object) if x.dtype.kind == "U" else x[k : k + 1] for name, x in values.items()}
            for k in range(count)]  # fmt: skip
    return [session.run(None, row) for row in rows]


def test_texts_as_inputs_and_results(tmp_path):
    """Texts are those of ONNX Runtime, from the network, its folder and a session."""
    proto, values = survey(), kinds(20)
    want = wanted_of(proto, values)
    net = concord.compile(proto, preset="ecp5-25f", calibrate=kinds(40), quick=True)
    net.save(tmp_path / "net")
    for other in (net, concord.load(tmp_path / "net")):
        results = other.run(values)
        assert results["answer"].dtype.kind == "U"
        assert sum(results["answer"] == np.concatenate([row[0] for row in want])) >= 19
        shares = np.array([[maps[0][label] for label in ("no", "maybe", "yes")] for _, maps in want])
        assert np.abs(results["shares"] - shares).max() < 0.03
    session = onnx_backend.InferenceSession(net)
    assert [item.type for item in session.get_inputs()] == ["tensor(float)", "tensor(string)"]
    (answers,) = session.run(["answer"], values)
    assert answers.dtype == object and answers.tolist() == results["answer"].tolist()
    assert [item.type for item in session.get_outputs()] == ["tensor(string)", "seq(map(string,tensor(float)))"]
    _, maps = session.run(None, values)
    assert [[*row.values()] for row in maps] == results["shares"].tolist()
    assert [*maps[0]] == ["no", "maybe", "yes"]


@pytest.mark.slow
def test_texts_on_the_command_line_and_in_derived_software(tmp_path):
    """An npz file has texts, in and out; derived software has their places."""
    proto, values = survey(), kinds(6)
    onnx.save(proto, tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", **values)
    runner = CliRunner()
    for arguments in (["compile", tmp_path / "net.onnx", "--preset", "ecp5-25f", "-o", tmp_path / "net"],
                      ["run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz"]):  # fmt: skip
        done = runner.invoke(main, [*map(str, arguments)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    with np.load(tmp_path / "y.npz") as results:
        assert {*results["answer"].tolist()} <= {"no", "maybe", "yes"}
    proof = prove(tmp_path / "net", samples=6, machine_samples=1, only=["numpy", "onnx"])
    assert proof.count.values > 0 and proof.count.different == 0
    proof = prove(tmp_path / "net", values, machine_samples=1, only=["numpy"])
    assert proof.count.values > 0 and proof.count.different == 0


def test_what_reads_texts_is_refused():
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["label", "s"], domain="ai.onnx.ml", **LINEAR,
                         classlabels_strings=["a", "b", "c"]),
        helper.make_node("Cast", ["label"], ["number"], to=FLOAT),
        helper.make_node("Add", ["s", "number"], ["y"]),
    ]  # fmt: skip
    with pytest.raises(UnsupportedModel, match="operand 'label' must be numbers, not texts; put a LabelEncoder in fr"):
        import_model(model(nodes, {"y": FLOAT}))
    through = [helper.make_node("Identity", ["x"], ["y"])]
    with pytest.raises(UnsupportedModel, match="input 'x': must be a tensor of numbers, not STRING"):
        import_model(model(through, {"y": TEXT}, kind=TEXT))
    through.append(helper.make_node("OneHotEncoder", ["x"], ["h"], domain="ai.onnx.ml", cats_strings=["a"]))
    with pytest.raises(UnsupportedModel, match="output 'y': is a text of an input, which may be any; --outputs leaves"):
        import_model(model(through, {"y": TEXT, "h": FLOAT}, kind=TEXT))


def test_texts_of_bytes_and_in_bodies():
    """Arrays of bytes are texts; categories in a branch count, too."""
    encoder = helper.make_node("OneHotEncoder", ["x"], ["h"], domain="ai.onnx.ml", cats_strings=["a", "dd"])
    body = helper.make_graph([encoder], "body", [], [helper.make_tensor_value_info("h", FLOAT, [1, FEATURES, 2])])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    for proto in (
        model([encoder], {"h": FLOAT}, kind=TEXT),
        model([choice], {"y": FLOAT}, {"c": np.array(True)}, TEXT),
    ):
        graph = import_model(proto)
        x = np.array([[b"a", b"c", b"dd", b"", b"a"]])
        (hot,) = execute.run(graph, as_places({"x": x}, graph.texts)).values()
        assert hot[0].tolist() == [[1, 0], [0, 0], [0, 1], [0, 0], [1, 0]]


@pytest.mark.slow
def test_a_scaler_and_a_forest(tmp_path):
    """The NPU computes the projection, the host the trees, of which a line warns."""
    outputs = {"label": INT64, "y": FLOAT}
    trees = forest(4, 2, 3, "class", "class_ids", positive=True)
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=numbers(FEATURES), scale=[1.0]),
        helper.make_node("MatMul", ["s", "w"], ["p"]),
        helper.make_node("TreeEnsembleClassifier", ["p"], ["label", "scores"], domain="ai.onnx.ml",
                         classlabels_int64s=[0, 1, 2], **trees),
        helper.make_node("ZipMap", ["scores"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
    ]  # fmt: skip
    proto = model(nodes, outputs, {"w": RNG.normal(size=(FEATURES, FEATURES)).astype(np.float32)})
    net = concord.compile(proto, preset="ecp5-25f")
    assert {node.op for node in net.package.host_graph.nodes} >= {"Trees", "ArgMax"}
    results = net.run(RNG.normal(size=(6, FEATURES)))
    np.testing.assert_array_equal(results["label"], results["y"].argmax(1))
    net.save(tmp_path / "net")
    onnx.save(proto, tmp_path / "net.onnx")
    done = CliRunner().invoke(main, ["compile", str(tmp_path / "net.onnx"), "--preset", "ecp5-25f"])
    for lines in (net.warnings, concord.load(tmp_path / "net").warnings, done.output.splitlines()):
        (line,) = [line for line in lines if "trees" in line]
        assert "trees compare numbers that the NPU rounds: where such a number is next to a threshold" in line


def test_trees_that_read_inputs():
    """They compare what they are given: nothing is rounded."""
    nodes = [
        helper.make_node("LinearRegressor", ["x"], ["s"], domain="ai.onnx.ml", targets=3, **LINEAR),
        helper.make_node("TreeEnsembleRegressor", ["x"], ["t"], domain="ai.onnx.ml", n_targets=3,
                         **forest(2, 2, 3, "target", "target_ids")),
    ]  # fmt: skip
    net = concord.compile(model(nodes, {"s": FLOAT, "t": FLOAT}), preset="ecp5-25f")
    assert "Trees" in {node.op for node in net.package.front.nodes}
    assert not any("trees" in line for line in net.warnings)


@pytest.mark.parametrize("shares", [False, True])
def test_kernels_for_the_npu_and_votes_for_the_host(shares):
    """Scores are right but for mantissas of 8 bits; a vote may differ where a score is next to zero."""
    proto = machine(3, shares=shares)
    x = RNG.normal(size=(20, FEATURES)).astype(np.float32)
    net = concord.compile(proto, preset="ecp5-25f", calibrate=x[10:], quick=True)
    assert {node.op for node in net.package.host_graph.nodes} >= {"Less", "ArgMax"} and net.package.front is None
    results, (labels, scores) = net.run(x[:10]), sample_results(proto, x=x[:10])
    assert np.abs(results["y"] - scores).max() < 0.03
    assert (results["label"] == labels).sum() >= 9


def completed(categories, zeros=1):
    """Features with values that may be missing, and a kind of five, in front of a linear model."""
    nodes = [
        helper.make_node("Imputer", ["x"], ["i"], domain="ai.onnx.ml", imputed_value_floats=[0.5, -1.0, 0.0, 0.25, 2.0],
                         replaced_value_float=np.nan),
        helper.make_node("OneHotEncoder", ["kind"], ["h"], domain="ai.onnx.ml", cats_int64s=categories, zeros=zeros),
        helper.make_node("Reshape", ["h", "flat"], ["hot"]),
        helper.make_node("FeatureVectorizer", ["i", "hot"], ["f"], domain="ai.onnx.ml", inputdimensions=[5, 3]),
        helper.make_node("LinearRegressor", ["f"], ["y"], domain="ai.onnx.ml", targets=2, coefficients=numbers(2, 8)),
    ]  # fmt: skip
    kind = helper.make_tensor_value_info("kind", INT64, [1, 1])
    return model(nodes, {"y": FLOAT}, {"flat": np.array([1, 3])}, more=[kind])


def some_missing(count):
    x = RNG.normal(size=(count, FEATURES)).astype(np.float32)
    x[RNG.random(x.shape) < 0.3] = np.nan
    return {"x": x, "kind": RNG.integers(3, 6, (count, 1))}


def test_missing_values_and_categories_in_front_of_the_npu():
    """The host puts values in the place of NaN, and ones and zeros in that of categories."""
    proto, values = completed([3, 4, 5]), some_missing(40)
    (want,) = sample_results(proto, **values)
    net = concord.compile(proto, preset="ecp5-25f", calibrate=values, quick=True)
    assert {node.op for node in net.package.front.nodes} == {"Impute", "Categories"}
    results = net.run(values)["y"]
    assert np.abs(results - want).max() < 0.03 * np.abs(want).max()
    values["x"][2, 1] = np.inf
    with pytest.raises(ValueError, match="input 'x' must hold finite numbers, not inf"):
        net.run(values)
    with pytest.raises(ValueError, match=r"Impute 'i'.*: no instruction computes it; --partition ends"):
        concord.compile(proto, preset="ecp5-25f", partition="none")


def test_derived_software_takes_missing_values(tmp_path):
    concord.compile(completed([3, 4, 5]), preset="ecp5-25f").save(tmp_path / "net")
    proof = prove(tmp_path / "net", samples=6, machine_samples=1, only=["numpy", "onnx"])
    assert proof.count.values > 0 and proof.count.different == 0
    package = load_package(tmp_path / "net")
    assert np.isnan(Subject("net", package.image, package).random_samples(6, 1)["x"]).any()


def test_nan_is_refused_where_something_else_reads_it():
    nodes = [
        helper.make_node("Imputer", ["x"], ["i"], domain="ai.onnx.ml", imputed_value_floats=[0.5],
                         replaced_value_float=np.nan),
        helper.make_node("Add", ["x", "i"], ["s"]),
        helper.make_node("LinearRegressor", ["s"], ["y"], domain="ai.onnx.ml", coefficients=numbers(FEATURES)),
    ]  # fmt: skip
    net = concord.compile(model(nodes, {"y": FLOAT}), preset="ecp5-25f")
    with pytest.raises(ValueError, match="input 'x' must hold finite numbers, not nan"):
        net.run(np.full((1, FEATURES), np.nan, np.float32))


def test_a_number_that_is_no_category():
    """With zeros=0 it raises a flag, as ONNX has no result for it; with zeros=1 its result is zeros."""
    values = some_missing(4)
    values["kind"][2] = 9
    with warnings.catch_warnings():
        warnings.simplefilter("error", concord.FlagWarning)
        concord.compile(completed([3, 4, 5]), preset="ecp5-25f").run(values)
    net = concord.compile(completed([3, 4, 5], zeros=0), preset="ecp5-25f")
    with pytest.warns(concord.FlagWarning, match="reads 9, which is no category, in 1 of 4 samples"):
        net.run(values)
    with pytest.raises(concord.FlagError, match="DOMAIN"):
        net.run(values, strict=True)


def test_what_is_refused():
    trees = forest(2, 2, 2, "target", "target_ids")
    mixed = trees | {"nodes_modes": ["BRANCH_LT", *trees["nodes_modes"][1:]]}
    for proto, reason in (
        (learned("TreeEnsembleRegressor", n_targets=2, **mixed), "nodes_modes must be one of LEQ, LT, GTE, GT for all"),
        (learned("LinearRegressor", targets=2, **LINEAR), "coefficients must be 2 for each of 5 features, not 15"),
        (learned("LinearRegressor", targets=3, post_transform="PROBIT", **LINEAR), "post_transform must be one of"),
        (learned("Normalizer", norm="MAX", inputs=("x",)), None),
        (machine(2, post="SOFTMAX"), "post_transform must be NONE or LOGISTIC for a score of two classes, not SOFTMAX"),
        (machine(3, post="PROBIT"), "post_transform must be one of"),
        (machine(3, rho=[0.5]), "rho must be 3 numbers or more, one for every pair of classes, not 1"),
        (machine(3, vectors_per_class=[4, 5]), "vectors_per_class must be a number for each of 3 classes, not 2"),
        (planes(2), "label must not be read: without support vectors libraries differ .*--outputs y keeps the scores"),
        (scores_alone(planes(2)), None),
        (ensemble(0, 1, 2), "post_transform must be 0, not 2: runtimes differ"),
        (ensemble(4, 1), "nodes_modes must be one of 0, 1, 2, 3 for all nodes, not 4"),
        (ensemble(0, 3), r"aggregate_function must be 0 \(mean\) or 1 \(sum\), not 3"),
        (
            learned("OneHotEncoder", cats_strings=["a", "b"]),
            "must be cats_int64s, as the operand is of numbers",
        ),
        (learned("Imputer", imputed_value_floats=[1.0, 2.0], replaced_value_float=np.nan), "must be 1 or 5, not 2"),
    ):
        if reason is None:
            import_model(proto)
            continue
        with pytest.raises(UnsupportedModel, match=reason):
            import_model(proto)
