"""Networks in C as programs of this machine: compiled with its compiler, fed with samples by files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def results_of(program: Path, samples: bytes, runs: int) -> bytes:
    """Bytes that a program writes for a file of samples; ``ValueError`` if it ends with an error."""
    source, target = (program.with_suffix(suffix) for suffix in (".samples", ".results"))
    source.write_bytes(samples)
    command = [str(program.absolute()), source.name, target.name, str(runs)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr or f"the program of {program.name} must end without an error")
    return target.read_bytes()


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
            columns.append(samples.reshape(runs, value.size))
        together = np.concatenate(columns, axis=1) if columns else np.zeros((runs, 0))
        results = results_of(self._file, together.tobytes(), runs)
        places = () if model.flags is None else model.flags.places
        sizes = [value.size for value in model.outputs]
        row = np.dtype([("outputs", np.float32, (sum(sizes),)), ("flags", np.uint8, (len(places),))])
        read = np.frombuffer(results, row)
        outputs, at = {}, 0
        for value, size in zip(model.outputs, sizes, strict=True):
            shape = value.shape[1:] if model.group > 1 else value.shape
            whole = read["outputs"][:, at : at + size].astype(np.float64).reshape(-1, *shape)
            outputs[model.names[value.name]] = whole[:count]
            at += size
        words = {where: np.repeat(read["flags"][:, k], model.group)[:count] for k, where in enumerate(places)}
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
