"""A large batch on the emulators of several workers: the same results and flags as on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from concord.image import Image
from concord.parallel import Engine

if TYPE_CHECKING:
    from concord.spec.formats import Flag

#: Samples of a task: enough for the emulator to be at its full speed, few enough for workers to end together.
SAMPLES = 256
Arrays = dict[str, NDArray[Any]]


def emulated(
    engine: Engine, image: Image, batch: Mapping[str, NDArray[Any]], samples: int = SAMPLES
) -> tuple[Arrays, dict[int, tuple[Flag, ...]]]:
    """Run a batch; samples know nothing of each other, so it does not matter which worker runs which.

    Parameters
    ----------
    engine : Engine
        The workers.
    image : Image
        The program.
    batch : mapping of str to array
        ``[samples, ...]`` by the name of an input.
    samples : int
        Of a task.

    Returns
    -------
    results, flags
        As of a device, for the whole batch.
    """
    count = len(next(iter(batch.values())))
    loaded = engine.made(_itself, image)
    parts = [slice(start, start + samples) for start in range(0, max(count, 1), samples)]
    found = engine.each(_run, [(loaded, {name: values[part] for name, values in batch.items()}) for part in parts])
    results = {name: np.concatenate([outputs[name] for outputs, _ in found]) for name in found[0][0]}
    flags: dict[int, tuple[Flag, ...]] = {}
    for _, raised in found:
        for at, names in raised.items():
            flags[at] = tuple(sorted({*flags.get(at, ()), *names}))
    return results, flags


def _itself(image: Image) -> Image:
    return image


def _run(image: Image, batch: Arrays) -> tuple[Arrays, dict[int, tuple[Flag, ...]]]:
    from concord.host.emulated import EmulatedDevice

    with EmulatedDevice(image.config, workers=1) as device:
        device.load(image)
        results: Arrays = device.run(batch)
        return results, device.flags()
