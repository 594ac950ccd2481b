"""Arrangement of tensors of samples as the ports of an image, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.compiler.ir.layout import BORDER
from concord.golden.real_numbers import real_numbers
from concord.graph.equalised import ChannelScale
from concord.graph.ir import Shape
from concord.image import Image
from concord.utils.arrays import Array, Float32s, FloatArray, Ids


@dataclass(frozen=True)
class InputGrid:
    """Values of an input of a quantised model: ``k * 2**exponent`` with ``least <= k <= greatest``."""

    exponent: int
    least: int
    greatest: int

    @property
    def text(self) -> str:
        """Values of the grid, in words."""
        return f"multiples of 2**{self.exponent} from {self.least} to {self.greatest}"

    def round(self, values: FloatArray) -> FloatArray:
        """The nearest of these values, of two the even one; NaN stays NaN."""
        return np.asarray(
            np.ldexp(np.clip(np.rint(np.ldexp(values, -self.exponent)), self.least, self.greatest), self.exponent)
        )


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _within(ids: Ids, low: int, high: int) -> bool:
    return ids.dtype.kind == "i" and ids.size > 0 and low <= int(ids.min()) and int(ids.max()) < high


def _singles(values: FloatArray) -> Float32s:
    """Numbers ``[runs, elements]``, rounded to binary16, as ``[elements, runs]``."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values.T).astype(np.float16).astype(np.float32)


def _places(order: Ids) -> Ids:
    """Place of every element in an order that has each of them once."""
    there = np.flatnonzero(order.reshape(-1) >= 0)
    return there[np.argsort(order.reshape(-1)[there])]


