"""Pages say what is so: generated tables agree with the definitions, links and names lead somewhere."""

import ast
import importlib
import re
import shutil
from functools import cache

import pytest

from concord.spec import docs, isa
from concord.spec.memmap import Reg
from concord.spec.presets import PRESETS
from concord_bench.pictures.sources import statements

ROOT = docs.ROOT.parent
# Not the changelog, which speaks of what was.
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs.ROOT.rglob("*.md"), *docs.ROOT.rglob("*.ipynb")])


README = (ROOT / "README.md").read_text(encoding="utf-8")

#: Folders with sources.
TOPS = ("sw", "hw", "sim", "tests", "docs", "constraints")


def test_pages_are_fresh():
    assert docs.stale() == [], "run: make pages"


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


def test_the_page_of_the_boards_lists_the_presets():
    text = (docs.ROOT / "boards.md").read_text().partition("\n## Presets\n")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in text.splitlines() if line.startswith("| `")]
    want = [[f"`{name}`", str(c.native), str(c.lanes), str(c.macs)] for name, c in PRESETS.items()]
    assert rows[: len(want)] == want
    large = PRESETS["ecp5-85f"]
    weights = large.matrix_depth * large.rows * large.lanes
    elements = (large.narrow_depth + large.wide_depth) * large.native
    assert f"{weights:,} weights and {elements // 1024}K vector elements on chip" in text


def test_the_readme_is_read_in_two_minutes():
    assert len(README.encode()) <= 5000
    assert README.index("| ResNet-8") < README.index("\n## ")  # results are on the first screen


def test_results_of_the_readme_are_those_of_the_page():
    """Accuracies, rates at the link and of the core, notes included, are in rows of docs/bench.md."""
    page = (docs.ROOT / "bench.md").read_text()
    rows = re.findall(r"^\| (\S+) \| ecp5-85f-\w+ \| (.*) \| same \|$", page, re.MULTILINE)
    lines = [[cell.strip() for cell in line.split("|")] for line in README.splitlines() if line.count("|") == 6]
    results = {cells[1].split()[0].rstrip(","): cells[2:5] for cells in lines}
    names = {"ResNet-8": "ic_resnet8", "DS-CNN": "kws_dscnn", "MobileNet-0.25": "vww_mobilenetv1_025"}
    for name, model in {**names, "autoencoder": "ad_fc_autoencoder"}.items():
        (cells,) = ([cell.strip() for cell in row.split("|")] for found, row in rows if found == model)
        exact, score, batch, core = (cells[at] for at in (0, 1, 2, 7))
        note = cells[10].partition(" ")[2]  # of the clock
        here = f"{score} ({exact})"
        if model != "ad_fc_autoencoder":
            here = f"{100 * float(score):.2f} % ({100 * float(exact):.2f} %)"
        assert results[name] == [here, batch, f"{core} {note}".strip()], name


def test_unknown_tables_are_refused():
    with pytest.raises(ValueError, match=r"table must be one of .*, not 'foo'"):
        docs.render("<!-- table: foo -->\n<!-- end -->")


def slugs(text):
    """Anchors of the headings of a page, as source browsers and the site make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    """Relative links of a page that lead to no file, or to no heading of one."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in slugs(target.read_text()))):
            yield link


def missing_paths(page):
    """Paths in the folders of the project that a page names and that are not there; ``*`` stands for any name."""
    folders = r"(?<![\w./-])((?:sw|hw|sim|docs|tests|constraints|\.ci|\.github)/[\w./*-]*)"
    for path in re.findall(folders, page.read_text()):
        if not any(ROOT.glob(path.rstrip("./"))):
            yield path


def missing_files(page):
    """Source files that a page names by the end of their path, as within a package, and that are not there."""
    names = r"(?<![\w./*-])((?:[\w*-]+/)+[\w*-]+\.(?:py|toml|cpp|css|j2|casm))\b"
    for path in re.findall(names, page.read_text()):
        if not path.startswith("build/") and not any(next(ROOT.glob(f"{top}/**/{path}"), None) for top in TOPS):
            if not any(ROOT.glob(path)):
                yield path


def is_there(name):
    """Whether a dotted name is there; taken for granted within a module that needs a package that is not installed."""
    found, path = importlib.import_module(name.partition(".")[0]), name.partition(".")[0]
    for part in name.split(".")[1:]:
        path += f".{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(path)
            except ModuleNotFoundError as error:
                return not (error.name or "").startswith("concord")
        found = getattr(found, part)
    return True


def missing_names(page):
    """Names of the project's packages that a page has in code and that cannot be found."""
    for name in re.findall(r"\b(concord(?:_rtl|_boards)?(?:\.\w+)+)\b", page.read_text()):
        if not is_there(name):
            yield name


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_pages_name_is_there(page):
    assert list(broken_links(page)) == []
    assert list(missing_paths(page)) == []
    assert list(missing_files(page)) == []
    assert list(missing_names(page)) == []


