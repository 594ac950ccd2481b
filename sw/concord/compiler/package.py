"""A compiled network as a folder: the image, how samples become its ports, and what the host does behind it.

npu.image     program and constants (:mod:`concord.image`)
network.npz   arrangement of inputs and outputs, formats, weights that are not rounded to the nearest
model.onnx    the network, of which the host computes the end
manifest.json their hashes (:mod:`concord.folders`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.compiler.layout import BORDER, Ids
from concord.compiler.tail import split
from concord.compiler.tensor_formats import DEFAULT, Formats
from concord.container import FileKind, read_file, write_file
from concord.files import write_bytes
from concord.folders import FolderKind
from concord.frontend import import_model
from concord.frontend.load import one_file
from concord.graph import execute
from concord.graph.ir import Floats, Graph, Shape
from concord.host.device import Device
from concord.host.tensors import real_numbers
from concord.image import Image
from concord.raised import Raised, raised
from concord.spec.config import NpuConfig

IMAGE, NETWORK, MODEL = "npu.image", "network.npz", "model.onnx"


class PackageError(ValueError):
    """A folder that is no compiled network, or a damaged one."""


NETWORK_FILE = FileKind("network", "a network", 8, PackageError)
NETWORK_FOLDER = FolderKind(
    "compiled network", "a compiled network", (IMAGE, NETWORK, MODEL), ("report.html", "report.json"),
    "compile the network again", PackageError,
)  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Values of an input that a quantised model knows: ``k * 2**exponent`` with ``least <= k <= greatest``."""

    exponent: int
    least: int
    greatest: int

    @property
    def text(self) -> str:
        """These values in words."""
        return f"multiples of 2**{self.exponent} from {self.least} to {self.greatest}"

    def round(self, values: Floats) -> Floats:
        """The nearest of these values, of two the even one; NaN stays NaN."""
        return np.asarray(
            np.ldexp(np.clip(np.rint(np.ldexp(values, -self.exponent)), self.least, self.greatest), self.exponent)
        )


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _within(ids: Ids, low: int, high: int) -> bool:
    return ids.dtype.kind == "i" and ids.size > 0 and low <= int(ids.min()) and int(ids.max()) < high


