"""Analysis of a compiled network: values in its accumulators, observed and at most."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from concord.compiler.emission.package import Package
from concord.host.emulated import EmulatedDevice
from concord.image import Image
from concord.overflow.intervals import Bounds
from concord.overflow.machine import ON_GRID, Watcher
from concord.overflow.results import Analysis, LayerOverflow, StageFacts
from concord.program.flags import layer_of
from concord.sums.histogram import Histograms, SumStage, check_width
from concord.utils.parallel import Engine, task_slices

#: Least and greatest value by input.
Ranges = dict[str, tuple[float, float]]
#: Runs of a task: few, as each is counted for a long time.
LEAST, MOST = 4, 32


def analyse_machine(
    package: Package,
    inputs: Mapping[str, npt.ArrayLike],
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    width: int | None = None,
    output_width: int | None = None,
    threshold: int = 0,
    name: str = "network",
    engine: Engine | None = None,
) -> Analysis:
    """Count every product, every sum of lanes and every partial sum of a compiled network, in the machine's order.

    Parameters
    ----------
    package : Package
        The compiled network.
    inputs : mapping of str to array
        ``[samples, *shape of a sample]`` by input. Of a network with several samples per run as many as fill its runs
        are used, from the first on.
    ranges : mapping of str to pair of floats, optional
        What inputs are within: bounds hold for all of them. The range of the samples, if left out.
    width, output_width : int, optional
        Bits of the accumulator while it adds up, and of its final value, 1 to 64. If left out the register of the NPU,
        where it has one that sums can leave, and what it keeps, ``acc_width``; else both ``acc_width``.
    threshold : int
        Values of a layer that may leave their storage.
    name : str
        For reports.
    engine : Engine, optional
        Its workers share the samples; counts do not depend on them.

    Raises
    ------
    ValueError
        For inputs, ranges or widths that are not possible, or a network without a product.
    """
    package = package.carried
    inputs, package = package.npu_inputs(inputs), package.of_npu
    config = package.config
    register = config.acc_register or config.acc_width
    width = check_width("width", min(register, 64) if width is None else width)
    output_width = check_width("output_width", min(config.acc_width, 64) if output_width is None else output_width)
    if threshold < 0:
        raise ValueError(f"threshold must be at least 0, not {threshold!r}")
    if unknown := sorted(set(ranges or {}) - set(package.arrangement.inputs)):
        raise ValueError(f"range must be of an input, {', '.join(package.arrangement.inputs)}, not {unknown[0]}")
    samples = len(np.asarray(next(iter(inputs.values()))))
    batch = package.arrangement.batch
    if samples < batch:
        raise ValueError(f"inputs must have at least the {batch} samples of a run, not {samples}")
    samples -= samples % batch
    inputs = {key: np.asarray(values)[:samples] for key, values in inputs.items()}
    ports = package.arrangement.pack(inputs)
    limits = {key: _range(key, values, ranges) for key, values in inputs.items()}
    counts = _counts(package.image, ports, engine)
    bounds = Bounds(package.image).run(_port_ranges(package, limits))
    layers = []
    for layer, observed in counts.items():
        facts = []
        for stage in SumStage:
            checked = "output" if stage is SumStage.OUTPUT else "intermediate" if stage in ON_GRID else ""
            facts.append(StageFacts.of(stage.value, observed[stage], bounds[layer].bits(stage), checked))
        layers.append(LayerOverflow(layer, "", tuple(facts)))
    if not layers:
        raise ValueError(f"network {name} must have a product, and has none")
    return Analysis(
        name=name,
        view="machine",
        storage=f"accumulator of {config.name}: {config.register_bits} bits in hardware, {config.acc_width} kept, "
        f"in units of 2**{-config.acc_frac}",
        samples=samples,
        ranges=limits,
        width=width,
        output_width=output_width,
        threshold=threshold,
        layers=tuple(layers),
    )


def _counts(image: Image, ports: Mapping[str, npt.ArrayLike], engine: Engine | None) -> dict[str, Histograms]:
    """Counts of the values that the products of all runs make, by layer in the order of execution."""
    if engine is None:
        return _counted(image, ports)
    there, batch = engine.broadcast(image), {name: np.asarray(values) for name, values in ports.items()}
    runs = len(next(iter(batch.values())))
    shares = [{name: values[part] for name, values in batch.items()} for part in task_slices(runs, LEAST, MOST)]
    first, *others = engine.map(_counted, [(there, share, 1) for share in shares])
    for counts in others:
        for layer, observed in counts.items():
            first[layer].add(observed)
    return dict(first)


def _counted(image: Image, ports: Mapping[str, npt.ArrayLike], threads: int | None = None) -> dict[str, Histograms]:
    """Counts of the values that the products of some runs make."""
    watcher = Watcher(image.config, lambda pc: layer_of(image, pc) or f"chain at {pc}")
    device = EmulatedDevice(image.config, workers=threads, watch=watcher)
    device.load(image)
    device.run(ports)
    return watcher.observed()


def bounds_of(package: Package, ranges: Ranges) -> dict[str, int]:
    """Bits that hold every term and every sum of a layer, for all inputs within ranges, by layer."""
    extremes = Bounds(package.image).run(_port_ranges(package, ranges))
    return {
        layer: max(ends.bits(stage) for stage in ON_GRID)
        for layer, ends in extremes.items()
        if ends.bits(SumStage.OUTPUT)
    }


def _range(name: str, values: npt.ArrayLike, ranges: Mapping[str, tuple[float, float]] | None) -> tuple[float, float]:
    """Range for which bounds hold: the one that is given, or that of the samples."""
    array = np.asarray(values, dtype=np.float64)
    least, greatest = float(np.nanmin(array)), float(np.nanmax(array))
    if ranges is None or name not in ranges:
        return least, greatest
    low, high = ranges[name]
    if not low <= least <= greatest <= high:
        raise ValueError(f"range of {name} must hold the samples, {least:g} to {greatest:g}, not {low:g},{high:g}")
    return float(low), float(high)


def _port_ranges(package: Package, ranges: Ranges) -> Ranges:
    """Ranges of what the ports hold: rounded, without the offset, padding included."""
    limits = {}
    for name, ends in ranges.items():
        arrangement = package.arrangement
        offset = arrangement.input_offsets.get(name, 0.0)
        whole = np.stack([np.full(arrangement.shapes[name], float(end)) for end in ends])
        made = arrangement.prepared(name, whole) - offset
        low, high = float(made.min()), float(made.max())
        limits[name] = min(low, 0.0, -offset), max(high, 0.0, -offset)
    return limits
