"""The ONNX project's own tests of single operators with floats, compiled and run on the emulator.

They go through :mod:`concord.onnx_backend`, which makes constants of operands that are inputs in those tests and
constants in every network (weights, axes, bounds), where nothing else compiles. A recurrent layer gets the elements of
its batch one after the other. Of operators with a second result that inference has no use for, the first is compared.
ONNX tests three modes of Pad with integers only: they get the same numbers as floats. Tables cover the values of the
test, as calibration has it. An output may differ by ``TOLERANCE`` of the largest one: binary16, 8-bit mantissas,
tables.

Every case of the version of onnx that the extra ``test`` asks for has a test that passes: a case in ``REFUSED`` is
refused for the reason there, a case in ``BEYOND`` is wrong by more than the tolerance, all others are within it.
"""

import functools
import re
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from concord import FlagWarning, onnx_backend
from concord.frontend import UnsupportedModel, import_model
from concord.spec.presets import with_mantissas

CONFIG = onnx_backend.BACKEND_NPU
#: Tested with integers only, or nearly so.
IN_FLOATS = {"Pad", "Trilu", "CumSum"}
#: Random masks and indices of maxima are no results of these for inference.
FIRST_ONLY = {"Dropout", "MaxPool"}
RECURRENT = {"GRU", "LSTM", "RNN"}
TOLERANCE = 0.02
#: Cases that pass.
PASSING = 1183
#: Elements of large tensors.
MANY = 25_000
#: Share of the cases that must pass.
ENOUGH = 0.85
LARGE = r"test_(log)?softmax_large_number_expanded.*"
#: Results that are wrong by more than the tolerance, and why.
BEYOND = {
    "test_matmul_1d_3d": "products of 0.9 and 1.5 cancel: mantissas of 8 bits leave an error of 3 %",
    "test_einsum_inner_prod": "products of up to 1.7 cancel to 0.96: mantissas of 8 bits leave an error of 4 %",
    "test_reduce_prod_default_axes_keepdims_example": "12! is beyond the greatest number of binary16",
    r"test_resize_downsample_scales_(linear|cubic)_align_corners": (
        "a size that is no whole number is rounded first, as onnxruntime does and ONNX does not"
    ),
    r"test_reduce_log_sum_exp_(do_not_|negative_axes_)?keepdims_random_expanded": (
        "ONNX defines it by exponentials that are beyond binary16"
    ),
    "test_tan": "next to a pole the cosine is 0.01, and its error a twentieth of it",
    "test_lppool_2d_same_upper": "one table of the root has coarse steps at small sums",
    LARGE: "differences of 1 at 10,000 are lost: binary16 has steps of 8 there",
}
#: All cases that are refused: names, and what the reason says; both are regular expressions.
REFUSED = {
    r"test_bernoulli(_.*)?": "operator is not supported",
    r"test_attention_4d_softcap_neginf_mask.*|test_is(nan|inf).*|test_mod_float_edge_cases.*": (
        "must hold finite numbers"
    ),
    r"test_attention_4d_with_past_and_present_qk_matmul_bias_.d_mask_causal.*": "constants must be below 65520",
    r"test_training_dropout(_default)?(_mask)?|test_batchnorm_.*_training_mode": "must be in inference mode",
    r"test_reduce_.*_empty_set.*|test_(reshape_allowzero|split_zero)_.*|test_tri[lu]_zero": (
        r"dimension \d must be at least 1"
    ),
    r"test_slice_start_out_of_bounds|test_causal_conv_with_state_kernel_size_one.*": "takes no elements",
    r"test_reduce_log_sum_exp_.*example_expanded": "(first|last) must be an integer|domain must be",
    r"test_resize_.*_antialias": "antialias must be 0",
    r"test_lppool_.*(default|pads|same_lower)": "p must be 1 or 2",
    "test_roialign_mode_max": "mode must be avg",
    r"test_range_.*": "trip count must be constant",
    "test_scan_sum": "must be of opset 9 or later",
    r"test_optional_(get_element_optional_tensor|has_element_.*)": "must be a tensor of numbers, not optional",
    r"test_(sce|nllloss)_NCd1d2d3d4d5_mean_weight.*": "values must be below 128 in magnitude",
    r"test_nllloss_NCd1d2d3d4d5_none_no_weight.*": "wide memory has 16384 vectors",
}


