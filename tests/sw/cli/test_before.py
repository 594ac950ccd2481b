"""What was there before: removed presets, and folders of networks whose configuration no preset has today."""

import pytest

import concord
from concord.cli.main import main
from concord_bench.link_rates import main as link_rates
from concord_rtl.build import main as build
from concord_rtl.flow.verilate import main as verilate
from support.commands import run

REMOVED = "preset 'ecp5-85f-int8' was removed: ecp5-85f takes its place"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (main, ["compile", "{model}"]),
        (main, ["flash"]),
        (main, ["demo"]),
        (main, ["types", "{model}"]),
        (main, ["train", "{model}", "-o", "{model}.out", "--on", "emulator"]),
        (build, ["verilog"]),
        (build, ["bitstream", "--board", "ulx3s-85f"]),
        (build, ["area", "--board", "ulx3s-85f"]),
        (build, ["code-scaling", "--board", "ulx3s-85f"]),
        (verilate, []),
        (link_rates, []),
    ],
    ids=lambda value: value[0] if value and isinstance(value, list) else None,
)
def test_commands_answer_with_the_successor(command, words, tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(b"")
    code, output = run(*(word.format(model=model) for word in words), "--preset", "ecp5-85f-int8", command=command)
    assert code == 2 and REMOVED in " ".join(output.split())


def test_python_answers_with_the_successor(tmp_path):
    with pytest.raises(ValueError, match=f"^{REMOVED}$"):
        concord.compile(tmp_path / "net.onnx", preset="ecp5-85f-int8")
