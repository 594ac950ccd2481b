"""Models of Keras given to ``concord.compile``, on the backend ``torch``."""

import warnings

import numpy as np
import pytest

import concord
from support.frameworks import missing, needs

if missing("keras"):
    pytest.skip(missing("keras"), allow_module_level=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import keras
from keras import layers

pytestmark = needs("keras")

RNG = np.random.default_rng(3)


def convolutional():
    return keras.Sequential([
        keras.Input((8, 8, 3)), layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(), layers.GlobalAveragePooling2D(), layers.Dropout(0.5),
        layers.Dense(5, activation="softmax"),
    ])  # fmt: skip


def two_inputs():
    first, second = keras.Input((10,), name="first"), keras.Input((4,), name="second")
    hidden = layers.Dense(12, activation="gelu")(layers.Concatenate()([first, second]))
    return keras.Model([first, second], layers.Dense(2)(layers.LayerNormalization()(hidden)))


@pytest.mark.parametrize("make", [convolutional, two_inputs])
def test_a_model_is_compiled(make):
    keras.utils.set_random_seed(1)
    model = make()
    network = concord.compile(model, preset="ecp5-85f")
    assert network.inputs == {tensor.name: tuple(tensor.shape[1:]) for tensor in model.inputs}
    x = [RNG.random((3, *shape), np.float32) for shape in network.inputs.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = model.predict(x if len(x) > 1 else x[0], verbose=0)
    got = network(dict(zip(network.inputs, x, strict=True)))
    assert got.shape == want.shape and np.abs(got - want).max() < 0.05 * np.abs(want).max()
    assert network.source.startswith(f"Keras {keras.__version__} on torch: ")


def test_an_open_length_needs_an_example():
    model = keras.Sequential([keras.Input((None, 6)), layers.Dense(3)])
    with pytest.raises(ValueError, match=r"must be fixed but for the batch; give example=x"):
        concord.compile(model)
    for example in (np.zeros((2, 5, 6)), {model.inputs[0].name: np.zeros((2, 5, 6))}):
        assert [*concord.compile(model, example=example, preset="tiny").inputs.values()] == [(5, 6)]


def test_what_cannot_be_exported_is_said():
    with pytest.raises(ValueError, match="model must be built, so that its inputs have shapes: call it once"):
        concord.compile(keras.Sequential([layers.Dense(3)]))
    with pytest.raises(ValueError, match=r"model must be a keras\.Model, not a Dense; put it into keras\.Sequential"):
        concord.compile(layers.Dense(3))


def test_another_backend_says_what_to_do(monkeypatch):
    """Keras exports by itself there, which needs TensorFlow."""
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    model = convolutional()

    def export(*arguments, **named):
        raise ImportError("tensorflow is needed\nand more")

    monkeypatch.setattr(type(model), "export", export)
    with pytest.raises(
        ValueError, match=r"Sequential cannot be exported on jax: tensorflow is needed; .*KERAS_BACKEND"
    ):
        concord.compile(model)
