"""All pairs, a sample of them: nothing differs, a bit is noticed, and what is done is not done again."""

import json

import numpy as np
import pytest

import prove_all
from concord.emulator import kernels
from prove_all import CHUNKS, State, compare
from support import pair_units
from support.frameworks import needs
from support.pair_units import UNITS

HERE = tuple(name for name in UNITS if name != "PyTorch")


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["add", "mul"])
def test_a_sample(operation, names=HERE):
    """The subnormals, and a place that moves with the code."""
    for number in (0, int(prove_all.key(names)[:2], 16)):
        found = compare(operation, number, names, pieces=1)
        assert {name: tuple(one) for name, one in found.items()} == {name: (4 << 16, 0, []) for name in names}


@needs("torch")
def test_a_sample_torch():
    for operation in ("add", "mul"):
        test_a_sample(operation, ("PyTorch",))


@pytest.mark.parametrize("name", ["emulator", "NumPy", "ONNX Runtime", "RTL"])
def test_one_wrong_bit_is_noticed(name, monkeypatch):
    """Of one result of 2**18."""
    unit = UNITS[name]("mul")

    def broken(a, b):
        found = unit(a, b)
        at = np.flatnonzero((a == 1) & (b == 0x4000))[0]
        if found.dtype == np.uint16:
            found[at] ^= 1
        else:
            found[at] = kernels.decode(kernels.encode(found[at : at + 1]) ^ np.uint16(1))[0]
        return found

    monkeypatch.setattr(prove_all, "_units", {("mul", name): broken})
    pairs, different, ((a, b, want, _),) = compare("mul", 0, (name,), pieces=1)[name]
    assert (pairs, different, a, b, want) == (4 << 16, 1, 1, 0x4000, 2)


def test_nan_of_the_rtl_is_the_canonical_one():
    nan = np.array([0x7E00], np.uint16)
    assert not pair_units.wrong(np.array([np.nan], np.float32), nan).any()
    assert pair_units.wrong(np.array([0x7E01], np.uint16), nan).all()
    assert pair_units.wrong(np.array([-0.0], np.float32), np.array([0], np.uint16)).all()


def test_what_is_done_is_kept(tmp_path):
    path = tmp_path / "state.json"
    state = State(path, "code")
    first, second = state.missing("add")[:2]
    state.add("add", first, {"RTL": [1 << 24, 0, []]})
    again = State(path, "code")
    assert len(again.missing("add")) == CHUNKS - 1 and again.missing("add")[0] == second
    assert again.missing("mul")[0] == first
    again.add("add", second, {"RTL": [1 << 24, 2, [[1, 2, 3, 4.0]]]})
    facts = json.loads(path.read_text())
    assert facts["counts"] == {"RTL": {"add": [1 << 25, 2]}}
    assert facts["differences"] == {"RTL add": [[1, 2, 3, 4.0]]}
    assert len(State(path, "other code").missing("add")) == CHUNKS


def test_the_key_follows_the_code(tmp_path, monkeypatch):
    for name in prove_all.SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((prove_all.ROOT / name).read_bytes())
    monkeypatch.setattr(prove_all, "ROOT", tmp_path)
    before = prove_all.key()
    assert prove_all.key() == before != prove_all.key(("RTL",))
    path = tmp_path / prove_all.SOURCES[-1]
    path.write_text(path.read_text() + "\n")
    assert prove_all.key() != before


def test_a_run_that_is_stopped_goes_on(tmp_path, monkeypatch, capsys):
    """Two runs of no time do nothing; a chunk that was done is in the table; what differs is an exit status."""
    path = tmp_path / "state.json"
    command = ["--minutes", "0", "--jobs", "1", "--only", "mul", "--state", str(path)]
    State(path, prove_all.key()).add("mul", 7, {"RTL": [1 << 24, 0, []]})
    assert prove_all.main(command) == 0
    assert "16,777,216 pairs" in capsys.readouterr().out
    State(path, prove_all.key()).add("mul", 8, {"RTL": [1 << 24, 1, [[1, 2, 3, 4.0]]]})
    assert prove_all.main(command) == 1
    assert "0x0001, 0x0002 gives 4.0" in capsys.readouterr().out
