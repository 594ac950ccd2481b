"""Parts of the file of a PyTorch module besides its layers, and the names that it uses itself."""

from __future__ import annotations

import builtins
import keyword
from functools import cache

from concord.derive.backends.function_texts import defined, flag_text, host_text, with_operations

CLASS = '''

class Model(torch.nn.Module):
    """{name}: float64 tensors ``[samples, ...]`` in the order of INPUTS to those in the order of OUTPUTS.

    Outputs have the types of the network.
    """

    def __init__(self, constants: str | Path = CONSTANTS):
        super().__init__()
        for name, values in constants_of(constants).items():
            self.register_buffer(name, torch.from_numpy(values))

'''

FLAGS = '''

#: Layers that may raise flags, and those that do in every run.
LAYERS = {0.places!r}
ALWAYS = {0.always!r}


def no_flags(samples: int) -> dict[str, Tensor]:
    """Words of layers for ``flags`` of a model, in which nothing is raised but what always is."""
    return {{name: torch.full((-(-samples // {1}),), ALWAYS.get(name, 0), dtype=torch.uint8) for name in LAYERS}}


def raised(flags: dict[str, Tensor], samples: int) -> dict[str, dict[str, list[int]]]:
    """Words of layers as samples by layer and name of the flag."""
    places = {{}}
    for layer, words in flags.items():
        word = words.repeat_interleave({1})[:samples]
        for name, bit in FLAGS.items():
            if (where := torch.nonzero(word & bit).flatten().tolist()):
                places.setdefault(layer, {{}})[name] = where
    return places
'''

END_WITH_FLAGS = '''

def run(inputs: dict[str, np.ndarray], model: Model | None = None, flags: bool = False):
    """Outputs by name, from arrays of inputs by name; with flags also the samples that raised them, by layer and flag.

    The flags that are sticky in the NPU are those of any sample of a batch.
    """
    tensors = [torch.from_numpy(np.asarray(inputs[name], dtype=np.float64)) for name in INPUTS]
    words = no_flags(len(tensors[0])) if flags else None
    with torch.no_grad():
        results = (model or Model())(*tensors, flags=words)
    outputs = {name: result.numpy() for name, result in zip(OUTPUTS, results, strict=True)}
    return outputs if words is None else (outputs, raised(words, len(tensors[0])))
'''

END = '''

def run(inputs: dict[str, np.ndarray], model: Model | None = None) -> dict[str, np.ndarray]:
    """Outputs by name, from arrays of inputs by name."""
    tensors = [torch.from_numpy(np.asarray(inputs[name], dtype=np.float64)) for name in INPUTS]
    with torch.no_grad():
        results = (model or Model())(*tensors)
    return {name: result.numpy() for name, result in zip(OUTPUTS, results, strict=True)}
'''


@cache
def functions() -> str:
    """Imports and functions with which a file begins."""
    return "import numpy as np\nimport torch\nfrom torch import Tensor\n\n" + with_operations("torch")


@cache
def own_names() -> frozenset[str]:
    """Names that the file uses itself."""
    used = "self torch np total rest t part_0 part_1 part_2 run count flags no_flags raised Path Model Tensor"
    used += " io hashlib constants_of values outputs"
    texts = functions() + flag_text("torch") + host_text("torch")
    return frozenset([*used.split(), *defined(texts), *dir(builtins), *keyword.kwlist])
