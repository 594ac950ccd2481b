"""Sizes of the host in C: what a microcontroller must have."""

import pytest

from concord.spec.presets import TINY
from concord_bench import Results, c_host
from support.c_hosts import needs_compiler


@needs_compiler
@pytest.mark.slow
def test_the_library_is_small():
    command, target = c_host.find_compiler()
    sizes = c_host.host_sizes(command)
    assert 1000 < sizes.code <= 9 * 1024, target
    assert 500 < sizes.constants <= 2 * 1024
    assert 300 < sizes.state and sizes.state + 3 * sizes.stack <= 4 * 1024


@needs_compiler
@pytest.mark.slow
def test_the_figures_say_what_they_are_for():
    results = Results("")
    c_host.measure_c_host(results)
    command, target = c_host.find_compiler()
    assert {figure.group for figure in results.figures} == {f"Host in C, {command[0]} -Os for {target}"}
    assert [figure.name for figure in results.figures][:2] == ["code", "texts and tables"]


def test_buffers_of_one_request_where_the_device_has_no_room_for_more():
    assert (
        c_host.buffer_bytes(TINY.replace(matrix_depth=4096, narrow_depth=512, wide_depth=512, program_depth=512)) < 512
    )


def test_without_a_compiler_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(c_host.shutil, "which", lambda name: None)
    results = Results("")
    c_host.measure_c_host(results)
    assert "gcc" in results.skipped["Host in C"] and not results.figures
    with pytest.raises(FileNotFoundError):
        c_host.host_sizes(["no-such-compiler"])
