"""Networks in C as programs of this machine: compiled with its compiler, fed with samples by files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive import ir
from concord.derive.c.file import file_names
from concord.derive.c.planner import port_names
from concord.derive.evaluate import grouped
from concord.derive.flags import Words, by_layer
from concord.utils.files import write_text

#: Warnings that are errors: files have none.
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror")
OPTIMISED = ("-O3",)
#: Commands that compile C, the first that is there is taken.
COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """The command of this machine that compiles C, if there is one."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def compiled(folder: Path, stem: str, name: str, command: Sequence[str], options: Sequence[str]) -> Path:
    """The program of ``stem.c`` without warnings and ``stem_main.c``, in a folder.

    ``ValueError`` with the ``name`` of the network if the compiler ends with an error.
    """
    main, made = f"{stem}_main.c", f"{stem}.o"
    _compile(folder, name, [*command, *STRICT, *options, "-c", f"{stem}.c", "-o", made])
    _compile(folder, name, [*command, "-std=c99", *options, main, made, "-o", stem])
    return folder / stem


def _compile(folder: Path, name: str, command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{command[0]} must compile {name} without an error, not: {done.stderr[:2000]}")


def main_text(stem: str, flagged: bool, statics: Sequence[str], reads: Sequence[str], writes: Sequence[str]) -> str:
    """The text of ``stem_main.c``: runs of a file of samples, whose results and flags go to another one.

    ``statics`` are definitions, ``reads`` statements that read the inputs of a run from the file ``from``, and
    ``writes`` those that write its outputs to the file ``to``.
    """
    places = f"{stem.upper()}_PLACES"
    run = [*reads, *["memset(flags, 0, sizeof flags);"] * flagged]
    run += [f"{stem}_run(&inputs, &outputs{', flags' * flagged});", *writes]
    run += [f"fwrite(flags, 1, {places}, to);"] * flagged
    lines = [
        f'#include "{stem}.h"',
        "",
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "#include <string.h>",
        "",
        *statics,
        f"static {stem}_inputs inputs;",
        f"static {stem}_outputs outputs;",
        "",
        "int main(int count, char **words)",
        "{",
        '    FILE *const from = count > 3 ? fopen(words[1], "rb") : NULL;',
        '    FILE *const to = count > 3 ? fopen(words[2], "wb") : NULL;',
        "    long runs = count > 3 ? atol(words[3]) : 0;",
        *[f"    uint8_t flags[{places} + 1];"] * flagged,
        "    if (!from || !to) {",
        "        return 2;",
        "    }",
        "    for (long k = 0; k < runs; ++k) {",
        *(f"        {line}" for line in run),
        "    }",
        "    fclose(from);",
        "    return fclose(to) ? 4 : 0;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def results_of(
    program: Path, columns: Sequence[NDArray[Any]], runs: int, outputs: Mapping[str, tuple[str, int]], places: int
) -> tuple[dict[str, NDArray[Any]], NDArray[np.uint8]]:
    """Outputs ``[runs, elements]`` by name, and flags ``[runs, places]``, of a program.

    Parameters
    ----------
    program : Path
    columns : sequence of array
        Inputs ``[runs, ...]`` in their order, as the program reads them.
    runs, places : int
        Number of runs, and of bytes of flags.
    outputs : mapping of str to pair
        Type and number of the elements of an output, in the order in which they are written.

    Raises
    ------
    ValueError
        If the program ends with an error.
    """
    source, target = (program.with_suffix(suffix) for suffix in (".samples", ".results"))
    rows = [np.ascontiguousarray(column).reshape(runs, -1).view(np.uint8) for column in columns]
    source.write_bytes(np.concatenate([np.zeros((runs, 0), np.uint8), *rows], axis=1).tobytes())
    command = [str(program.absolute()), source.name, target.name, str(runs)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr or f"the program of {program.name} must end without an error")
    fields: list[Any] = [(f"f{k}", kind, (size,)) for k, (kind, size) in enumerate(outputs.values())]
    read = np.frombuffer(target.read_bytes(), np.dtype([*fields, ("flags", np.uint8, (places,))]))
    return {name: read[f"f{k}"] for k, name in enumerate(outputs)}, read["flags"]


def model_main(model: ir.Model, stem: str) -> str:
    """The text of ``stem_main.c`` for a model: a program that runs a file of samples."""
    inputs, outputs = port_names(model, file_names())
    most = max([value.size for value in (*model.inputs, *model.outputs)], default=1)
    statics = [
        f"static uint64_t doubles[{max(1, most)}];",
        f"static uint32_t singles[{max(1, most)}];",
    ]
    reads, writes = [], []
    for value, name in zip(model.inputs, inputs, strict=True):
        reads += [
            f"if (fread(doubles, 8, {value.size}, from) != {value.size}) {{",
            "    return 3;",
            "}",
            f"if (!{stem}_{name}_from_doubles(&inputs, doubles)) {{",
            f'    fprintf(stderr, "%s must hold finite numbers within 65504\\n", "{name}");',
            "    return 1;",
            "}",
        ]
    for value, name in zip(model.outputs, outputs, strict=True):
        writes += [
            f"{stem}_{name}_to_floats(&outputs, singles);",
            f"fwrite(singles, 4, {value.size}, to);",
        ]
    return main_text(stem, model.flags is not None, statics, reads, writes)


class CompiledModel:
    """A program that runs a model in C.

    Parameters
    ----------
    model : Model
        Without what the host computes.
    program : Path
        Compiled from the file of the model and :func:`model_main`.
    """

    def __init__(self, model: ir.Model, program: Path) -> None:
        self.model, self._file = model, program

    def run(self, inputs: Mapping[str, NDArray[np.float64]]) -> tuple[dict[str, NDArray[np.float64]], Words]:
        """Outputs of the NPU by the driver's names, and flag words by place; as :func:`concord.derive.evaluate.run`.

        ``ValueError`` if there is no sample, or a number is not finite or infinite in binary16.
        """
        model, columns = self.model, []
        count = len(next(iter(inputs.values()))) if inputs else 1
        if not count:
            raise ValueError("inputs must have at least one sample, not none")
        runs = -(-count // model.group)
        for value in model.inputs:
            samples = grouped(np.asarray(inputs[model.names[value.name]], dtype=np.float64), model.group)
            columns.append(samples)
        places = () if model.flags is None else model.flags.places
        kinds = {model.names[value.name]: ("float32", value.size) for value in model.outputs}
        outputs, flags = results_of(self._file, columns, runs, kinds, len(places))
        for value in model.outputs:
            shape = value.shape[1:] if model.group > 1 else value.shape
            whole = outputs[model.names[value.name]].astype(np.float64)
            outputs[model.names[value.name]] = whole.reshape(-1, *shape)[:count]
        words = {where: np.repeat(flags[:, k], model.group)[:count] for k, where in enumerate(places)}
        return outputs, words

    def run_with_flags(
        self, inputs: Mapping[str, NDArray[np.float64]]
    ) -> tuple[dict[str, NDArray[np.float64]], dict[str, dict[str, list[int]]]]:
        """Outputs of samples, and the samples that raised a flag by place and name."""
        outputs, words = self.run(inputs)
        return outputs, by_layer(words)


class CProgram(CompiledModel):
    """A model in C, compiled.

    Parameters
    ----------
    path : Path
        The file ``.c`` of the model, beside which are its header and what this writes.
    model : Model
        Without what the host computes.
    command : sequence of str
        That compiles C.
    options : sequence of str
        Of the compiler.

    Raises
    ------
    ValueError
        If the compiler ends with an error.
    """

    def __init__(self, path: Path, model: ir.Model, command: Sequence[str], options: Sequence[str] = OPTIMISED) -> None:
        write_text(path.with_name(f"{path.stem}_main.c"), model_main(model, path.stem))
        super().__init__(model, compiled(path.parent, path.stem, model.name, command, options))
