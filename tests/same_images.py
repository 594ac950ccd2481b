"""Whether what is compiled and generated is the same as before: hashes of images, programs, derived models and Verilog.

Usage: ``python tests/same_images.py --write before.json`` on one version of the sources, ``--compare before.json`` on
another. ``--only nets,examples`` takes some kinds of cases, ``--match digits`` those with a text in their name;
``--jobs 2`` uses two processes. Exit status 1 if anything differs, or if a case of the file is missing.

============ ==========================================================================================
nets         small networks of the tests, for every preset and for a larger ``tiny``
examples     the example programs, for every preset
networks     the networks of ``CONCORD_DATA``, for every preset, without samples
calibrated   those networks for ``ecp5-85f``, with formats that a few samples choose
derived      software derived from those networks for ``ecp5-85f``
verilog      the NPU of every preset
training     programs and memories of trainings on the NPU
============ ==========================================================================================

A case that is refused has its message in the place of hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.derive.backends.registry import backend_for
from concord.derive.model import derive_image
from concord.examples import EXAMPLES
from concord.frontend import import_model
from concord.host.rates import rates
from concord.networks.calibrated import choose_formats
from concord.networks.folder import save_package
from concord.program.allocator import CapacityError
from concord.program.integers import IntegerChain
from concord.program.trace import trace
from concord.spec.presets import ECP5_85F, PRESETS
from concord_bench import tasks
from support import compiled_nets, npu_training, product_nets, quantised_nets, row_tiled_nets
from support.expressions import ROOMY

#: Samples that formats are chosen with.
SAMPLES = 8
#: Random networks over maps that are high enough for row tiles.
RANDOM = 20
#: Configurations by name.
CONFIGS = {**PRESETS, "roomy": ROOMY, "large": row_tiled_nets.LARGE}
NETS: dict[str, Callable] = {
    "attention": compiled_nets.attention,
    "magnitudes": compiled_nets.magnitudes,
    "perceptron": partial(compiled_nets.perceptron, 8, 8, 4),
    "scaled functions": compiled_nets.scaled_functions,
    "residual": compiled_nets.residual,
    "gru": compiled_nets.gru,
    "lstm": partial(compiled_nets.recurrent, "LSTM", 6, 5, 3),
    "rnn": partial(compiled_nets.recurrent, "RNN", 6, 5, 3),
    "lstm both ways": partial(compiled_nets.recurrent, "LSTM", 6, 5, 3, direction="bidirectional", sequence=False),
    "large windows": compiled_nets.large_windows,
    "grouped softmax": compiled_nets.grouped_softmax,
    "normalised": compiled_nets.normalised,
    "separable": partial(row_tiled_nets.separable, 24),
    "quantised": lambda: import_model(quantised_nets.network()),
    **product_nets.PRODUCTS,
    **{f"random {seed}": partial(row_tiled_nets.random_net, seed) for seed in range(RANDOM)},
}
TRAININGS = {
    **{name: partial(npu_training.digits_case, name) for name in npu_training.NETWORKS},
    **{f"dense {seed}": partial(npu_training.random_case, seed) for seed in range(RANDOM)},
    **{f"images {seed}": partial(npu_training.random_images, seed) for seed in range(2 * RANDOM)},
    **{f"depthwise {seed}": partial(npu_training.random_depthwise, seed) for seed in range(RANDOM)},
}


def digest(data):
    """A short hash of bytes."""
    return hashlib.sha256(data).hexdigest()[:20]


def figures_of(image):
    """Hashes of an image and its program, and the cycles of a run."""
    with tempfile.TemporaryDirectory() as folder:
        image.save(path := Path(folder) / "image")
        data = path.read_bytes()
    program = digest(str(image.program).encode())
    return {"image": digest(data), "program": program, "cycles": rates(image).cycles}


def package_of(compiled):
    """What :func:`figures_of` says, and a hash of the arrangement of inputs and outputs and of the formats."""
    with tempfile.TemporaryDirectory() as folder:
        save_package(compiled.package, Path(folder) / "network", b"")
        arranged = (Path(folder) / "network" / "network.npz").read_bytes()
    said = digest("\n".join(compiled.warnings).encode())
    return figures_of(compiled.image) | {"network": digest(arranged), "warnings": said}


def net(name, config):
    """A small network of the tests."""
    return package_of(compile_graph(NETS[name](), CONFIGS[config]))


def example(name, config):
    """An example program."""
    made = EXAMPLES[name](CONFIGS[config])
    return figures_of(made.image()) | {"text": digest(made.text.encode())}


def network(path, config):
    """A trained network, without samples."""
    return package_of(compile_graph(import_model(tasks.folder() / "models" / path), CONFIGS[config]))


def calibrated(name, config):
    """A trained network with formats that a few samples choose."""
    task = next(task for task in tasks.TASKS if task.model == name)
    graph = tasks.load(task, tasks.folder())[0]
    given = {key: x[:SAMPLES] for key, x in tasks.calibration(task, graph, tasks.folder()).items()}
    return package_of(choose_formats(graph, CONFIGS[config], given, batch=task.batch).chosen.compiled)


def derived(path, config):
    """Software derived from a trained network."""
    model = derive_image(compile_graph(import_model(tasks.folder() / "models" / path), CONFIGS[config]).image, True)
    with tempfile.TemporaryDirectory() as folder:
        backend_for(target := Path(folder) / "model.py", None).write(model, target)
        return {"python": digest(target.read_bytes())}


def verilog(config):
    """The NPU of a preset."""
    from amaranth.back import verilog as back

    from concord_rtl.core.top import NpuTop

    return {"verilog": digest(back.convert(NpuTop(CONFIGS[config]), name="npu", emit_src=False).encode())}


def training(name):
    """A training on the NPU: its program and the cycles of its chains, the words that it takes, and what is loaded."""
    layers, shape, samples, settings = TRAININGS[name]()
    _, npu = npu_training.pair(settings, layers, shape, samples, config=npu_training.LARGE)
    words, starts, spaces = npu.program.words, npu.program.starts, npu.memory.spaces
    chains = [one for pc in starts for one in trace(words, npu_training.LARGE, pc).integers]
    loaded = {}
    for part in npu.device.image.segments:
        loaded |= {(part.region.name, addr): word for addr, word in enumerate(part.words(), part.start) if word}
    return {
        "program": digest(str((words, starts)).encode()),
        "cycles": sum(one.vectors * one.steps.interval for one in chains if isinstance(one, IntegerChain)),
        "words": {region.name: npu.memory.used(region) for region in sorted(spaces)},
        "loaded": digest(str(sorted(loaded.items())).encode()),
    }


KINDS = {
    "nets": net,
    "examples": example,
    "networks": network,
    "calibrated": calibrated,
    "derived": derived,
    "verilog": verilog,
    "training": training,
}


def cases():
    """Every case: its kind and arguments."""
    yield from (("nets", name, config) for name in NETS for config in CONFIGS)
    yield from (("examples", name, config) for name in EXAMPLES for config in PRESETS)
    yield from (("verilog", config) for config in PRESETS)
    yield from (("training", name) for name in TRAININGS)
    if tasks.folder() is None:
        return
    models = tasks.folder() / "models"
    paths = sorted(str(path.relative_to(models)) for path in models.rglob("*.onnx"))
    yield from (("networks", path, config) for path in paths for config in PRESETS)
    yield from (("calibrated", task.model, ECP5_85F.name) for task in tasks.TASKS)
    yield from (("derived", path, ECP5_85F.name) for path in paths)


def measured(case):
    """The figures of a case, or why it is refused, and the seconds it took."""
    kind, *arguments = case
    start = time.perf_counter()
    try:
        found = KINDS[kind](*arguments)
    except (CapacityError, Unsupported, ValueError) as error:
        found = {"refused": f"{type(error).__name__}: {error}"}
    return found, time.perf_counter() - start


def everything(args):
    """Figures by the name of the case."""
    chosen = [case for case in cases() if case[0] in args.only and args.match in " ".join(case)]
    found = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = {pool.submit(measured, case): " ".join(case) for case in chosen}
        for future in as_completed(waiting):
            found[waiting[future]], seconds = future.result()
            if args.verbose:
                print(f"{seconds:7.1f} s  {waiting[future]}", flush=True)
            if args.write:  # what there is if it is interrupted
                args.write.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    return found


def differences(before, after):
    """Lines that say what is not the same; every case of ``before`` has to be there."""
    for name in before:
        if name not in after:
            yield f"{name}: missing"
            continue
        for what in sorted(before[name].keys() | after[name].keys()):
            old, new = before[name].get(what), after[name].get(what)
            if old != new:
                yield f"{name}: {what} was {old}, is {new}"


def main():
    """Write figures, or compare them with a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--only", default=list(KINDS), type=lambda text: text.split(","), metavar="KIND,KIND")
    parser.add_argument("--match", default="", metavar="TEXT")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    if unknown := set(args.only) - set(KINDS):
        parser.error(f"--only must be of {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    if not args.write and not args.compare:
        parser.error("--write or --compare must be given")
    after = everything(args)
    if args.write:
        print(f"{len(after)} cases written, {sum('refused' in one for one in after.values())} of them refused")
    if not args.compare:
        return 0
    before = json.loads(args.compare.read_text())
    before = {name: one for name, one in before.items() if name.split()[0] in args.only and args.match in name}
    lines = list(differences(before, after))
    print("\n".join([*lines, f"{len(before)} cases compared, {len(lines)} differences"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
