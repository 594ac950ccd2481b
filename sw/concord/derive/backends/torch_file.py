"""A derived model as a PyTorch module, with the bits of the NPU: a file of Python that needs torch and numpy only.

The file begins with the functions of :mod:`.function_texts`; then comes a module with one method per layer. Constants
are in a file .npz beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.backends.constants_file import archive, reader, write_both
from concord.derive.backends.function_texts import flag_text, host_text
from concord.derive.backends.names import free_name
from concord.derive.backends.node_facts import singles
from concord.derive.backends.python_host_partition import Dialect, partition_body
from concord.derive.backends.python_nodes import PythonNodes, layer_functions
from concord.derive.backends.torch_texts import (
    CLASS,
    END,
    END_WITH_FLAGS,
    FLAGS,
    functions,
    own_names,
)
from concord.derive.names import in_ascii, in_docstring
from concord.graph.ir import Graph


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
        return f"c{len(self.constants.arrays)}"

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
        model, host, taken = self.model, self.model.host_partition, set(own_names())
        own = {model.names[v.name]: self.local(v) for v in model.inputs}
        variables = {name: own.get(name) or free_name(in_ascii(name), taken) for name in model.sources}
        lines = [f"values = {{{', '.join(f'{name!r}: {variable}' for name, variable in variables.items())}}}"]
        if model.front is not None:
            methods.append(_method("host_inputs", ["values"], self._host_part(model.front)))
            lines.append("values |= self.host_inputs(values)")
        lines.append(f"count = values[{model.names[model.inputs[0].name]!r}].shape[0]")
        for name, variable in own.items():
            x = f"values[{name!r}]"
            lines.append(f"{variable} = {f'grouped({x}, {model.group})' if model.group > 1 else x}")
        ends = {model.names[v.name]: self._end(v) for v in model.outputs}
        lines += [*calls, f"outputs = {{{', '.join(f'{name!r}: {x}' for name, x in ends.items())}}}"]
        if host is not None:
            methods.append(_method("host_outputs", ["values"], self._host_part(host)))
            grids = {name: self.nodes.on_grid(f"values[{name!r}]", grid) for name, grid in model.grids.items()}
            lines += [f"values[{name!r}] = {text}" for name, text in grids.items()]
            lines.append("outputs |= self.host_outputs({**outputs, **values})")
        results = list(dict.fromkeys([*(() if host is None else host.outputs), *ends]))
        lines.append(f"return {', '.join(map(self._typed, results))},")
        flags = [] if model.flags is None else ["flags=None"]
        forward = _method("forward", [*variables.values(), *flags], lines)
        title, data = in_docstring(model.name), archive(self.nodes.constants.arrays)
        head = [
            f'"""{title}, derived from the program of an NPU: the same results, to the last bit."""',
            "\nfrom pathlib import Path\n",
            functions(),
            *([] if model.host_partition is model.front is None else ["", host_text("torch")]),
            *([] if model.flags is None else ["", flag_text("torch"), FLAGS.format(model.flags, model.group)]),
            f"\n\n{reader(data)}\n",
            f"\nCONSTANTS = Path(__file__).with_name({constants!r})",
            f"INPUTS = {list(variables)!r}",
            f"OUTPUTS = {results!r}",
        ]
        body = CLASS.format(name=title) + "\n".join([*methods, forward])
        return "\n".join(head) + body + (END if model.flags is None else END_WITH_FLAGS), data

    def _end(self, value: ir.Value) -> str:
        """An output of the NPU for all samples."""
        x, group = self.local(value), self.model.group
        if not value.batched:
            return f"{x}.expand(count, *{value.shape[group > 1 :]!r})"
        return f"{x}.flatten(0, 1)[:count]" if group > 1 else x

    def _typed(self, name: str) -> str:
        """A result with the type that it has in the model."""
        x = f"outputs[{name!r}]"
        match self.model.output_types.get(name):
            case None | "float64":
                return x
            case "float16":  # which a cast from float64 rounds twice
                return f"real_to_half({x}).to(torch.float16)"
            case "float32":
                return f"{x}.to(torch.float32)"
            case kind:
                return f"torch.nan_to_num({x}, nan=0.0).to(torch.{kind})"

    def _host_part(self, partition: Graph) -> list[str]:
        return partition_body(partition, self.nodes.DIALECT, self.nodes.constant, own_names())


def _method(name: str, parameters: Sequence[str], body: Sequence[str]) -> str:
    lines = [f"def {name}({', '.join(['self', *parameters])}):", *("    " + line for line in body), ""]
    return "\n".join("    " + line if line else "" for line in lines)
