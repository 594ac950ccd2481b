"""Networks in C on this machine: time of a sample, memory, and products per second."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from concord.compiler.model import compile_graph
from concord.derive.c.program import CProgram, compiler
from concord.derive.c.source import c_files, write_c
from concord.derive.evaluate import run
from concord.derive.model import derive_package
from concord.frontend import import_model
from concord.graph.cost import macs
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray
from concord_bench.results import Results
from concord_bench.tasks import folder

GROUP = "Networks in C"
NETWORKS = ("ic_resnet8", "kws_dscnn", "ad_fc_autoencoder", "digits_lstm64")
#: Seconds: more are measured.
SECONDS = 1.0
_FIRST = 4
_NOTE = (
    "C of `concord derive --to c --npu-part` without flags, compiled with `{compiler} -O3` for the processor of this "
    "machine; times are processor time of one core. Random samples; the first ones are compared with the golden model."
)


def measure_c_networks(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """A row per network."""
    data, command = folder(), compiler()
    if data is None or command is None:
        reason = "there is no C compiler" if command is None else "CONCORD_DATA does not name a folder with networks"
        results.skip(GROUP, reason)
        return
    results.notes[GROUP] = _NOTE.format(compiler=Path(command).name)
    for name in NETWORKS:
        say(f"{name} in C")
        results.row(GROUP, name, network_row(config, data / "models" / f"{name}.onnx", command))


def network_row(config: NpuConfig, model: Path, command: str) -> dict[str, str]:
    """Texts by column."""
    graph = import_model(model)
    package = compile_graph(graph, config).package
    derived = derive_package(package).npu_part
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=(_FIRST, *shape)) for name, shape in derived.sources.items()}
    with TemporaryDirectory() as name:
        write_c(derived, Path(name) / "net.c")
        program = CProgram(Path(name) / "net.c", derived, [command])
        outputs, _ = program.run(inputs)
        want = run(derived, {key: x[:1] for key, x in inputs.items()})
        same = all(np.array_equal(outputs[key][:1], want[key], equal_nan=True) for key in want)
        seconds = seconds_of_a_sample(lambda count: _seconds(program, inputs, count))
    made = c_files(derived, "net")
    return {
        "ms per sample": f"{1e3 * seconds:.3f}",
        "products per s, 10^9": f"{1e-9 * macs(graph) / seconds:.2f}",
        "RAM, bytes": f"{made.ram:,}",
        "ROM, bytes": f"{made.rom:,}",
        "same bits": "yes" if same else "NO",
    }


def seconds_of_a_sample(seconds_of: Callable[[int], float]) -> float:
    """Processor time of a sample, without what a process takes to begin, from that of a number of samples."""
    count, least = 32, seconds_of(1)
    while True:
        seconds = seconds_of(count) - least
        if seconds >= SECONDS or count >= 1 << 16:
            return seconds / (count - 1)
        count *= 4


def _seconds(program: CProgram, inputs: dict[str, FloatArray], count: int) -> float:
    some = {name: np.resize(x, (count, *x.shape[1:])) for name, x in inputs.items()}
    return cpu_seconds(lambda: program.run(some))


def cpu_seconds(run_program: Callable[[], object]) -> float:
    """Processor time of the programs that something runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run_program()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
