"""Facts of every layer of a compiled network: its formats, errors, saturation and cycles."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np

from concord.compiler.calibration.calibration import Inputs, decides, decisions
from concord.compiler.ir.layers import Layer
from concord.compiler.memory.dataflow import elements
from concord.compiler.model import ACCUMULATOR, Compiled, expecting
from concord.graph.ir import Graph
from concord.graph.passes.dtype_report import rows, total
from concord.graph.states import with_state_inputs
from concord.host import connect
from concord.host.copied_weights import copies_by_column
from concord.host.device import Device
from concord.host.rates import rates_by_link
from concord.networks.host_share import host_lines
from concord.networks.layer_errors import error, layer_errors, own_errors, reference
from concord.networks.layer_results import COUNTED, Counts, results
from concord.networks.window_steps import WindowSteps, measured_steps
from concord.report.accuracy import distribution, formats
from concord.report.difference import first_difference
from concord.report.facts import InputFacts, NetworkFacts, OutputFacts, Saved
from concord.report.layer_facts import Flagged, LayerFacts
from concord.report.places import covered, cycles_of_steps, kind, leaves, memories, mfu_ops, reads, space, work
from concord.report.prefixes import cycles, layer_at, without_overlap
from concord.utils.arrays import FloatArray


def analyse(compiled: Compiled, inputs: Inputs, device: Device | None = None, link: str | None = None) -> NetworkFacts:
    """Run a network up to every layer and compare with double precision.

    Parameters
    ----------
    compiled : Compiled
        The network.
    inputs : mapping of str to array
        ``[samples, *shape of a sample]`` for every input of the network.
    device : Device, optional
        The RTL or a board of the same configuration: its results and its cycles are compared with the emulator's.
    link : str, optional
        Name of a link of the board, for the rates; its first one if left out.

    Raises
    ------
    ValueError
        If inputs are missing, unknown, of another shape, or without samples.
    """
    inputs, lines = compiled.package.arranged_inputs(inputs), tuple(host_lines(compiled))
    inputs = with_state_inputs(compiled.graph, inputs)
    resident = replace(compiled, package=compiled.package.of_npu)
    compiled = resident.carried
    graph, config = compiled.graph, compiled.image.config
    want = reference(compiled, inputs)
    samples = len(want[graph.outputs[0]])
    if not samples:
        raise ValueError("inputs must have at least one sample")
    got, flagged = _whole(compiled, inputs)
    same = None if device is None else _same(compiled, device, inputs, got)
    first = graph.outputs[0]
    best, right = (decisions(graph, part[first]) for part in (got, want))
    batch = compiled.package.arrangement.batch
    types = rows(compiled.types, elements(compiled.lowered), config)
    traffic = total(graph.name, types)
    steps = measured_steps(compiled, inputs)
    board_rates, *other_rates = rates_by_link(expecting(resident, inputs).image, batch, steps, link)
    return NetworkFacts(
        name=graph.name,
        npu=config.name,
        fingerprint=f"{config.fingerprint:016x}",
        macs_per_cycle=config.macs,
        clock_hz=config.clock_hz,
        samples=samples,
        batch=batch,
        instructions=len(compiled.image.program),
        agreement=float(np.mean(best == right)) if decides(graph) else None,
        same_on_rtl=same,
        inputs=tuple(
            InputFacts(
                port.name,
                _shape(graph, port.name),
                port.region.name.lower(),
                port.elements,
                graph.states.get(port.name, ""),
            )
            for port in compiled.image.inputs
        ),
        outputs=tuple(OutputFacts(name, _shape(graph, name), error(got[name], want[name])) for name in graph.outputs),
        host=tuple(node.op for node in compiled.host_graph.nodes) if compiled.host_graph else (),
        host_lines=lines,
        memories=memories(compiled),
        types=tuple(types),
        saved=Saved(traffic.conversions_before, traffic.conversions_after, traffic.bytes_before, traffic.bytes_after),
        accumulator=_accumulator(compiled),
        row_tiling=compiled.row_tiling.text if compiled.row_tiling is not None else "",
        layers=tuple(_layers(compiled, inputs, want, flagged, steps)),
        rates=board_rates,
        other_links=tuple(other_rates),
        inexact=compiled.inexact,
        input_flags=tuple(flag.hint for flag in compiled.package.input_flags(inputs)),
        expected_error=compiled.package.expected_error.text if compiled.package.expected_error is not None else "",
        differs_behind=first_difference(compiled, inputs, device) if device is not None and not same else "",
    )


def _accumulator(compiled: Compiled) -> tuple[str, ...]:
    config = compiled.image.config
    usual = f"{config.name}: {config.register_bits} bits in units of 2**{-config.acc_frac}, {config.acc_width} kept"
    return tuple(map(str, compiled.image.metadata.get(ACCUMULATOR, [usual])))


def _whole(compiled: Compiled, inputs: Inputs) -> tuple[dict[str, FloatArray], dict[int, Flagged]]:
    """Results of the network on the emulator, and the flags by address."""
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        outputs = compiled.run(device, inputs)
        records = compiled.package.flags(device.flags())
    flagged = {}
    for pc, group in groupby(records, key=lambda record: record.address or 0):
        same = list(group)
        flags, meanings = (tuple(getattr(record, name) for record in same) for name in ("flag", "meaning"))
        flagged[pc] = Flagged(pc, same[0].instruction, flags, meanings)
    return outputs, flagged


def _same(compiled: Compiled, device: Device, inputs: Inputs, want: dict[str, FloatArray]) -> bool:
    """True if a device gives the bits that are wanted for one run, in as many cycles as it must take."""
    few = compiled.package.arrangement.batch
    some = {name: np.asarray(values)[:few] for name, values in inputs.items()}
    with connect("emulator", compiled.image.config) as emulated:
        for target in (emulated, device):
            target.load(compiled.image)
            got = compiled.run(target, some)
        if device.counters()["CYCLES"] != emulated.counters()["CYCLES"]:
            return False
    return all(np.array_equal(got[name], values[:few], equal_nan=True) for name, values in want.items())


def _shape(graph: Graph, tensor: str) -> tuple[int, ...]:
    return tuple(map(int, graph.sample_shape(tensor)))


def _layers(
    compiled: Compiled,
    inputs: Inputs,
    want: dict[str, FloatArray],
    flagged: dict[int, Flagged],
    steps: list[WindowSteps] | None,
) -> list[LayerFacts]:
    """The facts of every layer."""
    graph = compiled.graph
    layer_results = list(results(compiled, inputs))
    computed = [result for result, _ in layer_results]
    errors, own = layer_errors(computed, want), own_errors(compiled, inputs, computed)
    before: Counts = dict.fromkeys(layer_results[0][1], 0)
    alone = [
        {reg: n - last[reg] for reg, n in now.items()}
        for last, now in pairwise([before, *(c for _, c in layer_results)])
    ]
    least = [cycles_of_steps(compiled.image.config, *(counts[reg] for reg in COUNTED)) for counts in alone]
    counted = without_overlap(cycles(compiled, steps), least)
    layers, copies = [], copies_by_column(compiled.image)
    for index, (layer, (result, _)) in enumerate(zip(compiled.lowered.layers, layer_results, strict=True)):
        part = result[0]
        reference = want[part.tensor].reshape(len(want[part.tensor]), -1)[:, part.computed]
        writes = formats(
            part,
            compiled.package.formats.exponents.get(layer.tensor) if isinstance(layer, Layer) else None,
            compiled.image.config,
        )
        nodes = covered(compiled, layer)
        layers.append(
            LayerFacts(
                name=layer.name,
                tensor=part.tensor,
                kind=kind(compiled, layer),
                nodes=tuple(node.name for node in nodes),
                operators=tuple(node.op for node in nodes),
                shape=_shape(graph, part.tensor),
                mfu_ops=mfu_ops(layer),
                reads=reads(compiled, index),
                writes=writes,
                error=errors[index],
                own_error=own[index],
                flagged=tuple(f for pc, f in flagged.items() if layer_at(compiled, pc) == index),
                work=work(compiled, layer, alone[index], counted[index]),
                space=space(compiled, index, copies),
                distribution=distribution(reference, part, writes, compiled.image.config),
                leaves=leaves(compiled, layer),
                streamed_residual=index in compiled.plan.streamed,
            )
        )
    return layers
