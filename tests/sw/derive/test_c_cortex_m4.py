"""Programs on an emulated Cortex-M4: it computes what it must, and programs that need more than it has are noticed.

The networks are compared where other compilers are, by the same tests.
"""

import subprocess

import numpy as np
import pytest

from support.c_compilers import words
from support.exact_graphs import GraphDraw
from support.frameworks import needs
from sw.derive import test_c_exact

#: Products of halves of a word, which smaller processors do not have.
SUM = """unsigned sum;
    __asm__ volatile("smlad %0, %1, %2, %3" : "=r"(sum) : "r"(0x20003), "r"(0x50007), "r"(1));"""
pytestmark = [needs("cortex-m4"), pytest.mark.deep]


def built(text, folder, *options):
    (folder / "small.c").write_text(text)
    line = [*words("cortex-m4"), "-std=c99", "-Os", *options, "small.c", "-o", "small"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def ran(text, folder):
    done = built(text, folder)
    assert not done.returncode, done.stderr
    return run_of(folder)


def run_of(folder):
    return subprocess.run([folder / "small", "12"], cwd=folder, capture_output=True, text=True, check=False)


def test_means_of_codes(tmp_path):
    """They have quotients of 64 bits."""
    draw = GraphDraw(1)
    draw.average((3, 5, 5), (2, 2))
    assert test_c_exact.compare(draw.graph, draw.samples(20), tmp_path, "cortex-m4", ("-Os",)) > 500


def test_it_is_a_cortex_m4(tmp_path):
    """An instruction of its own; words of the command line arrive."""
    text = "#include <stdlib.h>\n" + f"int main(int n, char **words) {{ {SUM} return (int)sum + n * atol(words[1]); }}"
    assert ran(text, tmp_path).returncode == 2 * 5 + 3 * 7 + 1 + 2 * 12


@pytest.mark.parametrize(
    "text, reason",
    [
        ('__asm__ volatile(".inst.w 0xEF200800");', "Invalid instruction"),  # sums of vectors
        ('__asm__ volatile(".inst.w 0xEE300B00");', "Invalid instruction"),  # sums of binary64
        ("return *(volatile int *)0x10000000;", "Invalid memory read"),
        ("*(volatile int *)0x08000000 = 1;", "Write to write-protected memory"),
        ("((void (*)(void))0x20000001)();", "Fetch from non-executable memory"),
        ('__asm__ volatile("svc 3");', "exceptions must be breakpoints that ask for something, not number 2"),
    ],
)
def test_what_it_does_not_have(text, reason, tmp_path):
    done = ran(f"int main(void) {{ {text} return 0; }}", tmp_path)
    assert done.returncode == 255 and f"small.elf: {reason}" in done.stderr


@pytest.mark.parametrize(
    "result, name",
    [
        ("(int)(count * 1.5f)", "__aeabi_fmul"),
        ("(int)(count * 1.5)", "__aeabi_dmul"),
        ("(int)__builtin_sqrt(count)", "sqrt"),
    ],
)
def test_functions_of_libraries_are_not_there(result, name, tmp_path):
    done = built(f"int main(int count, char **words) {{ (void)words; return {result}; }}", tmp_path)
    assert done.returncode and f"undefined symbol: {name}\n" in done.stderr


def test_undefined_behaviour_is_noticed_without_optimisation(tmp_path):
    text = "int main(int count, char **words) { (void)words; return count + 0x7FFFFFFF; }"
    assert not built(text, tmp_path, "-O0").returncode
    done = run_of(tmp_path)
    assert done.returncode == 255 and "Invalid instruction" in done.stderr


def test_division_of_64_bits(tmp_path):
    """It is the only function that the processor has none of, and the compiler calls, but for those of memory."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 1 << 64, (2, 200), np.uint64) >> rng.integers(0, 64, (2, 200)).astype(np.uint64)
    a, b = [*map(int, a)], [int(x) or 1 for x in b]
    a, b = [*a, 2**64 - 1, 2**64 - 1, 2**63, 0], [*b, 2**64 - 1, 1, 2**63 + 1, 5]
    rows = "\n".join(f"{{{x}u, {y}u, {x // y}u, {x % y}u}}," for x, y in zip(a, b, strict=True))
    text = f"""#include <stdint.h>
        static const volatile uint64_t rows[][4] = {{{rows}}};
        int main(void) {{
            int wrong = 0;
            for (int k = 0; k < {len(a)}; ++k) {{
                const uint64_t a = rows[k][0], b = rows[k][1];
                wrong += a / b != rows[k][2] || a % b != rows[k][3];
            }}
            return wrong;
        }}"""
    assert ran(text, tmp_path).returncode == 0
