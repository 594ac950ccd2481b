"""Inference of one input after the other on a device: the class with its scores, and the flags that were raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from concord.compiler.emission.package import Package
from concord.host import Device
from concord.image import Image
from concord.live.recipes import NetworkInput
from concord.program.flags import FlagDiagnostic, diagnose_flags, not_finite
from concord.utils.arrays import Array, FloatArray


@dataclass(frozen=True)
class Classification:
    """Class that a network finds for an input.

    Parameters
    ----------
    label : str
        Name of the class.
    best : int or None
        Its number; ``None`` if the result is a name.
    score : float or None
        Its score, the result of the network; ``None`` if the result is the class itself.
    scores : array
        Of all classes ``[classes]``; empty if the result is the class itself.
    flags : tuple of FlagDiagnostic
        What the run raised.
    """

    label: str
    best: int | None
    score: float | None
    scores: FloatArray
    flags: tuple[FlagDiagnostic, ...]


def network_input(image: Image, package: Package | None) -> NetworkInput:
    """The only input of a network; ``ValueError`` if it has others, or it reads texts."""
    if package is None:
        shapes = {port.name: port.shape for port in image.inputs}
    else:
        shapes = package.input_shapes
    if len(shapes) != 1:
        raise ValueError(f"the network must have one input, which the source is for, not {sorted(shapes)}")
    ((name, shape),) = shapes.items()
    if package is None:
        return NetworkInput(name, shape)
    if name in package.texts:
        raise ValueError(f"input {name!r} must be of numbers, not of texts")
    record = package.input_records.get(name)
    return NetworkInput(name, shape, package.element_types.get(name), "" if record is None else record.text)


class Inference:
    """A network on a device, for one input after the other.

    Parameters
    ----------
    image : Image
        The image that the device has loaded.
    package : Package or None
        What the host computes, of a compiled network.
    device : Device
        Where it runs.
    labels : sequence of str or None
        Names of the classes; their numbers if there are none.
    output : str or None
        The result that has the scores, if there are several.

    Raises
    ------
    ValueError
        If the result is not one score for each class, or there are not as many labels as classes.
    """

    def __init__(
        self,
        image: Image,
        package: Package | None,
        device: Device,
        labels: Sequence[str] | None = None,
        output: str | None = None,
    ):
        self.image, self.package, self.device = image, package, device
        self.input = network_input(image, package)
        shapes = {port.name: port.shape for port in image.outputs} if package is None else package.output_shapes
        if output is None and len(shapes) > 1:
            raise ValueError(f"--output must say which result has the scores, one of {list(shapes)}")
        if output is not None and output not in shapes:
            raise ValueError(f"output must be one of {list(shapes)}, not {output!r}")
        self.output = output or next(iter(shapes))
        shape = shapes[self.output]
        if sum(size > 1 for size in shape) > 1:
            sizes = " x ".join(map(str, shape))
            raise ValueError(f"result {self.output!r} must be one score for each class, not {sizes}")
        self.classes = int(np.prod(shape))
        named = {} if package is None else {**package.element_types, **package.texts}
        #: True if the result is the class itself, not its scores.
        self.is_class = self.classes == 1 and self.output in named
        if labels is not None and not self.is_class and len(labels) != self.classes:
            raise ValueError(f"there must be {self.classes} labels, one for each class, not {len(labels)}")
        self._labels = labels

    def label(self, number: int) -> str:
        """Name of a class."""
        return str(number) if self._labels is None or not 0 <= number < len(self._labels) else self._labels[number]

    def warm_up(self) -> None:
        """Run once on zeros, so that kernels are compiled before time counts."""
        self.run(np.zeros(self.input.shape))

    def run(self, values: Array) -> Classification:
        """Classify an input.

        Raises
        ------
        concord.host.DeviceError
            If the device does not do what it should.
        """
        outputs, flags = self._outputs({self.input.name: values[None]})
        result = np.asarray(outputs[self.output][0]).reshape(-1)
        if self.is_class:
            number = int(result[0]) if result.dtype.kind in "biu" else None
            return Classification(
                str(result[0]) if number is None else self.label(number), number, None, np.zeros(0), flags
            )
        scores = result.astype(np.float64)
        best = int(np.argmax(scores))
        return Classification(self.label(best), best, float(scores[best]), scores, flags)

    def _outputs(self, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array], tuple[FlagDiagnostic, ...]]:
        package, device = self.package, self.device
        device.clear_flags()
        if package is None:
            results = device.run(inputs)
            return results, (*diagnose_flags(self.image, device.flags()), *not_finite(results))
        flags = package.input_flags(inputs)
        ports = device.run(package.pack(inputs, rounded=True))
        results = package.finish(inputs, ports)
        flags += package.flags(device.flags()) + package.host_flags(inputs, ports) + not_finite(results)
        return package.typed(results), tuple(flags)
