"""The report as a file: its texts, figures, bytes and refusals. The browser has its own tests."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis import report_html
from analysis.breakdown import breakdown
from analysis.metrics import Recall
from analysis.ranked_pools import material_of
from analysis.report import app
from analysis.report_blocks import Blocks, in_chunks, inline_json
from analysis.report_page import SCRIPTS, asset, script, style
from analysis.runs import Run, read_run
from analysis.sides import Side
from analysis.significance import pairings, recall_area
from tests.kit import edit_line, one_line_error, read_lines, run, swept, write_lines

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script> ]]> &lt; 'quoted\" {{x}} @@data@@",
    "[red]text[/red] $x_1$ %{y} \x1b[31m \u2028 \u202e",
    "喜欢喝绿茶",
    "الشاي الأخضر",
)
PLOTLY = b'window.Plotly = {"</scr" + "ipt": 1};'
SIZES = (2, 4)


def rows() -> Iterator[dict[str, Any]]:
    for number in range(12):
        texts = [f"{HOSTILE[number % 5]} note {number}", *(f"other {number} {i}" for i in range(4))]
        yield {
            "id": f"q{number}",
            "query": f"{HOSTILE[(number + 1) % 5]} note {number}",
            "memories": [{"text": text, "label": HOSTILE[0]} for text in texts],
            "gold": 0,
            "category": HOSTILE[number % 2],
        }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("data") / "own.jsonl", rows())


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over hostile texts."""
    out = tmp_path_factory.mktemp("runs") / "a"
    swept(["bm25", "overlap"], data, pools="nested", distractors=SIZES, out=out)
    return out


@pytest.fixture(scope="module", autouse=True)
def _small_plotly() -> Iterator[None]:
    """Leave plotly's five megabytes to the tests of the browser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.report.plotly_source", lambda: PLOTLY)
        yield


@pytest.fixture(scope="module")
def page(made: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("page") / "report.html", made, "--data", data)


def written(out: Path, *words: object) -> str:
    run(app, *words, "--out", out, code=0)
    return out.read_text("utf-8")


def blocks_of(page: str) -> dict[str, Any]:
    found = re.findall(r'base64" id="block-([a-z0-9-]+)">([A-Za-z0-9+/=]*)</script>', page)
    raw = {name: zlib.decompress(base64.b64decode(text)) for name, text in found}
    return {name: json.loads(text) for name, text in raw.items() if name != "plotly"}


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


class Outline(HTMLParser):
    """The elements of a page, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)


def test_no_text_of_the_data_becomes_markup(page: str) -> None:
    found = Outline(page)
    names = {tag for tag, _ in found.tags}
    assert names & {"img", "iframe", "link", "object", "base", "form"} == set()
    keys = {key for _, attributes in found.tags for key in attributes}
    assert not [key for key in keys if key.startswith("on") or key in ("src", "srcset")]
    assert not re.search(r"<[^\n]{0,9}script>alert|<!-- <script", page)
    blocks = blocks_of(page)
    kinds = [one.get("type") for tag, one in found.tags if tag == "script"]
    assert kinds.count(None) == 1, "one script that runs"
    assert len(kinds) == len(blocks) + 3, "data, plotly and the script"
    texts = {text for text, _ in blocks["memories-0"]}
    assert {f"{HOSTILE[number % 5]} note {number}" for number in range(12)} <= texts
    assert blocks["index"]["text"][0] == f"{HOSTILE[1]} note 0"
    assert blocks["index"]["fields"]["category"]["names"] == sorted(HOSTILE[:2])
    assert set(blocks["index"]["groups"]["category"]["names"]) == set(HOSTILE[:2])


