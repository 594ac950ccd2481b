"""A model as a file of Python that needs NumPy only, with its numbers in an npz file beside it.

The file begins with the arithmetic (:mod:`concord.derive.backends.numpy_functions`, word for word), has a function for
every layer, and ``run(inputs)``, which takes and gives what the driver does.
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
from concord.derive.backends.constants_file import archive, reader, write_both
from concord.derive.backends.function_texts import defined, flag_text, host_text, with_operations
from concord.derive.backends.products import ProductPlan, norm
from concord.derive.backends.python_host_partition import Dialect, partition_body
from concord.derive.backends.python_nodes import LayerFunction, PythonNodes, layer_functions
from concord.derive.flags import every
from concord.derive.names import Names, identifier, in_docstring
from concord.graph.ir import Graph

#: Samples that are computed together, at least and at most: enough to hide the cost of a call and of reading weights.
_CHUNKS = 16, 128
#: Elements of the largest value of these samples, if they are to stay in the cache.
_CACHED = 1 << 17


def write_numpy(model: ir.Model, path: Path) -> None:
    """Write ``path``, and the npz file of the same name beside it."""
    write_both(path, *numpy_source(model, path.with_suffix(".npz").name))


def _chunk(model: ir.Model) -> int:
    """Runs that are computed together."""
    most = max((x.size for node in model.body for x in node.outputs if x.batched), default=1)
    least, limit = _CHUNKS
    return max(least, min(limit, _CACHED // most))


def numpy_source(model: ir.Model, weights: str) -> tuple[str, bytes]:
    """The text of the file, and the contents of the npz file ``weights`` beside it."""
    writer = _Writer(model)
    functions = writer.functions()
    ports = {"inputs": _ports(model.inputs, model), "outputs": _ports(model.outputs, model)}
    head = _HEAD.format(title=_title(model), flags="" if model.flags is None else _ABOUT_FLAGS, **ports)
    flags = [] if model.flags is None else [flag_text("numpy")]
    load = f"W = load(Path(__file__).with_name({weights!r}))"
    run, data = writer.run(), archive(writer.nodes.constants.arrays)
    parts = [head, with_operations("numpy"), *flags, reader(data), _LOAD.strip(), load, *functions, run]
    return "\n\n\n".join(parts) + "\n", data


_HEAD = '''"""{title}

