"""One case after the other in a process of its own, with limits of time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

from support.fuzz import commands, generated, link, models, networks, numbers, planted, sizes
from support.fuzz.ends import End
from support.onnx_models import floats, model, node

#: What a case reads, by target; each gets a generator of random numbers, its own folder, and one with good files.
TARGETS = {
    "onnx": lambda rng, folder, given: models.structure(rng, folder),
    "onnx-bytes": lambda rng, folder, given: models.contents(rng, folder),
    "numbers": lambda rng, folder, given: numbers.case(rng, folder),
    "sizes": lambda rng, folder, given: sizes.case(rng, folder),
    "folder": networks.folder,
    "command": commands.line,
    "assembler": commands.assembler,
    "frames": link.frames,
    "link": link.line,
}
#: Networks of another project, which must be installed; not among the targets that are run without being asked for.
GENERATED = "nnsmith"
#: Faults that must be found; not among the targets that are run without being asked for.
PLANTED = "planted"
#: Times the limit of computing that a case of a target has.
PATIENCE = {"sizes": 6}
#: Bytes of memory.
MEMORY = 3 << 30


class Hang(BaseException):
    """A case that takes too long."""


def _hang(number: int, frame: FrameType | None) -> NoReturn:
    raise Hang


def prepare(given: Path) -> None:
    """A model, its compiled folder and samples."""
    import numpy as np

    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="fc"),
        node("Tanh", ["a"], ["b"]),
        node("Softmax", ["b"], ["y"], axis=-1),
    ]
    (given / "net.onnx").write_bytes(model(nodes, {"x": (1, 6)}, constants={"w": floats(6, 3)}).SerializeToString())
    code, output, _ = commands.call("compile", given / "net.onnx", "--preset", "tiny")
    if code:
        raise RuntimeError(f"the network to begin with must compile: {output}")
    np.savez(given / "x.npz", x=np.random.default_rng(1).normal(0, 1, (3, 6)))


def case(target: str, seed: int, number: int, seconds: float, folder: Path, given: Path) -> End:
    """The end of a case; files it leaves are in ``folder``."""
    rng, seconds = random.Random(f"{target}/{seed}/{number}"), seconds * PATIENCE.get(target, 1)
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        if target == GENERATED:
            return generated.case(rng, folder)
        return planted.case(number) if target == PLANTED else TARGETS[target](rng, folder, given)
    except Hang:
        return End("finding", f"more than {seconds:g} s of computing")
    except MemoryError:
        return End("finding", "out of memory")
    except Exception:
        import traceback

        return End("finding", "not even a command:\n" + traceback.format_exc()[-3000:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def work(root: Path) -> None:
    """Cases as lines of JSON on the standard input, their ends on the standard output; files are below ``root``."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever others print
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")
    given, folder = root / "given", root / "case"
    given.mkdir()
    prepare(given)
    os.chdir(root)
    for line in sys.stdin:
        words = json.loads(line)
        folder.mkdir()
        with contextlib.redirect_stdout(sys.stderr):
            end = case(words["target"], words["seed"], words["number"], words["seconds"], folder, given)
        if end.kind == "finding" and words["keep"]:
            shutil.rmtree(words["keep"], ignore_errors=True)
            shutil.copytree(folder, words["keep"], symlinks=True)
        shutil.rmtree(folder)
        answers.write(json.dumps(asdict(end)) + "\n")
        answers.flush()
