"""Names of inputs, outputs and layers come from files of others: none of them reaches the terminal as it is."""

import numpy as np
import pytest

from concord.cli.common import TerminalConsole, echo
from support.commands import run
from support.onnx_models import floats, model, node

#: Colours, a title of the window, the line in front overwritten, a bell, letters in the other direction.
EVIL = "a\x1b[31mb\x1b]0;title\x07c\rd\x08e\u202ef\x9b2J"
ESCAPED = r"a\x1b[31mb\x1b]0;title\x07c\rd\x08e\u202ef\x9b2J"


@pytest.fixture
def network(tmp_path):
    """A network in which everything has such a name, with samples, labels, and a copy of what it was compiled to."""
    x, y = f"{EVIL}x", f"{EVIL}y"
    nodes = [
        node("MatMul", [x, "w"], [f"{EVIL}h"], name=f"{EVIL}first"),
        node("Tanh", [f"{EVIL}h"], [f"{EVIL}t"], name=f"{EVIL}second"),
        node("MatMul", [f"{EVIL}t", "v"], [y], name=f"{EVIL}third"),
    ]
    proto = model(nodes, {x: (1, 6)}, outputs=[y], constants={"w": floats(6, 5), "v": floats(5, 3)})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(tmp_path / "x.npz", **{x: np.random.default_rng(1).normal(size=(20, 6))})
    np.savez(tmp_path / "large.npz", **{x: np.full((20, 6), 6e4)})
    return tmp_path


def clean(code, output, name=False):
    """No character that is not printable; and the name as text, where no table breaks it into lines."""
    assert all(c.isprintable() or c == "\n" for c in output), ascii(output)
    assert not name or ESCAPED in output.replace("\n", ""), ascii(output)
    return code


@pytest.mark.slow
def test_no_command_shows_them_as_they_are(network):
    net, x, y = network / "net", network / "x.npz", network / "y.npz"
    compiled = run("compile", network / "net.onnx", "--preset", "tiny", "-v", "--calibrate", x, "-o", net)
    assert clean(*compiled) == 0
    assert clean(*run("inspect", net)) == 0
    assert clean(*run("inspect", net, "--only", "types")) == 0
    assert clean(*run("types", network / "net.onnx", "-o", network / "typed.onnx")) == 0
    assert clean(*run("run", net, "-i", x, "-o", y)) == 0
    assert clean(*run("run", net, "-i", network / "large.npz", "-o", y)) == 0, "a table of flags"
    assert clean(*run("run", net, "-i", y, "-o", network / "z.npz"), name=True) == 1, "an error that names inputs"
    assert clean(*run("overflow", net, "-i", x)) == 0
    assert clean(*run("report", net, "-i", x)) == 0
    assert clean(*run("prove", net, "--with", "numpy")) == 0
    assert clean(*run("data", "to-native", net, x, "-o", network / "d.npz")) == 0


def test_printing(capsys):
    echo(EVIL)
    echo(EVIL, err=True)
    console = TerminalConsole(markup=False, width=200, force_terminal=True)
    console.print(EVIL)
    captured = capsys.readouterr()
    assert captured.err == ESCAPED + "\n"
    assert captured.out.splitlines()[0] == ESCAPED
    assert "\x1b]" not in captured.out and "\x1b[31m" not in captured.out and "\x9b" not in captured.out
