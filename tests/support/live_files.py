"""Small recordings and networks for them that tests make, and a reason to skip where OpenCV is not there."""

import importlib.util
import wave

import numpy as np
import pytest

from support.commands import run
from support.onnx_models import model, node

needs_opencv = pytest.mark.skipif(
    importlib.util.find_spec("cv2") is None, reason="needs OpenCV, of the extra live: pip install -e '.[live]'"
)


def write_wav(path, sound, rate=16_000, width=2, channels=1):
    """Sound from -1 to 1 as whole numbers, the same in every channel."""
    full_scale = 2 ** (8 * width - 1)
    numbers = np.clip(np.rint(np.asarray(sound) * full_scale), -full_scale, full_scale - 1).astype(np.int64)
    numbers = np.repeat(numbers + (128 if width == 1 else 0), channels)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join(int(x).to_bytes(width, "little", signed=width > 1) for x in numbers))
    return path


def write_pictures(folder, pictures):
    """Pictures ``[height, width, 3]``, red first, as png files in their order."""
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(pictures):
        assert cv2.imwrite(str(folder / f"{number:04}.png"), np.ascontiguousarray(picture[..., ::-1]))
    return folder


def write_video(path, pictures, rate=20.0):
    """Pictures of one size, red first, as a video that keeps their colours nearly as they are."""
    import cv2

    height, width = pictures[0].shape[:2]
    video = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), rate, (width, height))
    assert video.isOpened()
    for picture in pictures:
        video.write(np.ascontiguousarray(picture[..., ::-1]))
    video.release()
    return path


def plain(colour, height=48, width=64):
    """A picture of one colour."""
    return np.full((height, width, 3), colour, np.uint8)


#: Names of the classes of :func:`colour_network`.
COLOURS = ("red", "green", "blue")


def colour_network(folder, preset="tiny"):
    """A compiled network whose scores are the means of the channels of a picture of 8 x 8, from 0 to 1."""
    nodes = [node("GlobalAveragePool", ["x"], ["means"]), node("Flatten", ["means"], ["y"])]
    samples = np.random.default_rng(0).uniform(0, 1, (40, 3, 8, 8))
    return _compiled(folder, model(nodes, {"x": (1, 3, 8, 8)}), preset, samples)


def level_network(folder, preset="tiny"):
    """A compiled network whose two scores are the mean of 200 samples of sound, and its opposite."""
    weights = np.outer(np.full(200, 1 / 200), [1, -1]).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": (1, 200)}, constants={"w": weights})
    return _compiled(folder, proto, preset, np.random.default_rng(0).uniform(-1, 1, (40, 200)))


def _compiled(folder, proto, preset, samples):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(folder / "x.npz", x=samples)
    words = ("compile", folder / "net.onnx", "--calibrate", folder / "x.npz", "--preset", preset, "-o", folder / "net")
    code, output = run(*words)
    assert code == 0, output
    return folder / "net"
