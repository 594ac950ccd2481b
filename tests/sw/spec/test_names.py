"""Names that were typed wrongly: the list, and the nearest one."""

import click
import pytest

from concord.spec.boards import BOARD_SPECS, DEFAULT_BOARD, board_spec, boards_with
from concord.spec.name_choice import NameChoice
from concord.spec.names import nearest_name, unknown_name
from concord.spec.presets import PRESETS, REMOVED, on_board, preset, presets_of


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ulx3s", DEFAULT_BOARD),
        ("ULX3S-25F", "ulx3s-25f"),
        ("ulx3s_12f", "ulx3s-12f"),
        ("icebraker", "icebreaker"),
        ("ice", "icebreaker"),
        ("45f", "ulx3s-45f"),
        ("orangecrab", "orangecrab-25f"),
        ("icesugar", "icesugar-pro"),
        ("i9", "colorlight-i9"),
        ("de10", None),
        ("", None),
    ],
)
def test_the_nearest_board(typed, meant):
    assert nearest_name(BOARD_SPECS, typed) == meant
    with pytest.raises(ValueError, match=r"^board must be one of ulx3s-85f, .*, icesugar-pro, not ") as caught:
        board_spec(typed)
    assert str(caught.value).endswith(f"not {typed!r}" + (f"; did you mean {meant}?" if meant else ""))


def test_what_is_no_name_at_all():
    assert str(unknown_name("preset", ["a", "b"], 3)) == "preset must be one of a, b, not 3"
    assert nearest_name([], "a") is None


def test_the_nearest_preset():
    with pytest.raises(ValueError, match=r"not 'ecp5-85f-265'; did you mean ecp5-85f-256\?$"):
        preset("ecp5-85f-265")


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_preset_names_its_successor(name):
    assert REMOVED[name] in PRESETS and name not in PRESETS
    text = f"^preset '{name}' was removed: {REMOVED[name]} takes its place$"
    for refusing in (preset, lambda name: presets_of("ulx3s-85f", name)):
        with pytest.raises(ValueError, match=text):
            refusing(name)


def test_removed_names_of_a_choice():
    choice = NameChoice("colour", ["red", "blue"], {"pink": "red", "blue": "red"})
    assert choice.convert("blue", None, None) == "blue", "which is one still"
    with pytest.raises(click.UsageError, match=r"^colour 'pink' was removed: red takes its place$"):
        choice.convert("pink", None, None)
    with pytest.raises(click.UsageError, match=r"not 'rd'; did you mean red\?$"):
        choice.convert("rd", None, None)


def test_presets_of_a_board():
    names = ["ecp5-85f-256", "ecp5-85f"]
    assert [one.name for one in presets_of("ulx3s-85f")] == names
    for board, spec in BOARD_SPECS.items():
        first, *others = presets_of(board)
        assert first == PRESETS[spec.preset].replace(clock_hz=spec.clock_hz, board=board), (
            "the clock is that of this board"
        )
        assert others == [on_board(PRESETS[name], board) for name in spec.presets[1:]]
        assert all(config.dram in ("", spec.dram) for config in (first, *others))
        assert all(board in boards_with(name) for name in spec.presets)
    assert [one.name for one in presets_of("ulx3s-85f", "ecp5-85f")] == ["ecp5-85f"]
    with pytest.raises(ValueError, match=r"^preset must be one of those of icebreaker \(up5k\), not 'tiny'$"):
        presets_of("icebreaker", "tiny")
    with pytest.raises(ValueError, match=r"did you mean tiny\?"):
        presets_of("icebreaker", "tini")
