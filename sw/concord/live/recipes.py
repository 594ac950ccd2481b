"""Recipes that make an input of a picture or of a window of sound: all that the training did, and in words.

Size and order of the axes come from the network. What the shape does not say is asked for: how bytes become
numbers, and which front end the training had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from concord.live.front_ends import FRONT_ENDS, RATE, FrontEnd
from concord.live.pictures import opencv
from concord.live.sounds import SoundWindows
from concord.utils.arrays import Array

#: Ways in which a picture gets the shape of the input.
CROP, STRETCH = "crop", "stretch"
#: Seconds from a window of sound to the next one, if nothing else was asked for.
USUAL_HOP = 0.25
#: The front end of networks that read sound as it is.
SAMPLES = "samples"
_FITTING = {
    CROP: "the largest part in the middle with the shape of the input",
    STRETCH: "the whole picture, stretched",
}
#: Types of inputs that read samples of sound: they count in parts of their full scale.
_SOUND_TYPES = (None, "int8", "int16", "int32")


@dataclass(frozen=True)
class NetworkInput:
    """Input that a network reads.

    Parameters
    ----------
    name : str
        Name of the input.
    shape : tuple of int
        Shape of a sample.
    element_type : str or None
        Type of its elements, ``None`` for floats.
    known : str
        What is known of its values, such as the range of the samples it was compiled with; may be empty.
    """

    name: str
    shape: tuple[int, ...]
    element_type: str | None = None
    known: str = ""

    @property
    def shape_text(self) -> str:
        """The shape as it is written."""
        return " x ".join(map(str, self.shape)) or "a single number"


class Recipe(Protocol):
    """Recipe that makes the input of a network of what a source gives."""

    @property
    def text(self) -> str:
        """All that it does, in words."""

    @property
    def sound_rate(self) -> int | None:
        """Samples per second of sound; ``None`` if it is about pictures."""

    def seen(self, data: Array) -> Array:
        """Part of a capture that the network sees."""

    def values(self, seen: Array) -> Array:
        """The input ``shape`` from that."""


@dataclass(frozen=True)
class ByteScaling:
    """Conversion of a byte of a picture to a number: ``(byte - mean) * scale``, by channel or for all of them.

    Parameters
    ----------
    scale, mean : tuple of float
        One number, or one for each channel.
    """

    scale: tuple[float, ...]
    mean: tuple[float, ...] = (0.0,)

    def check(self, channels: int) -> None:
        """``ValueError`` if there are neither one nor as many numbers as channels."""
        for name, numbers in (("scale", self.scale), ("mean", self.mean)):
            if len(numbers) not in (1, channels):
                counts = "one number" if channels == 1 else f"one number, or {channels} for the channels"
                raise ValueError(f"{name} must be {counts}, not {len(numbers)} numbers")

    @property
    def text(self) -> str:
        """The formula."""
        scale, mean = (", ".join(f"{x:.6g}" for x in numbers) for numbers in (self.scale, self.mean))
        return f"(byte - {mean}) * {scale}" if any(self.mean) else f"byte * {scale}"


@dataclass(frozen=True)
class PictureRecipe:
    """A picture cut and resized, as numbers.

    Parameters
    ----------
    target : NetworkInput
        What the network reads.
    scaling : ByteScaling or None
        Of the bytes; ``None`` to take them as they are.
    fitting : str
        :data:`CROP` or :data:`STRETCH`.
    blue_first : bool
        Whether the channels are blue, green, red.
    """

    target: NetworkInput
    scaling: ByteScaling | None
    fitting: str = CROP
    blue_first: bool = False
    sound_rate = None

    @property
    def channels_first(self) -> bool:
        """True if the channels are in front of the rows."""
        return len(self.target.shape) == 3 and self.target.shape[0] in (1, 3)

    @property
    def size(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        first, second, third = self.target.shape if len(self.target.shape) == 3 else (*self.target.shape, 1)
        return (second, third, first) if self.channels_first else (first, second, third)

    @property
    def text(self) -> str:
        """All that it does."""
        height, width, channels = self.size
        colours = "grey" if channels == 1 else "blue, green, red" if self.blue_first else "red, green, blue"
        axes = "channels first" if self.channels_first and channels > 1 else "channels last" if channels > 1 else ""
        numbers = "bytes as they are" if self.scaling is None else self.scaling.text
        parts = (f"{_FITTING[self.fitting]}, resized to {width} x {height}", colours, axes, numbers)
        return f"{self.target.name} ({self.target.shape_text}): {', '.join(part for part in parts if part)}"

    def seen(self, data: Array) -> Array:
        """The picture ``[height, width, channels]`` of bytes, red first, from one ``[rows, columns, 3]``."""
        cv2 = opencv()
        height, width, channels = self.size
        rows, columns = data.shape[:2]
        if self.fitting == CROP:
            part = min(rows / height, columns / width)
            high, wide = max(1, round(part * height)), max(1, round(part * width))
            top, left = (rows - high) // 2, (columns - wide) // 2
            data = data[top : top + high, left : left + wide]
        if data.shape[:2] != (height, width):
            smaller = data.shape[0] >= height and data.shape[1] >= width
            how = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
            data = cv2.resize(np.ascontiguousarray(data), (width, height), interpolation=how)
        if channels == 1:
            data = cv2.cvtColor(np.ascontiguousarray(data), cv2.COLOR_RGB2GRAY)[..., None]
        return data

    def values(self, seen: Array) -> Array:
        """The input."""
        ordered = seen[..., ::-1] if self.blue_first else seen
        if self.scaling is not None:
            mean, scale = (np.array(numbers, np.float32) for numbers in (self.scaling.mean, self.scaling.scale))
            ordered = (ordered.astype(np.float32) - mean) * scale
        if self.channels_first:
            ordered = ordered.transpose(2, 0, 1)
        return ordered.reshape(self.target.shape)


def picture_recipe(
    target: NetworkInput,
    scale: Sequence[float] | None = None,
    mean: Sequence[float] | None = None,
    fitting: str = CROP,
    blue_first: bool = False,
) -> PictureRecipe:
    """Recipe that makes an input of a picture.

    Parameters
    ----------
    target : NetworkInput
        What the network reads.
    scale, mean : sequence of float or None
        How a byte becomes a number, ``(byte - mean) * scale``; an input of bytes takes them as they are.
    fitting, blue_first
        As in :class:`PictureRecipe`.

    Raises
    ------
    ValueError
        If the input has not the shape of a picture, or it is not said how bytes become numbers.
    """
    shape, sides = target.shape, (target.shape[:1], target.shape[-1:])
    channelled = [side for side in sides if len(shape) == 3 and side[0] in (1, 3)]
    if len(shape) != 2 and not channelled:
        raise ValueError(
            f"input {target.name!r} must be a picture for this source, height x width with 1 or 3 channels in front of "
            f"them or behind, not {target.shape_text}"
        )
    if target.element_type == "bool":
        raise ValueError(f"input {target.name!r} must be of numbers for this source, not of truth values")
    if scale is None and mean is None and target.element_type == "uint8":
        return PictureRecipe(target, None, fitting, blue_first)
    if scale is None:
        known = f"; it was compiled for {target.known}" if target.known else ""
        kind = target.element_type or "floats"
        raise ValueError(
            f"--scale must be given, as input {target.name!r} reads {kind}: an element is (byte - mean) * scale, as in "
            f"the training, such as --scale 1, --scale 1/255, or --mean 127.5 --scale 1/127.5{known}"
        )
    scaling = ByteScaling(tuple(scale), tuple(mean or (0.0,)))
    recipe = PictureRecipe(target, scaling, fitting, blue_first)
    scaling.check(recipe.size[2])
    if blue_first and recipe.size[2] == 1:
        raise ValueError(f"--bgr must be left out, as input {target.name!r} is grey")
    return recipe


@dataclass(frozen=True)
class SoundRecipe:
    """A window of sound as it is, or what a front end makes of it.

    Parameters
    ----------
    target : NetworkInput
        What the network reads.
    windows : SoundWindows
        How the sound is cut.
    front_end : FrontEnd or None
        ``None`` for samples as they are.
    """

    target: NetworkInput
    windows: SoundWindows
    front_end: FrontEnd | None

    @property
    def text(self) -> str:
        """All that it does."""
        rate, seconds = self.windows.rate, self.windows.length / self.windows.rate
        hop = f"a window of {seconds:g} s every {self.windows.hop / rate:g} s, {rate:,} samples per second"
        range_text = "from -1 to 1" if self._full_scale == 1 else f"as {self.target.element_type}"
        what = f"samples {range_text}" if self.front_end is None else self.front_end.text
        return f"{self.target.name} ({self.target.shape_text}): {hop}; {what}"

    @property
    def sound_rate(self) -> int:
        """Samples per second."""
        return self.windows.rate

    @cached_property
    def _full_scale(self) -> float:
        kind = self.target.element_type
        return 1.0 if kind is None else 1.0 + np.iinfo(kind).max

    def seen(self, data: Array) -> Array:
        """All of the window."""
        return data

    def values(self, seen: Array) -> Array:
        """The input."""
        if self.front_end is not None:
            return self.front_end(seen).reshape(self.target.shape)
        if self._full_scale > 1:
            seen = np.minimum(np.rint(seen * self._full_scale), self._full_scale - 1)
        return seen.reshape(self.target.shape)


def sound_recipe(
    target: NetworkInput, front_end: str | None = None, hop: float = USUAL_HOP, rate: int | None = None
) -> SoundRecipe:
    """Recipe that makes an input of sound.

    Parameters
    ----------
    target : NetworkInput
        What the network reads.
    front_end : str or None
        A name of :data:`concord.live.front_ends.FRONT_ENDS`, or :data:`SAMPLES`.
    hop : float
        Seconds from a window to the next one.
    rate : int or None
        Samples per second of a network that reads samples.

    Raises
    ------
    ValueError
        If no front end is named, or the one that is does not give what the network reads.
    """
    shape = tuple(size for size in target.shape if size > 1)
    if front_end is None:
        fitting = [name for name, end in FRONT_ENDS.items() if end.shape == shape] + [SAMPLES] * (len(shape) == 1)
        if not fitting:
            shapes = ", ".join(f"{name} {_crossed(end.shape)}" for name, end in FRONT_ENDS.items())
            raise ValueError(
                f"input {target.name!r} must be samples of sound, or what a front end makes of them ({shapes}), for "
                f"this source, not {target.shape_text}"
            )
        raise ValueError(
            f"--front-end must be given, that of the training; input {target.name!r} is {target.shape_text}, which "
            f"{' and '.join(fitting)} {'make' if len(fitting) > 1 else 'makes'}"
        )
    if front_end == SAMPLES:
        if len(shape) != 1 or target.element_type not in _SOUND_TYPES:
            kind = "" if target.element_type in _SOUND_TYPES else f" of {target.element_type}"
            raise ValueError(f"input {target.name!r} must be a row of samples, not {target.shape_text}{kind}")
        if rate is None:
            raise ValueError("--rate must be given with --front-end samples: samples per second in the training")
        return SoundRecipe(target, SoundWindows(rate, shape[0], round(hop * rate)), None)
    end = FRONT_ENDS[front_end]
    if end.shape != shape or target.element_type is not None:
        kind = "" if target.element_type is None else f" of {target.element_type}"
        raise ValueError(
            f"input {target.name!r} must be {_crossed(end.shape)} for {front_end}, not {target.shape_text}{kind}"
        )
    if rate not in (None, RATE):
        raise ValueError(f"rate must be {RATE:,} for {front_end}, not {rate:,}")
    return SoundRecipe(target, SoundWindows(RATE, RATE, round(hop * RATE)), end)


def _crossed(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
