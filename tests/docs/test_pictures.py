"""Pictures made from data show all of it as it is now, and their texts stay in their places."""

import re
from collections import Counter
from functools import cache
from itertools import combinations
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from matplotlib import get_data_path
from PIL import ImageFont

from concord.compiler.pipeline.column import LOWER, ONE_PIECE, PREPARE, ROW_TILING, TABLES
from concord.cycles import count
from concord.frontend.importer import IMPORT
from concord.host.frames import Frame
from concord.program.assembler import assemble
from concord.spec import docs, link
from concord.spec.fields import Layout
from concord.spec.isa import PipelineStage
from concord.spec.memmap import Reg, regions
from concord.spec.presets import ECP5_85F_256, PRESETS
from concord_bench.pictures import kit
from concord_bench.pictures.__main__ import FOLDER, PICTURES, main
from concord_bench.pictures.kit import Line, Picture, text_width, wrapped
from concord_bench.pictures.pipe import units
from concord_bench.pictures.sources import PACKAGES, ROOMS

REGIONS = regions(ECP5_85F_256)
LINK_LAYOUTS = [layout for layout in vars(link).values() if isinstance(layout, Layout)]
PIPELINES = (IMPORT, PREPARE, TABLES, LOWER, ONE_PIECE, ROW_TILING)
#: What must stand in a picture, by its name.
NAMES = {
    "frame": [
        *(field.name for layout in LINK_LAYOUTS for field in layout.fields),
        *(f"{int(kind)} {kind.name}" for kind in link.Kind),
        *("status", "payload", "words", "crc", "flag"),
    ],
    "layers": [*PACKAGES, *ROOMS],
    "memory": [
        *(f"{int(key)} {key.name}" for key in (*REGIONS, *Reg)),
        *(str(r.word.width) for r in REGIONS.values()),
    ],
    "passes": [
        name
        for pipeline in PIPELINES
        for name in (
            pipeline.name,
            pipeline.takes.__name__,
            *(step.makes.__name__ for step in pipeline.passes if step.makes),
            *(value for step in pipeline.passes for value in step.values),
        )
    ],
    "pipe": [stage.name for stage in PipelineStage],
}
#: Least size of letters, and least contrast of a text and its ground [WCAG 2.2, 1.4.3].
LEAST_SIZE, LEAST_CONTRAST = 12, 4.5


def parsed(svg):
    return ElementTree.fromstring(svg)


@cache
def drawn(name):
    return PICTURES[name]().svg()


def texts(root):
    """Words and rectangle (left, top, right, bottom) of every text, as wide as it may be."""
    for element in root.iter(f"{{{kit.SVG}}}text"):
        size = float(element.get("font-size"))
        width = text_width(element.text, size, "bold" in element.get("class").split())
        x, base = float(element.get("x")), float(element.get("y"))
        left = x - {"start": 0, "middle": width / 2, "end": width}[element.get("text-anchor")]
        yield element, (left, base - 0.8 * size, left + width, base + 0.25 * size)


def rectangle(element):
    x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def within(inner, outer):
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def apart(first, second):
    return first[2] <= second[0] or second[2] <= first[0] or first[3] <= second[1] or second[3] <= first[1]


def misplaced(svg):
    """Texts that leave the picture or their box, or that meet another text, a bar or the box of others."""
    root = parsed(svg)
    places = list(texts(root))
    view = [float(number) for number in root.get("viewBox").split()]
    yield from (text.text for text, place in places if not within(place, (0, 0, *view[2:])))
    areas = [(rectangle(bar), []) for bar in root.findall(f"{{{kit.SVG}}}rect") if "full" in bar.get("class")]
    for group in root.iter(f"{{{kit.SVG}}}g"):
        box = rectangle(group.find(f"{{{kit.SVG}}}rect"))
        own = [text for text in group if text.tag.endswith("text")]
        areas.append((box, own))
        yield from (text.text for text, place in places if text in own and not within(place, box))
    for text, place in places:
        yield from (text.text for box, own in areas if text not in own and not apart(place, box))
    yield from (a.text for (a, first), (_, second) in combinations(places, 2) if not apart(first, second))


def missing(svg, names):
    """Names that stand nowhere in the texts of a picture."""
    said = " ".join(text.text for text, _ in texts(parsed(svg)))
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said)]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_it_is_drawn_now(name):
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert svg == drawn(name), "run: make pages"
    assert parsed(svg).get("viewBox").startswith(f"0 0 {kit.WIDTH} ")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_all_of_its_data(name):
    assert missing((FOLDER / f"{name}.svg").read_text(encoding="utf-8"), NAMES[name]) == []


def cycles(config, function):
    """Of a run of one vector through the tile engines and a function, to narrow memory."""
    program = assemble(f"v_rd narrow, 0\nmv_mul 0\n{function}\nv_wr narrow, 8\nhalt")
    return count(program, config).cycles - config.steps


def test_the_pipe_is_as_long_as_in_the_model_of_cycles():
    """Registers that are not drawn, and the sequencer, take the same cycles in every configuration."""
    configs = [config for config in PRESETS.values() if not config.serial]
    drawn = [sum(latency for _, _, stages in units(config) for _, latency in stages) for config in configs]
    assert len(set(drawn)) > 1
    assert len({cycles(c, "v_tbl 0, unit=1") - total for c, total in zip(configs, drawn, strict=True)}) == 1
    sooner = {cycles(config, "v_tbl 0, unit=1") - cycles(config, "v_relu") for config in configs}
    assert (
        missing((FOLDER / "pipe.svg").read_text(encoding="utf-8"), [f"{value} cycles earlier" for value in sooner])
        == []
    )


