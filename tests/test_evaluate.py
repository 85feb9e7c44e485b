"""Retrievers as instances, and sweeps from Python: `from task3 import evaluate`."""

import ast
import json
import pickle
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from analysis.compare import app as compare_app
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import parse_configurations
from recallbed.harness.fingerprint import canonical
from retrievers.base import Retriever, RunContext
from retrievers.bm25 import BM25
from retrievers.chance import Random
from retrievers.dense import MiniLM
from retrievers.hybrid import Hybrid
from retrievers.overlap import Overlap
from retrievers.registry import GivenInstance, build_retrievers, describe_retriever
from task3 import Evaluation, evaluate, sweep
from tests.kit import ROOT, python, read_json, rows_of, run, run_json, write_lines

SAME = {
    "bm25 with a setting": (BM25(k1=0.9), "bm25", ["k1=0.9"]),
    "a whole number for a float": (BM25(k1=1), "bm25", ["k1=1"]),
    "positional": (BM25("okapi"), "bm25", ["variant=okapi"]),
    "minilm": (MiniLM(batch_size=8), "minilm", ["batch_size=8"]),
    "legs": (Hybrid("bm25,overlap", rrf_k=20), "hybrid", ["legs=bm25,overlap", "rrf_k=20"]),
    "seed of the run": (Random(), "random", []),
    "seed of its own": (Random(3), "random", ["seed=3"]),
    "without settings": (Overlap(), "overlap", []),
}


@dataclass
class Longest(Retriever):
    weight: float = 2.0

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        return [len(memory.text) * self.weight for memory in pool]


def described(configuration: Any) -> Mapping[str, Any]:
    built = build_retrievers([configuration], RunContext(seed=7))
    return describe_retriever(configuration, built[configuration.label])


@pytest.mark.parametrize("name", SAME)
def test_an_instance_has_the_fingerprint_of_its_settings(name: str) -> None:
    instance, registered, settings = SAME[name]
    words = [f"mine.{setting}" for setting in settings]
    [typed] = parse_configurations([f"mine={registered}"], words)
    assert repr(described(GivenInstance.of("mine", instance))) == repr(described(typed))


def test_a_dataclass_is_used_as_it_is_and_described_by_its_fields() -> None:
    mine = Longest(3.0)
    given = GivenInstance.of("mine", mine)
    assert build_retrievers([given], RunContext()) == {"mine": mine}
    assert described(given)["settings"] == {"weight": 3.0}
    assert described(given)["name"] == f"{__name__}:Longest"


def test_a_hybrid_of_instances_is_used_as_it_is() -> None:
    made = Hybrid.of({"a": BM25(k1=3), "b": Overlap()})
    assert build_retrievers([GivenInstance.of("mine", made)], RunContext())["mine"] is made


def test_a_wrong_value_is_named() -> None:
    given = GivenInstance.of("mine", BM25(stem="perhaps"))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="mine, stem='perhaps': Input should be a valid boolean"):
        build_retrievers([given], RunContext())


def test_an_unknown_setting_is_refused_by_the_constructor() -> None:
    with pytest.raises(TypeError, match="foo"):
        BM25(foo=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Overlap(foo=1)  # type: ignore[call-arg]


def test_an_instance_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(BM25(k1=2)))
    assert described(GivenInstance.of("mine", copy))["settings"]["k1"] == 2.0


def test_rows_are_the_commands_byte_for_byte(tmp_path: Path) -> None:
    words = ("--retriever", "bm25", "--retriever", "okapi=bm25", "--set", "bm25.k1=0.9")
    words = (*words, "--set", "okapi.variant=okapi", "--distractors", "5,10", "--limit", "12")
    run(sweep.app, *words, "--out", tmp_path / "typed", code=0)
    given: dict[str, Any] = {"distractors": (5, 10), "limit": 12, "out": tmp_path / "called"}
    found = evaluate([BM25(k1=0.9), "okapi=bm25"], settings={"okapi.variant": "okapi"}, **given)
    for name in ("rows.jsonl", "manifest.json", "summary.json", "curve.csv"):
        typed, called = (tmp_path / one / name for one in ("typed", "called"))
        assert typed.read_text().replace("typed", "called") == called.read_text()
    lines = [{**row, "check": None} for row in rows_of(tmp_path / "typed")]
    assert [{**row, "check": None} for row in found.rows] == lines
    assert found.summary.to_json() == read_json(tmp_path / "typed" / "summary.json")


def test_tables_figures_and_comparisons() -> None:
    found = evaluate([BM25(), BM25("okapi"), Overlap()], distractors=5, limit=12, k=(1, 2))
    assert found.run.labels == ("bm25", "bm25-2", "overlap")
    assert "bm25-2" in repr(found.table())
    assert found._repr_html_().count("<tr>") == 4
    assert [one["k"] for one in found.compare("bm25", "overlap", k=2).records] == [2]
    own = Figure().subplots()
    assert found.curve(own) is own.get_figure()
    assert found.curve().axes[0].get_ylabel().startswith("recall@1")
    with pytest.raises(UserError, match="no retriever has the label `bm52`"):
        found.compare("bm52", "overlap")


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate("bm25", distractors=5, limit=3)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"recallbed\[notebook\]"):
        found.to_frame()


