"""Sources of pictures: a video, a folder of pictures, a camera. OpenCV, of the extra ``live``, reads them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from concord.live.captures import Capture, Captures
from concord.utils.arrays import Array
from concord.utils.extras import install_command

#: Pictures per second of recordings that do not say it.
USUAL_RATE = 25.0
#: Pictures per second of a folder, if nothing else was asked for.
FOLDER_RATE = 5.0
#: Names of pictures.
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".pgm", ".ppm")


def opencv() -> Any:
    """The module ``cv2``; ``RuntimeError`` with the name of the extra if it is not there."""
    os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")  # a device that is not there gets a message of ours
    try:
        import cv2
    except ImportError as error:
        raise RuntimeError(f"pictures need OpenCV, which is not there ({error}); {install_command('live')}") from error
    return cv2


@dataclass(frozen=True)
class Video:
    """A video in a file.

    Parameters
    ----------
    path : Path
        The file.
    rate : float or None
        Pictures per second, if not what the file says.
    """

    path: Path
    rate: float | None = None
    live = False

    @property
    def text(self) -> str:
        """The file."""
        return f"video {self.path}"

    def captures(self) -> Captures:
        """Pictures of the video; ``ValueError`` if it is no video."""
        cv2 = opencv()
        video = cv2.VideoCapture(str(self.path))
        try:
            rate = self.rate or video.get(cv2.CAP_PROP_FPS) or USUAL_RATE
            number, (there, picture) = 0, video.read()
            if not there:
                raise ValueError(f"{self.path} must be a video, a picture, a folder of pictures or a wav file")
            while there:
                yield Capture(number / rate, _rgb(picture))
                number, (there, picture) = number + 1, video.read()
        finally:
            video.release()


@dataclass(frozen=True)
class Folder:
    """Pictures in a folder, in the order of their names, or a single one.

    Parameters
    ----------
    path : Path
        The folder, or the picture.
    rate : float or None
        Pictures per second.
    """

    path: Path
    rate: float | None = None
    live = False

    @property
    def text(self) -> str:
        """Kind and name of the source."""
        return f"{'pictures in' if self.path.is_dir() else 'picture'} {self.path}"

    def captures(self) -> Captures:
        """Pictures of the file or folder; ``ValueError`` if there is none, or something else."""
        paths = sorted(self.path.iterdir()) if self.path.is_dir() else [self.path]
        paths = [path for path in paths if path.suffix.lower() in SUFFIXES]
        if not paths:
            raise ValueError(f"{self.path} must have pictures in it ({', '.join(SUFFIXES)}), but has none")
        for number, path in enumerate(paths):
            yield Capture(number / (self.rate or FOLDER_RATE), _decoded(path))


@dataclass(frozen=True)
class Camera:
    """A camera of this machine.

    Parameters
    ----------
    number : int
        Number of the camera, from 0.
    """

    number: int = 0
    live = True

    @property
    def text(self) -> str:
        """Name of the camera."""
        return f"camera {self.number}"

    def captures(self) -> Captures:
        """Pictures of the camera, without end; ``RuntimeError`` if it cannot be opened, or gives none."""
        cv2 = opencv()
        video = cv2.VideoCapture(self.number)
        try:
            if not video.isOpened():
                raise RuntimeError(f"camera {self.number} cannot be opened: is it there, and not in use?")
            begin = None
            while True:
                there, picture = video.read()
                if not there:
                    raise RuntimeError(f"camera {self.number} gives no picture: is it still there?")
                capture = Capture(0.0, _rgb(picture))
                begin = capture.taken if begin is None else begin
                yield Capture(capture.taken - begin, capture.data, capture.taken)
        finally:
            video.release()


def encoded(picture: Array, suffix: str, widest: int = 640) -> bytes:
    """A picture ``[height, width, 1 or 3]`` as a file, ``.jpg`` or ``.png``, not wider than ``widest``."""
    cv2 = opencv()
    height, width = picture.shape[:2]
    if width > widest:
        size = widest, max(1, round(height * widest / width))
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA).reshape(size[1], size[0], -1)
    shown = picture if picture.shape[2] == 1 else picture[..., ::-1]
    return bytes(cv2.imencode(suffix, np.ascontiguousarray(shown))[1])


def _decoded(path: Path) -> Array:
    """The picture in a file; ``ValueError`` if it is none."""
    cv2 = opencv()
    try:
        picture = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        picture = None
    if picture is None:
        raise ValueError(f"{path} must be a picture, and is none")
    return _rgb(picture)


def _rgb(picture: Array) -> Array:
    """Picture with red first; OpenCV has blue first."""
    return np.ascontiguousarray(picture[..., ::-1])
