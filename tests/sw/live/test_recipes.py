"""What makes an input of a picture or of sound: by the network, and by what is said of the training."""

import numpy as np
import pytest

from concord.live.front_ends import FRONT_ENDS
from concord.live.recipes import STRETCH, NetworkInput, picture_recipe, sound_recipe
from support.live_files import needs_opencv

RAMP = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def values(recipe, data):
    return recipe.values(recipe.seen(data))


@needs_opencv
def test_the_middle_of_a_picture_is_cut_out():
    recipe = picture_recipe(NetworkInput("x", (4, 4, 3), "uint8"))
    assert np.array_equal(values(recipe, RAMP), RAMP[:, 1:5])
    assert values(recipe, RAMP).dtype == np.uint8
    assert recipe.text == (
        "x (4 x 4 x 3): the largest part in the middle with the shape of the input, resized to 4 x 4, "
        "red, green, blue, channels last, bytes as they are"
    )


@needs_opencv
def test_a_smaller_picture_has_the_means_of_areas():
    recipe = picture_recipe(NetworkInput("x", (2, 2, 3), "uint8"), fitting=STRETCH)
    want = RAMP.reshape(2, 2, 2, 3, 3).mean(axis=(1, 3))
    assert np.abs(values(recipe, RAMP) - want).max() <= 0.5
    assert "the whole picture, stretched, resized to 2 x 2" in recipe.text


@needs_opencv
def test_channels_in_front_and_numbers_by_channel():
    recipe = picture_recipe(NetworkInput("x", (3, 4, 6)), scale=(0.5, 2, 1), mean=(10, 20, 30))
    want = (RAMP.astype(float) - [10, 20, 30]) * [0.5, 2, 1]
    assert np.array_equal(values(recipe, RAMP), want.transpose(2, 0, 1))
    assert "channels first, (byte - 10, 20, 30) * 0.5, 2, 1" in recipe.text


@needs_opencv
def test_blue_first():
    recipe = picture_recipe(NetworkInput("x", (3, 4, 6)), scale=(1,), blue_first=True)
    assert np.array_equal(values(recipe, RAMP), RAMP[..., ::-1].transpose(2, 0, 1))
    assert "blue, green, red" in recipe.text


@needs_opencv
@pytest.mark.parametrize("shape", [(4, 6), (1, 4, 6), (4, 6, 1)])
def test_grey(shape):
    recipe = picture_recipe(NetworkInput("x", shape), scale=(1 / 255,))
    grey = np.repeat(np.arange(24, dtype=np.uint8).reshape(4, 6, 1), 3, axis=2)
    assert values(recipe, grey) == pytest.approx(np.arange(24).reshape(shape) / 255)
    assert "6 x 4, grey, byte * 0.00392157" in recipe.text
    coloured = values(recipe, np.full((4, 6, 3), (255, 0, 0), np.uint8))
    assert coloured == pytest.approx(np.full(shape, 76 / 255))  # 0.299 of red


def test_pictures_for_inputs_that_are_none():
    for shape in ((10,), (2, 8, 8), (1, 3, 8, 8)):
        with pytest.raises(ValueError, match="input 'x' must be a picture for this source, height x width with 1 or 3"):
            picture_recipe(NetworkInput("x", shape), scale=(1,))
    with pytest.raises(ValueError, match="must be of numbers for this source, not of truth values"):
        picture_recipe(NetworkInput("x", (8, 8), "bool"), scale=(1,))


def test_how_bytes_become_numbers_is_asked_for():
    known = "values from 0 to 255 (100 samples)"
    with pytest.raises(ValueError, match="--scale must be given, as input 'x' reads floats") as error:
        picture_recipe(NetworkInput("x", (8, 8), known=known))
    assert str(error.value).endswith(f"it was compiled for {known}")
    with pytest.raises(ValueError, match="as input 'x' reads int8"):
        picture_recipe(NetworkInput("x", (8, 8), "int8"))
    with pytest.raises(ValueError, match="--scale must be given"):
        picture_recipe(NetworkInput("x", (8, 8), "uint8"), mean=(128,))