def test_the_page_about_tests_says_what_runs_before_a_change_lands():
    steps = set(re.findall(r"^step make --no-print-directory (\w+)", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    (row,) = re.findall(r"^\| `\.ci/run` \|.*$", (docs.ROOT / "testing.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make (\w+)`", row)) == steps - {"setup"}


def test_what_is_not_there_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n[a](gone.md) [b](#a-page) [c](#gone) `tests/gone.py` `tests/docs/test_*es.py`\n"
        "`concord.spec.isa.Trap` `concord.spec.isa.Gone` `concord.gone.Trap`\n"
        "`lowering/rules.py` `lowering/table.py` `build/gone.py` `tests/docs/test_pages.py` `gone.py`\n"
    )
    assert list(broken_links(page)) == ["gone.md", "#gone"]
    assert list(missing_paths(page)) == ["tests/gone.py"]
    assert list(missing_names(page)) == ["concord.spec.isa.Gone", "concord.gone.Trap"]
    assert list(missing_files(page)) == ["tests/gone.py", "lowering/table.py"]


def tags(text):
    """Source tags of a docstring or page: words in brackets that are no links, indices or headings of TOML."""
    prose = re.sub(r"^```.*?^```|``.*?``|`[^`\n]*`|^\s*\[\w+\]$", "", text, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"(?<![\w\]!])\[\[?([a-z][a-z0-9-]*)\](?:\(references\.md#\1\)\])?(?![(\[\w])", prose))


@cache
def tree(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


def docstrings(path):
    """Texts that document the module, classes and functions of a file."""
    for node in (tree(path), *statements(tree(path))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.slow
def test_tags_are_references():
    entries = set(re.findall(r"^### (.+)$", (docs.ROOT / "references.md").read_text(), re.MULTILINE))
    sources = [path for folder in ("sw", "hw", "constraints") for path in (ROOT / folder).rglob("*.py")]
    used = {tag: path for path in sources for text in docstrings(path) for tag in tags(text)}
    used |= {tag: page for page in PAGES for tag in tags(page.read_text())}
    assert {tag: str(path) for tag, path in used.items() if tag not in entries} == {}
    assert entries - set(used) == set()


def test_tags_are_told_from_links_and_indices():
    text = "[one-tag] [two]: and [[three](references.md#three)], not [a](b.md), x[i], `[c]`, ``[d]``\n\n    [table]\n"
    assert tags(text) == {"one-tag", "two", "three"}


def test_every_page_is_on_the_map():
    listed = re.findall(r"^[\w/-]+$", (docs.ROOT / "index.md").read_text(), re.MULTILINE)
    pages = {str(page.relative_to(docs.ROOT).with_suffix("")) for page in PAGES if docs.ROOT in page.parents}
    assert sorted(listed) == sorted(pages - {"index"})


#: Names that stood for terms of the field, by folder: they must not come back as modules, classes, functions or
#: variables.
OLD_NAMES = {
    "sw/concord/compiler": (
        "Apart band Banded banded Bands bands born centre centres Contents contents Curve curve curves dies "
        "gone Grid in_bands in_strips judged Life lives meet Meeting meeting mixing movable Norms "
        "norms remedies Remedy row_step set_apart Side spare_lanes Spreading Stage Step "
        "steps_in_time strip STRIPS Strips strips tail turned turns"
    ),
    "sw/concord/report": "bands Part Prefix plain",
    "sw/concord": (
        "allot check_contents ContentError Enclosure enclosure ENCLOSURES enclosures Floats Raised settle "
        "settled settles Sheet sheet Station station tenant tenants Twin twin twins acc_to_half F64 FloatTwin "
        "HALF_FRAC HALF_INF HALF_MAX_BITS HALF_NAN HALF_PRECISION HALF_WIDTH round_half to_half told_as ToHalf"
    ),
    "sw/concord/functions": "alone enclose Part part parts",
    "sw/concord/derive": "Grid Movers tail tail_lines turn Turns turns write_tail",
    "sw/concord/emulator": "follow Part spoilt",
    "sw/concord/host": "OutOfStepError tell way",
    "sw/concord/image": "few_of Fill fills half_outbox Part Send sends",
    "sw/concord/prove": "alone Left ON_MACHINES OnMachine Steps TWINS",
    "sw/concord/train": "epoch_over Pass Site stepped Watch watch",
    "hw/concord_rtl": "AccToHalf Floats HalfAdd HalfMul NarrowToHalf SerialPipe Stage Station station Stations",
}


def names_in(path):
    """Names that a file defines or uses, its own included, and what it imports."""
    yield path.stem
    for node in ast.walk(tree(path)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield from name.split(".")


@pytest.mark.slow
def test_old_names_do_not_come_back():
    found, old = set(), {ROOT / folder: set(names.split()) for folder, names in OLD_NAMES.items()}
    for path in (path for top in ("sw", "hw") for path in (ROOT / top).rglob("*.py")):
        banned = set().union(*(names for folder, names in old.items() if folder in path.parents))
        found |= {f"{path.relative_to(ROOT)}: {name}" for name in names_in(path) if name.lstrip("_") in banned}
    assert found == set()


def test_names_of_a_file_are_found(tmp_path):
    path = tmp_path / "one.py"
    path.write_text("from a.two import three as b\nclass Four:\n    five = six.seven(eight=0)\ndef _nine(ten): pass\n")
    want = {"one", "two", "three", "Four", "five", "six", "seven", "eight", "_nine", "ten"}
    assert want <= set(names_in(path))
