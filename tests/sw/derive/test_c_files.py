"""Files in C: what they state, what they need, what they are called, and what is refused."""

import re
import subprocess
from dataclasses import replace
from shutil import which

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.derive import ir
from concord.derive.c.library import called, functions
from concord.derive.c.program import CProgram, compiler
from concord.derive.c.source import c_files, write_c
from concord.derive.model import derive_package
from concord.spec.presets import TINY
from support import compiled_nets
from support.c_models import compare, compare_package, model_of, program
from support.derive_models import MODELS, Maker, flagged, limits, softmax
from support.derived_backends import needs_c
from support.expressions import ROOMY

pytestmark = needs_c


def residual():
    return derive_package(compile_graph(compiled_nets.residual(), ROOMY).package, flags=True)


@pytest.mark.slow
def test_a_damaged_number_is_a_difference(tmp_path):
    """One bit of a weight, of an exponent, of a table."""
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY).package
    model = derive_package(package)
    inputs = {name: np.random.default_rng(1).normal(size=(40, *shape)) for name, shape in model.sources.items()}
    made = program(model, tmp_path)
    want, _ = made.run(inputs)
    text = (tmp_path / "net.c").read_text()
    starts = list(re.finditer(r"static const \w+ (\w+)\[\] CONCORD_(WEIGHTS|TABLES) = \{\n    ", text))
    assert {"weights", "exponents"} <= {match[1].rpartition("_")[2] for match in starts}
    for match in starts:
        number = re.compile(r"-?\d+").match(text, match.end())
        changed = int(number[0]) ^ 4 if int(number[0]) >= 0 else int(number[0]) + 3
        (tmp_path / "net.c").write_text(text[: match.end()] + str(changed) + text[number.end() :])
        results, _ = CProgram(tmp_path / "net.c", model, [compiler()], ["-O0"]).run(inputs)
        assert any(not np.array_equal(results[name], want[name]) for name in want), match[1]


