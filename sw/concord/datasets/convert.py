"""Data sets in the NPU's native form and in the shapes of the network, both ways ([concordance]).

The native form is what the vector memories hold: vectors of the native dimension, padded with zeros, the windows of a
first convolution written out, and numbers in the format of the port.

wide port
    ``NAME``: binary16 patterns, uint16 ``[runs, vectors, N]``.
narrow port
    ``NAME.mant``: mantissas, int16 ``[runs, vectors, N]``; ``NAME.exp``: exponents, int16 ``[runs, vectors]``.

A run computes one sample, or as many as the network was compiled for (``concord compile --batch``); the last one is
filled up with its last sample. Arrays that are no ports, such as labels, stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from concord.compiler.ir.arrangement import Arrangement
from concord.golden import binary16
from concord.golden.blocks import dequantize, quantize
from concord.golden.real_numbers import real_numbers
from concord.image import Image
from concord.image.ports import Port
from concord.networks.folder import load_image, load_package
from concord.spec.memmap import RegionId
from concord.utils.arrays import Array, FloatArray, Ints

Arrays = dict[str, Array]
Shape = tuple[int, ...]

#: Name of the array with the facts about a native data set, in JSON.
HEADER = "concord"


class Described(Protocol):
    """An array, or one that is still in a file."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


class DataError(ValueError):
    """A native data set that is damaged, or is for another NPU or network."""


