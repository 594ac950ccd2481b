"""A compiled folder is one thing: all of it, from one compile, or a refusal that says what to do."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from concord.compiler.codes.package import compile_codes
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.frontend.codes import load
from concord.networks.folder import IMAGE, MODEL, NETWORK, PackageError, load_package, recompile, save_package
from concord.spec.presets import TINY
from concord.spec.stored import PROGRAM, TABLES
from concord.utils import folders
from concord.utils.files import part_name
from concord.utils.folders import MANIFEST, FolderKind
from support.commands import run
from support.faults import FAULTS, Faults, every, no_space
from support.onnx_models import floats, model, node
from support.quantised_nets import relu_of_codes
from support.rtl_configs import FED_SCALING

FILES = (IMAGE, NETWORK, MODEL, MANIFEST)
KIND = FolderKind("test", "a test", ("one", "two"), ("page",), "write it again", ValueError)


def network(size):
    """A network whose end the host computes, and its file."""
    nodes = [node("MatMul", ["x", "w"], ["a"], name="fc"), node("Softmax", ["a"], ["y"], axis=-1)]
    proto = model(nodes, {"x": (1, size)}, constants={"w": floats(size, 3)})
    data = proto.SerializeToString()
    return compile_graph(import_model(data), TINY).package, data


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Two compiled networks, and a folder with each."""
    made = [network(size) for size in (6, 7)]
    places = [tmp_path_factory.mktemp("made") / name for name in "ab"]
    for (package, data), place in zip(made, places, strict=True):
        save_package(package, place, data)
    return made, places


@pytest.fixture
def folder(networks, tmp_path):
    return shutil.copytree(networks[1][0], tmp_path / "net")


def write(folder, text):
    with KIND.replacing(folder) as part:
        for name in KIND.files:
            (part / name).write_bytes(text)


def test_what_is_saved_is_there(networks, folder):
    (package, _), _ = networks[0]
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert load_package(folder).image == package.image
    assert recompile(folder).image == package.image


def refused(folder, name):
    """Every command says what is wrong with which file, and what to do."""
    with pytest.raises(PackageError, match="compile the network again") as caught:
        load_package(folder)
    assert str(folder) in str(caught.value) and name in str(caught.value)


@pytest.fixture(scope="module")
def on_codes(tmp_path_factory):
    """The folder of a network on codes that is compiled for an NPU, which has all files."""
    place = tmp_path_factory.mktemp("codes") / "net"
    save_package(compile_codes(load(relu_of_codes()), FED_SCALING).package, place, b"a model" * 20)
    return place


@pytest.mark.parametrize("name", (*FILES, PROGRAM, TABLES))
def test_damage_of_a_network_on_codes_is_refused(on_codes, name, tmp_path):
    folder = shutil.copytree(on_codes, tmp_path / "net")
    assert sorted(path.name for path in folder.iterdir()) == sorted((*FILES, PROGRAM, TABLES))
    test_damage_of_any_byte_is_refused(folder, name)
    (folder / name).unlink()
    refused(folder, f"{name} is missing")