Derived by `concord derive` from a program of the NPU and its images; gives the same bits, and needs NumPy only.

    run({{name: array [samples, ...]}}) -> {{name: array [samples, ...]}}
{flags}
{inputs}
{outputs}
"""

from pathlib import Path

import numpy as np'''

_ABOUT_FLAGS = """
With flags=True it also returns the sticky flags: by layer and name of the flag the samples that raised it.
"""

_LOAD = '''
def load(file):
    """Weights as float64 or float32, and binary16 numbers as float32, by name."""
    return {name: x.astype(np.float32) if x.dtype == np.float16 else x for name, x in constants_of(file).items()}
'''


def _title(model: ir.Model) -> str:
    return in_docstring(model.name) or "program"


def _ports(values: Iterable[ir.Value], model: ir.Model) -> str:
    words = "inputs" if values is model.inputs else "outputs"
    drop = 1 if model.group > 1 else 0
    listed = ", ".join(f"{model.names[v.name]} {v.shape[drop:]}" for v in values)
    return in_docstring(f"{words}: {listed}")


@cache
def _own_names() -> frozenset[str]:
    """Names that the file needs itself."""
    words = "compute constants_of flags hashlib host_inputs host_outputs inputs io load np of_type path ports".split()
    words += ["raised", "run", "t", "total"]
    functions = defined(with_operations("numpy") + flag_text("numpy") + host_text("numpy"))
    return frozenset([*words, *functions, *dir(builtins), *keyword.kwlist])


class _Nodes(PythonNodes):
    """Lines of NumPy."""

    DIALECT = Dialect("np", "np.concatenate", "np.sqrt", "transpose")
    LITERALS = True
    SINGLE_SUM = "round_to_half"
    NOISE, INDEX = np.uint16, np.int32

    def constant_name(self, hint: str) -> str:
        return identifier(hint)

    def constant_text(self, name: str) -> str:
        return f'W["{name}"]'

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


class _Writer:
    """Writes one file."""

    def __init__(self, model: ir.Model):
        self.model = model
        self.nodes = _Nodes(model, _own_names())
        self._steps: list[str] = []

    def functions(self) -> list[str]:
        """One per layer, and what the host computes."""
        values = {self.nodes.name(x) for node in every(self.model.body) for x in (*node.inputs, *node.outputs)}
        names = Names(values | _own_names())
        texts = []
        for function in layer_functions(self.model):
            stem = identifier(function.layer or "program")
            texts.append(self._function(function, names.new(stem, "layer" if stem in values else "")))
        front, partition = self.model.front, self.model.host_partition
        if front is not None or partition is not None:
            texts.append(host_text("numpy"))
        if front is not None:
            texts.append(self._host_part_of("host_inputs", front, "inputs of the NPU from those that are given"))
        if partition is not None:
            texts.append(self._host_part_of("host_outputs", partition, "outputs from those of the NPU"))
        return texts

    def _host_part_of(self, function: str, partition: Graph, what: str) -> str:
        """A function of values by name, which returns such."""
        lines = partition_body(partition, self.nodes.DIALECT, self.nodes.constant, _own_names())
        about = f'"""What the host computes in float64: {what}."""'
        return "\n    ".join([f"def {function}(values):", about, *lines])

    def _function(self, function: LayerFunction, name: str) -> str:
        results = ", ".join(map(self.nodes.name, function.results))
        arguments = ", ".join([*map(self.nodes.name, function.parameters), *["flags"] * function.flagged])
        lines = [f"def {name}({arguments}):", f'    """{_about(function)}"""']
        lines += [f"    {line}" for line in self.nodes.lines(function)]
        lines += [f"    return {results}"] if results else []
        self._steps.append((f"{results} = " if results else "") + f"{name}({arguments})")
        return "\n".join(lines)

    def run(self) -> str:
        """The function that calls all others."""
        model = self.model
        flagged = model.flags is not None
        lines = [
            f"def compute(inputs{', flags' if flagged else ''}):",
            '    """The outputs of the NPU for samples that are computed together."""',
        ]
        lines += [f"    {self.nodes.name(x)} = inputs[{model.names[x.name]!r}]" for x in model.inputs]
        lines += [f"    {step}" for step in self._steps]
        results = ", ".join(f"{model.names[x.name]!r}: {self._output(x)}" for x in model.outputs)
        lines.append(f"    return {{{results}}}")
        ports = "samples"
        if model.front is not None:
            names = ", ".join(repr(model.names[x.name]) for x in model.inputs)
            ports = f"{{name: samples[name] for name in [{names}]}}"
        drop = {model.names[x.name]: x.shape[1:] if model.group > 1 else x.shape for x in model.outputs}
        numbers = {
            "shapes": model.sources,
            "ports": ports,
            "results": drop,
            "types": {name: model.output_types.get(name, "float64") for name in _results(model)},
            "group": model.group,
            "chunk": _chunk(model),
        }
        flags = {key: text.replace("GROUP", str(model.group)) if flagged else "" for key, text in _FLAGGED.items()}
        facts = _FACTS.format(model.flags) if flagged else ""
        body = facts + _RUN.format(**numbers, **flags, front=self._front_part(), host=self._host_part())
        return "\n".join(lines) + "\n\n\n" + body.strip()

    def _output(self, x: ir.Value) -> str:
        return self.nodes.expanded(x, f"len({self.nodes.name(self.model.inputs[0])})" if self.model.inputs else "1")

    def _front_part(self) -> str:
        lines = ['    with np.errstate(all="ignore"):', "        samples |= host_inputs(samples)"]
        return "" if self.model.front is None else "".join(f"{line}\n" for line in lines)

    def _host_part(self) -> str:
        if self.model.host_partition is None:
            return ""
        lines = ["values = {**outputs, **samples}"]
        if self.model.grids:
            lines += [
                f"for name, grid in {self.model.grids}.items():",
                "    values[name] = on_grid(values[name], *grid)",
            ]
        lines += ['with np.errstate(all="ignore"):', "    outputs = host_outputs(values)"]
        return "".join(f"    {line}\n" for line in lines)


_FACTS = '''
#: Layers that may raise flags, and those that do in every run.
LAYERS = {0.places!r}
ALWAYS = {0.always!r}


def raised(words):
    """Flag words of samples, by layer, as samples by layer and name of the flag."""
    samples = {{}}
    for layer, word in words.items():
        for name, bit in FLAGS.items():
            if (word & bit).any():
                samples.setdefault(layer, {{}})[name] = np.flatnonzero(word & bit).tolist()
    return samples


'''

_FLAGGED = {
    "option": ", flags=False",
    "words": "    words = {name: np.full(runs, ALWAYS.get(name, 0), np.uint8) for name in LAYERS}\n",
    "parts": ", {name: word[k : k + chunk] for name, word in words.items()} if flags else None",
    "both": "(outputs, raised({name: np.repeat(word, GROUP)[:count] for name, word in words.items()})) if flags else ",
}

_RUN = '''
SHAPES = {shapes}
TYPES = {types}


def of_type(x, kind):
    """Numbers as elements of a type; of whole numbers NaN becomes 0."""
    with np.errstate(over="ignore"):
        return (x if kind.startswith("float") else np.where(np.isnan(x), 0.0, x)).astype(kind)


def run(inputs, chunk={chunk}{option}):
    """Outputs by name, ``[samples, ...]`` of their TYPES, of inputs by name.

    ``ValueError`` if a shape is wrong, there is no sample, or a number is not finite or infinite in binary16.
    """
    samples = {{name: np.asarray(inputs[name], dtype=np.float64) for name in SHAPES}}
    count = len(next(iter(samples.values())))
    if not count:
        raise ValueError("inputs must have at least one sample, not none")
    for name, x in samples.items():
        if x.shape != (count, *SHAPES[name]):
            raise ValueError(f"{{name}} must have shape {{(count, *SHAPES[name])}}, not {{x.shape}}")
{front}    ports = {ports}
    for name, x in ports.items():
        if not (np.abs(x) < LARGEST + 16).all():
            raise ValueError(f"{{name}} must hold finite numbers within 65504")
    missing = -count % {group}
    full = {{name: np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]) for name, x in ports.items()}}
    runs = (count + missing) // {group}
    if {group} > 1:
        full = {{name: x.reshape(runs, {group}, *x.shape[1:]) for name, x in full.items()}}
{words}    with np.errstate(all="ignore"):  # infinities and NaNs are meant
        parts = [
            compute({{name: x[k : k + chunk] for name, x in full.items()}}{parts}) for k in range(0, runs, chunk)
        ]
    shapes = {results}
    outputs = {{name: np.concatenate([part[name] for part in parts]).reshape(-1, *shapes[name]) for name in shapes}}
    outputs = {{name: x[:count] for name, x in outputs.items()}}
{host}    outputs = {{name: of_type(x, TYPES[name]) for name, x in outputs.items()}}
    return {both}outputs
'''


def _results(model: ir.Model) -> list[str]:
    """Names of the results of a call: those of the host where it computes some."""
    host = model.host_partition
    return [model.names[x.name] for x in model.outputs] if host is None else host.outputs


def _about(function: LayerFunction) -> str:
    """Text for readers that tells the layer and the chains of a function."""
    pcs = sorted({pc for node in function.nodes for pc in node.pcs})
    name = in_docstring(function.layer)
    where = f" Chains at {', '.join(map(str, pcs))}." if pcs else ""
    return f"Layer {name}.{where}" if name else f"A part of the program.{where}"
