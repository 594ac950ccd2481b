"""Real networks, compiled without retraining and with dynamic exponents throughout: as accurate as in double precision.

They lie in the folder ``CONCORD_DATA``: ``models/*.onnx`` in float32, and ``data/*.npz``.
"""

from functools import partial

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.compiler.pipeline.strategies import Outcome
from concord.frontend import import_model
from concord.graph.execute import run
from concord.host import connect
from concord.networks.calibrated import choose_formats, emulate
from concord.program.allocator import CapacityError
from concord.spec.presets import ECP5_85F as PRESET
from concord_bench.tasks import TASKS, calibration, load
from concord_bench.tasks import run as stream
from support.trained import DATA, needs_data

#: Room for all of the networks.
ECP5_85F = PRESET.replace(matrix_depth=2560, writable_matrix=False)

pytestmark = needs_data

#: What becomes of a residual network in one piece.
ONE_PIECE = (Outcome.REFUSED, Outcome.SLOWER, Outcome.NOT_TRIED)
TASK = {task.model: task for task in TASKS}
#: Samples per network: as many as take a few seconds.
SAMPLES = {"ic_resnet8": 40, "kws_dscnn": 100}
#: Greatest root mean square error of the outputs, relative to that of the reference.
ERRORS = {"ic_resnet8": 0.08, "kws_dscnn": 0.04, "kws_lstm118": 0.05, "kws_gru154": 0.04, "kws_crnn": 0.03}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "digits_mlp", "digits_cnn", "digits_lstm64", "digits_gru64", "mnist_cnn", "sww_dscnn1d",
        "kws_dscnn", "kws_lstm118", "kws_gru154", "kws_crnn", "digits_transformer",
        pytest.param("ic_resnet8", marks=pytest.mark.deep),
    ],
)  # fmt: skip
def test_as_accurate_as_float(name):
    graph, x, y = load(TASK[name], DATA)
    x, y = x[: SAMPLES.get(name, 200)], y[: SAMPLES.get(name, 200)]
    (given,), (result,) = graph.inputs, graph.outputs
    want = run(graph, {given: x})[result]
    compiled = choose_formats(graph, ECP5_85F, calibration(TASK[name], graph, DATA)).chosen.compiled
    got = emulate(compiled, {given: x})[result]
    error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))
    assert 0 < error < ERRORS.get(name, 0.02)
    right = [float((values.argmax(axis=1) == y).mean()) for values in (want, got)]
    assert right[1] >= right[0] - 0.5 / 100 - 1 / len(y)


@pytest.mark.slow
def test_the_residual_network_fits_in_row_tiles_which_are_faster_than_a_streamed_residual():
    config = ECP5_85F.replace(wide_depth=1024)
    compiled = compile_graph(import_model(DATA / "models" / "ic_resnet8.onnx"), config)
    assert not compiled.streamed_residuals and compiled.row_tiling is not None
    assert [one.outcome for one in compiled.strategies if not one.strategy.tiled] == list(ONE_PIECE)
    slots = sum(layer.macs for layer in compiled.lowered.layers)
    assert 12_501_632 / slots > 0.95
    assert [node.op for node in compiled.host_graph.nodes] == ["Softmax"]


@pytest.mark.slow
def test_what_does_not_fit_is_told():
    with pytest.raises(CapacityError, match="narrow memory has 96 vectors, but"):
        compile_graph(import_model(DATA / "models" / "vww_mobilenetv1_025.onnx"), ECP5_85F.replace(narrow_depth=96))


@pytest.mark.slow
def test_a_stream_with_its_state():
    """Speech in chunks, each with the state that the one before left."""
    task = TASK["silero_vad_16k"]
    graph, x, wanted = load(task, DATA)
    x, wanted = x[:120], wanted[:120]
    compiled = compile_graph(graph, ECP5_85F)
    with connect("emulator", ECP5_85F) as device:
        device.load(compiled.image)
        results = stream(task, graph, partial(compiled.run, device), x)[1]["output"]
    assert 0.1 < wanted.mean() < 0.9
    assert task.score(results, x, wanted) >= 0.98


@pytest.mark.slow
def test_a_stream_decides_as_in_double_precision():
    """Powers over nine decades need a square root by several tables; half a point may be lost, as with any network."""
    task = TASK["silero_vad_16k"]
    graph, x, wanted = load(task, DATA)
    compiled = choose_formats(graph, ECP5_85F, calibration(task, graph, DATA)).chosen.compiled
    assert len(compiled.package.formats.table_segments["sqrt0"]) == 5
    with connect("emulator", ECP5_85F) as device:
        device.load(compiled.image)
        results = stream(task, graph, partial(compiled.run, device), x)[1]["output"]
    assert task.score(results, x, wanted) >= 0.995
