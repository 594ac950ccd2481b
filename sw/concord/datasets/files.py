"""Conversion of npz files of data sets, a few runs at a time: neither they nor the results need to fit in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from concord.datasets.convert import HEADER, Arrays, Converter
from concord.utils.arrays import Array
from concord.utils.npz import GrowingArray, Member, NpzReader, Shape, write_npz

#: Elements of an input or output that are converted at a time.
ELEMENTS = 1 << 18

Conversion = Callable[[Arrays, int], tuple[Arrays, dict[str, int]]]


class FileConverter:
    """Converts npz files, as :class:`Converter` converts arrays: with the same results, in the same order.

    Parameters
    ----------
    converter : Converter
    scratch : Path
        A folder for files without names, which need as much room as the result.
    elements : int
        Number of elements of an input or output that are converted at a time, if a run has not more of them.

    Each conversion takes the samples and a file for the result, and returns the shapes of the arrays in it and, by
    input, the elements with several numbers (:meth:`Converter.to_natural`). It raises ``ValueError`` and ``TypeError``
    as :class:`Converter` does, and ``ValueError`` if the file is damaged: what was written then is worth nothing.
    """

    def __init__(self, converter: Converter, scratch: Path, elements: int = ELEMENTS):
        self.converter, self.scratch = converter, scratch
        image = converter.image
        largest = max((port.vectors(image.config) for port in (*image.inputs, *image.outputs)), default=1)
        self._runs = max(elements // (largest * image.config.native), 1)

    def to_native(self, samples: Path, result: IO[bytes]) -> tuple[dict[str, Shape], dict[str, int]]:
        """Samples in the native form."""
        with NpzReader(samples, self.scratch) as reader:
            count, names = self._samples(reader), [port.name for port in self.converter.image.inputs]
            convert: Conversion = lambda natural, _: (self.converter.encoded(natural), {})  # noqa: E731
            header = {HEADER: self.converter.header(count, names)}
            return self._convert(reader, names, count, self.converter.batch, convert, result, header)

    def quantise(self, samples: Path, result: IO[bytes]) -> tuple[dict[str, Shape], dict[str, int]]:
        """Samples as the conversion of inputs leaves them."""
        ports = self.converter.image.inputs

        def convert(part: Arrays, samples: int) -> tuple[Arrays, dict[str, int]]:
            return self.converter.decoded(ports, self.converter.encoded(part), samples)

        with NpzReader(samples, self.scratch) as reader:
            count = self._samples(reader)
            return self._convert(reader, [p.name for p in ports], count, self.converter.batch, convert, result, {})

    def to_natural(self, native: Path, result: IO[bytes]) -> tuple[dict[str, Shape], dict[str, int]]:
        """Samples from their native form."""
        with NpzReader(native, self.scratch) as reader:
            header = reader.members[HEADER].whole() if HEADER in reader.members else None
            ports, count = self.converter.facts(header, reader.members)

            def convert(part: Arrays, samples: int) -> tuple[Arrays, dict[str, int]]:
                return self.converter.decoded(ports, part, samples)

            return self._convert(reader, self.converter.names(ports), count, 1, convert, result, {})

    def _samples(self, reader: NpzReader) -> int:
        return self.converter.samples({name: member.shape for name, member in reader.members.items()})

    def _convert(
        self,
        reader: NpzReader,
        names: list[str],
        samples: int,
        rows_of_run: int,
        convert: Conversion,
        result: IO[bytes],
        first: Mapping[str, Array],
    ) -> tuple[dict[str, Shape], dict[str, int]]:
        """Convert the arrays ``names``, and write them after the array that is ``first`` and all others."""
        several: Counter[str] = Counter()
        with ExitStack() as stack:
            converted_arrays: dict[str, GrowingArray] = {}
            for number, part in enumerate(self._parts(reader, names, self._runs * rows_of_run)):
                begin = number * self._runs * self.converter.batch
                count = min(samples - begin, self._runs * self.converter.batch)
                converted, twice = self._converted(convert, part, begin, count, samples)
                several.update(twice)
                for name, values in converted.items():
                    if name not in converted_arrays:
                        converted_arrays[name] = stack.enter_context(GrowingArray(self.scratch))
                    converted_arrays[name].append(values)
            others = {name: member for name, member in reader.members.items() if name not in {*names, HEADER}}
            arrays: dict[str, Array | Member | GrowingArray] = {**first, **others, **converted_arrays}
            write_npz(result, arrays)
        return {name: tuple(values.shape) for name, values in arrays.items()}, dict(several)

    @staticmethod
    def _converted(
        convert: Conversion, part: Arrays, begin: int, count: int, samples: int
    ) -> tuple[Arrays, dict[str, int]]:
        """Convert a part; errors say which part it is."""
        try:
            return convert(part, count)
        except ValueError as error:
            if count == samples:
                raise
            raise ValueError(f"in samples {begin} to {begin + count - 1}, counted from {begin}: {error}") from error

    @staticmethod
    def _parts(reader: NpzReader, names: list[str], rows: int) -> Iterator[Arrays]:
        """Parts of arrays that are as long as each other; a single one without arrays if there are no names."""
        if not names:
            yield {}
            return
        columns = [reader.members[name].batches(rows) for name in names]
        for parts in zip(*columns, strict=True):
            yield dict(zip(names, parts, strict=True))