@dataclass(frozen=True)
class Arrangement:
    """Arrangement of tensors of samples as ports of the image, and back.

    Parameters
    ----------
    inputs : dict
        By input: for every element ``[vectors, native]`` of the port, the element of the sample, ``PAD`` for zero, or
        ``BORDER`` for zero less the offset.
    outputs : dict
        By output of the NPU: for every element of the sample, the element of the port.
    shapes : dict
        Shapes of the samples of inputs and outputs.
    batch : int
        Samples that a run computes at a time; then they are the first axis of what the ports hold.
    grids : dict
        Grids to which inputs are rounded, by name; others stay as they are.
    input_offsets : dict
        What is subtracted from inputs, by name; nothing from the others.
    channel_scales : dict
        What is subtracted from the elements of inputs, and which powers of two they are divided by, before that.
    beside : frozenset of str
        Inputs that the host alone reads, which have no port.
    states : dict
        Of every input that the NPU keeps: the output that it is in the next run, and the order of its elements as
        those of inputs.
    """

    inputs: dict[str, Ids]
    outputs: dict[str, Ids]
    shapes: dict[str, Shape]
    batch: int = 1
    grids: dict[str, InputGrid] = field(default_factory=dict)
    input_offsets: dict[str, float] = field(default_factory=dict)
    channel_scales: dict[str, ChannelScale] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    states: dict[str, tuple[str, Ids]] = field(default_factory=dict)

    @property
    def state_results(self) -> dict[str, str]:
        """Output that an input which the NPU keeps is in the next run, by input."""
        return {name: result for name, (result, _) in self.states.items()}

    @property
    def carried(self) -> Arrangement:
        """The arrangement with states that the host carries, as inputs and outputs."""
        inputs = self.inputs | {name: order for name, (_, order) in self.states.items()}
        outputs = self.outputs | {result: _places(order) for result, order in self.states.values()}
        return replace(self, inputs=inputs, outputs=outputs, states={})

    def fits(self, image: Image) -> bool:
        """True if the arrangement goes with the ports of an image."""
        kept = {state.port.name: state.result for state in image.states}
        if self.state_results != kept:
            return False
        if self.states:
            return self.carried.fits(image.carried)
        inputs, outputs = ({port.name: port for port in ports} for ports in (image.inputs, image.outputs))
        if set(inputs) != set(self.inputs) or set(outputs) != set(self.outputs) or not _is_size(self.batch):
            return False
        if not all(_is_size(size) for name in (*inputs, *outputs) for size in self.shapes[name]):
            return False
        counts = {name: prod(shape) * self.batch for name, shape in self.shapes.items()}
        return all(
            order.shape == inputs[name].shape and _within(order, BORDER, counts[name])
            for name, order in self.inputs.items()
        ) and all(
            ids.size == counts[name] and _within(ids, 0, outputs[name].elements) for name, ids in self.outputs.items()
        )

    def to_record(self) -> tuple[dict[str, Any], dict[str, Ids]]:
        """Record for files: plain JSON values, and arrays by the names ``input_0``, ``output_0`` and so on."""
        arrays = {f"input_{k}": order for k, order in enumerate(self.inputs.values())}
        arrays |= {f"output_{k}": ids for k, ids in enumerate(self.outputs.values())}
        arrays |= {f"state_{k}": order for k, (_, order) in enumerate(self.states.values())}
        return {
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "states": [list(pair) for pair in self.state_results.items()],
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "batch": self.batch,
            "grids": {name: asdict(grid) for name, grid in self.grids.items()},
            "centres": self.input_offsets,
            "channel scales": {name: asdict(scale) for name, scale in self.channel_scales.items()},
        }, arrays

    @classmethod
    def of_record(cls, header: Mapping[str, Any], arrays: Mapping[str, Ids]) -> Arrangement:
        """Inverse of :meth:`to_record`; ``LookupError`` or ``TypeError`` for what is none."""
        return cls(
            {name: arrays[f"input_{k}"] for k, name in enumerate(header["inputs"])},
            {name: arrays[f"output_{k}"] for k, name in enumerate(header["outputs"])},
            {name: tuple(shape) for name, shape in header["shapes"].items()},
            header["batch"],
            {name: InputGrid(**values) for name, values in header["grids"].items()},
            header["centres"],
            {name: ChannelScale.from_dict(values) for name, values in header["channel scales"].items()},
            states={pair[0]: (pair[1], arrays[f"state_{k}"]) for k, pair in enumerate(header["states"])},
        )

    def rounded(self, name: str, values: npt.ArrayLike) -> FloatArray:
        """Values of an input as the model reads them."""
        numbers = np.asarray(values, dtype=np.float64)
        return self.grids[name].round(numbers) if name in self.grids else numbers

    def prepared(self, name: str, values: npt.ArrayLike) -> FloatArray:
        """Values of an input as the network on the NPU reads them, before the offset that a bias makes up for."""
        numbers = self.rounded(name, values)
        if name not in self.channel_scales:
            return numbers
        scale = self.channel_scales[name]
        shaped = numbers.reshape(len(numbers), *self._whole(name))
        return scale.prepare(shaped).reshape(numbers.shape)

    def prepared_inputs(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
        """Inputs whose channels are scaled, as the network on the NPU reads them."""
        return {name: self.prepared(name, values) for name, values in inputs.items() if name in self.channel_scales}

    def restored(self, name: str, values: FloatArray) -> FloatArray:
        """Inverse of the preparation of an input ``[samples, *shape]`` by the host, but for rounding."""
        values = values + self.input_offsets.get(name, 0.0)
        if name not in self.channel_scales:
            return values
        return self.channel_scales[name].restore(values.reshape(len(values), *self._whole(name))).reshape(values.shape)

    def _whole(self, name: str) -> Shape:
        """The shape of a sample, with as many axes as the scales of its channels have."""
        shape = self.shapes[name]
        return (1,) * (len(self.channel_scales[name].shape) - len(shape)) + tuple(shape)

    def check_names(self, inputs: Mapping[str, npt.ArrayLike]) -> None:
        """Raise ``ValueError`` unless there are exactly the inputs; those without a port may be there or not."""
        if set(inputs) - self.beside != set(self.inputs):
            raise ValueError(f"inputs must be {sorted(self.inputs)}, not {sorted(inputs)}")

    def check_shape(self, name: str, shape: Shape) -> None:
        """Raise ``ValueError`` unless an array of that shape can be samples of an input."""
        if shape and not shape[0]:
            raise ValueError(f"input {name!r} must have at least one sample, not none")
        if not shape or shape[1:] != self.shapes[name]:
            want = ", ".join(map(str, ("samples", *self.shapes[name])))
            raise ValueError(f"input {name!r} must have the shape ({want}), not {shape}")

    def pack(self, inputs: Mapping[str, npt.ArrayLike], rounded: bool = False) -> dict[str, Array]:
        """Ports of a batch as float64 numbers.

        Parameters
        ----------
        inputs : mapping of str to array
            ``[samples, *shape]`` by input.
        rounded : bool
            Whether the numbers are rounded to binary16, as devices do, and returned as float32. The batch is the
            axis whose elements follow each other in memory, as the emulator has them.

        Raises
        ------
        TypeError
            If an input is not made of real numbers.
        ValueError
            If a name, a shape or a value is wrong.
        """
        self.check_names(inputs)
        ports = {}
        for name, order in self.inputs.items():
            values = real_numbers(f"input {name!r}", inputs[name])
            self.check_shape(name, values.shape)
            values = self.prepared(name, values)
            missing = -len(values) % self.batch
            if missing:
                values = np.concatenate([values, np.repeat(values[-1:], missing, axis=0)])
            runs, count = len(values) // self.batch, prod(self.shapes[name]) * self.batch
            offset = self.input_offsets.get(name, 0.0)
            if not rounded and np.array_equal(order.reshape(-1), np.arange(count)):
                ports[name] = (values - offset).reshape(runs, *order.shape)
                continue
            flat = np.zeros((runs, count + 2))  # behind the elements BORDER and PAD, which are -2 and -1
            flat[:, :-2] = values.reshape(runs, -1)
            if offset:
                flat[:, :-1] -= offset
            port: Array = np.moveaxis(_singles(flat)[order], -1, 0) if rounded else flat[:, order]
            ports[name] = port
        return ports

    def unpack(self, ports: Mapping[str, npt.ArrayLike], samples: int) -> dict[str, FloatArray]:
        """Outputs of ``samples`` samples from their ports."""
        outputs = {}
        for name, ids in self.outputs.items():
            values = np.asarray(ports[name], dtype=np.float64)
            outputs[name] = values.reshape(len(values), -1)[:, ids].reshape(-1, *self.shapes[name])[:samples]
        return outputs