def test_only_our_scripts_may_run(page: str) -> None:
    policy = next(
        one["content"]
        for tag, one in Outline(page).tags
        if tag == "meta" and one.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    allowed = rules["script-src"].split()
    assert len(allowed) == 2
    assert all(source.startswith("'sha256-") for source in allowed)
    code = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    for source in (code.encode(), PLOTLY):
        digest = base64.b64encode(hashlib.sha256(source).digest()).decode()
        assert f"'sha256-{digest}'" in allowed


def test_assets_can_lie_inside_a_page() -> None:
    for text in (script(), style()):
        assert not re.search(r"</(script|style)|<!--|@@", text)
    assert "innerHTML" not in script()
    assert "insertAdjacentHTML" not in script()
    assert [name for name in SCRIPTS if not asset(f"{name}.js").startswith("/* ")] == []


def test_figures_are_those_of_the_run(page: str, made: Path) -> None:
    shown, summary = data_of(page), read_run(made).summary((1, 5, 10))
    cells = {(c["label"], int(n)): cell for c in shown["curves"] for n, cell in c["cells"].items()}
    assert set(cells) == {(cell.retriever, cell.distractors) for cell in summary.cells}
    for cell in summary.cells:
        found = cells[cell.retriever, cell.distractors]
        assert found["scored"] == cell.scored
        for metric, estimate in cell.estimates.items():
            assert found["metrics"][metric.name]["mean"] == estimate.mean
            assert found["metrics"][metric.name]["low"] == estimate.low
    assert shown["sizes"] == list(SIZES)


def test_queries_have_the_ranks_and_texts_of_the_rows(page: str, made: Path) -> None:
    blocks, shown, read = blocks_of(page), data_of(page), read_run(made)
    names = [curve["name"] for curve in shown["curves"]]
    index = blocks["index"]
    by_key = {(row.query, row.retriever, row.distractors): row for row in read.rows}
    for number, query in enumerate(index["id"]):
        entry = blocks["rows-0"][number]
        for curve, cell, order, scores in entry["rows"]:
            row = by_key[query, names[curve], int(cell.partition("/")[0])]
            pool = entry["pools"][cell]
            assert [[pool["shown"][i][0], s] for i, s in zip(order, scores, strict=True)] == [
                list(pair) for pair in row.top
            ]
            assert pool["golds"] == list(row.golds)
            assert index["ties"][curve][cell][number] == list(row.ties[0])
            gold = next(memory for position, memory in pool["shown"] if position in row.golds)
            assert entry["gold"] == [gold]
            assert blocks["memories-0"][gold] == [
                f"{HOSTILE[number % 5]} note {number}",
                HOSTILE[0],
            ]


def test_equal_runs_give_equal_bytes(made: Path, data: Path, tmp_path: Path, page: str) -> None:
    again = written(tmp_path / "again.html", made, "--data", data)
    assert again == page


def test_a_page_without_texts_has_none(made: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = run(app, made, "--no-texts", "--out", out, code=0)
    assert "holds texts" not in done.stderr
    page = out.read_text("utf-8")
    blocks = blocks_of(page)
    assert not [name for name in blocks if name.startswith("memories")]
    assert set(blocks["index"]) == {"id", "ties"}
    assert "note" not in json.dumps(list(blocks.values()))
    with_data = written(tmp_path / "more.html", made, "--no-texts", "--data", data)
    assert blocks_of(with_data)["index"].keys() == {"id", "ties", "groups"}
    assert "category" not in blocks_of(with_data)["index"]["groups"]
    assert not {"category", "label"} & set(data_of(with_data)["breakdown"]["by"])
    assert HOSTILE[3] not in json.dumps([*blocks_of(with_data).values()], ensure_ascii=False)


def test_texts_of_other_data_than_the_sample_are_announced(
    made: Path, data: Path, tmp_path: Path
) -> None:
    done = run(app, made, "--data", data, "--out", tmp_path / "r.html", code=0)
    assert "--no-texts" in done.stderr


def copied(made: Path, folder: Path) -> Path:
    return Path(shutil.copytree(made, folder))


def test_failed_and_missing_rows_are_counted(made: Path, data: Path, tmp_path: Path) -> None:
    part = copied(made, tmp_path / "part")
    rows = read_lines(part / "rows.jsonl")
    rows[0] |= {"above": None, "tied": None, "top": [], "error": "ValueError: <b>no</b>"}
    for row in rows:
        row.pop("check")
    write_lines(part / "rows.jsonl", rows[:-3])
    page = written(tmp_path / "report.html", part, "--data", data)
    shown, blocks = data_of(page), blocks_of(page)
    assert shown["curves"][0]["cells"]["2"]["failed"] == 1
    assert shown["runs"][0]["rows"] == shown["runs"][0]["expected"] - 3
    assert shown["runs"][0]["failed"] == 1
    assert blocks["index"]["ties"][0]["2/0"][0] == -1
    assert blocks["index"]["ties"][1]["4/0"][-3:] == [0, 0, 0]
    assert blocks["rows-0"][0]["rows"][0][4]["error"] == "ValueError: <b>no</b>"
    assert any("not run yet" in line for line in shown["remarks"])


def test_a_run_without_a_scored_row_is_shown_with_its_failures(
    made: Path, data: Path, tmp_path: Path
) -> None:
    failed = copied(made, tmp_path / "failed")
    rows = read_lines(failed / "rows.jsonl")
    for row in rows:
        row.pop("check")
        row |= {"above": None, "tied": None, "top": [], "error": "RuntimeError: away"}
    write_lines(failed / "rows.jsonl", rows)
    shown = data_of(written(tmp_path / "report.html", failed, "--data", data))
    assert [metric["symbol"] for metric in shown["metrics"]] == ["R"]
    assert shown["runs"][0]["failed"] == len(rows)
    assert shown["curves"][0]["cells"]["2"]["failures"] == {"RuntimeError: away": 12}
    assert shown["frontier"]["sizes"] == {}
    assert shown["significance"]["sizes"]["2"]["R@1"] == []


def test_runs_on_the_same_pools_are_one_report(made: Path, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "b"
    swept(["bm25"], data, pools="nested", distractors=(4, 6), out=other)
    page = written(tmp_path / "report.html", made, other, "--data", data)
    shown, blocks = data_of(page), blocks_of(page)
    names = [curve["name"] for curve in shown["curves"]]
    assert len(set(names)) == 3
    assert shown["sizes"] == [2, 4, 6]
    assert set(blocks["index"]["ties"][2]) == {"4/0", "6/0"}
    assert blocks["index"]["ties"][2]["4/0"] == blocks["index"]["ties"][0]["4/0"]


def test_what_cannot_be_reported_is_one_line(
    made: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["--out", tmp_path / "r.html"]
    one_line_error(run(app, made, *out), "Pass the --data")
    other = tmp_path / "seeds"
    swept(["bm25"], data, pools="nested", distractors=(4,), pool_seeds=(1,), out=other)
    one_line_error(run(app, made, other, "--data", data, *out), "pools.seeds", str(other))
    one_line_error(run(app, tmp_path / "none", *out), "none")
    one_line_error(run(app, made, made, "--data", data, *out), "twice")
    (tmp_path / "r.html").write_text("mine")
    one_line_error(run(app, made, "--data", data, *out), "--overwrite")
    assert (tmp_path / "r.html").read_text() == "mine"
    one_line_error(run(app, made, "--published", "me", *out, "--overwrite", "--data", data), "me")


def test_a_row_that_is_not_of_its_pool_is_refused(made: Path, data: Path, tmp_path: Path) -> None:
    broken = copied(made, tmp_path / "broken")
    edit_line(broken / "rows.jsonl", 1, lambda row: (row.pop("check"), row.update(top=[[99, 1.0]])))
    done = run(app, broken, "--data", data, "--out", tmp_path / "r.html")
    one_line_error(done, "rows.jsonl")


def test_plotly_is_read_from_its_package_or_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    assert b"plotly.js v" in report_html.plotly_source()[:200]
    monkeypatch.setattr(report_html, "find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"recallbed\[report\]"):
        report_html.plotly_source()


def test_json_of_a_page_ends_no_element() -> None:
    value = {"<": ["</script>", "<!--", "\u2028", "\ud83d", "\x00", "&amp;"]}
    text = inline_json(value)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="JSON"):
        inline_json(float("nan"))


def test_blocks_keep_their_values() -> None:
    blocks = Blocks()
    blocks.add("a-1", ["\ud83d", "\x00", "</script>", 1.5])
    found = "".join(blocks.elements())
    [text] = re.findall(r">([^<]+)<", found)
    assert json.loads(zlib.decompress(base64.b64decode(text))) == [
        "\ud83d",
        "\x00",
        "</script>",
        1.5,
    ]
    for name in ("a-1", 'a" x="'):
        with pytest.raises(ValueError, match="name"):
            blocks.add(name, 1)
    assert list(in_chunks([1, 2, 3], 2)) == [(0, [1, 2]), (1, [3])]


def test_the_curve_of_the_page_is_the_curve_of_the_command(page: str, made: Path) -> None:
    from analysis.curves import curves_of

    read: Run = read_run(made)
    drawn = {curve.label: list(curve.mean) for curve in curves_of([read], Recall(1))}
    for curve in data_of(page)["curves"]:
        means = [curve["cells"][str(n)]["metrics"]["R@1"]["mean"] for n in SIZES]
        assert means == drawn[curve["name"]]


def test_the_matrix_has_the_pairings_of_the_command(page: str, made: Path) -> None:
    read = read_run(made)
    found = data_of(page)["significance"]
    assert list(found["sizes"]) == ["2", "4"]
    for size in SIZES:
        [one] = pairings([Side(read, "bm25"), Side(read, "overlap")], [Recall(1)], sizes=[size])
        [shown] = found["sizes"][str(size)]["R@1"]
        assert (shown["a"], shown["b"], shown["n"]) == (0, 1, 12)
        assert shown["difference"] == round(one.paired.difference, 6)
        assert shown["wins"] == one.paired.wins
    areas = found["areas"]["R@1"]
    assert areas[0]["mean"] == round(recall_area(read, "bm25", 1).mean, 6)


def test_curves_that_cannot_be_compared_have_a_reason(
    made: Path, data: Path, tmp_path: Path
) -> None:
    """The second retriever of a stopped run lacks a query at one size."""
    part = copied(made, tmp_path / "part")
    write_lines(part / "rows.jsonl", read_lines(part / "rows.jsonl")[:-1])
    found = data_of(written(tmp_path / "report.html", part, "--data", data))["significance"]
    assert len(found["sizes"]["2"]["R@1"]) == 1
    assert found["sizes"]["4"]["R@1"] == []
    assert any("not the same queries" in reason for reason in found["reasons"])


def test_the_heat_map_has_the_cells_of_the_command(page: str, made: Path, data: Path) -> None:
    read = read_run(made)
    found = data_of(page)["breakdown"]
    assert {"language", "label", "near_duplicates", "position", "category"} <= set(found["by"])
    for by in ("language", "category"):
        one = found["by"][by]
        cells = breakdown(read, material_of(read, data), by, Recall(5))
        names = [*one["groups"], found["total"]]
        shown = {
            (names[group], curve, int(size)): rest
            for size, mine in one["cells"]["R@5"].items()
            for group, curve, *rest in mine
        }
        assert len(shown) == len(cells)
        for cell in cells:
            key = cell.group, read.labels.index(cell.retriever), cell.distractors
            assert cell.estimate is not None
            assert shown[key][:3] == [cell.n, cell.failed, round(cell.estimate.mean, 6)]


def test_an_audit_of_the_data_is_added_on_request(
    made: Path, data: Path, tmp_path: Path, page: str
) -> None:
    assert data_of(page)["audit"] is None
    with_audit = written(tmp_path / "audit.html", made, "--data", data, "--audit")
    found = data_of(with_audit)["audit"]
    assert found["findings"]
    assert {"name", "verdict", "value", "chance", "text"} <= set(found["findings"][0])
    done = run(app, made, "--no-texts", "--audit", "--out", tmp_path / "no.html")
    one_line_error(done, "--audit", "--data")
