"""What PyTorch's exporter is given of a model of Keras; both are stand-ins."""

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from concord.frameworks import from_keras

EXAMPLE = {"second": np.ones((1, 4)), "first": np.zeros((1, 3)), "other": np.ones(1)}


class Model:
    """A model with inputs."""

    def __init__(self, **shapes):
        self.inputs = [
            SimpleNamespace(name=name, shape=(None, *shape), dtype="float32") for name, shape in shapes.items()
        ]


@pytest.fixture
def exported(monkeypatch):
    """Exports a model; returns the module's arguments and the names of its inputs."""
    keras = ModuleType("keras")
    keras.Model, keras.__version__ = Model, "3"
    keras.config = SimpleNamespace(backend=lambda: "torch")
    torch = ModuleType("concord.frameworks.from_torch")
    calls = []
    torch.call_of = lambda model, example: ([*example] if isinstance(example, tuple) else [example], {})
    torch.evaluated = nullcontext
    torch.exported_program = lambda model, arguments, names: calls.append((arguments, names))
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setitem(sys.modules, "concord.frameworks.from_torch", torch)
    monkeypatch.setattr(from_keras, "finished", lambda proto, source: b"")

    def export(model, example=None):
        from_keras.exported_keras(model, example)
        ((arguments, names),) = calls
        return arguments, names

    return export


def test_inputs_have_their_names_and_a_list_has_several(exported):
    arguments, names = exported(Model(first=(3,), second=(4,)), EXAMPLE)
    assert names == ["first", "second"]
    assert len(arguments) == 1 and [value.shape for value in arguments[0]] == [(1, 3), (1, 4)]


def test_one_input_is_no_list(exported):
    arguments, names = exported(Model(first=(3,)), EXAMPLE)
    assert names == ["first"] and [value.shape for value in arguments] == [(1, 3)]


def test_a_model_that_names_no_inputs_needs_an_example(exported):
    arguments, names = exported(Model(), np.zeros((1, 5)))
    assert names == [] and arguments[0].shape == (1, 5)
