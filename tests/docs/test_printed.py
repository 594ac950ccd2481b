"""What pages show of a terminal is what their commands print: blocks that begin with ``$`` and a command."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from concord_bench.reach.networks import NETWORKS
from concord_bench.tasks import TASKS, load
from support.onnx_models import mlp
from support.trained import DATA, needs_data

PAGES = Path(__file__).parents[2] / "docs"
#: Pages with such blocks; the tutorial has a test of its own.
SHOWING = ["compiler.md", "fit.md"]
#: First commands of blocks that take long: they compile for many configurations, or search for formats.
LONG = ("concord compile mnist.onnx", "concord compile kws_gru154.onnx", "concord fit kws_dscnn.onnx")
#: Characters of a line of the terminal that the pages show.
WIDTH = "118"


def sessions(text):
    """Of every block that shows a terminal, the commands with what they print."""
    for block in re.findall(r"^```\n(\$ .*?)^```", text, re.M | re.S):
        yield [(part.partition("\n")[0], part.partition("\n")[2]) for part in re.split(r"^\$ ", block, flags=re.M)[1:]]


def words(text):
    """A text without its lines and columns; times of passes and the length of rules depend on the machine."""
    times = re.sub(r"^( +[a-z]\D*?) +\d+\.\d\b", r"\1 0.0", text, flags=re.M)
    return "".join(f"{word} " for word in re.sub("─+", "─", times).split())


def shows(page, printed):
    """Whether a command prints what a page has, with three dots in the place of words that are left out."""
    pieces = (re.escape(words(piece)) for piece in page.split("..."))
    return re.fullmatch(r"(?:\S+ )*".join(pieces), words(printed)) is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The networks and samples of the pages, in a folder."""
    path = tmp_path_factory.mktemp("printed")
    for name in ("ad_fc_autoencoder", "ic_resnet8", "kws_dscnn", "kws_gru154"):
        shutil.copy(DATA / "models" / f"{name}.onnx", path)
    shutil.copy(DATA / "models" / "digits_mlp.onnx", path / "digits.onnx")
    mnist = next(network for network in NETWORKS if network.name == "pytorch_mnist")
    (path / "mnist.onnx").write_bytes(mnist.build().proto.SerializeToString())
    (path / "mlp.onnx").write_bytes(mlp(784, 300, 10).SerializeToString())
    graph, inputs, labels = load(next(task for task in TASKS if task.model == "kws_dscnn"), DATA)
    np.savez(path / "kws.npz", **{graph.inputs[0]: inputs, "y": labels})
    return path


def blocks():
    """Every block of the pages as parameters of a test."""
    for page in SHOWING:
        for k, session in enumerate(sessions((PAGES / page).read_text())):
            mark = pytest.mark.deep if session[0][0].startswith(LONG) else pytest.mark.slow
            yield pytest.param(session, id=f"{page}-{k}", marks=mark)


@needs_data
@pytest.mark.parametrize("commands", list(blocks()))
def test_commands_print_what_pages_show(commands, folder):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": WIDTH}
    for command, text in commands:
        printed = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        ).stdout  # fmt: skip
        assert shows(text, printed), f"{command}\n{printed}"


def test_no_other_page_shows_a_terminal():
    assert sorted(page.name for page in PAGES.rglob("*.md") if list(sessions(page.read_text()))) == SHOWING
    shown = [[session[0][0] for session in sessions((PAGES / page).read_text())] for page in SHOWING]
    assert min(map(len, shown)) >= 3
    assert all(any(first.startswith(long) for page in shown for first in page) for long in LONG)


PRINTED = "a   1.5\nb 2 of 3 more\n pass        ms\n ─────\n   order here   12.7  24 nodes\n"


@pytest.mark.parametrize(
    "page",
    [
        PRINTED,
        "a 1.5\n...",
        "a ... 2 ...",
        "...\nb 2 of\n3\n...\n",
        "...\n pass  ms\n ──\n   order here  0.1  24 nodes",
    ],
)
def test_a_page_may_leave_out_words_and_break_lines(page):
    assert shows(page, PRINTED)


@pytest.mark.parametrize(
    "page", ["a 1.5", "b 2 of 3 ...", "a 1.6 ...", "... 3 of 2 ...", "... 4 nodes", "a 1.5 ... there 12.7 24 nodes"]
)
def test_other_words_and_numbers_are_noticed(page):
    assert not shows(page, PRINTED)
