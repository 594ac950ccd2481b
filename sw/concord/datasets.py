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
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.cli_base import image_of
from concord.compiler.package import Arrangement, Package
from concord.golden import half
from concord.golden.blocks import dequantize, quantize
from concord.host.tensors import real_numbers
from concord.image import Image
from concord.ports import Port
from concord.spec.memmap import RegionId

Arrays = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]

#: Name of the array with the facts about a native data set, in JSON.
HEADER = "concord"


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
            return cls(image_of(path))
        package = Package.load(path)
        return cls(package.image, package.arrangement)

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
        ports = {port.name: port for port in self.image.inputs}
        missing = [name for name in ports if name not in arrays]
        if missing:
            raise ValueError(f"data must have the inputs {list(ports)}, and has no {missing}")
        given = {name: arrays[name] for name in ports}
        packed = self._packed(given)
        counts = {name: len(np.asarray(values)) for name, values in given.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"inputs must have the same number of samples, not {counts}")
        found: Arrays = {name: np.asarray(values) for name, values in arrays.items() if name not in ports}
        if clash := sorted({*self._names(self.image.inputs), HEADER} & set(found)):
            raise ValueError(f"other arrays must not be called {clash}, as arrays of the native form are")
        for name, values in packed.items():
            found |= self._encoded(ports[name], values)
        return {HEADER: self.header(next(iter(counts.values()), 0), list(ports)), **found}

    def header(self, samples: int, ports: list[str]) -> npt.NDArray[Any]:
        """The array ``concord`` of a native data set with these ports, inputs or outputs."""
        fingerprint = f"{self.image.config.fingerprint:016x}"
        return np.array(json.dumps({"fingerprint": fingerprint, "samples": samples, "ports": ports}))

    def _packed(self, given: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        if self.arrangement is not None:
            return self.arrangement.pack(given)
        found = {}
        for port in self.image.inputs:
            values = real_numbers(port.name, given[port.name])
            if values.shape[1:] != port.shape or not values.ndim:
                raise ValueError(f"{port.name} must have shape [samples, {port.shape}], not {list(values.shape)}")
            found[port.name] = values
        return found

    def _encoded(self, port: Port, values: Floats) -> Arrays:
        bits = half.encode(values)
        lines = bits.reshape(len(bits), -1, port.shape[-1] if port.shape else 1)
        native = self.image.config.native
        lines = np.pad(lines, ((0, 0), (0, 0), (0, -lines.shape[2] % native)))
        vectors = lines.reshape(len(bits), -1, native)
        if port.region == RegionId.WIDE:
            return {port.name: vectors}
        blocks = quantize(vectors, self.image.config.act)
        return {f"{port.name}.mant": blocks.mant.astype(np.int16), f"{port.name}.exp": blocks.exp.astype(np.int16)}

    @staticmethod
    def _names(ports: tuple[Port, ...]) -> list[str]:
        """Names of the native arrays of ports."""
        ends = {RegionId.WIDE: ("",), RegionId.NARROW: (".mant", ".exp")}
        return [port.name + end for port in ports for end in ends[port.region]]

    # From the native form -----------------------------------------------------------------------

    def to_natural(self, arrays: Mapping[str, npt.ArrayLike]) -> tuple[Arrays, dict[str, int]]:
        """Samples in the shapes of the network, float64, from their native form.

        These are the numbers that the NPU has behind the conversion of its inputs. Ports are those that
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
        facts = self._facts(arrays)
        ports = {port.name: port for port in (*self.image.inputs, *self.image.outputs)}
        if unknown := [name for name in facts["ports"] if name not in ports]:
            raise DataError(f"ports of the data must be of {list(ports)}, not {unknown}")
        there = {name: ports[name] for name in facts["ports"]}
        if missing := [name for name in self._names(tuple(there.values())) if name not in arrays]:
            raise DataError(f"data must have the arrays {missing}, and has {list(arrays)}")
        used = {HEADER, *self._names(tuple(there.values()))}
        found: Arrays = {name: np.asarray(values) for name, values in arrays.items() if name not in used}
        several = {}
        for name, port in there.items():
            values, exponents = self._decoded(port, arrays)
            found[name], several[name] = self._natural(port, values, exponents)
            found[name] = found[name][: facts["samples"]]
        return found, {name: count for name, count in several.items() if count}

    def _facts(self, arrays: Mapping[str, npt.ArrayLike]) -> dict[str, Any]:
        try:
            facts = json.loads(str(np.asarray(arrays[HEADER])))
            fingerprint, samples, ports = facts["fingerprint"], facts["samples"], list(facts["ports"])
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"data must be of the native form and have the array {HEADER!r}") from error
        if not isinstance(samples, int) or samples < 0:
            raise DataError(f"samples of the data must be counted, not {samples!r}")
        if fingerprint != f"{self.image.config.fingerprint:016x}":
            raise DataError(
                f"data must be for an NPU with fingerprint {self.image.config.fingerprint:016x}, not {fingerprint}"
            )
        return {"samples": samples, "ports": ports}

    def _decoded(self, port: Port, arrays: Mapping[str, npt.ArrayLike]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Numbers ``[runs, vectors, N]``, and exponents of their blocks, all alike in a wide port."""
        config = self.image.config
        shape = (port.vectors(config), config.native)
        parts = {name: self._whole(name, arrays[name]) for name in self._names((port,))}
        for name, values in parts.items():
            want = shape if values.ndim == 3 else shape[:1]
            if values.shape[1:] != want or (values.ndim == 3) is name.endswith(".exp"):
                raise DataError(
                    f"array {name!r} must have shape [runs, {', '.join(map(str, want))}], not {values.shape}"
                )
        if port.region == RegionId.WIDE:
            return half.decode(parts[port.name]), np.zeros(parts[port.name].shape[:2], np.int64)
        mant, exp = (parts[name] for name in self._names((port,)))
        form = config.act
        if len(mant) != len(exp) or np.abs(mant).max(initial=0) > form.q_max:
            raise DataError(f"mantissas of {port.name!r} must be within ±{form.q_max}, with as many exponents")
        if exp.size and not form.exp_min <= exp.min() <= exp.max() <= form.exp_max:
            raise DataError(f"exponents of {port.name!r} must be in {form.exp_min}..{form.exp_max}")
        return dequantize(mant, exp) + 0.0, exp

    @staticmethod
    def _whole(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        array: npt.NDArray[Any] = np.asarray(values)
        if array.dtype.kind not in "iu" or array.ndim < 2:
            raise DataError(f"array {name!r} must have integers by run and vector, not {array.dtype} {array.shape}")
        return array.astype(np.int64)

    def _natural(self, port: Port, values: Floats, exponents: npt.NDArray[np.int64]) -> tuple[Floats, int]:
        last = port.shape[-1] if port.shape else 1
        lines = values.reshape(len(values), port.elements // last, -1)[..., :last].reshape(len(values), -1)
        arrangement = self.arrangement
        if arrangement is None:
            return lines.reshape(len(values), *port.shape), 0
        shape = arrangement.shapes[port.name]
        if port.name in arrangement.outputs:
            return lines[:, arrangement.outputs[port.name]].reshape(-1, *shape), 0
        count = prod(shape) * arrangement.batch
        found, several = _elements(values, exponents, arrangement.inputs[port.name], count)
        return (found + arrangement.centres.get(port.name, 0.0)).reshape(-1, *shape), several


def _elements(
    values: Floats, exponents: npt.NDArray[np.int64], order: npt.NDArray[np.int64], count: int
) -> tuple[Floats, int]:
    """Elements ``[runs, count]`` from vectors in an order, and how many have several numbers there.

    Elements that are in no vector are 0.
    """
    runs = len(values)
    places = np.flatnonzero(order.reshape(-1) >= 0)
    ids = order.reshape(-1)[places]
    block = places // values.shape[-1]
    found, several = np.zeros((runs, count)), 0
    for run in range(runs):
        numbers = values[run].reshape(-1)[places]
        least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(least, ids, numbers)
        np.maximum.at(greatest, ids, numbers)
        several += int(np.count_nonzero(least < greatest))
        finest_last = np.argsort(-exponents[run][block], kind="stable")
        found[run, ids[finest_last]] = numbers[finest_last]
    return found, several
