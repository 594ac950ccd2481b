"""Networks in C in one translation unit: compiled once for each compiler and option, and run one by one.

The unit includes the files of all networks as they are written. Names that only one file sees get its name in front, by
macros. Programs are kept in the cache of the user, under a hash of their texts, the compiler and the options.
"""

import re
import subprocess
from functools import cache, cached_property
from pathlib import Path

from concord.derive.c.program import CompiledModel, compiled, model_main
from concord.derive.c.source import c_files
from concord.derive.c_exact.program import CompiledGraph, graph_main
from concord.derive.c_exact.source import exact_files
from concord.utils.cache import CacheEntry, digest
from support.c_compilers import words

#: Functions, arrays and types of a file that other files do not see.
_OWN = re.compile(r"^(?:static (?:inline |const )?[\w ]+?[ *](?=\w+[\[(])|\} (?=\w+;))(\w+)", re.MULTILINE)
#: What programs for that processor are made of besides.
_CORTEX_M4 = sorted(path for path in Path(__file__).with_name("cortex_m4").rglob("*.*") if path.suffix != ".pyc")
#: Variables of the programs of single networks.
_VARIABLES = ("inputs", "outputs", "doubles", "singles")

_MAIN = """
static int same(const char *a, const char *b)
{{
    while (*a && *a == *b) {{
        ++a;
        ++b;
    }}
    return *a == *b;
}}

/* Runs the network that the program is called like. */
int main(int count, char **words)
{{
    const char *name = words[0];
    for (const char *at = name; *at; ++at) {{
        name = *at == '/' ? at + 1 : name;
    }}
{choices}
    return 5;
}}
"""


def word(text):
    """A name in C for a text."""
    return re.sub(r"\W+", "_", text)


class CUnit:
    """Networks of a kind as one program for each compiler and option.

    Parameters
    ----------
    **networks : callable
        By name what makes a network: a model, or a graph of codes.
    """

    def __init__(self, **networks):
        self._makers, self._made, self._programs = networks, {}, {}

    def __getitem__(self, name):
        """A network; it is made once."""
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def program(self, name, folder, command=None, options=("-O0",)):
        """The network ``name`` of the program for a compiler and options; it keeps its files in ``folder``."""
        key = command, tuple(options)
        if key not in self._programs:
            self._programs[key] = _program(self._texts, words(command), options)
        (link := folder / name).symlink_to(self._programs[key])
        return self._loaded(name, link)

    def all(self, check, folder, options):
        """Call ``check(name, program)`` for every network; those that fail are named together."""
        failed = []
        for name in self._makers:
            try:
                check(name, self.program(name, folder, options=options))
            except (AssertionError, ValueError) as error:
                failed.append(f"{name}: {error}")
        assert not failed, "\n".join(failed)


class ModelUnit(CUnit):
    """Networks in blocks."""

    def _loaded(self, name, program):
        return CompiledModel(self[name], program)

    @cached_property
    def _texts(self):
        return _unit({name: (c_files(self[name], name), model_main(self[name], name)) for name in self._makers})


class CodeUnit(CUnit):
    """Networks on codes."""

    @cached_property
    def _files(self):
        return {name: exact_files(self[name], name) for name in self._makers}

    def _loaded(self, name, program):
        return CompiledGraph(self[name], self._files[name], program)

    @cached_property
    def _texts(self):
        return _unit({name: (files, graph_main(self[name], name)) for name, files in self._files.items()})


def _unit(networks):
    """By name the files of a unit of networks."""
    texts, unit, mains = {}, [], []
    for name, (files, main) in networks.items():
        texts |= {f"{name}.h": files.header, f"{name}.c": files.source, f"{name}_main.c": main}
        own = dict.fromkeys(word for word in _OWN.findall(files.source) if not word.startswith(f"{name}_"))
        unit += _renamed(name, f"{name}.c", own)
        mains += _renamed(name, f"{name}_main.c", ("main", *_VARIABLES))
    choices = "\n".join(
        f'    if (same(name, "{name}")) {{\n        return {name}_own_main(count, words);\n    }}' for name in networks
    )
    texts["unit.c"] = "\n".join(unit) + "\n"
    texts["unit_main.c"] = "\n".join(mains) + "\n" + _MAIN.format(choices=choices)
    return texts


def _renamed(name, file, own):
    """Lines that include a file in which some names get another one in front."""
    return [
        f'#include "{name}.h"',
        *(f"#define {word} {name}_own_{word}" for word in own),
        f'#include "{file}"',
        *(f"#undef {word}" for word in own),
    ]


def _program(texts, command, options):
    """The program of a unit, compiled unless it is there."""

    def make(folder):
        for file, text in texts.items():
            (folder / file).write_text(text)
        compiled(folder, "unit", "a unit of networks", command, options)
        for path in folder.glob("*.[cho]"):
            path.unlink()

    key = digest(texts, command, list(options), _version(tuple(command)), *_CORTEX_M4)
    return CacheEntry("c", key[:24]).made(make) / "unit"


@cache
def _version(command):
    return subprocess.run([*command, "-c", "--version"], capture_output=True, text=True, check=True).stdout
