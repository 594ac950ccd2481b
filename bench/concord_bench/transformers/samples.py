"""Samples that the transformers learn and are measured on, from the folder that ``CONCORD_DATA`` names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from concord_bench.transformers.encoder import EncoderSizes

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
#: Shifts of a recording by frames, each of which is a sample to measure with: a word may begin anywhere.
SHIFTS = (-6, -3, 0, 3, 6)
#: Variations of recordings to learn from: how fast and how far by frames, how loud, and how much noise is added to a
#: coefficient of all frames and to each number; half of them have another recording in the background.
_SPEEDS, _FRAMES, _LOUD, _OFFSET, _NOISE = (0.8, 1.25), 10, 0.1, 0.15, 0.1


@dataclass(frozen=True)
class Samples:
    """Samples that a network learns from, and that it is measured with.

    Parameters
    ----------
    learned : array ``[samples, tokens, inputs]``
        What it learns from.
    targets : callable
        (places of samples, the samples as they are shown) -> probabilities ``[samples, classes]`` to learn.
    held, classes : arrays ``[samples, tokens, inputs]`` and ``[samples]``
        What is held back, and its classes.
    varied : callable or None
        (generator, places of samples) -> the samples as they are shown; without it, as they are.
    """

    learned: Floats
    targets: Callable[[Ids, Floats], Floats]
    held: Floats
    classes: Ids
    varied: Callable[[np.random.Generator, Ids], Floats] | None = None


@dataclass(frozen=True)
class Recognition:
    """Task of a transformer: its sizes and samples.

    Parameters
    ----------
    sizes : EncoderSizes
        Of the network.
    samples : callable
        Folder with data and models -> samples.
    steps, rate : int and float
        How long it learns, and the greatest rate.
    """

    sizes: EncoderSizes
    samples: Callable[[Path], Samples]
    steps: int
    rate: float


def shifted(x: Floats, by: int) -> Floats:
    """Samples ``[..., frames, inputs]`` that begin ``by`` frames later; the frame at the end is repeated."""
    frames = x.shape[-2]
    return x[..., np.clip(np.arange(frames) - by, 0, frames - 1), :]


def twice_as_many(x: NDArray[np.float64]) -> Floats:
    """Frames ``[samples, frames, inputs]`` and means of neighbours between them; the last one is there twice."""
    between = np.concatenate([(x[:, :-1] + x[:, 1:]) / 2, x[:, -1:]], axis=1)
    return np.stack([x, between], axis=2).reshape(len(x), -1, x.shape[2]).astype(np.float32)


def stretched(rng: np.random.Generator, x: Floats) -> NDArray[np.float64]:
    """Samples that are faster or slower, and earlier or later, by interpolation between their frames."""
    count, frames = x.shape[:2]
    speed, offset = rng.uniform(*_SPEEDS, (count, 1)), rng.uniform(-_FRAMES, _FRAMES, (count, 1))
    middle = frames / 2
    at = np.clip((np.arange(frames) - middle) * speed + middle + offset, 0, frames - 1)
    first = np.minimum(at.astype(np.int64), frames - 2)
    share, rows = (at - first)[..., None], np.arange(count)[:, None]
    return np.asarray(x[rows, first] * (1 - share) + x[rows, first + 1] * share)


def keywords(data: Path) -> Samples:
    """Recordings of a second as 98 frames of 10 cepstral coefficients, with one of twelve words; half is held back.

    The recordings have a frame every 20 ms; others in between are their means. Those that are held back are there five
    times, shifted by up to 60 ms. There are few others to learn from, so they are varied, and what is learned is what a
    larger network, which was trained on many recordings, says of them.
    """
    import onnxruntime

    with np.load(data / "data" / "kws_mfcc_f32.npz") as arrays:
        x, y, more = arrays["x"].astype(np.float64), arrays["y"].astype(np.int64), arrays["x_calib"].astype(np.float64)
    mean, deviation = x.mean((0, 1)), x.std((0, 1))
    frames, unlabelled = (twice_as_many((each - mean) / deviation) for each in (x, more))
    order = np.random.default_rng(0).permutation(len(x))
    half = -(-len(x) // 2)
    held = np.sort(order[:half])
    learned = np.concatenate([frames[np.sort(order[half:])], unlabelled])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data / "models" / "kws_crnn.onnx", options)
    (source,) = (each.name for each in session.get_inputs())

    def probabilities(_: Ids, x: Floats) -> Floats:
        (outputs,) = session.run(None, {source: (x[:, None, ::2] * deviation + mean).astype(np.float32)})
        return np.asarray(outputs)

    def varied(rng: np.random.Generator, places: Ids) -> Floats:
        shape = (len(places), 1, 1)
        loud, quiet = stretched(rng, learned[places]), stretched(rng, learned[rng.permutation(places)])
        share = np.where(rng.random(shape) < 0.5, 1.0, rng.uniform(0.5, 1.0, shape))
        mixed = (share * loud + (1 - share) * quiet) * rng.uniform(1 - _LOUD, 1 + _LOUD, (*shape[:2], loud.shape[2]))
        noise = rng.normal(0, _OFFSET, (*shape[:2], loud.shape[2])) + rng.normal(0, _NOISE, loud.shape)
        return (mixed + noise).astype(np.float32)

    many = np.concatenate([shifted(frames[held], by) for by in SHIFTS])
    return Samples(learned, probabilities, many, np.tile(y[held], len(SHIFTS)), varied)


def clothes(data: Path) -> Samples:
    """Pictures of clothes, 28 x 28, as 49 tokens of 4 x 4 pixels, with one of ten classes."""
    with np.load(data / "data" / "train_fashion.npz") as arrays:
        parts = [(arrays[f"x_{part}"], arrays[f"y_{part}"].astype(np.int64)) for part in ("train", "test")]

    def tokens(x: NDArray[np.uint8]) -> Floats:
        patches = x.reshape(-1, 7, 4, 7, 4).transpose(0, 1, 3, 2, 4).reshape(-1, 49, 16)
        return (patches / 255 - 0.5).astype(np.float32)

    (learned, y), (held, classes) = ((tokens(x), y) for x, y in parts)
    sure = np.eye(10, dtype=np.float32) * 0.95 + 0.005
    return Samples(learned, lambda places, _: sure[y[places]], held, classes)


RECOGNITIONS = {
    "keywords": Recognition(EncoderSizes(98, 10, 12, 3, 32, 1, 64), keywords, steps=8000, rate=3e-3),
    "clothes": Recognition(EncoderSizes(49, 16, 10, 3, 32, 2, 64), clothes, steps=6000, rate=3e-3),
}
