"""The command line as tests call it, and a small model for it."""

import signal
import subprocess
import sys

import numpy as np
from click.testing import CliRunner

from concord.cli.main import main
from support.onnx_models import model, node

#: Samples that :func:`two_products` writes.
SAMPLES = 300
#: The command as a program of its own that says when it begins.
_PROGRAM = """
import sys
sys.argv[0] = "concord"
from concord.__main__ import main
print("ready", flush=True)
main()
"""


def run(*arguments, command=main):
    """Run the command; returns exit code and everything it printed."""
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def begin(*words, on_interrupt=signal.default_int_handler):
    """The command, as far as its first own line; it inherits whether interruptions are ignored, as behind ``&``."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *map(str, words)], **pipes)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout.readline() == b"ready\n"
    return process


def two_products(folder):
    """``net.onnx`` with layers first and second, samples ``x.npz``, and ``xy.npz`` with right labels, too."""
    rng = np.random.default_rng(1)
    v, w = (rng.normal(0, scale, shape).astype(np.float32) for scale, shape in ((0.2, (20, 8)), (0.4, (8, 3))))
    nodes = [node("MatMul", ["x", "v"], ["a"], name="first"), node("Relu", ["a"], ["b"]),
             node("MatMul", ["b", "w"], ["y"], name="second")]  # fmt: skip
    proto = model(nodes, {"x": (1, 20)}, constants={"v": v, "w": w})
    (folder / "net.onnx").write_bytes(proto.SerializeToString())
    x = rng.normal(0, 1, (SAMPLES, 20))
    np.savez(folder / "x.npz", x=x)
    np.savez(folder / "xy.npz", x=x, y=(np.maximum(x @ v, 0) @ w).argmax(axis=1))
    return folder
