"""The ONNX project's own tests of single operators, compiled and run on the emulator.

Operands that are inputs in those tests and constants in every network (weights, axes, bounds) are made constants where
nothing else compiles. An output may differ by ``TOLERANCE`` of the largest one: binary16, 8-bit mantissas, tables.
"""

import functools
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from concord.compiler.formats import emulate
from concord.compiler.lower import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.spec.presets import ECP5_85F

CONFIG = ECP5_85F.replace(narrow_depth=16384, wide_depth=16384, matrix_depth=16384, program_depth=4096)
OPERATORS = set(
    """
    Add AveragePool BatchNormalization Clip Concat Conv Div Dropout Elu Erf Flatten Gather Gelu Gemm GlobalAveragePool
    GlobalMaxPool GRU HardSigmoid HardSwish Identity LayerNormalization LeakyRelu Log LSTM MatMul Max MaxPool Min Mul
    Neg Pad Pow Reciprocal ReduceMean Relu Reshape RNN Selu Sigmoid Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh
    Transpose Unsqueeze
    """.split()
)
TOLERANCE = 0.03
#: Cases that pass; the others are skipped with the reason that the compiler gives.
PASSING = 200
#: Values that no table or no number of this machine holds.
BEYOND = {
    "test_reciprocal_example": "1 / 0 saturates",
    "test_softmax_large_number": "differences of 1 beside 10,000 are lost in 8 bits",
}


@functools.cache
def cases():
    """Tests whose operators are all claimed to be supported."""
    with warnings.catch_warnings():  # of the cases that the package makes as it is imported
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    return [case for case in found if {node.op_type for node in case.model.graph.node} <= OPERATORS]


def compiled(model, values):
    """The compiled model with as many computed inputs as it can have: all of floats, or the first of them."""
    floats = [name for name, value in values.items() if value.dtype.kind == "f"]
    failure = None
    for kept in (floats, floats[:1]):
        given = onnx.ModelProto()
        given.CopyFrom(model)
        given.graph.initializer.extend(
            numpy_helper.from_array(value, name) for name, value in values.items() if name not in kept
        )
        try:
            return compile_graph(import_model(given), CONFIG)
        except (UnsupportedModel, Unsupported) as error:
            failure = failure or error
    raise failure


@functools.cache
def outcome(name):
    """Largest error of a case relative to its largest output, or the reason why it is skipped."""
    (case,) = (case for case in cases() if case.name == name)
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    if not all(isinstance(value, np.ndarray) and value.size for value in (*inputs, *outputs)):
        return "has no array, or an empty one"
    if len(inputs) != len(graph.input):
        return "leaves inputs out"
    values = dict(zip((item.name for item in graph.input), inputs, strict=True))
    try:
        network = compiled(case.model, values)
    except (UnsupportedModel, Unsupported) as error:
        return error.reasons[0]
    x = {name: values[name].reshape(1, *network.graph.sample_shape(name)) for name in network.graph.inputs}
    got = emulate(network, x)
    errors = [
        np.abs(got[item.name].reshape(want.shape) - want).max() / max(np.abs(want).max(), 1e-9)
        for item, want in zip(graph.output, outputs, strict=True)
    ]
    return float(max(errors))


NAMES = [case.name for case in cases()]


@pytest.mark.parametrize("name", NAMES)
def test_node(name):
    if name in BEYOND:
        pytest.skip(BEYOND[name])
    result = outcome(name)
    if isinstance(result, str):
        pytest.skip(result)
    assert result < TOLERANCE


def test_most_cases_are_not_skipped():
    assert sum(not isinstance(outcome(name), str) for name in NAMES if name not in BEYOND) >= PASSING
