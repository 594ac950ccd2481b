import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from concord.image import Image, MemorySegment
from concord.program.builder import ProgramBuilder
from concord.spec import builds
from concord.spec.boards import BOARD_SPECS
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import ECP5_25F, ECP5_85F, TINY, UP5K, with_mantissas
from concord_boards import BOARDS, board_named
from concord_boards.board import Placement
from concord_rtl import build
from concord_rtl.build import main
from concord_rtl.core.implementation import Contents
from concord_rtl.families import ECP5, ICE40
from concord_rtl.flow import contents, plan, report
from concord_rtl.flow.tools import ToolError


def image(config, **words):
    """An image with a program that only halts."""
    program = ProgramBuilder()
    program.halt()
    parts = [MemorySegment.from_words(RegionId[name.upper()], 0, listed, config) for name, listed in words.items()]
    return Image(config, tuple(program.words()), tuple(parts))


@pytest.mark.parametrize("config", [TINY, ECP5_25F, ECP5_85F, UP5K], ids=lambda config: config.name)
def test_noise_fills_every_word_and_is_the_same_every_time(config):
    for region, area in regions(config).items():
        if region is RegionId.DRAM:
            continue  # no memory of a bitstream
        words = contents.noise(config, region)
        assert words == contents.noise(config, region)
        assert len(words) == area.depth
        assert max(words).bit_length() <= area.word.width


