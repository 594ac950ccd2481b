"""A derived model as a PyTorch module, with the bits of the NPU: a file of Python that needs torch and numpy only.

The file begins with the functions of :mod:`.function_texts`; then comes a module with one method per layer. Constants
are in a file .npz beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.backends.constants_file import archive, reader, write_both
from concord.derive.backends.function_texts import flag_text, host_text
from concord.derive.backends.names import free_name
from concord.derive.backends.node_facts import singles
from concord.derive.backends.python_host_partition import Dialect, partition_lines
from concord.derive.backends.python_nodes import PythonNodes, layer_functions
from concord.derive.backends.torch_texts import (
    CLASS,
    END,
    END_WITH_FLAGS,
    FLAGS,
    functions,
    own_names,
)
from concord.derive.flags import every
from concord.derive.names import in_ascii, in_docstring


def to_torch(model: ir.Model, constants: str) -> tuple[str, bytes]:
    """The text of the module of a derived model, and the contents of the npz file ``constants``, which it reads.

    Raises
    ------
    ValueError
        For what a module cannot hold.
    """
    return _Emitter(model).build(constants)


def write_torch(model: ir.Model, path: Path) -> None:
    """Write the module, and the constants beside it."""
    write_both(path, *to_torch(model, path.with_suffix(".npz").name))


class _Nodes(PythonNodes):
    """Lines of PyTorch."""

    DIALECT = Dialect("torch", "torch.cat", "host_root", "permute")
    LITERALS = False

    def constant_name(self, hint: str) -> str:
        return f"c{len(self.arrays)}"

    def constant_text(self, name: str) -> str:
        return f"self.{name}"

    def halves(self, bits: npt.NDArray[np.uint16], hint: str, real: bool = False) -> str:
        return self.keep(singles(bits).astype(np.float64 if real else np.float32), hint)


class _Emitter:
    """Writes one module."""

    def __init__(self, model: ir.Model):
        self.model = model
        self.nodes = _Nodes(model, own_names())
        self.local = self.nodes.name

    def build(self, constants: str) -> tuple[str, bytes]:
        methods, calls = [], []
        taken: set[str] = {"forward"}
        for function in layer_functions(self.model):
            name = free_name("layer_" + (in_ascii(function.layer) or "part"), taken)
            returned = ", ".join(map(self.local, function.results))
            body = [f'"""{in_docstring(function.layer)}"""', *self.nodes.lines(function), f"return {returned}".strip()]
            parameters = [*map(self.local, function.parameters), *["flags"] * function.flagged]
            methods.append(_method(name, parameters, body))
            calls.append((f"{returned} = " if returned else "") + f"self.{name}({', '.join(parameters)})")
        return self._whole(constants, methods, calls)

    def _whole(self, constants: str, methods: list[str], calls: list[str]) -> tuple[str, bytes]:
        model = self.model
        ends = {model.names[v.name]: self.local(v) for v in model.outputs}
        variables, front, beside = self._front()
        heads, host, computed = self._host_partition(ends, beside)
        if model.group > 1:
            heads += [f"{self.local(v)} = grouped({self.local(v)}, {model.group})" for v in model.inputs]
        results = {name: (computed | ends)[name] for name in _results(model, ends)}
        heads = [*front, f"count = {self.local(model.inputs[0])}.shape[0]", *heads]
        cut = ".flatten(0, 1)[:count]" if model.group > 1 else ""
        fixed = [
            f"{self.local(v)} = {self.local(v)}.expand(count, *{v.shape[model.group > 1 :]!r})"
            for v in model.outputs
            if not v.batched
        ]
        cuts = [f"{self.local(v)} = {self.local(v)}{cut}" for v in model.outputs if v.batched and cut]
        host = [*cuts, *fixed, *host]
        forward = _method(
            "forward",
            list(variables.values()) + ([] if model.flags is None else ["flags=None"]),
            [*heads, *calls, *host, f"return {', '.join(self._typed(name, x) for name, x in results.items())},"],
        )
        title, data = in_docstring(model.name), archive(self.nodes.arrays)
        head = [
            f'"""{title}, derived from the program of an NPU: the same results, to the last bit."""',
            "\nfrom pathlib import Path\n",
            functions(),
            *([] if model.host_partition is model.front is None else ["", host_text("torch")]),
            *([] if model.flags is None else ["", flag_text("torch"), FLAGS.format(model.flags, model.group)]),
            f"\n\n{reader(data)}\n",
            f"\nCONSTANTS = Path(__file__).with_name({constants!r})",
            f"INPUTS = {list(variables)!r}",
            f"OUTPUTS = {list(results)!r}",
        ]
        body = CLASS.format(name=title) + "\n".join([*methods, forward])
        return "\n".join(head) + body + (END if model.flags is None else END_WITH_FLAGS), data

    def _typed(self, name: str, x: str) -> str:
        """A result with the type that it has in the model."""
        match self.model.output_types.get(name):
            case None | "float64":
                return x
            case "float16":  # which a cast from float64 rounds twice
                return f"real_to_half({x}).to(torch.float16)"
            case "float32":
                return f"{x}.to(torch.float32)"
            case kind:
                return f"torch.nan_to_num({x}, nan=0.0).to(torch.{kind})"

    def _front(self) -> tuple[dict[str, str], list[str], dict[str, str]]:
        """Variables of the inputs that are given by name, lines that compute those of the model from them, and others.

        The others are variables of what the host alone reads, by name.
        """
        model = self.model
        own = {model.names[v.name]: self.local(v) for v in model.inputs}
        if model.front is None:
            return own, [], {}
        taken = self._taken()
        variables = {name: own.get(name) or free_name(in_ascii(name), taken) for name in model.sources}
        names = {name: variables[name] for name in model.front.inputs}
        lines = partition_lines(
            model.front, names, self.nodes.DIALECT, self.nodes.constant, lambda _: free_name("host", taken)
        )
        lines += [f"{own[name]} = {names[name]}" for name in own if name in model.front.outputs]
        beside = {name: names[name] for name in (*model.front.inputs, *model.front.outputs) if name not in own}
        return variables, lines, beside

    def _taken(self) -> set[str]:
        """Names of all values."""
        taken = {self.local(v) for v in self.model.inputs} | own_names()
        return taken | {self.local(v) for node in every(self.model.body) for v in node.outputs}

    def _host_partition(
        self, ends: dict[str, str], beside: dict[str, str]
    ) -> tuple[list[str], list[str], dict[str, str]]:
        """Lines in front that keep inputs which the host reads, lines that compute its part, and its outputs."""
        model, host = self.model, self.model.host_partition
        if host is None:
            return [], [], {}
        inputs = beside | {model.names[v.name]: self.local(v) for v in model.inputs}
        names, heads = dict(ends), []
        taken = self._taken()

        def new(_: str) -> str:
            return free_name("host", taken)

        for name in host.inputs:
            if name in inputs:
                names[name] = free_name("source", taken)
                grid = model.grids.get(name)
                text = inputs[name] if grid is None else self.nodes.on_grid(inputs[name], grid)
                heads.append(f"{names[name]} = {text}")

        lines = partition_lines(host, names, self.nodes.DIALECT, self.nodes.constant, new)
        return heads, lines, {name: names[name] for name in host.outputs if name not in ends}


def _results(model: ir.Model, ends: Iterable[str]) -> list[str]:
    """Names of results: those of the network in its order, then what else the NPU gives to the host's part."""
    return list(dict.fromkeys([*(model.host_partition.outputs if model.host_partition is not None else ()), *ends]))


def _method(name: str, parameters: Sequence[str], body: Sequence[str]) -> str:
    lines = [f"def {name}({', '.join(['self', *parameters])}):", *("    " + line for line in body), ""]
    return "\n".join("    " + line if line else "" for line in lines)
