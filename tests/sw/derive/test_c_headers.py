"""Headers of networks in C: what they say of the model, of its inputs and of its outputs, as a compiler reads it."""

import hashlib
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.ir.arrangement import InputGrid
from concord.compiler.model import compile_graph
from concord.derive.c.program import compiler
from concord.derive.c.source import c_files
from concord.derive.c_exact.source import exact_files
from concord.derive.model import derive_package
from concord.frontend.codes import load
from concord.networks.folder import load_package
from concord.spec.presets import TINY
from support.commands import run, two_products
from support.compiled_nets import perceptron
from support.derived_backends import needs_c
from support.onnx_models import model, node

#: Prints what the macros of both headers say.
PROGRAM = """
#include "exact.h"
#include "plain.h"
#include <stdio.h>
#include <string.h>

static const char model[] = EXACT_MODEL_SHA256;

int main(void)
{
    static exact_inputs inputs;
    for (int k = 0; k < EXACT_IMAGE_SIZE; ++k)
        inputs.image[k] = (uint8_t)(0.5 / EXACT_IMAGE_SCALE + EXACT_IMAGE_ZERO + 0.5); /* the code of 0.5 */
    printf("%d %.17g %d %s\\n", inputs.image[0], EXACT_SCORES_SCALE, EXACT_SCORES_ZERO, model);
    printf("%s %s %s\\n", EXACT_IMAGE_NAME, EXACT_NET_1_NAME, EXACT_SCORES_NAME);
    printf("%s %d %zu\\n", PLAIN_X_2_NAME, PLAIN_X_2_SIZE, strlen(PLAIN_MODEL_SHA256));
    return 0;
}
"""


def codes(folder):
    """The file of a network on codes, with an output whose name is no word of C."""
    constants = {"s": np.float32(0.1), "z": np.uint8(3), "t": np.float32(0.0625), "u": np.uint8(128)}
    nodes = [
        node("QuantizeLinear", ["image", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Relu", ["d"], ["a"]),
        node("QuantizeLinear", ["a", "t", "u"], ["b"]),
        node("DequantizeLinear", ["b", "t", "u"], ["scores"]),
        node("DequantizeLinear", ["q", "s", "z"], ["net.1"]),
    ]
    proto = model(nodes, {"image": [1, 4]}, constants=constants, outputs=["net.1", "scores"])
    (folder / "codes.onnx").write_bytes(proto.SerializeToString())
    return folder / "codes.onnx"


@pytest.mark.slow
@needs_c
def test_macros_are_those_of_the_model(tmp_path):
    source, brought = codes(tmp_path), two_products(tmp_path) / "net.onnx"
    code, text = run("derive", source, "--exact", "-o", tmp_path / "exact.c")
    assert code == 0, text
    assert run("compile", brought, "--preset", "tiny")[0] == 0
    code, text = run("derive", tmp_path / "net", "--to", "c", "-o", tmp_path / "plain.c")
    assert code == 0, text
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [compiler(), "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[0] == f"8 0.0625 128 {hashlib.sha256(source.read_bytes()).hexdigest()}"
    assert printed[1] == "image net.1 scores"
    assert printed[2] == "x 20 64"
    digest = hashlib.sha256((tmp_path / "net" / "model.onnx").read_bytes()).hexdigest()
    assert f'#define PLAIN_MODEL_SHA256 "{digest}"' in (tmp_path / "plain.h").read_text()
    assert (tmp_path / "net" / "model.onnx").read_bytes() == brought.read_bytes()


def test_a_model_that_is_not_known_has_no_hash(tmp_path):
    assert run("compile", two_products(tmp_path) / "net.onnx", "--preset", "tiny")[0] == 0
    plain = c_files(derive_package(load_package(tmp_path / "net")), "net").header
    exact = exact_files(load(codes(tmp_path)).graph, "net").header
    assert "SHA256" not in plain and "SHA256" not in exact
    assert "#define NET_IMAGE_SCALE 0.10000000149011612\n#define NET_IMAGE_ZERO 3\n" in exact


def test_inputs_that_are_rounded_to_codes_say_to_which():
    package = compile_graph(perceptron(4, 3), TINY).package
    package = replace(package, arrangement=replace(package.arrangement, grids={"x": InputGrid(-3, -12, 20)}))
    header = c_files(derive_package(package), "net").header
    assert "#define NET_X_2_SCALE 0.125\n#define NET_X_2_LEAST -12\n#define NET_X_2_GREATEST 20\n" in header
