"""Runs of two devices: all words that they leave behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from concord.derive.flow import Flow
from concord.golden import binary16, blocks
from concord.host.device import Device
from concord.image import Image
from concord.image.words import to_bytes, unpack_words
from concord.program.access import REGIONS
from concord.prove.facts import Count
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId, regions
from concord.utils.arrays import Bits, FloatArray

#: Counters that every device has.
COUNTED = ("DENSE_STEPS", "DEPTHWISE_STEPS", "CHAINS", "VECTORS")
#: By port, without an axis of samples.
Sample = Mapping[str, FloatArray]


@dataclass(frozen=True)
class DeviceState:
    """State that a run has left: outputs, words by memory, flags by address, and counters."""

    outputs: dict[str, FloatArray]
    memories: dict[Mem, list[int]]
    flags: list[int]
    counted: dict[str, int | None]


@dataclass(frozen=True)
class WordWriter:
    """Last writer of a word: chain of the run, address of its ``v_rd``, and vector of the chain."""

    chain: int
    pc: int
    vector: int


def run(device: Device, image: Image, sample: Sample) -> DeviceState:
    """Run a sample on a device that has the image loaded, from vector memories of zeros and what the image has."""
    clear(device, image)
    outputs = device.run({name: x[None] for name, x in sample.items()})
    memories = {mem: device.read(region, 0, device.regions[region].depth) for mem, region in REGIONS.items()}
    flags = device.read(RegionId.FLAGS, 0, device.regions[RegionId.FLAGS].depth)
    counters = device.counters()
    results = {name: np.asarray(x[0], np.float64) for name, x in outputs.items()}
    return DeviceState(results, memories, flags, {name: counters[name] for name in COUNTED})


def clear(device: Device, image: Image) -> None:
    """Leave what an image loads in the vector memories, and nothing else; no flags."""
    for region in REGIONS.values():
        device.write(region, 0, [0] * device.regions[region].depth)
    for part in image.segments:
        if part.region in REGIONS.values():
            device.write(part.region, part.start, part.words())
    device.clear_flags()


def writers(flow: Flow) -> dict[tuple[Mem, int], WordWriter]:
    """Last writer of every word, by memory and address."""
    last = {}
    for store in flow.stores:
        for address, vector in zip(store.address.tolist(), store.number.tolist(), strict=True):
            last[store.mem, address] = WordWriter(store.chain, store.pc, vector)
    return last


def lanes_of(config: NpuConfig, mem: Mem, word: int) -> tuple[Bits, int | None]:
    """binary16 patterns of the elements of a word, and the exponent of a narrow one."""
    region = regions(config)[REGIONS[mem]]
    fields = list(unpack_words(region.word, to_bytes([word], region.nbytes)).values())
    if mem is Mem.WIDE:
        return fields[0][0].astype(np.uint16), None
    exponent = int(fields[1].reshape(-1)[0])
    return blocks.to_binary16(fields[0][0].astype(np.int16), np.int16(exponent)), exponent


def show(bits: np.uint16, exponent: int | None = None) -> str:
    """An element for people; of a narrow word with its exponent."""
    number = float(binary16.decode(np.asarray(bits)))
    if exponent is None:
        return f"{number:g} ({int(bits):#06x})"
    return f"{number:g} ({number * 2.0**-exponent:g} * 2**{exponent})"


def count_words(config: NpuConfig, mem: Mem, emulated: int, computed: int) -> Count:
    """Elements of a word, and an exponent of a narrow one: how many, and how many differ."""
    size = config.native + (mem is Mem.NARROW)
    if emulated == computed:
        return Count(size)
    (lanes, exponent), (device_lanes, device_exponent) = (lanes_of(config, mem, word) for word in (emulated, computed))
    different = np.count_nonzero(lanes != device_lanes) + (exponent != device_exponent)
    return Count(size, int(different))
