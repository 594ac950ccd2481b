"""Which tests may notice a change of a source: those with its name, those of its package, and of what imports it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from support.imports import Sources

#: Marks of the tests of ``make check``, and of those that ``make test`` adds.
FAST, SLOW = "not slow and not deep", "slow and not deep"
#: Folders of the tests of packages.
_FOLDERS = {"sw": "tests/sw", "hw": "tests/rtl", "constraints": "tests/rtl", "bench": "tests/bench"}
#: As many files of other packages.
_FAR = 40
#: What test files name that simulate compiled RTL, and build it anew for a change of it.
_COMPILED = ("find_library", "RtlTransport", "compile_verilog", "compiled_unit", "compiled=True", 'connect("rtl"')


@dataclass(frozen=True)
class Stage:
    """Tests that are run in one go: files, which marks, and processor seconds after which no other test starts."""

    files: tuple[str, ...]
    marks: str
    seconds: float


def nearest(source: str, sources: Sources, root: Path) -> tuple[list[str], list[str], list[str]]:
    """Test files of a source itself, others of its folder, and those of other folders, the nearest first.

    Its own have the name of the module or its package, or import it; near are those that get to it by few imports.
    """
    path = PurePosixPath(source)
    folder = PurePosixPath(_FOLDERS[path.parts[0]])
    for part in path.parts[2:-1]:
        if not (root / folder / part).is_dir():
            break
        folder /= part
    names = (f"test_{path.stem}", f"test_{path.parent.name}")
    distances = {name: far for name, far in sources.reached([source]).items() if name.startswith("tests/")}
    order = sorted(distances, key=lambda name: (PurePosixPath(name).stem not in names, distances[name], name))
    while not any(name.startswith(f"{folder}/") for name in order) and len(folder.parts) > 2:
        folder = folder.parent
    close = [name for name in order if name.startswith(f"{folder}/")]
    own = [name for name in close if PurePosixPath(name).stem in names or distances[name] <= 1]
    return own, [name for name in close if name not in own], [name for name in order if name not in close]


def stages(source: str, sources: Sources, root: Path) -> list[Stage]:
    """Tests for a change of a source: fast ones close to it and of other packages, then slow ones close to it.

    Those that build a simulation of the RTL come last.
    """
    own, close, far = nearest(source, sources, root)
    texts = {name: (root / name).read_text() for name in (*own, *close)}
    slow = [name for name in texts if "mark.slow" in texts[name]]
    built = [name for name in slow if any(word in texts[name] for word in _COMPILED)]
    plain = [name for name in slow if name not in built]
    fast = [(own, FAST, 30.0), (close, FAST, 40.0), (far[:_FAR], FAST, 60.0)]
    found = [*fast, (plain, SLOW, 90.0), (built, SLOW, 120.0)]
    return [Stage(tuple(files), marks, seconds) for files, marks, seconds in found if files]
