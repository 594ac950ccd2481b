"""``concord memtest``."""

from __future__ import annotations

import click

from concord.cli.common import POSITIVE, PRESET, TerminalConsole, check_link, echo, on_option, readable
from concord.cli.options import compile_options
from concord.host import connect
from concord.host.dram import memory_test
from concord.host.progress import bars
from concord.spec.presets import ECP5_85F, preset

#: Bytes of a kilobyte, and of a column.
_KILOBYTE, _COLUMN = 1024, 2


@click.command()
@on_option
@click.option("--preset", "name", type=PRESET, default=ECP5_85F.name, show_default=True, help="Of the device.")
@compile_options("link")
@click.option("--kilobytes", type=POSITIVE, default=64, show_default=True, help="How much, all over the memory.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the numbers that are written.")
@readable
def memtest(on: str, name: str, link: str | None, kilobytes: int, seed: int) -> None:
    """Test the external memory of a device, whose contents are lost.

    It says which phase of its clock the device has chosen, writes numbers, and reads them after all are written; then
    the same with all bits inverted. The exit status is 1 if the memory does not work or a number was wrong.
    """
    check_link(on, link)
    with connect(on, preset(name), link=link) as device:
        state, part = device.dram_state(), device.config.sdram
        echo(f"{part.name}: {state.text}")
        if not state.works:
            raise click.ClickException("the external memory does not work")
        columns = min(kilobytes * _KILOBYTE // _COLUMN, part.columns)
        with bars(TerminalConsole(stderr=True)) as progress:
            task = progress.add_task("columns", total=4 * columns)
            result = memory_test(device, columns, seed, lambda count: progress.update(task, advance=count))
    for column, want, got in result.wrong:
        echo(f"column {column:#09x}: wrote {want:#06x}, read {got:#06x}")
    echo(f"{result.columns * _COLUMN / _KILOBYTE:g} KB: {result.errors} wrong columns in two passes")
    if result.errors:
        raise click.ClickException("the external memory has errors")
