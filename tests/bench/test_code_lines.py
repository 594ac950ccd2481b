"""Lines of code, without blank lines, comments and docstrings."""

import pytest
from click.testing import CliRunner

from concord_bench.code_lines import SOURCES, code_lines, main

TEXT = '''"""Docstring
of two lines."""

# a comment
X = """no
docstring"""  # 2 lines


class A:
    """Docstring."""

    b = (
        1,  # these are 4 lines, the comment's among them

        2,
    )

    def c(self):
        "Docstring."
        return "text"  # 1


async def d(): """Docstring beside its function, whose line it takes away."""
'''


@pytest.mark.parametrize(
    ("text", "lines"), [(TEXT, 9), ("", 0), ("# none\n\n", 0), ("x = 1\n'no docstring'\n", 2), ("x = (\n\n1)", 2)]
)
def test_code_lines(text, lines):
    assert code_lines(text) == lines


def test_a_tree_is_counted_by_package(tmp_path):
    for folder in (*SOURCES, f"{SOURCES[0]}/spec", f"{SOURCES[1]}/pipe/deep", "tests"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "one.py").write_text("a = 1\n\nb = 2\n")
    (tmp_path / SOURCES[0] / "empty").mkdir()
    found = CliRunner().invoke(main, ["--root", str(tmp_path)])
    assert found.exit_code == 0, found.output
    rows = {
        line.rpartition(" ")[0].strip(): line.split()[-1] for line in map(str.strip, found.output.splitlines()) if line
    }
    assert rows["sw/concord"] == rows["sw/concord/spec"] == rows["hw/concord_rtl/pipe"] == rows["tests"] == "2"
    assert rows["sw and hw"] == "8" and rows["bench"] == "0" and "sw/concord/empty" not in rows
