"""Samples as programs have them: arrays by name or by place, tensors of PyTorch, and loaders of batches."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.networks.samples import arrays_by_name, as_arrays

#: Samples that are taken of a loader, the first ones.
MOST_SAMPLES = 256
#: Samples of an example from which on formats are chosen for them.
ENOUGH = 16


@dataclass(frozen=True)
class LoadedBatches:
    """The first batches of a loader.

    Parameters
    ----------
    batches : tuple
        Each a mapping of str to array, or a tuple of arrays, those of the inputs first; samples along the first axis.
    """

    batches: tuple[Mapping[str, Any] | tuple[Any, ...], ...]

    def arrays(self, names: Sequence[str]) -> dict[str, Any]:
        """Arrays by input, ``[samples, *shape]``, with at most :data:`MOST_SAMPLES` samples.

        Raises
        ------
        ValueError
            If an input is missing in a batch.
        """
        parts = [_named(names, batch, spare=True) for batch in self.batches]
        return {name: np.concatenate([part[name] for part in parts])[:MOST_SAMPLES] for name in names}

    def example(self, count: int | None) -> Any:
        """The first batch: as a mapping, or the first ``count`` arrays of it."""
        first = self.batches[0]
        return first if isinstance(first, Mapping) else first[:count]


def read_samples(data: Any) -> Any:
    """Samples with arrays of NumPy in the place of tensors, and the first batches in the place of a loader.

    Parameters
    ----------
    data : mapping of str to array, array, tuple or list of arrays, or iterable of batches
        By name; of the only input; in the order of the inputs; or batches, each of which is one of these. A batch that
        is a tuple may have the labels, or whatever else, behind the inputs; ``(inputs, labels)`` may have several
        inputs as a tuple or a mapping. Mappings may have arrays that are no inputs.

    Returns
    -------
    mapping of str to array, array, tuple of arrays, or LoadedBatches
        For :func:`arrays_for`.

    Raises
    ------
    ValueError
        If a loader has no batch.
    """
    if isinstance(data, tuple | list) and data and all(map(_is_array, data)):
        return type(data)(map(as_arrays, data))
    if not _is_loader(data):
        return as_arrays(data)
    batches: list[Mapping[str, Any] | tuple[Any, ...]] = []
    count = 0
    for item in data:
        batches.append(batch := _batch(item))
        arrays = batch.values() if isinstance(batch, Mapping) else batch
        count += max((len(values) for values in arrays if np.ndim(values)), default=0)
        if count >= MOST_SAMPLES:
            break
    if not count:
        raise ValueError(f"samples must have a batch, but this {type(data).__name__} has none")
    return LoadedBatches(tuple(batches))


def arrays_for(names: Sequence[str], data: Any) -> Any:
    """Arrays of :func:`read_samples` by input, or as one array.

    Raises
    ------
    ValueError
        If arrays in a tuple are not as many as there are inputs, or a batch does not have them.
    """
    if isinstance(data, LoadedBatches):
        return data.arrays(names)
    if isinstance(data, Mapping) or (len(names) == 1 and not (isinstance(data, tuple) and _of_arrays(data))):
        return data
    return _named(names, data if isinstance(data, tuple | list) else (data,))


def call_inputs(names: Sequence[str], inputs: Any) -> Any:
    """Inputs of a call by name, or the only array.

    Raises
    ------
    TypeError
        If they are a loader.
    ValueError
        If arrays in a tuple are not as many as there are inputs.
    """
    if _is_loader(inputs):
        kind = type(inputs).__name__
        raise TypeError(f"inputs must be arrays, not a {kind}: call the network with each of its batches")
    return arrays_for(names, read_samples(inputs))


def example_for(model: Any, samples: Any) -> Any:
    """Arguments of a module, from samples of :func:`read_samples`.

    Of a batch with labels these are as many arrays as ``forward`` has parameters without a default.
    """
    if isinstance(samples, LoadedBatches):
        return samples.example(_parameters(model))
    by_place = isinstance(samples, list) and _of_arrays(samples) and _parameters(model) != 1
    return tuple(samples) if by_place else samples


def samples_of_example(names: Sequence[str], example: Any) -> dict[str, Any] | None:
    """Arrays by input of the example that a model was exported with; ``None`` if it says nothing about its inputs.

    It says nothing if it has other inputs, or if all its numbers are equal: such examples only give shapes.
    """
    try:
        arrays = {name: np.asarray(values) for name, values in _named(names, _by_place(read_samples(example))).items()}
    except ValueError:
        return None
    varied = [values for values in arrays.values() if values.ndim and values.size and (values != values.flat[0]).any()]
    return arrays if varied and len({len(values) for values in arrays.values() if values.ndim}) == 1 else None


def _by_place(data: Any) -> Any:
    """Data as a mapping or a sequence of arrays."""
    return data if isinstance(data, Mapping | tuple | list) else (data,)


def _parameters(model: Any) -> int | None:
    """Parameters of ``forward`` without a default; ``None`` if there are none."""
    forward = getattr(model, "forward", None)
    known = [] if forward is None else inspect.signature(forward).parameters.values()
    places = [p for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in places) or None


def _named(names: Sequence[str], batch: Mapping[str, Any] | Sequence[Any], *, spare: bool = False) -> dict[str, Any]:
    """Arrays by name; with ``spare`` others may follow those of the inputs."""
    if isinstance(batch, Mapping):
        return arrays_by_name(names, batch)
    if len(batch) < len(names) or (len(batch) > len(names) and not spare):
        count = "one array" if len(names) == 1 else f"{len(names)} arrays, one each,"
        raise ValueError(f"inputs must be {count} for {list(names)}, or a mapping, not {len(batch)}")
    return dict(zip(names, batch, strict=False))


def _is_array(data: Any) -> bool:
    """True if data is an array or a tensor with an axis; a list of numbers is none."""
    return (hasattr(data, "__array__") or hasattr(data, "detach")) and getattr(data, "shape", (1,)) != ()


def _of_arrays(data: Any) -> bool:
    return isinstance(data, tuple | list) and bool(data) and all(map(_is_array, data))


def _is_batch(data: Any) -> bool:
    """True if an entry of a list is a batch by itself."""
    return isinstance(data, Mapping) or (isinstance(data, tuple | list) and bool(data) and _is_inputs(data[0]))


def _is_inputs(data: Any) -> bool:
    """True if data is the inputs of a batch, its first entry."""
    return _is_array(data) or isinstance(data, Mapping) or _of_arrays(data)


def _is_loader(data: Any) -> bool:
    """True if data is an iterable of batches, and neither data nor arrays themselves."""
    if isinstance(data, tuple | list):
        return bool(data) and all(map(_is_batch, data))
    others = isinstance(data, Mapping | str | bytes) or hasattr(data, "__array__") or hasattr(data, "detach")
    return isinstance(data, Iterable) and not others


def _batch(item: Any) -> Mapping[str, Any] | tuple[Any, ...]:
    """A batch with copies of its arrays, as a loader may fill the same memory again."""
    if isinstance(item, Mapping):
        return {name: np.array(as_arrays(values)) for name, values in item.items()}
    if not isinstance(item, tuple | list):
        return (np.array(as_arrays(item)),)
    if item and (isinstance(item[0], Mapping) or _of_arrays(item[0])):
        return _batch(item[0])
    return tuple(np.array(as_arrays(values)) for values in item)
