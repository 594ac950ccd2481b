"""What pages are made of: texts of numbers, and that the style has every class that a bar may be of."""

import re
from importlib.resources import files

import pytest

from concord.display import pages
from concord.display.pages import number, percent, shape
from concord.display.terminal import counted

TEMPLATES = {package: files(f"concord.{package}") / "templates" for package in ("report", "prove", "overflow", "live")}
FRAME = files("concord.display") / "templates"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0 %"), (1.0, "100 %"), (0.1234, "12.3 %"), (0.01234, "1.23 %"), (1e-6, "< 0.01 %"),
                        (0.0008, "0.08 %"), (None, "not finite")],
)  # fmt: skip
def test_percentages(share, text):
    assert percent(share) == text


def test_numbers():
    assert (number(1234567), number(0.123456), number(None)) == ("1,234,567", "0.1235", "not finite")


def test_counts():
    assert [counted(n, "samples") for n in (0, 1, 2000)] == ["0 samples", "1 sample", "2,000 samples"]


def test_shapes():
    assert (shape((2, 3)), shape(())) == ("2 × 3", "scalar")


def test_names_are_escaped_in_the_frame():
    page = pages.render("concord.display", "page.html.j2", title="<b>", figures=[pages.Figure("<i>", "&", '"')])
    assert "<title>&lt;b&gt;</title>" in page and "&lt;i&gt;" in page and "<i>" not in page


def test_a_name_without_a_value_is_an_error():
    with pytest.raises(Exception, match="figures"):
        pages.render("concord.display", "page.html.j2", title="x")


@pytest.mark.parametrize("package", TEMPLATES)
def test_every_class_of_a_page_has_a_style(package):
    style = (FRAME / "style.css").read_text()
    page = "".join(file.read_text() for file in (*TEMPLATES[package].iterdir(), FRAME / "parts.html.j2"))
    classes = {name for text in re.findall(r'class="([^"{]*)"', page) for name in text.split()}
    assert classes and {name for name in classes if f".{name}" not in style} == set()