def test_numbers_that_do_not_fit_the_channels():
    with pytest.raises(ValueError, match="scale must be one number, or 3 for the channels, not 2 numbers"):
        picture_recipe(NetworkInput("x", (8, 8, 3)), scale=(1, 2))
    with pytest.raises(ValueError, match="mean must be one number, not 3 numbers"):
        picture_recipe(NetworkInput("x", (8, 8)), scale=(1,), mean=(1, 2, 3))
    with pytest.raises(ValueError, match="--bgr must be left out, as input 'x' is grey"):
        picture_recipe(NetworkInput("x", (8, 8)), scale=(1,), blue_first=True)


@pytest.mark.parametrize("shape", [(49, 10), (1, 49, 10), (49, 10, 1)])
def test_sound_through_a_front_end(shape):
    sound = np.random.default_rng(0).normal(0, 0.1, 16_000)
    recipe = sound_recipe(NetworkInput("x", shape), "mfcc-arm", hop=0.5)
    assert (recipe.windows.rate, recipe.windows.length, recipe.windows.hop) == (16_000, 16_000, 8_000)
    assert np.array_equal(values(recipe, sound), FRONT_ENDS["mfcc-arm"](sound).reshape(shape))
    assert recipe.text.endswith(
        "a window of 1 s every 0.5 s, 16,000 samples per second; mfcc-arm: 10 cepstral coefficients of "
        "49 frames of 40 ms, one every 20 ms, 40 mel filters from 20 to 4000 Hz, full scale is 1"
    )


def test_samples_as_they_are():
    sound = np.array([-1, -0.5, 0, 0.99999])
    recipe = sound_recipe(NetworkInput("x", (1, 4)), "samples", hop=0.002, rate=1000)
    assert np.array_equal(values(recipe, sound), sound[None])
    assert recipe.text == "x (1 x 4): a window of 0.004 s every 0.002 s, 1,000 samples per second; samples from -1 to 1"
    numbers = sound_recipe(NetworkInput("x", (4,), "int16"), "samples", hop=0.002, rate=1000)
    assert values(numbers, sound).tolist() == [-32768, -16384, 0, 32767]
    assert numbers.text.endswith("samples as int16")


def test_the_front_end_is_asked_for():
    with pytest.raises(ValueError, match="--front-end must be given") as error:
        sound_recipe(NetworkInput("x", (1, 49, 10)))
    assert str(error.value).endswith("input 'x' is 1 x 49 x 10, which mfcc-mlperf and mfcc-arm make")
    with pytest.raises(ValueError, match="which samples makes"):
        sound_recipe(NetworkInput("x", (1, 576)))
    with pytest.raises(ValueError, match="--rate must be given with --front-end samples"):
        sound_recipe(NetworkInput("x", (1, 576)), "samples")


@pytest.mark.parametrize(
    ("shape", "kind", "front_end", "rate", "message"),
    [
        (
            (40, 30),
            None,
            None,
            None,
            r"must be samples of sound, or what a front end makes of them \(mfcc-mlperf 49 x 10, ",
        ),
        ((25, 10), None, "mfcc-arm", None, "input 'x' must be 49 x 10 for mfcc-arm, not 25 x 10"),
        ((49, 10), "int8", "mfcc-arm", None, "input 'x' must be 49 x 10 for mfcc-arm, not 49 x 10 of int8"),
        ((49, 10), None, "mfcc-arm", 8000, "rate must be 16,000 for mfcc-arm, not 8,000"),
        ((49, 10), None, "samples", 8000, "input 'x' must be a row of samples, not 49 x 10"),
        ((100,), "uint8", "samples", 8000, "input 'x' must be a row of samples, not 100 of uint8"),
    ],
)
def test_sound_for_inputs_that_do_not_fit(shape, kind, front_end, rate, message):
    with pytest.raises(ValueError, match=message):
        sound_recipe(NetworkInput("x", shape, kind), front_end, rate=rate)
