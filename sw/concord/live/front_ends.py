"""Sound to what networks for keywords read: one second becomes mel-frequency cepstral coefficients.

The front ends are those that the networks were trained with: the reference network of MLPerf Tiny [mlperf-tiny], and
those of ML-KWS-for-MCU [hello-edge].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from concord.utils.arrays import FloatArray

#: Samples of sound per second, in all front ends.
RATE = 16_000
#: Ends of the mel filters in Hz, their number, and how many coefficients are kept.
LOW, HIGH, FILTERS, COEFFICIENTS = 20.0, 4000.0, 40, 10


@dataclass(frozen=True)
class FrontEnd:
    """Mel-frequency cepstral coefficients of one second of sound.

    Parameters
    ----------
    name : str
        How it is chosen.
    frames : int
        Frames of a second.
    hop, width : int
        Samples from a frame to the next one, and samples of a frame.
    transform : int
        Points of the Fourier transform; a frame is followed by zeros.
    offset, least : float
        Added to the energy of a filter in front of the logarithm, and its least value.
    loudest : bool
        Whether the greatest sample of the second becomes 1, as loud as it may be.
    """

    name: str
    frames: int
    hop: int
    width: int
    transform: int
    offset: float
    least: float
    loudest: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Frames and coefficients."""
        return self.frames, COEFFICIENTS

    @property
    def text(self) -> str:
        """Features that the front end computes, in words."""
        level = "the greatest sample of the second is 1" if self.loudest else "full scale is 1"
        width, hop = (1000 * samples // RATE for samples in (self.width, self.hop))
        return (
            f"{self.name}: {COEFFICIENTS} cepstral coefficients of {self.frames} frames of {width} ms, "
            f"one every {hop} ms, {FILTERS} mel filters from {LOW:g} to {HIGH:g} Hz, {level}"
        )

    def __call__(self, sound: FloatArray) -> FloatArray:
        """Coefficients ``[frames, coefficients]`` of one second of sound, ``[16000]`` from -1 to 1."""
        if self.loudest:
            greatest = sound.max()
            sound = sound / greatest if greatest > 0 else sound  # there is nothing to scale in silence
        places = self.hop * np.arange(self.frames)[:, None] + np.arange(self.width)
        spectrum = np.abs(np.fft.rfft(sound[places] * self._window, self.transform))
        energies = np.log(np.maximum(spectrum @ self._filters + self.offset, self.least))
        return np.asarray(energies @ _COSINES)

    @cached_property
    def _window(self) -> FloatArray:
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.width) / self.width)

    @cached_property
    def _filters(self) -> FloatArray:
        """Weights ``[points, filters]``: triangles of equal width in mel."""
        points = _mel(np.linspace(0, RATE / 2, self.transform // 2 + 1))[:, None]
        edges = np.linspace(_mel(LOW), _mel(HIGH), FILTERS + 2)
        low, centre, high = edges[:-2], edges[1:-1], edges[2:]
        return np.asarray(np.maximum(0, np.minimum((points - low) / (centre - low), (high - points) / (high - centre))))


def _mel(frequency: FloatArray | float) -> FloatArray:
    return np.asarray(1127 * np.log1p(np.asarray(frequency) / 700))


_COSINES = np.sqrt(2 / FILTERS) * np.cos(
    np.pi / FILTERS * (np.arange(FILTERS)[:, None] + 0.5) * np.arange(COEFFICIENTS)
)

#: By name. Of the networks of ML-KWS-for-MCU the GRU reads every second frame.
FRONT_ENDS = {
    front_end.name: front_end
    for front_end in (
        FrontEnd("mfcc-mlperf", 49, 320, 480, 512, offset=1e-6, least=0.0, loudest=True),
        FrontEnd("mfcc-arm", 49, 320, 640, 1024, offset=0.0, least=1e-12, loudest=False),
        FrontEnd("mfcc-arm-gru", 25, 640, 640, 1024, offset=0.0, least=1e-12, loudest=False),
    )
}
