"""The command that compares training with float32: what it keeps, splits, and says."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from concord.train import Augmentation, Samples, Settings, described
from concord_bench.evidence import plan
from concord_bench.evidence.__main__ import training_evidence
from concord_bench.evidence.data import Missing, Split, cut
from concord_bench.evidence.finetune import FineTuning, Width, widths
from concord_bench.evidence.page import page
from concord_bench.evidence.pictures import SEEDS_PICTURE, pictures
from concord_bench.evidence.runs import work
from concord_bench.evidence.scratch import LAZY, SEEDS, WITHOUT, Scratch
from concord_bench.evidence.store import CHOICE, Result, Run, Store
from concord_bench.evidence.tables import rows

DOCS = Path(__file__).parents[3] / "docs"
LAYERS = [{"op": "flatten"}, {"op": "dense", "outputs": 3}]


def tiny():
    """Three classes of noise around three images."""
    rng = np.random.default_rng(5)
    y = np.arange(60) % 3
    x = np.clip(np.eye(16)[y] * 9 + rng.integers(0, 5, (60, 16)), 0, 15).astype(np.uint8).reshape(-1, 1, 4, 4)
    return cut(x, y, 1 / 16, (36, 12, 12))


STUDY = Scratch(
    "tiny", "Tiny", "a product", lambda: described(LAYERS, (1, 4, 4)), tiny, Settings(epochs=2, batch=6),
    (Fraction(1, 4), Fraction(1, 1024)), (LAZY, WITHOUT),
)  # fmt: skip


@pytest.mark.slow
def test_runs_are_kept_and_not_done_again(tmp_path):
    lines = []
    store = Store(tmp_path / "r.json")
    assert work([STUDY], store, 10, lines.append) == {}
    assert len(lines) == len(STUDY.runs) == 1 + 2 * len(SEEDS)
    assert "rate 1/4 chosen" in lines[0] and all("test accuracy" in line for line in lines[1:])
    again = Store(tmp_path / "r.json")
    assert again.results == store.results
    work([STUDY], again, 10, lines.append)
    assert len(lines) == len(STUDY.runs)
    del again.results[Run("tiny", "none", 3)]  # where it was stopped
    work([STUDY], again, 10, lines.append)
    assert len(lines) == len(STUDY.runs) + 1 and "tiny, none, 3" in lines[-1]
    same = [replace(r, seconds=0) for _, r in sorted(store.results.items())]
    assert [replace(r, seconds=0) for _, r in sorted(again.results.items())] == same
    work([replace(STUDY, settings=Settings(epochs=1, batch=6))], again, 10, lines.append)
    assert len(lines) == 2 * len(STUDY.runs) + 1  # other settings, other results


def test_nothing_is_begun_after_the_time_is_over(tmp_path):
    store = Store(tmp_path / "r.json")
    work([STUDY], store, 0, print)
    assert not store.results and not store.path.exists()


@pytest.mark.slow
def test_another_rate_makes_results_old(tmp_path):
    store, lines = Store(tmp_path / "r.json"), []
    work([STUDY], store, 10, lines.append)
    choice = Run("tiny", "lazy", CHOICE)
    store.results[choice] = replace(store.results[choice], rate="1/1024")
    assert not STUDY.there(Run("tiny", "none", 1), store)


def test_choosing_never_sees_the_test_part():
    store = Store(Path("none.json"))
    broken = Split(tiny().train, tiny().validation, Samples(np.zeros((1, 9)), np.zeros(1, int)))
    result = replace(STUDY, data=lambda: broken).do(Run("tiny", "lazy", CHOICE), store)
    assert result.test is None and result.rate == "1/4" and set(result.candidates) == {"1/4", "1/1024"}


def test_the_parts_of_a_set_are_disjoint():
    whole = np.arange(100)
    split = cut(whole, whole, 1, (60, 15, 25))
    parts = [split.train.y, split.validation.y, split.test.y]
    assert sorted(np.concatenate(parts)) == list(whole)
    assert cut(whole, whole, 1, (60, 15, 25)).facts == split.facts


def tuning():
    """A fine-tuning of a product, with data of its own in the place of files."""
    graph = described(LAYERS, (1, 4, 4))
    rng = np.random.default_rng(3)
    graph.nodes[1] = graph.nodes[1].with_attrs(weight=rng.normal(size=(3, 16)), bias=np.zeros(3))
    x, more = rng.random((30, 1, 4, 4)), rng.random((45, 1, 4, 4))
    width = Width("w3a8-trained", "w3a8, trained", widths(3, 8), True)
    study = FineTuning(
        "none", "Tiny", "a product", Settings(epochs=8, batch=4), (Fraction(1, 256), Fraction(1, 1 << 20)),
        Augmentation(noise=0.1),
        (Width("float", "float32", None), Width("w8a8", "w8a8", widths(8, 8)), Width("w3a8", "w3a8", widths(3, 8)),
         Width("w3a8-start", "w3a8, for samples", widths(3, 8), start=True), width), folds=3,
    )  # fmt: skip
    study.__dict__["graph"] = graph
    targets, theirs = (study._outputs(a) for a in (x, more))
    study.__dict__["_samples"] = x, targets.argmax(axis=1), targets, more, theirs
    return study


def test_every_sample_is_judged_once_and_never_by_a_network_that_has_learned_it():
    study = tuning()
    images = study._samples[0]
    judged = []
    for fold in (1, 2, 3):
        split = study.split(fold)
        learned = {x.tobytes() for x in split.train.x}
        assert len(split.train) == 20 + 45 and not learned & {x.tobytes() for x in split.test.x}
        judged += [x.tobytes() for x in split.test.x]
    assert sorted(judged) == sorted(x.tobytes() for x in images)
    choice = study.split(CHOICE)  # 30 samples and as many changed ones: about as many as the 65 of a fold
    seen = {x.tobytes() for x in np.concatenate([choice.train.x, choice.validation.x])}
    assert {x.tobytes() for x in np.concatenate([choice.train.x[:30], choice.validation.x])} == {
        x.tobytes() for x in study._samples[3]
    }
    assert np.array_equal(choice.train.y, study._outputs(choice.train.x))
    assert len(choice.train) == 60 and len(choice.validation) == 15 and not seen & set(judged)


@pytest.mark.slow
def test_fine_tuning_trains_in_the_format(tmp_path):
    study, store = tuning(), Store(tmp_path / "r.json")
    work([study], store, 10, lambda text: None)
    found = rows(study, store)
    assert found["float"].accuracies == [100] * 3 and found["w8a8"].differences == [0] * 3
    assert store.results[Run("tune-none", "w3a8-trained", CHOICE)].rate == "1/256"
    errors = {
        rate: loss for rate, (_, loss) in store.results[Run("tune-none", "w3a8-trained", CHOICE)].candidates.items()
    }
    assert errors["1/256"] < errors["1/1048576"]  # at the small rate nothing moves
    assert store.results[Run("tune-none", "w3a8-start", 1)].facts["start"] == "samples"
    assert all(r.counts and not r.facts["data"]["train"].startswith("0") for r in found["w3a8-trained"].results)
    text = page([study], store)
    assert "w3a8, trained, against w3a8" in text and "Not run yet" not in text


def made(accuracies, path):
    """Results of the tiny study, by variant."""
    store = Store(path)
    data = {"train": "36 a", "validation": "12 b", "test": "12 c"}
    facts = {"data": data, "epochs": 2, "batch": 6}
    for variant, values in accuracies.items():
        for seed, value in enumerate(values, 1):
            counts = [{"elements": 50, "refused": 5, "vanished": 10, "grown": 1}] if variant != "float32" else []
            curve = [{"loss": 1.0, "accuracy": 0.5, "test_loss": 1.0, "test_accuracy": value}] * 2
            store.results[Run("tiny", variant, seed)] = Result(
                "tiny", variant, seed, facts, "1/4", value, value, 12, {}, curve, counts, 1.5
            )
    return store


@pytest.mark.slow
@pytest.mark.parametrize("lost, verdict", [(0.004, "met"), (0.006, "**missed**")])
def test_the_page_says_what_is_met_and_what_is_missing(lost, verdict, tmp_path):
    study = replace(STUDY, variants=plan.STUDIES[0].variants)
    base = [0.95, 0.96, 0.97, 0.98, 0.99]
    store = made({"float32": base, "lazy": [a - lost for a in base], "none": [0.9, 0.92]}, tmp_path / "r.json")
    text = page([study], store)
    low = f"{100 * lost:.2f}"
    assert (
        f"| 5 of 5 | 1/4 | {97 - 100 * lost:.2f} ± 1.58 | -{low} (-{low} to -{low}) | 10.00 % | 20.00 % | 1 | 1.5 |"
        in text
    )
    assert f"-{low} ± 0.00 points to float32, PyTorch; target -0.5 or better: {verdict}.\n" in text
    assert "* Tiny: float32, seeds 0; none, seeds 3, 4, 5; stochastic, seeds 1, 2, 3, 4, 5" in text
    assert f"against BFP without lazy update: {4.5 - 100 * lost:+.2f}" in text
    del store.results[Run("tiny", "lazy", 5)]
    assert f": {verdict}, so far (4 of 5).\n" in page([study], store)
    assert pictures([study], store)[SEEDS_PICTURE].startswith(b"\x89PNG")


def test_the_page_of_the_documentation_is_that_of_its_results():
    text = page(plan.STUDIES, Store(DOCS / "data" / "training.json"))
    assert (DOCS / "training-evidence.md").read_text(encoding="utf-8") == text, "run: see the head of the page"
    assert all((DOCS / name.split(")")[0]).is_file() for name in text.split("![](")[1:])


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("concord_bench.evidence.plan.STUDIES", (STUDY, replace(STUDY, name="b", data=missing)))
    arguments = ["--results", str(tmp_path / "r.json"), "--docs", str(tmp_path / "docs")]
    done = CliRunner().invoke(training_evidence, arguments)
    assert done.exit_code == 0, done.output
    assert "tiny, none, 5: test accuracy" in done.output and "b: not run, nowhere" in done.output
    written = sorted(str(p.relative_to(tmp_path / "docs")) for p in (tmp_path / "docs").rglob("*.*"))
    assert written == ["data/training.json", "pictures/training-curves.png", "pictures/training-seeds.png",
                       "training-evidence.md"]  # fmt: skip
    wrong = CliRunner().invoke(training_evidence, ["--only", "c"])
    assert wrong.exit_code == 1 and "experiments must be among tiny, b, not c" in wrong.output
    (tmp_path / "r.json").write_text("{}")
    damaged = CliRunner().invoke(training_evidence, arguments)
    assert damaged.exit_code == 1 and "must be a file of results" in damaged.output


def missing():
    raise Missing("nowhere")
