"""Rules of rounding: codes of numbers in the middle between two codes, in ONNX Runtime and in the reference of ONNX."""

from collections import Counter

import numpy as np
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from concord.frontend.codes import load
from concord.integer.sum_orders import SUM_ORDERS
from support.commands import run
from support.exact_files import module
from support.fuzz import ties
from support.onnx_models import exact_sums

PLAIN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
MEANS = ("GlobalAveragePool", "ReduceMean")
FULL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def of_onnxruntime(proto, inputs, level):
    """Outputs of ONNX Runtime; ``None`` where it cannot load the model."""
    options = exact_sums(True)
    options.graph_optimization_level = level
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    except Exception:  # those of onnxruntime have no class in common
        return None
    return session.run(None, inputs)


def codes_of(network, proto, results):
    """Codes of outputs, which are codes or numbers."""
    codes = {}
    for output, values in zip(proto.graph.output, results, strict=True):
        scheme = network.scheme(output.name)
        values = np.asarray(values)
        whole = values if values.dtype.kind != "f" else np.rint(values / np.float32(scheme.scale)) + scheme.zero
        codes[output.name] = whole.astype(np.int64)
    return codes


def compared(seeds, rounding, judge):
    """Codes by operator and type of a rule that differ from those of a judge."""
    different, count = Counter(), Counter()
    for seed in seeds:
        proto, inputs, op, kind = ties.network(np.random.default_rng(seed))
        theirs = judge(proto, inputs)
        if theirs is None:
            continue
        network = load(proto, rounding=rounding)
        for name, codes in codes_of(network, proto, theirs).items():
            own = network.run(inputs)[name].astype(np.int64)
            different[op, kind] += int((own != codes).sum())
            count[op, kind] += codes.size
    return {key: value for key, value in different.items() if value}, sum(count.values())


def optimised(proto, inputs):
    return of_onnxruntime(proto, inputs, FULL)


def plain(proto, inputs):
    return of_onnxruntime(proto, inputs, PLAIN)


def reference(proto, inputs):
    """Outputs of the evaluator of ONNX."""
    return ReferenceEvaluator(proto).run(None, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_onnxruntime_with_its_optimisations(first):
    different, count = compared(range(first, first + 30), None, optimised)
    assert different == {} and count > 1000


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 30))
def test_the_reference_of_onnx(first):
    different, count = compared(range(first, first + 30), "onnx", reference)
    assert different == {} and count > 1000


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_more_networks(first):
    """Without its optimisations ONNX Runtime has the rule of the reference, but for the order of some means."""
    seeds = range(first, first + 100)
    for rounding, judge, means in ((None, optimised, ()), ("onnx", reference, ()), ("onnx", plain, MEANS)):
        different, count = compared(seeds, rounding, judge)
        print(f"{rounding or 'onnxruntime'}, {judge.__name__}: {count} codes, {sum(different.values())} different")
        assert {op for op, _ in different} <= {*means}


@pytest.mark.parametrize("order", SUM_ORDERS)
def test_orders_of_sums(order):
    """Each number counts once, and a step can write its sums to where its values were, from the left."""
    for count in [*range(1, 70), 127, 128, 129, 137, 255, 256, 257, 600, 1025]:
        values = [{k} for k in range(count)]
        for step in SUM_ORDERS[order](count):
            assert all(min(group) >= place for place, group in enumerate(step))
            values = [set().union(*(values[k] for k in group)) for group in step]
        assert values == [set(range(count))]


@pytest.mark.parametrize("count", [1, 7, 8, 30, 128, 129, 300, 1025])
def test_pairs_are_those_of_numpy(count):
    numbers = np.random.default_rng(count).normal(size=(20, count)).astype(np.float32)
    for row, total in zip(numbers, numbers.sum(axis=-1), strict=True):
        values = list(row)
        for step in SUM_ORDERS["pairs"](count):
            values = [sum((values[k] for k in group[1:]), values[group[0]]) for group in step]
        assert values == [total]


@pytest.fixture
def middle(tmp_path):
    """A mean of int8 with a zero point that is odd: both rules of ONNX give other codes; the folder of the files."""
    seeds = (seed for seed in range(1000) if is_fused_mean(seed))
    proto, inputs, *_ = ties.network(np.random.default_rng(next(seeds)))
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(tmp_path / "x.npz", **inputs)
    return tmp_path


def is_fused_mean(seed):
    proto, inputs, op, _ = ties.network(np.random.default_rng(seed))
    if op != "AveragePool":
        return False
    rules = [load(proto, rounding=rule).run(inputs) for rule in ("onnxruntime", "onnx")]
    return any(not np.array_equal(a, b) for a, b in zip(*(rule.values() for rule in rules), strict=True))


def done(*arguments):
    """What a command prints that ends well."""
    code, text = run(*arguments)
    assert code == 0, text
    return text


def results(folder, *arguments):
    done("run", *arguments, "-i", folder / "x.npz", "-o", folder / "y.npz")
    return np.concatenate([codes.ravel() for codes in np.load(folder / "y.npz").values()])


@pytest.mark.slow
def test_the_command_line_has_the_rules(middle):
    """A folder and derived files keep the rule of the command that has written them."""
    net, rule = middle / "net.onnx", ("--exact", "--rounding", "onnx")
    usual, other = results(middle, net, "--exact"), results(middle, net, *rule)
    assert np.array_equal(usual, results(middle, net, "--exact", "--rounding", "onnxruntime"))
    assert np.abs(usual.astype(int) - other).max() == 1
    done("compile", net, *rule, "-o", middle / "net")
    assert np.array_equal(other, results(middle, middle / "net"))
    done("derive", net, *rule, "-o", middle / "net.py")
    derived = module(middle / "net.py").run(dict(np.load(middle / "x.npz")))
    assert np.array_equal(other, np.concatenate([codes.ravel() for codes in derived.values()]))


@pytest.mark.slow
def test_rules_are_for_networks_on_codes(middle):
    net, x = middle / "net.onnx", ["-i", middle / "x.npz", "-o", middle / "y.npz"]
    done("compile", net, "--exact", "-o", middle / "net")
    for arguments, message in [
        ([net, *x, "--rounding", "onnx"], "--rounding must be given with --exact"),
        ([net, *x, "--exact", "--rounding", "tflite"],
         "rounding of an ONNX model must be onnxruntime or onnx, not 'tflite'"),
        ([middle / "net", *x, "--rounding", "onnx"], "--rounding must be given to compile"),
    ]:  # fmt: skip
        code, text = run("run", *arguments)
        assert code == 1 and message in " ".join(text.split())