def of_floats(case):
    """Whether a test is of tensors, with floats as operands, floats or truth values first, and either as results."""
    operators = {node.op_type for node in case.model.graph.node}
    if any(node.domain not in ("", "ai.onnx") for node in case.model.graph.node):
        return False
    inputs, outputs = case.data_sets[0]
    kinds = [getattr(value, "dtype", np.dtype("V")) for value in (*inputs, *outputs)]
    if any(kind.kind not in "fiub" and kind.name != "bfloat16" for kind in kinds):
        return False
    floats = [kind.kind == "f" or kind.name == "bfloat16" for kind in kinds]
    truth = [kind.kind == "b" for kind in kinds[len(inputs) :]]
    wanted = [a or b for a, b in zip(floats[len(inputs) :], truth, strict=True)]
    if operators <= FIRST_ONLY:
        wanted = wanted[:1]
    first = bool(inputs) and (floats[0] or kinds[0].kind == "b")
    return bool(operators & IN_FLOATS) or (first and any(floats[: len(inputs)]) and all(wanted))


@functools.cache
def cases():
    """Tests with floats, whatever their operators are."""
    with warnings.catch_warnings():  # of the cases that the package makes as it is imported
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return [case for case in load_model_tests(kind="node") if of_floats(case)]


def batch_axes(node):
    """Where the batch of a recurrent layer is, by name of its operands and results; other operators have none."""
    if node.op_type not in RECURRENT:
        return {}
    first = any(item.name == "layout" and item.i for item in node.attribute)
    inputs = {0: 0 if first else 1, 4: 0, 5: 0 if first else 1, 6: 0 if first else 1}
    outputs = (0, 0, 0) if first else (2, 1, 1)
    axes = {node.input[k]: axis for k, axis in inputs.items() if k < len(node.input) and node.input[k]}
    return axes | {name: axis for name, axis in zip(node.output, outputs, strict=False) if name}


def elements(values, axes):
    """The operands of every element of the batch."""
    count = max((values[name].shape[axis] for name, axis in axes.items() if name in values), default=1)
    for k in range(count):
        yield {name: value.take([k], axes[name]) if name in axes else value for name, value in values.items()}


def in_floats(model):
    """The model with floats in the place of integers that are only moved or added up."""
    floating = {
        name for node in model.graph.node if node.op_type in IN_FLOATS for name in (node.input[0], *node.output)
    }
    for item in (*model.graph.input, *model.graph.output):
        if item.name in floating:
            item.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return floating