@pytest.mark.parametrize(
    ("config", "family", "fixed"),
    [
        (ECP5_85F, ECP5, {"slots"}),
        (ECP5_25F, ECP5, {"slots"}),
        (UP5K, ICE40, {"slots"}),
        (TINY, ECP5, {"slots", "narrow", "wide"}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_is_fixed_when_a_bitstream_is_built(config, family, fixed):
    given = Contents(narrow=[1, 2], slots=[3])
    assert set(contents.fixed(config, family, given)) == fixed
    start = contents.marked(config, family, given)
    assert start.slots == [3]
    assert (start.narrow == [1, 2]) == ("narrow" in fixed)
    assert bool(start.matrix) == (family is ECP5)
    chosen = contents.fillable(config, family)
    for store in contents.stores(config, start, chosen):
        assert len(set(store.words)) > len(store.words) / 2
    assert not any(any(store.words) for store in contents.stores(config, Contents(), chosen))


def test_rows_of_the_matrix_are_memories_of_their_own():
    words = list(range(1, TINY.matrix_depth * TINY.rows + 1))
    found = contents.stores(TINY, Contents(matrix=words), [RegionId.MATRIX])
    assert [store.name for store in found] == [f"matrix row {row}" for row in range(TINY.rows)]
    assert [store.words[1] for store in found] == words[TINY.rows : 2 * TINY.rows]


@pytest.mark.slow
def test_an_image_is_read(tmp_path):
    made = image(TINY, matrix=[5, 0, 7], table=[1, 2, 3], slots=[9 << 9])
    made.save(tmp_path / "a.image")
    got = contents.load(tmp_path / "a.image", TINY, tmp_path / "hex")
    assert got == Contents(program=list(made.program), matrix=[5, 0, 7], table=[1, 2, 3], slots=[9 << 9])
    assert contents.load(tmp_path / "hex", TINY, tmp_path / "unused") == got
    assert contents.load(None, TINY, tmp_path / "unused") == Contents()


@pytest.mark.slow
def test_an_image_for_another_configuration_is_refused(tmp_path):
    image(TINY.replace(lanes=4)).save(tmp_path / "a.image")
    with pytest.raises(ValueError, match="for another configuration; image / NPU: lanes: 4 / 2"):
        contents.load(tmp_path / "a.image", TINY, tmp_path / "hex")


@pytest.mark.slow
def test_a_damaged_image_is_refused(tmp_path):
    (tmp_path / "a.image").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"a\.image is not an image"):
        contents.load(tmp_path / "a.image", TINY, tmp_path / "hex")


@pytest.mark.slow
def test_the_configuration_of_an_image_is_the_one_to_build(tmp_path, monkeypatch):
    """Without a preset; with one, an image for another configuration is refused."""
    narrow = with_mantissas(ECP5_25F, 5)
    path = tmp_path / "a.image"
    image(narrow, matrix=[5]).save(path)
    assert contents.configuration(path) == narrow
    contents.load(path, narrow, tmp_path / "hex")
    assert contents.configuration(tmp_path / "hex") == narrow
    built = []

    def core(config, contents, phases):
        """Takes note of the configuration and makes nothing: what is not elaborated would be warned of."""
        built.append(config)
        raise ToolError("enough")

    monkeypatch.setattr(plan, "NpuTop", core)
    arguments = ["bitstream", "--board", "ulx3s-25f", "--build", str(tmp_path), "--image", str(path)]
    with pytest.raises(ToolError, match="enough"):
        CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert built == [narrow] and (tmp_path / "ulx3s-25f-ecp5-25f-m5").is_dir()
    assert "the image is for another configuration" in failing(*arguments, "--preset", "ecp5-25f")
    path.write_bytes(b"nonsense")
    assert "a.image is not an image" in failing(*arguments)


@pytest.mark.slow
def test_an_image_of_a_removed_preset_builds_with_advice(tmp_path, monkeypatch):
    (tmp_path / "model.onnx").touch()
    path = tmp_path / "npu.image"
    image(ECP5_25F.replace(name="ecp5-85f-int8")).save(path)
    monkeypatch.setattr(plan, "NpuTop", lambda config, contents, phases: 1 / 0)
    arguments = ["bitstream", "--board", "ulx3s-25f", "--build", str(tmp_path), "--image", str(path)]
    result = CliRunner().invoke(main, arguments)
    assert isinstance(result.exception, ZeroDivisionError), "it is built all the same"
    fate = "is of a preset that was removed: ecp5-85f takes its place. `concord compile"
    again = f"{tmp_path}/model.onnx --board ulx3s-25f -o {tmp_path}`"
    assert fate in " ".join(result.output.split()) and again in "".join(result.output.splitlines())
    refused = failing(*arguments, "--preset", "ecp5-85f")
    assert "the image is for another configuration" in refused and fate in refused
    image(ECP5_25F).save(path)
    assert "no ready bitstream" not in CliRunner().invoke(main, arguments).output


@pytest.mark.parametrize(
    ("board", "options", "aim", "enough", "tunable"),
    [
        ("ulx3s-25f", [], BOARD_SPECS["ulx3s-25f"].aim_hz, BOARD_SPECS["ulx3s-25f"].clock_hz, True),
        ("ulx3s-85f", [], BOARD_SPECS["ulx3s-85f"].aim_hz, BOARD_SPECS["ulx3s-85f"].clock_hz, True),
        ("ulx3s-25f", ["--preset", "tiny"], TINY.clock_hz, TINY.clock_hz, True),
        ("ulx3s-85f", ["--preset", ECP5_85F.name], board_named("ulx3s-85f").placements[ECP5_85F.name].aim_hz,
         ECP5_85F.clock_hz, True),
        ("ulx3s-25f", ["--clock", "80"], 80e6, 80e6, False),
        ("icebreaker", [], BOARD_SPECS["icebreaker"].clock_hz, BOARD_SPECS["icebreaker"].clock_hz, False),
    ],
)  # fmt: skip
def test_what_place_and_route_aims_at(board, options, aim, enough, tunable, tmp_path, monkeypatch):
    """A clock that is demanded is not lowered, and one that is not is as high as it can be."""
    goals = []

    def place(flow, seeds, goal, *_):
        goals.append(goal)
        raise ToolError("enough")

    for name, method in (("generate", lambda *_: None), ("synthesize", lambda *_: None), ("place", place)):
        monkeypatch.setattr(build.Flow, name, method)
    with pytest.raises(ToolError, match="enough"):
        arguments = ["bitstream", "--board", board, "--build", str(tmp_path), *options]
        CliRunner().invoke(main, arguments, catch_exceptions=False)
    (goal,) = goals
    assert (goal.aim_hz, goal.tunable) == (aim, tunable)
    assert enough * 0.98 < goal.enough_hz <= enough


@pytest.mark.parametrize(("options", "seeds"), [([], [5, 4]), (["--seeds", "7,7,8"], [7, 8])])
def test_seeds_of_the_placement_are_tried_unless_others_are_asked_for(options, seeds, tmp_path, monkeypatch):
    tried = []

    def place(flow, seeds, *_):
        tried.append(seeds)
        raise ToolError("enough")

    for name, method in (("generate", lambda *_: None), ("synthesize", lambda *_: None), ("place", place)):
        monkeypatch.setattr(build.Flow, name, method)
    board = board_named("ulx3s-25f")
    monkeypatch.setitem(board.placements, "tiny", Placement(seeds=(5, 4)))
    with pytest.raises(ToolError, match="enough"):
        arguments = ["bitstream", "--board", board.name, "--preset", "tiny", "--build", str(tmp_path), *options]
        CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert tried == [seeds]


@pytest.mark.parametrize(("minutes", "said"), [(38, "place and route took 38 minutes"), (0, "")])
def test_a_build_begins_with_how_long_it_took(minutes, said, tmp_path, monkeypatch):
    lines = []

    def synthesize(flow):
        raise ToolError(" ".join(lines))

    monkeypatch.setattr(build.Flow, "generate", lambda *_: None)
    monkeypatch.setattr(build.Flow, "synthesize", synthesize)
    monkeypatch.setattr(build.CONSOLE, "print", lines.append)
    record = replace(builds.build_of("ulx3s-25f", "ecp5-25f"), preset="tiny", minutes=minutes)
    monkeypatch.setattr(builds, "BUILDS", (record,))
    with pytest.raises(ToolError) as ended:
        arguments = ["bitstream", "--board", "ulx3s-25f", "--preset", "tiny", "--build", str(tmp_path)]
        CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert ("minutes" in str(ended.value)) == bool(minutes) and said in str(ended.value)


def failing(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code != 0
    return " ".join(result.output.split())


@pytest.mark.slow
def test_command_line_refuses(tmp_path):
    image(with_mantissas(UP5K, 8)).save(tmp_path / "a.image")
    assert "does not fit on icebreaker: up5k-m8 needs 316 block RAMs of 30" in failing(
        "bitstream", "--board", "icebreaker", "--image", str(tmp_path / "a.image"), "--build", str(tmp_path)
    )
    assert "must be numbers separated by commas, not '1,x'" in failing(
        "bitstream", "--board", "icebreaker", "--seeds", "1,x", "--build", str(tmp_path)
    )
    for option, message in (
        ("--clock=9999", "clock must be a frequency the PLL can make"),
        ("--baud=0", "baud must be"),
    ):
        assert message in failing("bitstream", "--board", "ulx3s-25f", option, "--build", str(tmp_path))
    (tmp_path / "mine.toml").write_text('preset = "ecp5-85f-256"\nnarrow_depth = 16384\n')
    options = ("--config", str(tmp_path / "mine.toml"), "--build", str(tmp_path))
    assert "does not fit on ulx3s-85f: mine needs " in failing("bitstream", "--board", "ulx3s-85f", *options)
    assert "must not be given together" in failing("bitstream", "--board", "ulx3s-85f", "--preset", "tiny", *options)
    (tmp_path / "mine.toml").write_text("lane = 3")
    assert "not 'lane'; did you mean lanes?" in failing("bitstream", "--board", "ulx3s-85f", *options)
    assert "not 'ulx3s'; did you mean ulx3s-85f?" in " ".join(failing("bitstream", "--board", "ulx3s").split())
    message = " ".join(failing("bitstream", "--board", "ulx3s-85f", "--preset", "ecp5-85-256").split())
    assert "not 'ecp5-85-256'; did you mean ecp5-85f-256?" in message
    output = str(tmp_path / "out.bit")
    arguments = ["patch", "--board", "ulx3s-85f", "--build", str(tmp_path), "-o", output]
    assert "must be built first: make bitstream BOARD=ulx3s-85f" in failing(*arguments)
    folder = tmp_path / "ulx3s-85f"
    folder.mkdir()
    (folder / "npu.bit").touch()
    (folder / "report.json").write_text(json.dumps({"fingerprint": "0"}))
    assert "must be built again" in failing(*arguments)


def test_the_clock_of_the_design_may_have_the_name_that_it_has_in_the_port():
    run = {"fmax": {"$glbnet$port.uart.clk": {"achieved": 61.0, "constraint": 50.0}}}
    assert report.score(run) == 61
    assert [clock["target_mhz"] for clock in report.clocks(run, 62e6)] == [62]


def test_clocks_of_the_link_have_their_own_targets():
    usb = {"achieved": 13.0, "constraint": 12.0}
    run = {"fmax": {"$glbnet$port.usb": usb, "clocking.clk": {"achieved": 61.0, "constraint": 50.0}}}
    assert report.score(run) == 61
    assert [(clock["target_mhz"], clock["met"]) for clock in report.clocks(run, 62e6)] == [(12, True), (62, False)]
    usb["achieved"] = 11.9
    assert [clock["met"] for clock in report.clocks(run, 50e6)] == [False, True]


@pytest.mark.parametrize("family", [ECP5, ICE40], ids=lambda family: family.name)
def test_report_tells_met_from_missed(family):
    resources = {key: {"used": 5, "available": 50} for key in family.resources.values()}
    run = {"fmax": {"$glbnet$clk": {"achieved": 61.0, "constraint": 50.0}}, "utilization": resources, "seconds": 1.0}
    (clock,) = report.clocks(run, 50e6)
    assert clock == {"clock": "clk", "mhz": 61.0, "target_mhz": 50.0, "met": True}
    assert not report.clocks(run, 62e6)[0]["met"]
    used = report.utilisation(run, family)
    assert used["EBR"] == {"used": 5, "available": 50, "percent": 10.0}
    summary = {
        "board": next(iter(BOARDS)), "preset": "tiny", "seed": 1, "clocks": [clock], "utilisation": used,
        "seeds": {"1": {"mhz": 61.0, "aim_mhz": 70.0, "seconds": 1.0}}, "slow_paths": [], "not_counted": [],
    }  # fmt: skip
    timing, area, runs = report.render(summary)
    assert (timing.row_count, area.row_count, runs.row_count) == (1, len(used), 1)
    slow = {"from": "a", "to": "b", "registers": 3, "ns": 9.0, "logic_ns": 1.0, "start": "a.x", "end": "b.y/DI"}
    assert report.render(summary | {"slow_paths": [slow]})[3].row_count == 1
    missing = {"cell": "DP16KD", "number": 178, "what": "the array"}
    assert report.render(summary | {"not_counted": [missing]})[1].row_count == 1