@pytest.mark.parametrize("name", FILES)
def test_damage_of_any_byte_is_refused(folder, name):
    data, rng = (folder / name).read_bytes(), random.Random(name)
    places = {0, len(data) // 2, len(data) - 1, *(rng.randrange(len(data)) for _ in range(60))}
    for place in places:
        changed = bytearray(data)
        changed[place] ^= rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
        (folder / name).write_bytes(changed)
        refused(folder, name)
    for changed in (b"", data[:-1], data + b"\n", data + b"\0", b"\n" + data, data * 2):
        (folder / name).write_bytes(changed)
        refused(folder, name)
    (folder / name).write_bytes(data)
    load_package(folder)


@pytest.mark.parametrize("name", FILES)
def test_files_of_another_compile_and_missing_ones_are_refused(networks, folder, name):
    shutil.copy(networks[1][1] / name, folder / name)
    refused(folder, IMAGE if name == MANIFEST else name)
    (folder / name).unlink()
    refused(folder, name)
    (folder / name).mkdir()
    refused(folder, name)


def test_every_command_refuses(networks, folder, tmp_path):
    shutil.copy(networks[1][1] / IMAGE, folder / IMAGE)
    np.savez(tmp_path / "x.npz", x=floats(2, 6))
    for words in (["inspect"], ["disasm"], ["run", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz"],
                  ["report", "-i", tmp_path / "x.npz"]):  # fmt: skip
        code, output = run(words[0], folder, *words[1:])
        assert code == 1 and output.count("\n") == 1
        assert f"{folder / IMAGE} is damaged or from elsewhere: manifest.json has another; compile" in output


def test_another_version_is_told(folder, monkeypatch):
    monkeypatch.setattr(folders, "_VERSION", 2)
    refused(folder, "version 2 of manifest.json, not 1")


@pytest.mark.parametrize(
    ("before", "swap"), [("none", True), ("empty", True), ("empty", False), ("old", True), ("old", False)]
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_leaves_the_old_folder_or_the_new_one(tmp_path, monkeypatch, fault, before, swap):
    if not swap:
        monkeypatch.setattr(folders, "exchange", lambda *_: False)
    target, seen = tmp_path / "net", set()

    def reset():
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        if before == "empty":
            target.mkdir()
        elif before == "old":
            write(target, b"old")

    reset()
    for _ in every(lambda: write(target, b"new"), fault):
        try:
            found = set(KIND.read(target).values())
        except ValueError:
            found = {None}
        assert len(found) == 1
        seen |= found
        if fault != "killed":
            assert found == {b"new"} or sorted(tmp_path.iterdir()) == ([target] if before != "none" else [])
        if before == "old" and (swap or fault != "killed"):
            assert None not in found
        reset()
    assert set(KIND.read(target).values()) == {b"new"} and list(tmp_path.iterdir()) == [target]
    assert seen >= {b"old" if before == "old" else None, b"new"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_a_network_is_saved(networks, tmp_path, fault):
    (old, old_data), (new, new_data) = networks[0]
    save_package(old, tmp_path / "net", old_data)
    for faults in every(lambda: save_package(new, tmp_path / "net", new_data), fault, step=5):
        assert load_package(tmp_path / "net").image in (old.image, new.image), faults.at
    assert load_package(tmp_path / "net").image == new.image


def test_a_full_disk_is_told_with_the_name_of_the_folder(networks, tmp_path):
    (package, data), _ = networks[0]
    for at in range(2, 20, 4):
        with pytest.raises(OSError) as caught, Faults(at, no_space()).injected(inside=False):
            save_package(package, tmp_path / "net", data)
        assert str(caught.value) == f"{tmp_path / 'net'} cannot be written, and is as it was: No space left on device"
        assert not list(tmp_path.iterdir())


WRITER = """
import sys
from concord.utils.folders import FolderKind
kind = FolderKind("test", "a test", ("one", "two"), ("page",), "write it again", ValueError)
print("ready", flush=True)
for k in range(int(sys.argv[3])):
    with kind.replacing(sys.argv[1]) as part:
        for name in kind.files:
            (part / name).write_bytes(sys.argv[2].encode() * 1000)
"""


def writer(folder, text, times):
    process = subprocess.Popen([sys.executable, "-c", WRITER, folder, text, str(times)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.slow
def test_two_processes_at_once(tmp_path):
    write(tmp_path / "net", b"a" * 1000)
    processes = [writer(tmp_path / "net", text, 60) for text in "ab"]
    reads = 0
    while any(process.poll() is None for process in processes):
        (found,) = set(KIND.read(tmp_path / "net").values())
        assert found in (b"a" * 1000, b"b" * 1000)
        reads += 1
    assert [process.communicate()[1] or process.returncode for process in processes] == [0, 0] and reads > 20
    assert [path.name for path in tmp_path.iterdir()] == ["net"]


@pytest.mark.slow
def test_kill_at_any_time(tmp_path):
    write(tmp_path / "net", b"a" * 1000)
    rng = random.Random(5)
    for _ in range(6):
        process = writer(tmp_path / "net", "b", 10**6)
        time.sleep(rng.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert len(set(KIND.read(tmp_path / "net").values())) == 1


@pytest.mark.parametrize("there", ["notes.txt", MODEL, IMAGE, "report.html"])
def test_what_is_no_network_is_never_replaced(networks, tmp_path, there):
    (package, data), _ = networks[0]
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / there).write_text("mine")
    (tmp_path / "net.onnx").write_bytes(data)
    code, output = run("compile", tmp_path / "net.onnx", "--preset", "tiny")
    wanted = f"net must be a compiled network or empty to be replaced, but {there} is there\n"
    assert code == 1 and wanted in output and output.count("\n") == 1
    with pytest.raises(PackageError, match="to be replaced"):
        save_package(package, tmp_path / "net", data)
    assert [path.read_text() for path in (tmp_path / "net").iterdir()] == ["mine"]


def test_a_file_is_no_folder(networks, tmp_path):
    (tmp_path / "net").write_bytes(networks[0][0][1])
    code, output = run("compile", tmp_path / "net", "--preset", "tiny")
    assert code == 1 and "net must be a folder, or not there, to write a compiled network\n" in output


def test_reports_go_with_the_folder_that_they_are_of(networks, folder, tmp_path):
    np.savez(tmp_path / "x.npz", x=floats(2, 6))
    assert run("report", folder, "-i", tmp_path / "x.npz")[0] == 0
    (package, data) = networks[0][1]
    save_package(package, folder, data)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_a_network_is_compiled_once_more_in_its_place(folder):
    """The model that is read lies in the folder that is replaced; links to folders stay links."""
    link = folder.with_name("link")
    link.symlink_to(folder)
    assert run("compile", link / MODEL, "-o", link, "--preset", "tiny")[0] == 0
    assert link.is_symlink() and load_package(folder).config == TINY


def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path):
    """Of this folder, and nothing that is another's."""
    lefts = [tmp_path / part_name(tmp_path / name) for name in ("net", "other", "net", "net")]
    for left in lefts:
        left.mkdir()
        (left / "one").write_bytes(b"half")
    (lefts[2] / "notes").write_bytes(b"of a user")
    for left in lefts[:3]:
        os.utime(left, (0, time.time() - 3700))
    write(tmp_path / "net", b"whole")
    assert set(tmp_path.iterdir()) == {tmp_path / "net", *lefts[1:]}
    assert (lefts[2] / "notes").exists()
