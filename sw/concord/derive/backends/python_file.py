"""A model as a file of Python, for NumPy or PyTorch, with its numbers in an npz file beside it.

A file begins with the arithmetic (:mod:`concord.derive.backends.function_texts`), has a function for every layer, and
``run(inputs)``, which takes and gives what the driver does. One for PyTorch has a module, too.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.backends.constants_file import archive, write_both
from concord.derive.backends.function_texts import defined, flag_text, host_text, with_operations
from concord.derive.backends.node_facts import singles
from concord.derive.backends.products import ProductPlan, norm
from concord.derive.backends.python_host_partition import partition_body
from concord.derive.backends.python_library import NUMPY, TORCH, function_text, python_text
from concord.derive.backends.python_nodes import LayerFunction, PythonNodes, layer_functions
from concord.derive.flags import every
from concord.derive.names import Names, identifier, in_docstring
from concord.graph.ir import Graph

#: Samples that are computed together, at least and at most: enough to hide the cost of a call and of reading weights.
_CHUNKS = 16, 128
#: Elements of the largest value of these samples, if they are to stay in the cache.
_CACHED = 1 << 17

_ABOUT = '''"""{title}

Derived by `concord derive` from a program of the NPU and its images; gives the same bits, and needs {needs} only.

    run({{name: array [samples, ...]}}) -> {{name: array [samples, ...]}}
{flags}
{inputs}
{outputs}
"""'''

_ABOUT_FLAGS = """
With flags=True it also returns the sticky flags: by layer and name of the flag the samples that raised it.
"""

_FACTS = '''
#: Layers that may raise flags, and those that do in every run.
LAYERS = {0.places!r}
ALWAYS = {0.always!r}


def no_flags(samples):
    """Words of layers, for ``flags`` of a network, in which nothing is raised but what always is."""
    return {{name: {1}.full((-(-samples // {2}),), ALWAYS.get(name, 0), dtype={1}.uint8) for name in LAYERS}}


def raised(words, samples):
    """Words of layers as samples by layer and name of the flag."""
    places = {{}}
    for layer, word in words.items():
        word = np.repeat(np.asarray(word), {2})[:samples]
        for name, bit in FLAGS.items():
            if (word & bit).any():
                places.setdefault(layer, {{}})[name] = np.flatnonzero(word & bit).tolist()
    return places


'''

_FLAGGED = {
    "option": ", flags=False",
    "words": "    words = [no_flags(min(size, count - k)) if flags else None for k in starts]\n",
    "of_part": ", word",
    "parts": "zip(starts, words)",
    "names": "k, word",
    "both": "    if flags:\n"
    "        every = {name: np.concatenate([np.asarray(word[name]) for word in words]) for name in LAYERS}\n"
    "        return outputs, raised(every, count)\n",
}
_PLAIN = dict.fromkeys(_FLAGGED, "") | {"parts": "starts", "names": "k"}

_RUN = '''
#: Shape of a sample of every input, and type of every output.
SHAPES = {shapes}
TYPES = {types}


def run(inputs, chunk={chunk}{option}):
    """Outputs by name, ``[samples, ...]`` of their TYPES, of inputs by name.

    ``ValueError`` if a shape is wrong, there is no sample, or a number is not finite or infinite in binary16.
    """
    samples = {{name: np.asarray(inputs[name], dtype=np.float64) for name in SHAPES}}
    count, size = len(next(iter(samples.values()))), chunk * {group}
    if not count:
        raise ValueError("inputs must have at least one sample, not none")
    for name, x in samples.items():
        if x.shape != (count, *SHAPES[name]):
            raise ValueError(f"{{name}} must have shape {{(count, *SHAPES[name])}}, not {{x.shape}}")
    starts, parts = range(0, count, size), []
{words}    with {quiet}:
        for {names} in {parts}:
            some = {{name: {array}(x[k : k + size]) for name, x in samples.items()}}
            parts.append(network(W, some{of_part}, checked=True))
    outputs = {{name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in TYPES}}
{both}    return outputs
'''

_MODULE = '''
class Model(torch.nn.Module):
    """{title}: float64 tensors ``[samples, ...]`` in the order of SHAPES to those in the order of TYPES."""

    def __init__(self):
        super().__init__()
        for name, values in W.items():
            self.register_buffer(name, values)

    def forward(self, {variables}{flags}):
        """The outputs, a tuple."""
        samples = dict(zip(SHAPES, [{variables}]))
        return tuple(network(dict(self.named_buffers()), samples{of_flags}).values())
'''


class _NumpyNodes(PythonNodes):
    """Lines of NumPy."""

    LIBRARY = NUMPY
    LITERALS = True
    SINGLE_SUM = "round_to_half"
    NOISE, INDEX = np.uint16, np.int32

    def constant_name(self, hint: str) -> str:
        return identifier(hint)

    def halves(self, bits: npt.NDArray[np.uint16], hint: str, real: bool = False) -> str:
        return self.keep(bits.view(np.float16), hint)

    def product_of(self, node: ir.ProductOf, x: str, matrix: str, dtype: Any) -> str:
        return super().product_of(node, f"{x}.astype(np.float64)" if dtype is np.float64 else x, matrix, dtype)

    def sums(self, node: ir.MatMul | ir.Depthwise | ir.ProductOf, how: ProductPlan) -> list[str]:
        """Rows that float64 may not hold are added up in integers."""
        (total,) = super().sums(node, replace(how, several=False))
        if isinstance(node, ir.ProductOf):
            if how.several:
                operands = [total, *self.together(node.inputs)]
                self.call("exact_sums_of", operands, total, groups=len(node.groups), unit=2.0**node.unit)
            return [total]
        if how.several:
            offset = (
                [] if node.offset is None else [self.constant(node.offset, np.float64, f"{node.output.name}_offset")]
            )
            operands = [total, self.name(node.x), self.weight(node, np.float64), *offset]
            most = 0.0 if node.offset is None else float(np.abs(node.offset).max(initial=0.0))
            self.call("exact_sums", operands, total, norm=norm(node), most=most, unit=2.0**node.unit)
        return [total]


class _TorchNodes(PythonNodes):
    """Lines of PyTorch. Constants are members of a module, so their names are none of its own."""

    LIBRARY = TORCH
    LITERALS = False

    def constant_name(self, hint: str) -> str:
        return f"c{len(self.constants.arrays)}"

    def halves(self, bits: npt.NDArray[np.uint16], hint: str, real: bool = False) -> str:
        return self.keep(singles(bits).astype(np.float64 if real else np.float32), hint)


def write_numpy(model: ir.Model, path: Path) -> None:
    """Write ``path``, and the npz file of the same name beside it."""
    write_both(path, *python_source(_NumpyNodes, model, path.with_suffix(".npz").name))


def write_torch(model: ir.Model, path: Path) -> None:
    """Write ``path``, and the npz file of the same name beside it; ``ValueError`` for what PyTorch does not compute."""
    write_both(path, *python_source(_TorchNodes, model, path.with_suffix(".npz").name))


def python_source(nodes: type[PythonNodes], model: ir.Model, constants: str) -> tuple[str, bytes]:
    """The text of the file, and the contents of the npz file ``constants`` beside it."""
    return _Writer(nodes, model).file(constants)


@cache
def _own_names(library: str) -> frozenset[str]:
    """Names that the file needs itself."""
    words = "W Model Path Tensor checked constants_of flags hashlib host_inputs host_outputs io name network".split()
    words += "no_flags np outputs part_0 part_1 part_2 raised rest run runs samples self t torch total values".split()
    functions = defined(with_operations(library) + flag_text(library) + host_text(library))
    return frozenset([*words, *functions, *dir(builtins), *keyword.kwlist])


class _Writer:
    """Writes one file."""

    def __init__(self, nodes: type[PythonNodes], model: ir.Model):
        self.library, self.model = nodes.LIBRARY, model
        self._own = _own_names(self.library.name)
        self.nodes = nodes(model, self._own)
        self._steps: list[str] = []

    def file(self, constants: str) -> tuple[str, bytes]:
        """Text of the file, and contents of the file of ``constants``."""
        model, name = self.model, self.library.name
        own = [*self._functions(), self._network(), self._run(), *([self._module()] if self.library is TORCH else [])]
        functions = [
            with_operations(name),
            *([] if model.front is model.host_partition is None else [host_text(name)]),
            *([] if model.flags is None else [flag_text(name)]),
        ]
        data = archive(self.nodes.constants.arrays)
        return python_text(self.library, self._about(), functions, (constants, data), *own), data

    def _about(self) -> str:
        model = self.model
        title = in_docstring(model.name) or "program"
        flags = "" if model.flags is None else _ABOUT_FLAGS
        ports = {"inputs": _ports(model.inputs, model), "outputs": _ports(model.outputs, model)}
        return _ABOUT.format(title=title, needs=self.library.needs, flags=flags, **ports)

    def _functions(self) -> list[str]:
        """One per layer, and what the host computes."""
        values = {self.nodes.name(x) for node in every(self.model.body) for x in (*node.inputs, *node.outputs)}
        names = Names(values | self._own)
        texts = []
        for function in layer_functions(self.model):
            stem = identifier(function.layer or "program")
            texts.append(self._function(function, names.new(stem, "layer" if stem in values else "")))
        front, partition = self.model.front, self.model.host_partition
        if front is not None:
            texts.append(self._host_part_of("host_inputs", front, "inputs of the NPU from those that are given"))
        if partition is not None:
            texts.append(self._host_part_of("host_outputs", partition, "outputs from those of the NPU"))
        return texts

    def _host_part_of(self, function: str, partition: Graph, what: str) -> str:
        """A function of values by name, which returns such."""
        lines = partition_body(partition, self.library, self.nodes.constant, self._own)
        about = f'"""What the host computes in float64: {what}."""'
        return function_text(f"def {function}(W, values):", [about, *lines])

    def _function(self, function: LayerFunction, name: str) -> str:
        results = ", ".join(map(self.nodes.name, function.results))
        arguments = ", ".join(["W", *map(self.nodes.name, function.parameters), *["flags"] * function.flagged])
        lines = [f'"""{_about(function)}"""', *self.nodes.lines(function), *([f"return {results}"] if results else [])]
        self._steps.append((f"{results} = " if results else "") + f"{name}({arguments})")
        return function_text(f"def {name}({arguments}):", lines)

    def _network(self) -> str:
        """The function that calls all others."""
        model, own = self.model, {self.model.names[x.name]: self.nodes.name(x) for x in self.model.inputs}
        lines = ['"""Outputs by name of samples by name, all together; inputs are looked at if ``checked``."""']
        if model.front is not None:
            lines.append("samples = {**samples, **host_inputs(W, samples)}")
        lines += [
            f"for name in {list(own)!r} if checked else []:",
            "    if not (abs(samples[name]) < LARGEST + 16).all():",
            '        raise ValueError(f"{name} must hold finite numbers within 65504")',
        ]
        for name, variable in own.items():
            x = f"samples[{name!r}]"
            lines.append(f"{variable} = {f'grouped({x}, {model.group})' if model.group > 1 else x}")
        lines += self._steps
        if own and (model.group > 1 or not all(x.batched for x in model.outputs)):
            lines.append(f"runs = {next(iter(own.values()))}.shape[0]")
        ends = ", ".join(f"{model.names[x.name]!r}: {self._output(x)}" for x in model.outputs)
        lines.append(f"outputs = {{{ends}}}")
        if model.host_partition is not None:
            values = [
                f"{name!r}: {self.nodes.on_grid(f'samples[{name!r}]', grid)}" for name, grid in model.grids.items()
            ]
            lines.append(f"values = {{{', '.join(['**outputs', '**samples', *values])}}}")
            lines.append("outputs = {**outputs, **host_outputs(W, values)}")
        lines.append("return {name: of_type(outputs[name], kind) for name, kind in TYPES.items()}")
        flags = "" if model.flags is None else "flags=None, "
        return function_text(f"def network(W, samples, {flags}checked=False):", lines)

    def _output(self, x: ir.Value) -> str:
        """An output of the NPU for all samples."""
        text = self.nodes.expanded(x, "runs" if self.model.inputs else "1")
        if self.model.group == 1:
            return text
        sizes = ", ".join([f"runs * {self.model.group}", *map(str, x.shape[1:])])
        return f"{text}.reshape({sizes})[:{self._count}]"

    @property
    def _count(self) -> str:
        """The number of samples."""
        return f"samples[{self.model.names[self.model.inputs[0].name]!r}].shape[0]"

    def _run(self) -> str:
        """Text of ``run``, and of what it needs."""
        model, library = self.model, self.library
        names = [model.names[x.name] for x in model.outputs]
        if model.host_partition is not None:
            of_npu = names if library is TORCH else []
            names = list(dict.fromkeys([*model.host_partition.outputs, *of_npu]))
        facts = "" if model.flags is None else _FACTS.format(model.flags, library.module, model.group)
        body = _RUN.format(
            shapes=model.sources,
            types={name: model.output_types.get(name, "float64") for name in names},
            chunk=_chunk(model),
            group=model.group,
            quiet=library.quiet,
            array=library.array,
            **(_PLAIN if model.flags is None else _FLAGGED),
        )
        return (facts + body.lstrip("\n")).strip()

    def _module(self) -> str:
        """A module of PyTorch that has the weights of its own."""
        model, names = self.model, Names(self._own)
        flagged = model.flags is not None
        return _MODULE.format(
            title=in_docstring(model.name) or "program",
            variables=", ".join(names.new(name) for name in model.sources),
            flags=", flags=None" if flagged else "",
            of_flags=", flags" if flagged else "",
        ).strip()


def _chunk(model: ir.Model) -> int:
    """Runs that are computed together."""
    most = max((x.size for node in model.body for x in node.outputs if x.batched), default=1)
    least, limit = _CHUNKS
    return max(least, min(limit, _CACHED // most))


def _ports(values: Iterable[ir.Value], model: ir.Model) -> str:
    words = "inputs" if values is model.inputs else "outputs"
    drop = 1 if model.group > 1 else 0
    listed = ", ".join(f"{model.names[v.name]} {v.shape[drop:]}" for v in values)
    return in_docstring(f"{words}: {listed}")


def _about(function: LayerFunction) -> str:
    """Text for readers that tells the layer and the chains of a function."""
    pcs = sorted({pc for node in function.nodes for pc in node.pcs})
    name = in_docstring(function.layer)
    where = f" Chains at {', '.join(map(str, pcs))}." if pcs else ""
    return f"Layer {name}.{where}" if name else f"A part of the program.{where}"
