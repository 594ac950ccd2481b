"""Sources of sound, in windows that overlap: a wav file, a microphone.

The standard library reads wav files. ``sounddevice`` asks the microphone, and belongs to the extra ``live``.
"""

from __future__ import annotations

import wave
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from concord.live.captures import Capture, Captures
from concord.utils.arrays import FloatArray
from concord.utils.extras import install_command

#: Types of samples by their number of bytes; those of 3 bytes get a fourth one below.
_TYPES = {1: "u1", 2: "<i2", 3: "<i4", 4: "<i4"}


@dataclass(frozen=True)
class SoundWindows:
    """Windows into which sound is cut.

    Parameters
    ----------
    rate : int
        Samples per second.
    length, hop : int
        Samples of a window, and from the beginning of a window to that of the next one.
    """

    rate: int
    length: int
    hop: int

    def __post_init__(self) -> None:
        if not 1 <= self.hop <= self.length:
            ends = f"{1 / self.rate:g} to {self.length / self.rate:g} s"
            raise ValueError(f"hop must be from a sample to a window, {ends}, not {self.hop / self.rate:g} s")

    def cut(self, pieces: Iterable[FloatArray]) -> Iterator[Capture]:
        """Windows of sound that comes in pieces, each as soon as it is complete."""
        sound, first = np.zeros(0), 0
        for piece in pieces:
            sound = np.concatenate([sound, piece])
            while len(sound) >= self.length:
                yield Capture((first + self.length) / self.rate, sound[: self.length])
                sound, first = sound[self.hop :], first + self.hop


@dataclass(frozen=True)
class WavFile:
    """A recording in a wav file.

    Parameters
    ----------
    path : Path
        The file.
    windows : SoundWindows
        How it is cut; the file must have that rate.
    """

    path: Path
    windows: SoundWindows
    live = False

    @property
    def text(self) -> str:
        """The file."""
        return f"sound {self.path}"

    def captures(self) -> Captures:
        """Windows of the file; ``ValueError`` if it is none, of another rate, or too short."""
        try:
            with wave.open(str(self.path), "rb") as file:
                if file.getframerate() != self.windows.rate:
                    raise ValueError(
                        f"{self.path} must have {self.windows.rate:,} samples per second, as in the training, "
                        f"not {file.getframerate():,}; convert it: ffmpeg -i IN.wav -ar {self.windows.rate} OUT.wav"
                    )
                if file.getsampwidth() not in _TYPES:
                    raise ValueError(f"{self.path} must have samples of 1 to 4 bytes, not {file.getsampwidth()}")
                if file.getnframes() < self.windows.length:
                    seconds = self.windows.length / self.windows.rate
                    raise ValueError(
                        f"{self.path} must have at least {seconds:g} s of sound, a window of the network, "
                        f"not {file.getnframes() / self.windows.rate:g} s"
                    )
                yield from self.windows.cut(_pieces(file))
        except (wave.Error, EOFError, RuntimeError) as error:
            raise ValueError(
                f"{self.path} must be a wav file of whole numbers (PCM): {str(error) or 'its parts do not fit'}"
            ) from error


def _pieces(file: wave.Wave_read) -> Iterator[FloatArray]:
    """Sound of a file from -1 to 1, the mean of its channels."""
    width, channels = file.getsampwidth(), file.getnchannels()
    while data := file.readframes(1 << 12):
        data = data[: len(data) // (width * channels) * width * channels]  # the last one of a file that was cut off
        if width == 3:
            padded = np.zeros((len(data) // 3, 4), np.uint8)
            padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            data = padded.tobytes()
        numbers = np.frombuffer(data, _TYPES[width]).astype(np.float64)
        full_scale = 2.0 ** (8 * np.dtype(_TYPES[width]).itemsize - 1)
        numbers = (numbers - (128 if width == 1 else 0)) / full_scale
        yield numbers.reshape(-1, channels).mean(axis=1)


@dataclass(frozen=True)
class Microphone:
    """A microphone of this machine.

    Parameters
    ----------
    windows : SoundWindows
        How the sound is cut; the system converts it to that rate if the microphone has another one.
    device : int, str or None
        Which, by number or part of its name; ``None`` for the one that the system takes.
    """

    windows: SoundWindows
    device: int | str | None = None
    live = True

    @property
    def text(self) -> str:
        """Name of the microphone."""
        return "microphone" if self.device is None else f"microphone {self.device}"

    def captures(self) -> Captures:
        """Windows of the microphone, without end; ``RuntimeError`` if it cannot be opened, or is gone."""
        sounddevice = _sounddevice()
        options = {"samplerate": self.windows.rate, "channels": 1, "dtype": "int16", "device": self.device}
        try:
            with sounddevice.InputStream(**options) as stream:
                yield from self.windows.cut(self._read(stream))
        except (sounddevice.PortAudioError, ValueError) as error:
            raise RuntimeError(f"{self.text} cannot be used: {error}") from error

    def _read(self, stream: Any) -> Iterator[FloatArray]:
        """Pieces as long as a hop."""
        while True:
            piece, _ = stream.read(self.windows.hop)
            yield np.asarray(piece[:, 0] / 2.0**15)


def _sounddevice() -> Any:
    """The module; ``RuntimeError`` with what to install if it, or the library that it needs, is not there."""
    try:
        import sounddevice
    except ImportError as error:
        raise RuntimeError(f"a microphone needs sounddevice, which is not there; {install_command('live')}") from error
    except OSError as error:  # on Linux the library comes from the system
        raise RuntimeError(
            f"a microphone needs PortAudio, which is not there ({error}): apt install libportaudio2"
        ) from error
    return sounddevice
