"""The generated tables of the reference pages say what the definitions say."""

import shutil

import pytest

from concord.spec import docs, isa
from concord.spec.memmap import Reg
from concord.spec.presets import PRESETS


def test_pages_are_fresh():
    assert docs.stale() == [], "run: make docs"


def test_every_table_stands_on_a_page():
    text = "".join((docs.ROOT / page).read_text() for page in docs.PAGES)
    assert [name for name in docs.TABLES if f"<!-- table: {name} -->" not in text] == []
    assert all(f"### {name}\n" in text for name in PRESETS)


def test_tables_are_complete():
    table = docs.TABLES["fields"]()
    for form in isa.INSTRUCTIONS:
        for field in form.fields.fields:
            assert f"| `{form.mnemonic}` | `{field.name}` |" in table
    assert "| `mv_mul` | `matrix` | 28:11 | 0 .. 262143 |" in table
    assert all(f"`{reg.name}`" in docs.TABLES["registers"]() for reg in Reg)
    assert all(docs.comments(isa.Trap).get(trap.name) for trap in isa.Trap if trap)


def test_old_pages_are_found_and_rewritten(tmp_path, capsys):
    for page in docs.PAGES:
        shutil.copy(docs.ROOT / page, tmp_path)
    assert docs.main(["--check", "--root", str(tmp_path)]) == 0
    page = tmp_path / "isa.md"
    page.write_text(page.read_text().replace("BAD_OPCODE` |", "BAD_CODE` |"))
    assert docs.main(["--check", "--root", str(tmp_path)]) == 1
    assert "isa.md: out of date" in capsys.readouterr().out
    assert docs.main(["--root", str(tmp_path)]) == 0
    assert page.read_text() == (docs.ROOT / "isa.md").read_text()


def test_the_readme_lists_the_presets():
    text = (docs.ROOT.parent / "README.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in text.splitlines() if line.startswith("| `")]
    want = [[f"`{name}`", str(c.native), str(c.lanes), str(c.macs)] for name, c in PRESETS.items()]
    assert rows[: len(want)] == want
    large = PRESETS["ecp5-85f"]
    weights = large.matrix_depth * large.rows * large.lanes
    elements = (large.narrow_depth + large.wide_depth) * large.native
    assert f"{weights:,} weights and {elements // 1024}K vector elements on chip" in text


def test_unknown_tables_are_refused():
    with pytest.raises(ValueError, match=r"table must be one of .*, not 'foo'"):
        docs.render("<!-- table: foo -->\n<!-- end -->")