def array(value):
    """A value of a case; numbers in bfloat16, which numpy has not, as float32."""
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def results(model, values):
    """Outputs by name, of the backend; what it warns of is not the matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlagWarning)
        outputs = onnx_backend.prepare(model, config=CONFIG).run(values)
    return dict(zip((item.name for item in model.graph.output), outputs, strict=True))


@functools.cache
def outcome(name):
    """Largest error of a case relative to its largest output, or the reason why it is refused."""
    (case,) = (case for case in cases() if case.name == name)
    inputs, outputs = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    operators = {node.op_type for node in model.graph.node}
    if operators <= FIRST_ONLY:
        del model.graph.output[1:]
    floating = in_floats(model)
    values = dict(zip((item.name for item in model.graph.input), map(array, inputs), strict=True))
    wanted = dict(zip((item.name for item in model.graph.output), map(array, outputs), strict=False))
    values |= {name: value.astype(np.float32) for name, value in values.items() if name in floating}
    axes = batch_axes(model.graph.node[0])
    try:
        if any(value.dtype.kind not in "fb" and name not in floating for name, value in wanted.items()) or any(
            not item.type.HasField("tensor_type") for item in model.graph.input
        ):
            import_model(model)  # refuses it
        parts = [results(model, part) for part in elements(values, axes)]
    except UnsupportedModel as error:
        return error.reasons[0]
    except ValueError as error:
        return str(error)
    errors = []
    for name, want in wanted.items():
        of_one = want.shape if name not in axes else want.take([0], axes[name]).shape
        got = [part[name].astype(np.float64).reshape(of_one) for part in parts]
        joined = np.concatenate(got, axes[name]) if name in axes else got[0]
        errors.append(np.abs(joined - want).max() / max(np.abs(want).max(), 1e-9))
    return float(max(errors))


def listing():
    """Names of all cases, a line each; a star marks the smallest of each combination of operators and outcome.

    Cases of large tensors have none.
    """
    kinds = {}
    for case in cases():
        kind = tuple(sorted({node.op_type for node in case.model.graph.node}))
        kind += (listed(REFUSED, case.name), listed(BEYOND, case.name))
        size = sum(np.size(array(value)) for values in case.data_sets[0] for value in values)
        kinds.setdefault(kind, []).append((size, case.name))
    smallest = {
        name for size, name in (min(sizes, key=lambda pair: pair[0]) for sizes in kinds.values()) if size <= MANY
    }
    for case in cases():
        yield f"{'*' if case.name in smallest else ' '} {case.name}\n"


#: What ``listing`` gives, as making the cases takes as long as collecting all tests.
LIST = Path(__file__).with_name("onnx_node_tests.txt")
LINES = LIST.read_text(encoding="utf-8").splitlines()
NAMES = [line[2:] for line in LINES]


def listed(table, name):
    """What a table has for a case; ``None`` if it is not there."""
    return next((entry for pattern, entry in table.items() if re.fullmatch(pattern, name)), None)


@pytest.mark.slow
def test_the_list_has_all_cases():
    """Another version of onnx has others: ``LIST.write_text("".join(listing()))`` writes them."""
    assert LIST.read_text(encoding="utf-8") == "".join(listing())


@pytest.mark.parametrize(
    "name",
    [pytest.param(line[2:], marks=pytest.mark.slow if line[0] == "*" else pytest.mark.deep) for line in LINES],
)
def test_node(name):
    result, reason, beyond = outcome(name), listed(REFUSED, name), listed(BEYOND, name)
    if isinstance(result, str):
        assert reason is not None, f"must be in REFUSED, or pass: {result}"
        assert re.search(reason, result)
        return
    assert reason is None, f"must not be in REFUSED, as it compiles: {reason}"
    assert (result > TOLERANCE) == (beyond is not None), f"{result:.3g}, expected: {beyond or 'at most the tolerance'}"


def test_most_cases_are_within_the_tolerance():
    """Those that no table names, as ``test_node`` checks one by one."""
    passing = sum(listed(REFUSED, name) is None and listed(BEYOND, name) is None for name in NAMES)
    assert passing >= PASSING and passing >= ENOUGH * len(NAMES)


def test_the_page_has_these_figures():
    page = (Path(__file__).parents[3] / "docs" / "operators.md").read_text()
    words = " ".join(page.split())
    others = len(NAMES) - PASSING
    assert f"comes with {len(NAMES):,} tests with floats" in words
    assert f"On the emulator {PASSING:,} of them pass" in words
    assert f"lists the other {others} by name" in words
    table = page.split("| tests | why not |")[1].split("\n\n")[0]
    assert sum(map(int, re.findall(r"^\| (\d+) \|", table, re.M))) == others


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_matmul_1d_3d", "test_einsum_inner_prod"])
def test_wider_mantissas_hold_what_cancels(name, monkeypatch):
    """The error of these cases in ``BEYOND`` is that of 8 bits, not of how the product is made."""
    monkeypatch.setattr(f"{__name__}.CONFIG", with_mantissas(CONFIG, 12))
    assert outcome.__wrapped__(name) < TOLERANCE / 5


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if re.fullmatch(LARGE, name)])
def test_large_numbers_in_binary16_are_right(name):
    """The error of these cases in ``BEYOND`` is that of their inputs in binary16, not of what is computed from them."""
    (case,) = (case for case in cases() if case.name == name)
    values = {case.model.graph.input[0].name: case.data_sets[0][0][0].astype(np.float16).astype(np.float32)}
    (want,) = ReferenceEvaluator(case.model).run(None, values)
    (found,) = results(case.model, values).values()
    assert np.abs(found.reshape(want.shape) - want).max() < TOLERANCE * np.abs(want).max()