def test_a_file_of_ones_own_with_distractors_has_nested_pools(tmp_path: Path) -> None:
    lines = [{"query": f"q{n}", "memories": [f"a{n}", f"b{n}"], "gold": 0} for n in range(9)]
    path = write_lines(tmp_path / "my.jsonl", lines)
    found = evaluate("overlap", data=path, distractors=(2, 4), k=1)
    assert found.run.strategy == "nested"


@pytest.mark.parametrize(
    ("retrievers", "settings", "message"),
    [
        ([1], {}, "give an instance"),
        ([], {}, "no retriever named"),
        (["a=bm25", "a=overlap"], {}, "used twice"),
        ([BM25()], {"bm25.k1": 1}, "to its constructor"),
    ],
)
def test_mistakes_are_named(retrievers: Any, settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluate(retrievers, settings=settings, distractors=5)


def test_importing_the_task_imports_nothing_heavy() -> None:
    code = "import sys, task3; print([m for m in ('numpy', 'matplotlib') if m in sys.modules])"
    assert python("-c", code).stdout.strip() == "[]"


def test_the_notebook_of_the_docs_gives_its_outputs() -> None:
    """Times of scoring differ from run to run; everything else is equal."""
    notebook = read_json(ROOT / "docs" / "notebook.ipynb")
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        *statements, last = ast.parse("".join(cell["source"])).body
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        [output] = cell["outputs"]
        if "image/png" in output["data"]:
            assert value._repr_png_().startswith(b"\x89PNG")
            continue
        shown, kept = (
            re.sub(r" *\d+\.\d \+ \d+\.\d s|-{9,}", "", text)
            for text in (repr(value), "".join(output["data"]["text/plain"]))
        )
        assert re.sub(" +\n", "\n", shown) == re.sub(" +\n", "\n", kept)


@pytest.fixture(scope="module")
def three() -> Evaluation:
    return evaluate([BM25(), "overlap", "constant"], distractors=(5, 20), limit=40, k=(1, 2))


def test_significance_is_that_of_the_command(three: Evaluation) -> None:
    records = three.significance().records
    assert [one["sides"] for one in records] == [
        ["bm25", "overlap"],
        ["bm25", "constant"],
        ["overlap", "constant"],
    ]
    assert {one["distractors"] for one in records} == {20}
    words = [f"{three.path}:{label}" for label in three.run.labels]
    typed = run_json(compare_app, *words, "--all-pairs", "--metric", "R@1", "--distractors", "20")
    assert typed == json.loads(canonical(records))
    against = three.significance("nDCG@10", distractors=5, baseline="constant")
    assert [one["sides"][0] for one in against.records] == ["constant"] * 2
    assert "corrected for 2 comparisons" in repr(against)


def test_breakdown_and_errors_are_those_of_the_commands(three: Evaluation) -> None:
    found = three.breakdown("language")
    assert sum(one["n"] for one in found.records if not one["total"]) == 3 * 40
    assert "<table>" in found._repr_html_()
    counted = three.errors()
    for one in counted.records:
        assert one["hits"] + sum(one["misses"].values()) == one["scored"] == 40
    listed = three.errors("bm25", distractors=5, k=2, reasons=True)
    assert len(listed.records) == sum(
        one["misses"][kind]
        for one in three.errors(distractors=5, k=2).records
        if one["retriever"] == "bm25"
        for kind in one["misses"]
    )
    assert "why gold" in repr(listed)


def test_the_report_of_a_run_reads_its_data_again(tmp_path: Path) -> None:
    lines = [{"query": f"q{n}", "memories": [f"a{n}", "<b>"], "gold": 0} for n in range(9)]
    path = write_lines(tmp_path / "my.jsonl", lines)
    found = evaluate("overlap", data=str(path), k=1)
    out = found.report(tmp_path / "report.html")
    assert out.read_text().lower().startswith("<!doctype html>")
    with pytest.raises(UserError, match="already exists"):
        found.report(out)
    assert found.report(out, overwrite=True, texts=False) == out
    assert found.breakdown("length").records


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda one: one.significance("R@0"), "metric R@0: not a metric"),
        (lambda one: one.significance(baseline="bm52"), "no retriever has the label `bm52`"),
        (lambda one: one.errors("bm52"), "labels: bm25, overlap, constant"),
        (lambda one: one.breakdown("colour"), "colour"),
        (lambda one: one.errors(distractors=7), "It has 5, 20"),
    ],
)
def test_what_a_run_does_not_have_is_named(three: Evaluation, ask: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ask(three)