@pytest.mark.slow
def test_memory_is_stated(tmp_path):
    """The numbers of the header are those of the object file."""
    made = c_files(residual(), "net")
    (tmp_path / "net.c").write_text(made.source)
    (tmp_path / "net.h").write_text(made.header)
    subprocess.run([compiler(), "-std=c99", "-O0", "-c", "net.c", "-o", "net.o"], cwd=tmp_path, check=True)
    if which("size") is None:
        pytest.skip("needs size of binutils")
    text = subprocess.run(["size", "-A", "net.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    sizes = {line.split()[0]: int(line.split()[1]) for line in text.splitlines() if re.match(r"\.\w+ +\d", line)}
    macros = dict(re.findall(r"#define NET_(\w+) (\d+)", made.header))
    assert sizes[".bss"] == int(macros["RAM"]) == made.ram
    for name in ("weights", "tables"):
        room = 64 * made.source.count(f"CONCORD_{name.upper()} = ")  # behind arrays
        assert 0 <= sizes[f".concord_{name}"] - int(macros[name.upper()]) < room
    assert int(macros["ROM"]) == int(macros["WEIGHTS"]) + int(macros["TABLES"]) == made.rom


def test_nothing_of_floats_or_of_a_library():
    made = c_files(residual(), "net")
    code = re.sub(r"/\*.*?\*/", "", made.source + made.header, flags=re.DOTALL)
    assert not re.search(r"\b(float|double|malloc|printf|math\.h|stdlib\.h|string\.h)\b", code)
    assert set(re.findall(r"#include (.*)", code)) == {'"net.h"', "<stdbool.h>", "<stddef.h>", "<stdint.h>"}


@pytest.mark.parametrize("name", [*MODELS, "limits"])
def test_functions_that_nobody_calls_are_left_out(name):
    """Clang warns of them, GCC does not."""
    model = limits() if name == "limits" else MODELS[name]()
    for some in (model, flagged(model)):
        code = re.sub(r"/\*.*?\*/", "", c_files(some, "net").source, flags=re.DOTALL)
        defined = re.findall(r"^static inline [\w ]+?\**(\w+)\(", code, re.MULTILINE)
        assert defined and all(len(re.findall(rf"\b{function}\b", code)) > 1 for function in defined)


def test_comments_call_nothing():
    function = next(iter(functions()))
    assert called(f"/* as\n{function}(x) does */ y = 1;") == []
    assert called(f"/* as before */ y = {function}(x);") == [functions()[function]]


@pytest.mark.slow
@pytest.mark.skipif(which("nm") is None, reason="needs nm of binutils")
def test_only_memory_is_called(tmp_path):
    write_c(residual(), tmp_path / "net.c")
    subprocess.run([compiler(), "-std=c99", "-O3", "-c", "net.c", "-o", "net.o"], cwd=tmp_path, check=True)
    text = subprocess.run(["nm", "-u", "net.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {*text.split()} <= {"U", "memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}


@pytest.mark.slow
def test_sections_may_be_left_out(tmp_path):
    model = residual()
    options = ["-O0", "-DCONCORD_WEIGHTS=", "-DCONCORD_TABLES=", "-DCONCORD_ARENA=__attribute__((aligned(16)))"]
    rng = np.random.default_rng(1)
    inputs = {name: rng.normal(size=(2, *shape)) for name, shape in model.sources.items()}
    compare(model, inputs, tmp_path, options=options)


@pytest.mark.slow
def test_several_samples_in_a_run(tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY, batch=4).package
    assert "NET_SAMPLES 4" in c_files(derive_package(package), "net").header
    compare_package(package, program(model_of(package), tmp_path), 6)


def test_what_the_host_computes_is_refused(tmp_path):
    model = MODELS["data_movement"]()
    with pytest.raises(
        ValueError, match=r"nothing in C that the host computes behind the NPU, not .*Softmax; --npu-part"
    ):
        write_c(softmax(), tmp_path / "net.c")
    write_c(softmax().npu_part, tmp_path / "net.c")
    for name in ("Net.c", "1.c", "net.txt"):
        with pytest.raises(ValueError, match=r"output must be a file like net\.c"):
            write_c(model, tmp_path / name)


def test_an_operation_without_a_form_is_refused():
    """By its kind and its layer."""

    class Turn(ir.Unary):
        """Unknown."""

    m = Maker()
    x = m.input((3,))
    model = m.model(x)
    nodes = list(model.body)
    nodes.insert(-1, Turn(output=ir.Value("turned", (3,)), layer="spin", x=x))
    with pytest.raises(ValueError, match="Turn of spin has no form in C"):
        c_files(replace(model, body=ir.Body(tuple(nodes))), "net")


@pytest.mark.parametrize("odd", ["int", "class", "arena", "half_add", "2", "a b", "é", "*/", "net", "main", "run"])
def test_odd_names(odd, tmp_path):
    """Of layers, inputs and outputs."""
    m = Maker()
    m.layer = odd
    x = m.input((2, 4))
    block = m.quantise(x, (4,))
    model = m.model(m.product(ir.MatMul, block, np.arange(8).reshape(2, 4), (2, 2)))
    names = dict(zip(model.names, (odd, odd + "*/"), strict=True))
    model = replace(flagged(model), names=names)
    inputs = {odd: np.random.default_rng(1).normal(size=(3, 2, 4))}
    compare(model, inputs, tmp_path)


def test_the_command(tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), TINY).package
    package.image.save(tmp_path / "npu.image")
    words = ["derive", str(tmp_path / "npu.image"), "--to", "c", "-o", str(tmp_path / "net.c")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0 and "2 layers, " in done.output
    assert "PLACES" in (tmp_path / "net.h").read_text()
    done = CliRunner().invoke(main, [*words, "--no-flags", "--npu-part"])
    assert done.exit_code == 0 and "PLACES" not in (tmp_path / "net.h").read_text()
    for name, option in (("model.py", "--npu-part"), ("net.c", "--bytes=x=0,1")):
        done = CliRunner().invoke(
            main, [*words[:2], "--to", "numpy" if name == "model.py" else "c", "-o", str(tmp_path / name), option]
        )
        assert done.exit_code == 1 and "is for" in done.output.replace("are for", "is for")


_SEVERAL = """
#include "net.h"
#include <string.h>
int main(void)
{
    static net_inputs inputs[5];
    static net_outputs single[5], together[5];
    uint8_t flags[NET_PLACES] = {0}, same[NET_PLACES] = {0};
    for (size_t k = 0; k < sizeof inputs / 2; ++k) {
        ((uint16_t *)inputs)[k] = (uint16_t)(k * 40503u & 0xBFFFu);
    }
    for (int k = 0; k < 5; ++k) {
        net_run(inputs + k, single + k, flags);
    }
    net_run_all(inputs, together, same, 5);
    if (!memcmp(single, single + 1, sizeof *single)) {
        return 2;
    }
    return memcmp(single, together, sizeof single) || memcmp(flags, same, sizeof flags);
}
"""


def test_several_samples_at_once(tmp_path):
    write_c(residual(), tmp_path / "net.c")
    (tmp_path / "main.c").write_text(_SEVERAL)
    subprocess.run([compiler(), "-std=c99", "-O0", "main.c", "net.c", "-o", "several"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "several"], check=True)


@pytest.mark.skipif(which("g++") is None, reason="needs g++")
def test_a_header_for_cpp(tmp_path):
    """Also where inputs and outputs are called like words of C++."""
    m = Maker()
    model = m.model(m.input((3,)))
    value = ir.Value("template", (3,), ir.Type.REAL)
    node = replace(model.body.nodes[-1], output=value)
    names = {model.inputs[0].name: "x", "template": "template"}
    model = replace(model, body=ir.Body((*model.body.nodes[:-1], node)), outputs=(value,), names=names)
    write_c(model, tmp_path / "net.c")
    (tmp_path / "main.cpp").write_text(
        '#include "net.h"\nint main() { return sizeof(net_outputs) != 2 * NET_TEMPLATE_2_SIZE; }\n'
    )
    command = ["g++", "-Wall", "-Wextra", "-pedantic", "-Werror", "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], check=True)
