"""Records of the inputs of a network that compiling has seen, kept with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy.typing as npt

from concord.compiler.ir.input_record import LEAST_BITS, InputRecord
from concord.compiler.lowering.input_assumptions import assumed
from concord.compiler.model import Compiled
from concord.image import Image
from concord.spec.formats import BINARY16_FRAC
from concord.spec.memmap import RegionId


def with_input_records(
    compiled: Compiled,
    samples: Mapping[str, npt.ArrayLike] | None = None,
    from_host: Callable[[str], bool] = lambda name: False,
) -> Compiled:
    """Add the record of what the inputs of a network are like.

    Parameters
    ----------
    compiled : Compiled
        The network.
    samples : mapping of str to array, optional
        What it was calibrated with. If left out, ranges that were given, those of codes, and what is assumed of other
        floats count. Whole numbers, and what the host computes in front, have no record if nothing is known of them.
    from_host : callable
        Input -> true if the host computes it in front of the NPU.
    """
    least = least_sizes(compiled.image)
    if samples is not None:
        records = {
            name: InputRecord.of_samples(values, least[name]) for name, values in samples.items() if name in least
        }
    else:
        inputs = assumed(compiled.graph, compiled.package.formats.inputs)
        unknown = compiled.graph.element_types.keys() | {name for name in inputs if from_host(name)}
        records = {
            name: InputRecord(record.low, record.high, record.reason, least=least[name])
            for name, record in inputs.items()
            if name in least and not (record.normal and name in unknown)
        }
    return replace(compiled, package=replace(compiled.package, input_records=records))


def least_sizes(image: Image) -> dict[str, float]:
    """Magnitudes that the formats hold with as many bits as the largest elements need at least, by input."""
    steps = {RegionId.NARROW: image.config.act_exp_min, RegionId.WIDE: -BINARY16_FRAC}
    return {port.name: 2.0 ** (steps[port.region] + LEAST_BITS - 1) for port in image.inputs}