@dataclass(frozen=True)
class Converter:
    """Converts data sets of an image, or of a compiled network.

    Parameters
    ----------
    image : Image
        Its ports say what the native form is.
    arrangement : Arrangement or None
        Of a compiled network: how samples become ports. Without it samples have the shapes of the ports.
    """

    image: Image
    arrangement: Arrangement | None = None

    @classmethod
    def load(cls, path: Path) -> Converter:
        """The converter of a compiled network (a folder) or of an image (a file)."""
        if not path.is_dir():
            return cls(load_image(path))
        package = load_package(path)
        if package.front is not None:
            raise ValueError(
                f"{path} must have inputs that go to the NPU as they are: the host computes "
                f"{', '.join(package.front.outputs)} first; concord run does so"
            )
        return cls(package.image, package.arrangement)

    @property
    def batch(self) -> int:
        """Samples of a run."""
        return 1 if self.arrangement is None else self.arrangement.batch

    # To the native form -------------------------------------------------------------------------

    def to_native(self, arrays: Mapping[str, npt.ArrayLike]) -> Arrays:
        """The native form of samples.

        Parameters
        ----------
        arrays : mapping of str to array
            ``[samples, *shape]`` for every input; other arrays are kept.

        Raises
        ------
        ValueError
            If an input is missing, of another shape, or not finite in binary16; ``TypeError`` if it has no numbers.
        """
        natural: Arrays = {name: np.asarray(values) for name, values in arrays.items()}
        samples = self.samples({name: values.shape for name, values in natural.items()})
        names = [port.name for port in self.image.inputs]
        others = {name: values for name, values in natural.items() if name not in names}
        return {HEADER: self.header(samples, names), **others, **self.encoded({name: natural[name] for name in names})}

    def samples(self, shapes: Mapping[str, Shape]) -> int:
        """Number of samples in arrays of these shapes; ``ValueError`` if they cannot be converted."""
        ports = {port.name: port for port in self.image.inputs}
        missing = [name for name in ports if name not in shapes]
        if missing:
            raise ValueError(f"data must have the inputs {list(ports)}, and has no {missing}")
        for name, port in ports.items():
            if self.arrangement is not None:
                self.arrangement.check_shape(name, shapes[name])
            elif not shapes[name] or shapes[name][1:] != port.shape:
                raise ValueError(f"{name} must have shape [samples, {port.shape}], not {list(shapes[name])}")
            elif not shapes[name][0]:
                raise ValueError(f"{name} must have at least one sample, not none")
        counts = {name: shapes[name][0] for name in ports}
        if len(set(counts.values())) > 1:
            raise ValueError(f"inputs must have the same number of samples, not {counts}")
        if clash := sorted({*self.names(self.image.inputs), HEADER} & (set(shapes) - set(ports))):
            raise ValueError(f"other arrays must not be called {clash}, as arrays of the native form are")
        return next(iter(counts.values()), 0)

    def header(self, samples: int, ports: list[str]) -> Array:
        """The array ``concord`` of a native data set with these ports, inputs or outputs."""
        fingerprint = f"{self.image.config.fingerprint:016x}"
        return np.array(json.dumps({"fingerprint": fingerprint, "samples": samples, "ports": ports}))

    def encoded(self, natural: Mapping[str, npt.ArrayLike]) -> Arrays:
        """Arrays of the native form of some samples of all inputs; errors as for :meth:`to_native`."""
        if self.arrangement is not None:
            packed = self.arrangement.pack(natural)
        else:
            packed = {name: real_numbers(name, values) for name, values in natural.items()}
        native: Arrays = {}
        for port in self.image.inputs:
            native |= self._encoded(port, packed[port.name])
        return native

    def _encoded(self, port: Port, values: FloatArray) -> Arrays:
        bits = binary16.encode(values)
        lines = bits.reshape(len(bits), -1, port.shape[-1] if port.shape else 1)
        native = self.image.config.native
        lines = np.pad(lines, ((0, 0), (0, 0), (0, -lines.shape[2] % native)))
        vectors = lines.reshape(len(bits), -1, native)
        if port.region == RegionId.WIDE:
            return {port.name: vectors}
        blocks = quantize(vectors, self.image.config.act)
        return {f"{port.name}.mant": blocks.mant.astype(np.int16), f"{port.name}.exp": blocks.exp.astype(np.int16)}

    @staticmethod
    def names(ports: Iterable[Port]) -> list[str]:
        """Names of the native arrays of ports."""
        ends = {RegionId.WIDE: ("",), RegionId.NARROW: (".mant", ".exp")}
        return [port.name + end for port in ports for end in ends[port.region]]

    # From the native form -----------------------------------------------------------------------

    def to_natural(self, arrays: Mapping[str, npt.ArrayLike]) -> tuple[Arrays, dict[str, int]]:
        """Samples in the shapes of the network, float64, from their native form.

        These are the numbers that the NPU has after the conversion of its inputs. Ports are those that
        the array ``concord`` lists; other arrays are kept.

        Returns
        -------
        arrays : dict
            ``[samples, *shape]`` by input or output.
        several : dict
            By input, elements of all samples that are in several blocks with different numbers, where windows
            overlap; such an element is taken from its block with the least exponent.

        Raises
        ------
        DataError
            If the data are no native form, or that of another NPU or network.
        """
        native: Arrays = {name: np.asarray(values) for name, values in arrays.items()}
        ports, samples = self.facts(native.get(HEADER), native)
        used = {HEADER, *self.names(ports)}
        others = {name: values for name, values in native.items() if name not in used}
        natural, several = self.decoded(ports, native, samples)
        return {**others, **natural}, several

    def facts(self, header: Array | None, arrays: Mapping[str, Described]) -> tuple[list[Port], int]:
        """Ports and number of samples of a native data set with this array ``concord``; errors as for
        :meth:`to_natural`.
        """
        try:
            facts = json.loads(str(header))
            fingerprint, samples, names = facts["fingerprint"], facts["samples"], list(facts["ports"])
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"data must be of the native form and have the array {HEADER!r}") from error
        if not isinstance(samples, int) or samples < 1:
            raise DataError(f"samples of the data must be counted from one on, not {samples!r}")
        if fingerprint != f"{self.image.config.fingerprint:016x}":
            raise DataError(
                f"data must be for an NPU with fingerprint {self.image.config.fingerprint:016x}, not {fingerprint}"
            )
        ports = {port.name: port for port in (*self.image.inputs, *self.image.outputs)}
        if unknown := [name for name in names if name not in ports]:
            raise DataError(f"ports of the data must be of {list(ports)}, not {unknown}")
        there = [ports[name] for name in names]
        if missing := [name for name in self.names(there) if name not in arrays]:
            raise DataError(f"data must have the arrays {missing}, and has {list(arrays)}")
        for port in there:
            self._check_arrays(port, arrays, samples)
        return there, samples

    def _check_arrays(self, port: Port, arrays: Mapping[str, Described], samples: int) -> None:
        """Raise ``DataError`` unless the arrays of a port have the types and shapes for these samples."""
        runs = -(-samples // self.batch)
        shape = (runs, port.vectors(self.image.config), self.image.config.native)
        for name in self.names([port]):
            array, want = arrays[name], shape[:2] if name.endswith(".exp") else shape
            if array.dtype.kind not in "iu":
                raise DataError(f"array {name!r} must have integers by run and vector, not {array.dtype} {array.shape}")
            if tuple(array.shape) != want:
                raise DataError(
                    f"array {name!r} must have shape {want} ([runs, vectors, ...] of {samples} samples), "
                    f"not {array.shape}"
                )

    def decoded(self, ports: Iterable[Port], arrays: Arrays, samples: int) -> tuple[Arrays, dict[str, int]]:
        """Some samples of these ports, as :meth:`to_natural` gives them, from their arrays of the native form."""
        natural: Arrays = {}
        several = {}
        for port in ports:
            values, several[port.name] = self._natural(port, *self._decoded(port, arrays))
            natural[port.name] = values[:samples]
        return natural, {name: count for name, count in several.items() if count}

    def _decoded(self, port: Port, arrays: Arrays) -> tuple[FloatArray, Ints]:
        """Numbers ``[runs, vectors, N]``, and exponents of their blocks, all alike in a wide port."""
        parts = [arrays[name].astype(np.int64) for name in self.names([port])]
        if port.region == RegionId.WIDE:
            return binary16.decode(parts[0]), np.zeros(parts[0].shape[:2], np.int64)
        (mant, exp), form = parts, self.image.config.act
        if np.abs(mant).max(initial=0) > form.q_max:
            raise DataError(f"mantissas of {port.name!r} must be within ±{form.q_max}")
        if exp.size and not form.exp_min <= exp.min() <= exp.max() <= form.exp_max:
            raise DataError(f"exponents of {port.name!r} must be in {form.exp_min}..{form.exp_max}")
        return dequantize(mant, exp) + 0.0, exp

    def _natural(self, port: Port, values: FloatArray, exponents: Ints) -> tuple[FloatArray, int]:
        last = port.shape[-1] if port.shape else 1
        lines = values.reshape(len(values), port.elements // last, -1)[..., :last].reshape(len(values), -1)
        arrangement = self.arrangement
        if arrangement is None:
            return lines.reshape(len(values), *port.shape), 0
        shape = arrangement.shapes[port.name]
        if port.name in arrangement.outputs:
            return lines[:, arrangement.outputs[port.name]].reshape(-1, *shape), 0
        count = prod(shape) * arrangement.batch
        elements, several = _elements(values, exponents, arrangement.inputs[port.name], count)
        return arrangement.restored(port.name, elements.reshape(-1, *shape)), several


def _elements(values: FloatArray, exponents: Ints, order: Ints, count: int) -> tuple[FloatArray, int]:
    """Elements ``[runs, count]`` from vectors in an order, and how many have several numbers there.

    Elements that are in no vector are 0.
    """
    runs = len(values)
    places = np.flatnonzero(order.reshape(-1) >= 0)
    ids = order.reshape(-1)[places]
    block = places // values.shape[-1]
    elements, several = np.zeros((runs, count)), 0
    for run in range(runs):
        numbers = values[run].reshape(-1)[places]
        least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(least, ids, numbers)
        np.maximum.at(greatest, ids, numbers)
        several += int(np.count_nonzero(least < greatest))
        finest_last = np.argsort(-exponents[run][block], kind="stable")
        elements[run, ids[finest_last]] = numbers[finest_last]
    return elements, several
