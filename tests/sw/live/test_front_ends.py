"""Front ends of networks for keywords: against plain loops, and against what recorded data sets have."""

import numpy as np
import pytest

from concord.live.front_ends import FRONT_ENDS, RATE
from support.trained import DATA, needs_data


def plain_mfcc(sound, hop, width, transform, offset, least):
    """The same by the definition, a number at a time."""

    def mel(frequency):
        return 1127 * np.log(1 + frequency / 700)

    edges = [mel(20) + k * (mel(4000) - mel(20)) / 41 for k in range(42)]
    rows = []
    for begin in range(0, RATE - width + 1, hop):
        part = [sound[begin + k] * (0.5 - 0.5 * np.cos(2 * np.pi * k / width)) for k in range(width)]
        size = np.abs(np.fft.fft(np.array(part + [0.0] * (transform - width))))
        logs = []
        for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False):
            energy = 0.0
            for k in range(transform // 2 + 1):
                at = mel(k * RATE / transform)
                if low < at <= centre:
                    energy += size[k] * (at - low) / (centre - low)
                elif centre < at < high:
                    energy += size[k] * (high - at) / (high - centre)
            logs.append(np.log(max(energy + offset, least)))
        rows.append([np.sqrt(2 / 40) * sum(x * np.cos(np.pi / 40 * (n + 0.5) * k) for n, x in enumerate(logs))
                     for k in range(10)])  # fmt: skip
    return np.array(rows)


def noise(seed=0):
    return np.random.default_rng(seed).normal(0, 0.05, RATE)


@pytest.mark.slow
def test_coefficients_are_those_of_the_definition():
    sound = noise()
    arm = plain_mfcc(sound, 320, 640, 1024, 0, 1e-12)
    assert np.abs(FRONT_ENDS["mfcc-arm"](sound) - arm).max() < 1e-9
    assert np.abs(FRONT_ENDS["mfcc-arm-gru"](sound) - arm[::2]).max() < 1e-9
    loudest = plain_mfcc(sound / sound.max(), 320, 480, 512, 1e-6, 0)
    assert np.abs(FRONT_ENDS["mfcc-mlperf"](sound) - loudest).max() < 1e-9


def test_a_louder_second_changes_those_that_do_not_scale():
    sound = noise(1)
    assert np.allclose(*(FRONT_ENDS["mfcc-mlperf"](x) for x in (sound, 3 * sound)))
    assert not np.allclose(*(FRONT_ENDS["mfcc-arm"](x) for x in (sound, 3 * sound)))


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_silence_has_finite_coefficients(name):
    coefficients = FRONT_ENDS[name](np.zeros(RATE))
    assert coefficients.shape == FRONT_ENDS[name].shape and np.isfinite(coefficients).all()


@needs_data
def test_front_end_of_ml_kws_is_that_of_the_frozen_graphs():
    data = np.load(DATA / "data" / "kws_pcm.npz")
    for sound, want in zip(data["pcm"] / 2.0**15, data["mfcc49"], strict=True):
        assert np.abs(FRONT_ENDS["mfcc-arm"](sound) - want).max() < 1e-4


@needs_data
def test_front_end_of_mlperf_gives_the_codes_of_its_data_set():
    """They were cut off towards zero; 28 of 11,760 lie so near a whole number that single precision decides."""
    sounds, codes = (np.load(DATA / "data" / name) for name in ("kws_pcm.npz", "kws_mfcc_int8.npz"))
    places = [list(codes["names"]).index(name) for name in sounds["names"]]
    ours = np.array([FRONT_ENDS["mfcc-mlperf"](sound / 2.0**15) for sound in sounds["pcm"]])
    ours = np.trunc(ours / codes["scale"] + codes["zero_point"]).clip(-128, 127)
    away = np.abs(ours - codes["x"][places, 0])
    assert away.max() <= 1 and (away > 0).mean() < 0.004
