"""Compiles one model with the Concord of the interpreter that runs it, runs it on the emulator, and proves it.

``python -I worker.py REQUEST ANSWER`` reads a request in JSON, and writes the answer in JSON with results in an npz
file beside it. It imports nothing of :mod:`concord_bench`, so a survey can measure other versions of the software.
Each model has a process, so what goes wrong with it does not reach the others.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def compile_once(request: dict[str, Any], preset: str, samples: dict[str, Any]) -> Any:
    """The network for a preset, with a search of its formats where numbers overflow without one."""
    import concord

    options = {} if request["partition"] is None else {"partition": request["partition"]}
    for quick in dict.fromkeys([request["quick"], False]):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return concord.compile(request["model"], preset=preset, calibrate=samples, quick=quick, **options)
        except ValueError as error:
            if not quick or type(error).__name__ != "NotFiniteError":
                raise
    return None


def compile_first(request: dict[str, Any], samples: dict[str, Any], answer: dict[str, Any]) -> Any:
    """The network for the first preset that it fits; ``None`` if there is none, and the answer says why."""
    refusals: dict[str, tuple[str, str]] = {}
    for preset in request["presets"]:
        try:
            network = compile_once(request, preset, samples)
        except Exception as error:
            refusals[preset] = type(error).__name__, str(error)
            if type(error).__name__ not in ("CapacityError", "Unsupported") or "fits into no other preset" in str(
                error
            ):
                break  # the same on every preset
            continue
        answer["preset"], answer["share"] = preset, getattr(network.compilation, "share", "")
        return network
    # What the largest preset lacks says most; one that refuses an operator says less than one that is too small.
    small = [refusal for refusal in refusals.values() if refusal[0] == "CapacityError"]
    answer["error"], answer["message"] = (small or list(refusals.values()))[0]
    return None


def main(request_file: str, answer_file: str) -> None:
    """Answer a request."""
    request = json.loads(Path(request_file).read_text())
    answer: dict[str, Any] = {"preset": "", "error": "", "message": ""}
    with np.load(request["arrays"]) as arrays:
        kinds = {kind: {} for kind in ("calibrate", "run")}  # type: dict[str, dict[str, Any]]
        for key in arrays.files:
            kind, name = key.split("/", 1)
            kinds[kind][name] = arrays[key]
    started = time.perf_counter()
    network = compile_first(request, kinds["calibrate"], answer)
    answer["seconds"] = time.perf_counter() - started
    if network is not None:
        run(network, kinds["run"], request, answer, Path(answer_file).with_suffix(".npz"))
    Path(answer_file).write_text(json.dumps(answer))


def run(network: Any, inputs: dict[str, Any], request: dict[str, Any], answer: dict[str, Any], file: Path) -> None:
    """Run a network, and compare the emulator with other implementations."""
    flags: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = network.run(inputs)
        flags = [str(item.message) for item in caught if item.category.__name__ == "FlagWarning"]
    except Exception as error:
        answer["error"], answer["message"] = f"run: {type(error).__name__}", str(error)
        return
    np.savez(file, **{name: np.asarray(values) for name, values in results.items()})  # type: ignore[arg-type]
    answer["outputs"], answer["flags"] = list(results), flags
    if request["rtl"]:
        try:
            answer["rtl"] = dict(zip(("values", "different"), on_rtl(network, inputs), strict=True))
        except Exception as error:
            answer["rtl"] = {"error": f"{type(error).__name__}: {error}"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer["compared"], answer["different"] = prove(network, inputs, request, Path(folder))
        except Exception as error:
            answer["compared"], answer["different"] = 0, 0
            answer["prove"] = f"{type(error).__name__}: {error}"


def on_rtl(network: Any, inputs: dict[str, Any]) -> tuple[int, int]:
    """Results and counters of a sample on the RTL, and those that the emulator has not.

    The simulation of a configuration is built once; it is kept in the folder ``build``.
    """
    import concord

    ports = network.package.pack({name: values[:1] for name, values in inputs.items()}, rounded=True)
    runs = []
    for target in ("emulator", "rtl"):
        with concord.connect(target, network) as device:
            results = device.run(ports)
            numbers = {name: np.asarray(values, np.float32) for name, values in results.items()}
            runs.append((numbers, dict(device.counters()), device.flags()))
    (want, counters, flags), (got, counted, raised) = runs
    different = sum(int((want[name].view(np.uint32) != got[name].view(np.uint32)).sum()) for name in want)
    different += sum(counted[name] != counters[name] for name in counters if counters[name] is not None)
    return sum(values.size for values in want.values()) + len(counters), different + (flags != raised)


def prove(network: Any, inputs: dict[str, Any], request: dict[str, Any], folder: Path) -> tuple[int, int]:
    """Values that were compared, and those that differ, between the emulator and other implementations."""
    from concord.prove import prove as compare

    network.save(folder / "net")
    first = {name: values[: request["proved"]] for name, values in inputs.items()}
    proof = compare(folder / "net", first, samples=request["proved"], machine_samples=1, only=request["prove"])
    return int(proof.count.values), int(proof.count.different)


if __name__ == "__main__":
    main(*sys.argv[1:])