@dataclass(frozen=True)
class Arrangement:
    """How tensors of samples become ports of the image, and back.

    Parameters
    ----------
    inputs : dict
        By input: for every element ``[vectors, native]`` of the port, the element of the sample, ``PAD`` for zero, or
        ``BORDER`` for zero less the centre.
    outputs : dict
        By output of the NPU: for every element of the sample, the element of the port.
    shapes : dict
        Shapes of the samples of inputs and outputs.
    batch : int
        Samples that a run computes at a time; then they are the first axis of what the ports hold.
    grids : dict
        What inputs are rounded to, by name; others stay as they are.
    centres : dict
        What is taken off inputs, by name; nothing of the others.
    """

    inputs: dict[str, Ids]
    outputs: dict[str, Ids]
    shapes: dict[str, Shape]
    batch: int = 1
    grids: dict[str, Grid] = field(default_factory=dict)
    centres: dict[str, float] = field(default_factory=dict)

    def fits(self, image: Image) -> bool:
        """Whether it goes with the ports of an image."""
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

    def rounded(self, name: str, values: npt.ArrayLike) -> Floats:
        """Values of an input as the model reads them."""
        numbers = np.asarray(values, dtype=np.float64)
        return self.grids[name].round(numbers) if name in self.grids else numbers

    def check_shape(self, name: str, shape: Shape) -> None:
        """Raise ``ValueError`` unless an array of that shape can be samples of an input."""
        if shape and not shape[0]:
            raise ValueError(f"input {name!r} must have at least one sample, not none")
        if not shape or shape[1:] != self.shapes[name]:
            want = ", ".join(map(str, ("samples", *self.shapes[name])))
            raise ValueError(f"input {name!r} must have the shape ({want}), not {shape}")

    def pack(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """Ports of a batch; ``ValueError`` for names, shapes or values that are wrong, ``TypeError`` for no numbers."""
        if set(inputs) != set(self.inputs):
            raise ValueError(f"inputs must be {sorted(self.inputs)}, not {sorted(inputs)}")
        ports = {}
        for name, order in self.inputs.items():
            values = self.rounded(name, real_numbers(f"input {name!r}", inputs[name]))
            self.check_shape(name, values.shape)
            missing = -len(values) % self.batch
            if missing:
                values = np.concatenate([values, np.repeat(values[-1:], missing, axis=0)])
            runs, count = len(values) // self.batch, prod(self.shapes[name]) * self.batch
            centre = self.centres.get(name, 0.0)
            if np.array_equal(order.reshape(-1), np.arange(count)):
                ports[name] = (values - centre).reshape(runs, *order.shape)
                continue
            flat = np.zeros((runs, count + 2))  # behind the elements BORDER and PAD, which are -2 and -1
            flat[:, :-2] = values.reshape(runs, -1)
            flat[:, :-1] -= centre
            ports[name] = np.take(flat, order, axis=1)
        return ports

    def unpack(self, ports: Mapping[str, npt.ArrayLike], samples: int) -> dict[str, Floats]:
        """Outputs of ``samples`` samples from their ports."""
        found = {}
        for name, ids in self.outputs.items():
            values = np.asarray(ports[name], dtype=np.float64)
            found[name] = values.reshape(len(values), -1)[:, ids].reshape(-1, *self.shapes[name])[:samples]
        return found


@dataclass(frozen=True)
class Package:
    """What it takes to run a compiled network.

    Parameters
    ----------
    image : Image
        Program and constants.
    arrangement : Arrangement
        Of inputs and outputs.
    host : Graph or None
        What the host computes from the outputs of the NPU.
    formats : Formats
        What it was compiled with.
    """

    image: Image
    arrangement: Arrangement
    host: Graph | None
    formats: Formats = DEFAULT

    @property
    def config(self) -> NpuConfig:
        """The configuration it was compiled for."""
        return self.image.config

    def finish(self, inputs: Mapping[str, npt.ArrayLike], ports: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """Results of a batch from the ports of the NPU, the host's part included."""
        return self.behind(inputs, self.arrangement.unpack(ports, len(np.asarray(next(iter(inputs.values()))))))

    def behind(self, inputs: Mapping[str, npt.ArrayLike], found: dict[str, Floats]) -> dict[str, Floats]:
        """Results of a batch from the outputs of the NPU: what the host computes from them.

        A sample has the same bits in every batch. The order in which NumPy and BLAS add up depends on shapes and on
        where elements are in memory, so each sample is computed by itself, from contiguous arrays. A zero that the
        host computes is +0, for NumPy does not say which one a maximum is.
        """
        if self.host is None:
            return found
        given = {name: self.arrangement.rounded(name, inputs[name]) for name in self.host.inputs if name in inputs}
        batch = {name: np.ascontiguousarray((found | given)[name], dtype=np.float64) for name in self.host.inputs}
        samples = range(max(len(values) for values in batch.values())) or (0,)
        single = [execute.run(self.host, {name: x[k : k + 1] for name, x in batch.items()}) for k in samples]
        computed = {name for node in self.host.nodes for name in node.outputs}
        return {
            name: np.concatenate([results[name] for results in single]) + (0.0 if name in computed else -0.0)
            for name in single[0]
        }

    def run(self, device: Device, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """Results of a batch on a device that has the image loaded; clears the flags before.

        What the batch raises is in :meth:`flags`; results alone do not say whether values were cut off.
        """
        device.clear_flags()
        return self.finish(inputs, device.run(self.arrangement.pack(inputs)))

    def flags(self, device: Device) -> list[Raised]:
        """The flags of the last :meth:`run`, by layer, with what they mean; empty if there are none."""
        return raised(self.image, device.flags())

    def save(self, folder: Path, model: Path | bytes) -> None:
        """Write everything to a folder, whole or not at all; ``model`` is the ONNX file, or its contents.

        Raises
        ------
        PackageError
            If something else than a compiled network is there.
        OSError
            If it cannot be written; a network that was there is unchanged.
        """
        network = model if isinstance(model, bytes) else one_file(model)
        with NETWORK_FOLDER.replacing(folder) as part:
            self.image.save(part / IMAGE)
            write_bytes(part / MODEL, network)
            self._save_arrangement(part / NETWORK)

    def _save_arrangement(self, path: Path) -> None:
        shapes = {name: list(shape) for name, shape in self.arrangement.shapes.items()}
        names = {"inputs": list(self.arrangement.inputs), "outputs": list(self.arrangement.outputs)}
        arrays: dict[str, npt.NDArray[Any]] = {
            f"input_{k}": order for k, order in enumerate(self.arrangement.inputs.values())
        }
        arrays |= {f"output_{k}": ids for k, ids in enumerate(self.arrangement.outputs.values())}
        arrays |= {f"weight_{k}": weight for k, weight in enumerate(self.formats.weights.values())}
        names["weights"] = list(self.formats.weights)
        grids = {name: asdict(grid) for name, grid in self.arrangement.grids.items()}
        options = {"batch": self.arrangement.batch, "grids": grids, "centres": self.arrangement.centres}
        options["formats"] = self.formats.to_dict()
        write_file(path, {**names, "shapes": shapes, **options}, arrays, NETWORK_FILE)

    @classmethod
    def load(cls, folder: Path) -> Package:
        """Read a folder; :class:`PackageError` or ``ImageError`` if it is none, or damaged."""
        return cls.of(folder, NETWORK_FOLDER.read(folder))

    @classmethod
    def of(cls, folder: Path, data: Mapping[str, bytes]) -> Package:
        """What a folder with these files holds; errors as for :meth:`load`."""
        try:
            return cls._of(folder, data)
        except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise PackageError(
                f"{folder / NETWORK} has contents that are not valid here; compile the network again"
            ) from error

    @classmethod
    def _of(cls, folder: Path, data: Mapping[str, bytes]) -> Package:
        header, arrays = read_file(folder / NETWORK, NETWORK_FILE, data[NETWORK])
        arrangement = Arrangement(
            {name: arrays[f"input_{k}"] for k, name in enumerate(header["inputs"])},
            {name: arrays[f"output_{k}"] for k, name in enumerate(header["outputs"])},
            {name: tuple(shape) for name, shape in header["shapes"].items()},
            header["batch"],
            {name: Grid(**values) for name, values in header["grids"].items()},
            header["centres"],
        )
        weights = {name: arrays[f"weight_{k}"] for k, name in enumerate(header["weights"])}
        host, image = split(import_model(data[MODEL]))[1], Image.load(folder / IMAGE, data=data[IMAGE])
        if not arrangement.fits(image):
            raise LookupError("ports")
        return cls(image, arrangement, host, Formats.from_dict(header["formats"], weights))
