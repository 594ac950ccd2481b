"""A model as a file of Python that needs NumPy only, with its numbers in an npz file beside it.

The file begins with the arithmetic (:mod:`concord.derive.backends.numpy_prelude`, word for word), has a function for
every layer, and ``run(inputs)``, which takes and gives what the driver does.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.backends.constants_file import archive, reader, write_both
from concord.derive.backends.names import free_name
from concord.derive.backends.operation_texts import with_operations
from concord.derive.backends.products import plan
from concord.derive.backends.python_host import CONSTANTS, Dialect, partition_lines
from concord.derive.flags import every
from concord.derive.names import Names, identifier, in_docstring
from concord.golden import binary16
from concord.graph.ir import Graph
from concord.spec.formats import FLAG_BITS, ExponentMode, Rounding
from concord.utils.arrays import FloatArray

_MARK = "# --- arithmetic ---\n"
_HOST_MARK = "# --- arithmetic of the host ---\n"
_ROUNDINGS = {Rounding.NEAREST_EVEN: "even", Rounding.NEAREST_AWAY: "away", Rounding.STOCHASTIC: "stochastic"}
_SINGLE_BITS, _DOUBLE_BITS = 24, 53
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
    prelude = importlib.resources.files(__package__).joinpath("numpy_prelude.py").read_text(encoding="utf-8")
    ports = {"inputs": _ports(model.inputs, model), "outputs": _ports(model.outputs, model)}
    head = _HEAD.format(title=_title(model), flags="" if model.flags is None else _ABOUT_FLAGS, **ports)
    arithmetic = with_operations(prelude.split(_MARK, 1)[1].strip(), "numpy_text.py")
    load = f"W = load(Path(__file__).with_name({weights!r}))"
    words = f"FLAGS = {FLAG_BITS!r}"
    run, data = writer.run(), archive(writer.arrays)
    parts = [head, words, arithmetic, reader(data), _LOAD.strip(), load, *functions, run]
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


@dataclass
class _Function:
    """Consecutive nodes of one layer."""

    layer: str
    nodes: list[ir.ModelNode] = field(default_factory=list)


class _Writer:
    """Makes lines, and collects arrays."""

    def __init__(self, model: ir.Model):
        self.model = model
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self._values = {x.name for node in every(model.body) for x in (*node.inputs, *node.outputs)}
        self._functions = Names(self._values)
        self._constants = {node.output for node in every(model.body) if isinstance(node, ir.Constant)}
        self._steps: list[str] = []

    # Functions ---------------------------------------------------------------------------------

    def functions(self) -> list[str]:
        """One per layer, in order; a layer that is done in several pieces has several."""
        pieces: list[_Function] = []
        for node in self.model.body:
            if isinstance(node, ir.Constant):
                self._keep(node)
                continue
            if not pieces or pieces[-1].layer != node.layer:
                pieces.append(_Function(node.layer))
            pieces[-1].nodes.append(node)
        texts = []
        for number, piece in enumerate(pieces):
            later = {x for other in pieces[number + 1 :] for node in other.nodes for x in node.inputs}
            texts.append(self._function(piece, later | set(self.model.outputs)))
        if self.model.host_partition is not None:
            texts += self._host_partition(self.model.host_partition)
        return texts

    def _host_partition(self, partition: Graph) -> list[str]:
        """The function ``behind(values)``, and what it calls: outputs by name from values by name."""
        own = Names()
        names = {name: f"values[{name!r}]" for name in partition.inputs}
        dialect = Dialect(
            "np.maximum", "np.minimum", "np.sqrt", "np.concatenate", "np.broadcast_to", "transpose", self._host_constant
        )
        lines = partition_lines(partition, names, dialect, lambda name: own.new("host", name))
        results = ", ".join(f"{name!r}: {names[name]}" for name in partition.outputs)
        about = '"""What the host computes from the outputs of the NPU, in float64."""'
        body = "".join(f"    {line}\n" for line in [about, *lines, f"return {{{results}}}"])
        text = importlib.resources.files("concord.golden").joinpath("host_math.py").read_text(encoding="utf-8")
        functions = text.split(_HOST_MARK, 1)[1].split("\n\n\n", 1)[1].strip()
        return [CONSTANTS, functions, f"def behind(values):\n{body}".strip()]

    def _host_constant(self, values: npt.ArrayLike, dtype: type) -> str:
        array: npt.NDArray[Any] = np.asarray(values, dtype=dtype)
        return f"{array.item()!r}" if array.ndim == 0 else self._kept("host", array)

    def _function(self, piece: _Function, later: set[ir.Value]) -> str:
        made = {x for node in piece.nodes for x in node.outputs}
        parameters = [x for node in piece.nodes for x in node.inputs if x not in made and x not in self._constants]
        parameters = list(dict.fromkeys(parameters))
        results = [x for node in piece.nodes for x in node.outputs if x in later]
        stem = identifier(piece.layer or "program")
        name = self._functions.new(stem, "layer" if stem in self._values else "")
        flagged = any(node.may for node in every(ir.Body(tuple(piece.nodes))))
        arguments = ", ".join([x.name for x in parameters] + ["flags"] * flagged)
        lines = [f"def {name}({arguments}):", f'    """{_about(piece)}"""']
        for node in piece.nodes:
            lines += [f"    {line}" for line in self._lines(node)]
        lines += [f"    return {', '.join(x.name for x in results)}"] if results else []
        self._steps.append((f"{', '.join(x.name for x in results)} = " if results else "") + f"{name}({arguments})")
        return "\n".join(lines)

    def run(self) -> str:
        """The function that calls all others."""
        model = self.model
        flagged = model.flags is not None
        lines = [
            f"def compute(inputs{', flags' if flagged else ''}):",
            '    """The outputs of the NPU for samples that are computed together."""',
        ]
        lines += [f"    {x.name} = inputs[{model.names[x.name]!r}]" for x in model.inputs]
        lines += [f"    {step}" for step in self._steps]
        results = ", ".join(f"{model.names[x.name]!r}: {self._output(x)}" for x in model.outputs)
        lines.append(f"    return {{{results}}}")
        shapes = {model.names[x.name]: x.shape[1:] if model.group > 1 else x.shape for x in model.inputs}
        drop = {model.names[x.name]: x.shape[1:] if model.group > 1 else x.shape for x in model.outputs}
        numbers = {"shapes": shapes, "results": drop, "group": model.group, "chunk": _chunk(model)}
        flags = {key: text.replace("GROUP", str(model.group)) if flagged else "" for key, text in _FLAGGED.items()}
        facts = _FACTS.format(model.flags) if flagged else ""
        body = facts + _RUN.format(**numbers, **flags, behind=self._host_part())
        return "\n".join(lines) + "\n\n\n" + body.strip()

    def _output(self, x: ir.Value) -> str:
        if x.batched:
            return x.name
        first = self.model.inputs[0].name if self.model.inputs else "1"
        return f"np.broadcast_to({x.name}, (len({first}), *{x.name}.shape))"

    def _host_part(self) -> str:
        if self.model.host_partition is None:
            return ""
        lines = ["values = {**found, **samples}"]
        if self.model.grids:
            lines += [
                f"for name, (exponent, least, greatest) in {self.model.grids}.items():",
                "    codes = np.clip(np.rint(np.ldexp(values[name], -exponent)), least, greatest)",
                "    values[name] = np.ldexp(codes, exponent)",
            ]
        lines += ['with np.errstate(all="ignore"):', "    found = behind(values)"]
        return "".join(f"    {line}\n" for line in lines)

    # Nodes -------------------------------------------------------------------------------------

    def _keep(self, node: ir.Constant) -> None:
        self.arrays[node.output.name] = node.data.view(np.float16)

    def _name(self, x: ir.Value) -> str:
        return f'W["{x.name}"]' if x in self._constants else x.name

    def _array(self, node: ir.ModelNode, word: str, values: npt.NDArray[Any]) -> str:
        return self._kept(f"{node.output.name}_{word}", values)

    def _kept(self, wanted: str, values: npt.NDArray[Any]) -> str:
        """Keep an array; the same contents once."""
        for name, known in self.arrays.items():
            if known.dtype == values.dtype and known.shape == values.shape and known.tobytes() == values.tobytes():
                return f'W["{name}"]'
        name = free_name(wanted, set(self.arrays))
        self.arrays[name] = values
        return f'W["{name}"]'

    def _lines(self, node: ir.ModelNode) -> list[str]:
        if isinstance(node, ir.Loop):
            return self._loop(node)
        return [f"{node.output.name} = {self._expression(node)}"]

    def _expression(self, node: ir.ModelNode) -> str:
        match node:
            case ir.Prepare():
                return self._prepare(node)
            case ir.ToBinary16():
                return f"half({self._name(node.x)})"
            case ir.ToReal():
                return f"{self._name(node.x)}.astype(np.float64)"
            case ir.Maximum():
                axis = node.axis % len(node.x.shape) - len(node.x.shape)
                return f"largest({self._name(node.x)}, {axis})"
            case ir.Elementwise():
                return self._elementwise(node)
            case ir.TableLookup():
                entries = self._kept(identifier(node.name), node.entries.view(np.float16))
                ends = f", {tuple(not end for end in node.constant_ends)}" if node.may else ""
                numbers = f"{node.low}, {node.high}, {node.scale}{ends}{_flags(node)}"
                return f"table({self._name(node.x)}, {entries}, {numbers})"
            case ir.Quantise():
                return self._quantise(node)
            case ir.MatMul():
                weight = self._weight(node, node.weight.swapaxes(-1, -2))
                return f"dot({self._name(node.x)}, {weight}{self._sums(node, -1)}{_flags(node)})"
            case ir.Depthwise():
                weight = self._weight(node, node.weight)
                return f"depthwise({self._name(node.x)}, {weight}{self._sums(node, 0)}{_flags(node)})"
        return self._data_movement(node)

    def _prepare(self, node: ir.Prepare) -> str:
        x = node.x.name
        if node.grid is not None:
            exponent, least, greatest = node.grid
            x = f"np.ldexp(np.clip(np.rint(np.ldexp({x}, {-exponent})), {least}, {greatest}), {exponent})"
        if node.middles is not None:
            x = f"({x} - {self._array(node, 'middles', node.middles)})"
        if node.factors is not None:
            x = f"{x} * {self._array(node, 'factors', node.factors)}"
        return f"{x} - {node.offset!r}"

    def _elementwise(self, node: ir.Elementwise) -> str:
        words = []
        for x in node.xs:
            missing = len(node.output.shape) - len(x.shape) if x.batched else 0
            words.append(f"{self._name(x)}[:{', None' * missing}]" if missing else self._name(x))
        return f"{node.operation.numpy}({', '.join(words)}{_flags(node)})"

    def _quantise(self, node: ir.Quantise) -> str:
        sizes = list(node.blocks)
        listed = f"[{sizes[0]}] * {len(sizes)}" if len(set(sizes)) == 1 and len(sizes) > 2 else f"{sizes}"
        words = [self._name(node.x), listed, str(node.form.mant), str(node.form.exp_min)]
        if any(node.peaks):
            words.append(f"peaks={[float(peak) for peak in node.peaks]}")
        if node.mode is ExponentMode.STATIC:
            words.append(f"exponent={node.exp}")
        if node.rounding is not Rounding.NEAREST_EVEN:
            words.append(f"rounding={_ROUNDINGS[node.rounding]!r}")
        if node.noise is not None:
            words.append(f"noise={self._array(node, 'noise', node.noise)}")
        return f"quantise({', '.join(words)}{_flags(node)})"

    def _weight(self, node: ir.MatMul | ir.Depthwise, weight: FloatArray) -> str:
        single = node.bound <= 2.0 ** (_SINGLE_BITS + node.unit)
        return self._array(node, "weight", np.ascontiguousarray(weight.astype(np.float32 if single else np.float64)))

    def _sums(self, node: ir.MatMul | ir.Depthwise, axis: int) -> str:
        words = ""
        if node.offset is not None:
            words += f", offset={self._array(node, 'offset', node.offset)}"
        top = 2.0 ** (node.width - 1 - node.frac)
        if node.bound >= top:
            words += f", limit=({-top!r}, {top - 2.0**-node.frac!r})"
        how = plan(node)
        if how.register is not None:
            return f"{words}, register=({how.register!r}, {how.norm!r}, {list(node.starts)})"
        if node.bound > 2.0 ** (_DOUBLE_BITS + node.unit):
            norm = float(np.abs(node.weight).sum(axis=axis).max(initial=0.0))
            more = 0.0 if node.offset is None else float(np.abs(node.offset).max(initial=0.0))
            words += f", bits=({norm!r}, {more!r}, {2.0**node.unit!r})"
        return words

    def _data_movement(self, node: ir.ModelNode) -> str:
        match node:
            case ir.Reshape():
                return f"{self._name(node.x)}.reshape({', '.join(map(str, (-1, *node.output.shape)))})"
            case ir.Transpose():
                axes = ", ".join(str(axis + 1) for axis in node.perm)
                return f"{self._name(node.x)}.transpose(0, {axes})"
            case ir.Slice():
                return f"{self._name(node.x)}[:, {', '.join(_slices(node))}]"
            case ir.Concat():
                axis = node.axis % len(node.output.shape) + 1
                return f"np.concatenate([{', '.join(map(self._name, node.xs))}], axis={axis})"
            case ir.MapWindows():
                fill = float(binary16.decode(node.fill))
                text = repr(fill) if np.isfinite(fill) else f"float({str(fill)!r})"
                last = "" if node.fill == ir.ZERO else f", {text}"
                shape = node.output.shape[:2]
                sizes = f"{shape}, {node.kernel}, {node.stride}, {node.origin}, {node.dilation}"
                return f"windows({self._name(node.x)}, {sizes}{last})"
            case ir.Gather():
                return self._gather(node)
        raise TypeError(f"nodes must be those of concord.derive.ir, not {type(node).__name__}")

    def _gather(self, node: ir.Gather) -> str:
        index = self._array(node, "index", node.index.astype(np.int32))
        fill = f", {self._array(node, 'fill', node.fill.view(np.float16))}" if len(node.fill) else ""
        xs = ", ".join(self._name(x) if x.batched else f"{self._name(x)}[None]" for x in node.xs)
        return f"gather([{xs}], {index}{fill})"

    def _spread(self, x: ir.Value, batch: str) -> str:
        """A value with an axis of samples."""
        name = self._name(x)
        return name if x.batched else f"np.broadcast_to({name}, (len({batch}), *{name}.shape))"

    def _loop(self, loop: ir.Loop) -> list[str]:
        for node in loop.body:
            if isinstance(node, ir.Constant):
                self._keep(node)
        batch = next(x.name for x in loop.inputs if x.batched)
        lines = []
        for carried in loop.carried:
            lines.append(f"{carried.param.name} = {self._spread(carried.initial, batch)}")
        lines += [f"{stack.output.name} = []" for stack in loop.stacked]
        lines.append(f"for t in range({loop.count}):")
        for scan in loop.scanned:
            lines.append(f"    {scan.param.name} = {self._spread(scan.source, batch)}[:, t]")
        for node in loop.body:
            if not isinstance(node, ir.Constant):
                lines += [f"    {line}" for line in self._lines(node)]
        lines += [f"    {stack.output.name}.append({self._spread(stack.result, batch)})" for stack in loop.stacked]
        if loop.carried:
            params = ", ".join(carried.param.name for carried in loop.carried)
            lines.append(f"    {params} = {', '.join(self._spread(carried.result, batch) for carried in loop.carried)}")
        lines += [
            f"{carried.final.name} = {carried.param.name}" for carried in loop.carried if carried.final is not None
        ]
        lines += [f"{stack.output.name} = np.stack({stack.output.name}, axis=1)" for stack in loop.stacked]
        return lines


_FACTS = '''
#: Layers that may raise flags, and those that do in every run.
LAYERS = {0.places!r}
ALWAYS = {0.always!r}


def raised(words):
    """Flag words of samples, by layer, as samples by layer and name of the flag."""
    found = {{}}
    for layer, mine in words.items():
        for name, bit in FLAGS.items():
            if (mine & bit).any():
                found.setdefault(layer, {{}})[name] = np.flatnonzero(mine & bit).tolist()
    return found


'''

_FLAGGED = {
    "option": ", flags=False",
    "words": "    words = {name: np.full(runs, ALWAYS.get(name, 0), np.uint8) for name in LAYERS}\n",
    "mine": ", {name: word[k : k + chunk] if flags else None for name, word in words.items()}",
    "both": "(found, raised({name: np.repeat(word, GROUP)[:count] for name, word in words.items()})) if flags else ",
}

_RUN = '''
SHAPES = {shapes}


def run(inputs, chunk={chunk}{option}):
    """Outputs by name, float64 ``[samples, ...]``, of inputs by name.

    ``ValueError`` if a shape is wrong, there is no sample, or a number is not finite or infinite in binary16.
    """
    samples = {{name: np.asarray(inputs[name], dtype=np.float64) for name in SHAPES}}
    count = len(next(iter(samples.values())))
    if not count:
        raise ValueError("inputs must have at least one sample, not none")
    for name, x in samples.items():
        if x.shape != (count, *SHAPES[name]):
            raise ValueError(f"{{name}} must have shape {{(count, *SHAPES[name])}}, not {{x.shape}}")
        if not (np.abs(x) < LARGEST + 16).all():
            raise ValueError(f"{{name}} must hold finite numbers within 65504")
    missing = -count % {group}
    full = {{name: np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]) for name, x in samples.items()}}
    runs = (count + missing) // {group}
    if {group} > 1:
        full = {{name: x.reshape(runs, {group}, *x.shape[1:]) for name, x in full.items()}}
{words}    with np.errstate(all="ignore"):  # infinities and NaNs are meant
        parts = [
            compute({{name: x[k : k + chunk] for name, x in full.items()}}{mine}) for k in range(0, runs, chunk)
        ]
    shapes = {results}
    found = {{name: np.concatenate([part[name] for part in parts]).reshape(-1, *shapes[name]) for name in shapes}}
    found = {{name: x[:count] for name, x in found.items()}}
{behind}    return {both}found
'''


def _flags(node: ir.ModelNode) -> str:
    """The argument of an operation that may raise flags."""
    return f", flags=flags[{node.where!r}]" if node.may else ""


def _slices(node: ir.Slice) -> list[str]:
    texts = []
    for size, start, step, count in zip(node.x.shape, node.starts, node.steps, node.output.shape, strict=True):
        stop = start + count * step
        if start == 0 and step == 1 and count == size:
            texts.append(":")
        elif step > 0:
            texts.append(f"{start}:{min(stop, size)}" + (f":{step}" if step > 1 else ""))
        else:
            texts.append(f"{start}:{stop if stop >= 0 else ''}:{step}")
    return texts


def _about(piece: _Function) -> str:
    """What a function is, for its readers."""
    pcs = sorted({pc for node in piece.nodes for pc in node.pcs})
    name = in_docstring(piece.layer)
    where = f" Chains at {', '.join(map(str, pcs))}." if pcs else ""
    return f"Layer {name}.{where}" if name else f"A part of the program.{where}"