def boxes(name):
    """Lines of the texts in every box of a picture."""
    for group in parsed((FOLDER / f"{name}.svg").read_text(encoding="utf-8")).iter(f"{{{kit.SVG}}}g"):
        yield [text for text in group if text.tag.endswith("text")]


def test_every_package_and_room_is_drawn_once():
    packages = Counter(line.text for (line,) in boxes("layers"))
    assert packages == Counter((*PACKAGES, *ROOMS, "concord.spec"))


def test_the_request_is_drawn_as_it_is_sent():
    cells = [line.text for line, *others in boxes("frame") if not others]
    content = bytes.fromhex("04 7e0000 0200")  # region, address and count as the page has them
    assert bytes.fromhex("".join(cells)) == Frame(1, link.Kind.READ, content).encode()
    assert bytes.fromhex("".join(cells)).hex(" ") in (docs.ROOT / "link.md").read_text()


def test_every_pass_is_drawn_as_often_as_it_runs():
    passes = Counter(line.text for line, *_ in boxes("passes") if "bold" not in line.get("class"))  # bold: pipelines
    both = Counter(step.name for step in ONE_PIECE.passes) | Counter(step.name for step in ROW_TILING.passes)
    column = (IMPORT, PREPARE, TABLES, LOWER)
    assert passes == Counter(step.name for pipeline in column for step in pipeline.passes) + both


@pytest.mark.parametrize("name", PICTURES)
def test_texts_stay_in_their_places(name):
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert list(misplaced(svg)) == []
    assert min(float(text.get("font-size")) for text, _ in texts(parsed(svg))) >= LEAST_SIZE


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stands_on_a_page_and_is_described(name):
    pages = [docs.ROOT.parent / "README.md", *docs.ROOT.rglob("*.md")]
    assert any(re.search(rf"!\[[^\]]{{20,}}\]\([\w/]*pictures/{name}\.svg\)", page.read_text()) for page in pages)
    words = [parsed(drawn(name)).findtext(f"{{{kit.SVG}}}{tag}") for tag in ("title", "desc")]
    assert all(words)


@pytest.mark.parametrize("bold", [False, True])
def test_texts_are_no_wider_than_estimated(bold):
    """DejaVu Sans is among the widest fonts of systems."""
    path = f"{get_data_path()}/fonts/ttf/DejaVuSans{'-Bold' if bold else ''}.ttf"
    font = ImageFont.truetype(path, 100)
    shown = {text.text for name in PICTURES for text, _ in texts(parsed(drawn(name)))}
    assert [words for words in shown if font.getlength(words) > text_width(words, 100, bold)] == []


def luminance(colour):
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colours", [kit.LIGHT, kit.DARK], ids=["light", "dark"])
def test_texts_are_legible_on_every_ground(colours):
    grounds = [luminance(ground) for _, ground in colours.values() if ground]
    for role in ("ink", "quiet"):
        ink = luminance(colours[role][0])
        ratios = [(max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) for ground in grounds]
        assert min(ratios) >= LEAST_CONTRAST


def test_the_readme_shows_pictures_that_are_there():
    shown = re.findall(r'src="([^"]+)"', (docs.ROOT.parent / "README.md").read_text())
    assert shown and all((docs.ROOT.parent / path).exists() for path in shown)


def test_old_pictures_are_noticed_and_drawn_again(tmp_path, monkeypatch):
    monkeypatch.setitem(main.callback.__globals__, "PICTURES", {"pipe": PICTURES["pipe"]})
    run = CliRunner().invoke
    assert run(main, ["--folder", str(tmp_path)]).exit_code == 0
    assert run(main, ["--check", "--folder", str(tmp_path)]).exit_code == 0
    path = tmp_path / "pipe.svg"
    path.write_text(path.read_text().replace("</svg>", " </svg>"))
    result = run(main, ["--check", "--folder", str(tmp_path)])
    assert (result.exit_code, f"{path.name}: out of date" in result.output) == (1, True)
    assert run(main, ["--folder", str(tmp_path)]).exit_code == 0
    assert run(main, ["--check", "--folder", str(tmp_path)]).exit_code == 0


def test_what_does_not_fit_is_refused_and_noticed():
    picture = Picture("Title", "About")
    with pytest.raises(ValueError, match=r"width of a box must be enough for 'a long name', not 40"):
        picture.box(0, 0, 40, 40, "grey", [Line("a long name", bold=True)])
    with pytest.raises(ValueError, match=r"height of a box must be enough for \['name'\], not 10"):
        picture.box(0, 0, 90, 10, "grey", [Line("name", bold=True)])
    picture = Picture("Title", "About")
    picture.box(100, 100, 90, 40, "grey", [Line("name", bold=True)])
    assert list(misplaced(picture.svg())) == ["name"]  # below the end
    picture.y = 200
    assert list(misplaced(picture.svg())) == []
    picture.text(120, 90, Line("above"))
    picture.text(120, 112, Line("over"))
    picture.text(750, 60, Line("beyond"))
    assert sorted(set(misplaced(picture.svg()))) == ["above", "beyond", "name", "over"]
    assert missing(picture.svg(), ["name", "nam", "other"]) == ["nam", "other"]


def test_paragraphs_are_wrapped():
    assert wrapped("a bb ccc", text_width("a bb", 10), 10) == ["a bb", "ccc"]
    assert wrapped("longer", 1, 10) == ["longer"]
