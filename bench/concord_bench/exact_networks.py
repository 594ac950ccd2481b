"""Quantised networks in C on codes on this machine: time of a sample, memory, and TFLite Micro if it is installed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive.c.program import compiler
from concord.derive.c_exact.program import Codes, ExactProgram
from concord.frontend.codes import load
from concord.integer import IntegerNetwork
from concord.prove.exact import random_codes
from concord_bench.c_networks import cpu_seconds, seconds_of_a_sample
from concord_bench.results import Results
from concord_bench.tasks import folder

GROUP = "Quantised networks in C"
_MICRO = ("ms, TFLite Micro", "its outputs that differ")
#: Networks, and the data that they are quantised with.
NETWORKS = {
    "ic_resnet8": "ic_cifar10",
    "kws_dscnn": "kws_mfcc_int8",
    "vww_mobilenetv1_025": "vww_coco",
    "sww_dscnn1d": "sww_logmel",
}
#: Networks of which there are TensorFlow Lite files.
FILES = (*NETWORKS, "ad_fc_autoencoder")
_SAMPLES, _FIRST, _TFLM_RUNS = 24, 4, 20
_NOTE = (
    "C of `concord derive --to c --exact`, compiled with `{compiler} -O3`; times are processor time of one core. "
    "Networks are quantised per channel by ONNX Runtime, or the int8 files of MLPerf Tiny for TensorFlow Lite. Random "
    "codes; the first ones are compared with `concord.integer`. TFLite Micro is the PyPI package `tflite-micro` with "
    "its reference kernels and the same file; it rounds sums of dense layers in fixed point."
)


def measure_exact_networks(results: Results, say: Callable[[str], None]) -> None:
    """A row per network."""
    data, command = folder(), compiler()
    if data is None or command is None:
        reason = "there is no C compiler" if command is None else "CONCORD_DATA does not name a folder with networks"
        results.skip(GROUP, reason)
        return
    results.notes[GROUP] = _NOTE.format(compiler=Path(command).name)
    for name, file in NETWORKS.items():
        say(f"{name} in C on codes")
        results.row(GROUP, name, exact_row(quantised(data, name, file), command) | dict.fromkeys(_MICRO, ""))
    for name in FILES if find_spec("tflite") else ():
        say(f"{name} of TensorFlow Lite in C on codes")
        model = data / "models" / "tflite_int8" / f"{name}_int8.tflite"
        network = load(model)
        row = exact_row(network, command) | micro_columns(network, model)
        results.row(GROUP, f"{name}, TensorFlow Lite", row)


def exact_row(network: IntegerNetwork, command: str) -> dict[str, str]:
    """Texts by column."""
    rng, graph = np.random.default_rng(0), network.graph
    with TemporaryDirectory() as name:
        program = ExactProgram(graph, Path(name), [command], flags=False)
        codes: dict[str, Codes] = {
            port: random_codes(graph.scheme(tensor), (_FIRST, *program.shapes[port][1:]), rng)
            for port, tensor in graph.inputs.items()
        }
        made, _ = program.run(codes)
        want = network.run(codes)
        same = all(np.array_equal(made[key], want[key]) for key in want)

        def seconds(count: int) -> float:
            some = {key: np.resize(x, (count, *x.shape[1:])) for key, x in codes.items()}
            return cpu_seconds(lambda: program.run(some))

        time_of_a_sample = seconds_of_a_sample(seconds)
    return {
        "ms per sample": f"{1e3 * time_of_a_sample:.3f}",
        "RAM, bytes": f"{program.files.ram:,}",
        "ROM, bytes": f"{program.files.rom:,}",
        "same codes": "yes" if same else "NO",
    }


def quantised(data: Path, name: str, file: str) -> IntegerNetwork:
    """A network of the data folder, quantised with its samples: activations to uint8, weights to int8 per channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    with np.load(data / "data" / f"{file}.npz") as arrays:
        codes = arrays["x_calib" if "x_calib" in arrays else "x_train"][:_SAMPLES]
        samples = ((codes.astype(np.float32) - arrays["zero_point"]) * arrays["scale"]).astype(np.float32)
    model = data / "models" / f"{name}.onnx"

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        rows: Iterator[NDArray[Any]] = iter(samples)

        def get_next(self) -> dict[str, NDArray[Any]] | None:
            row = next(self.rows, None)
            return None if row is None else {_input_of(model): row[None]}

    with TemporaryDirectory() as made:
        target = Path(made) / f"{name}.onnx"
        quantize_static(
            model, target, Samples(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8, per_channel=True,
        )  # fmt: skip
        return load(target)


def _input_of(model: Path) -> str:
    import onnx

    return str(onnx.load(model).graph.input[0].name)


def tflite_micro(model: Path) -> Any | None:
    """An interpreter of TFLite Micro with a model, if it is installed."""
    try:
        from tflite_micro.python.tflite_micro import runtime  # type: ignore[import-not-found]
    except ImportError:
        return None
    return runtime.Interpreter.from_file(str(model))


def micro_columns(network: IntegerNetwork, model: Path) -> dict[str, str]:
    """Processor time of a sample on TFLite Micro, and outputs of random codes that are others; empty without it."""
    interpreter = tflite_micro(model)
    if interpreter is None:
        return dict.fromkeys(_MICRO, "")
    ((port, tensor),) = network.graph.inputs.items()
    sizes = interpreter.get_input_details(0)["shape"][1:]
    codes = random_codes(network.graph.scheme(tensor), (_TFLM_RUNS, *sizes), np.random.default_rng(0))
    (want,) = network.run({port: codes}).values()
    rows, seconds, different = codes.astype(want.dtype), 0.0, 0
    interpreter.invoke()
    for k in range(_TFLM_RUNS):
        interpreter.set_input(rows[k : k + 1], 0)
        begin = time.process_time()
        interpreter.invoke()
        seconds += time.process_time() - begin
        different += int((interpreter.get_output(0) != want[k : k + 1]).sum())
    return dict(zip(_MICRO, (f"{1e3 * seconds / _TFLM_RUNS:.3f}", f"{different:,} of {want.size:,}"), strict=True))
