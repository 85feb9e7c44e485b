"""The report and the leaderboard in headless Chromium: what a reader does with them, and how.

Every test ends with a look at what the page said on the console and asked for elsewhere: nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from analysis.metrics import Recall
from analysis.runs import Run, read_run
from tests.browser import Opened, awaited, chromium, started_browser, violations, width_of_overflow
from tests.kit import swept, write_lines

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on PATH; set CHROMIUM"),
]

SIZES = (100, 300, 1000)
DEV_SIZES = (100, 300, 500, 700, 1000)
TABS = ("results", "queries", "significance", "breakdown", "frontier", "audit", "runs")
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 2'>",
    "[red]not red[/red] $x_1$ `code` &amp; {{x}}",
    "\x1b[31mred\x1b[0m \u202eright to left",
    "الشاي الأخضر في الصباح",
    "喜欢喝绿茶",
)
SHOWN = {HOSTILE[3]: "\\x1b[31mred\\x1b[0m \\u202eright to left"}

Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright", reason="playwright is not installed: make test-browser")
    pytest.importorskip("axe_playwright_python")
    with started_browser() as found:
        yield found


@pytest.fixture
def show(browser: Browser) -> Iterator[Open]:
    """Open a page; at the end of the test it must have said nothing and asked for nothing."""
    opened: list[Opened] = []

    def show(file: Path, fragment: str = "", **context: Any) -> Opened:
        one = Opened(browser, file, fragment, **context)
        opened.append(one)
        if context.get("java_script_enabled", True) and file.name == "report.html":
            one.page.wait_for_selector("html[data-ready=true]", state="attached")
        return one

    yield show
    for one in opened:
        one.close()
    assert [fault for one in opened for fault in one.faults] == []


def reported(run: Run, out: Path, **given: Any) -> Path:
    from analysis.report import write_report

    write_report([run], out, **given)
    return out


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """The embedded sample with a dense and two lexical retrievers."""
    root = tmp_path_factory.mktemp("sample")
    path = swept(("bm25", "minilm", "overlap"), out=root / "run", distractors=SIZES).path
    run = read_run(path)
    return run, reported(run, root / "report.html", audit=True)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory, alpsbench: Path) -> tuple[Run, Path]:
    """Public dev at five sizes: 100 of its 410 queries, so that encoding takes no minutes."""
    root = tmp_path_factory.mktemp("dev")
    labels = ("bm25", "minilm", "hybrid")
    given: dict[str, Any] = {"limit": 100, "distractors": DEV_SIZES, "out": root / "run"}
    given["store"] = root / "vectors.sqlite"  # minilm and hybrid encode the same texts
    run = read_run(swept(labels, alpsbench, **given).path)
    return run, reported(run, root / "report.html", data=alpsbench)


@pytest.fixture(params=["sample", "dev"])
def made(request: pytest.FixtureRequest) -> tuple[Run, Path]:
    found: tuple[Run, Path] = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A file of one's own, whose texts would do something where they are not shown as text."""
    root = tmp_path_factory.mktemp("hostile")
    lines = [
        {
            "query": f"{text} {number}",
            "memories": [f"{text} {number} {other}" for other in HOSTILE] + [f"plain {number}"],
            "gold": number % 6,
            "category": text,
        }
        for number, text in enumerate(HOSTILE * 2)
    ]
    file = write_lines(root / "own.jsonl", lines)
    run = read_run(swept(("overlap", "constant"), file, out=root / "run").path)
    return run, reported(run, root / "report.html", data=file)


def tab(page: Page, name: str) -> Locator:
    """Choose a tab; return its panel."""
    page.locator(f"#tab-{name}").click()
    panel = page.locator(f"#panel-{name}")
    panel.wait_for()
    return panel


def tabs(page: Page) -> list[str]:
    """The names of the tabs."""
    found = page.locator("#tabs [role=tab]").all()
    return [str(one.get_attribute("id")).removeprefix("tab-") for one in found]


def outcomes(run: Run, label: str, size: int, k: int) -> dict[str, float]:
    """Recall at k of each query."""
    rows = [row for row in run.rows if (row.retriever, row.distractors) == (label, size)]
    return {row.query: Recall(k).value(row.ties) for row in rows}


def wait_for_count(page: Page, number: int) -> None:
    awaited(page.locator("#q-count")).to_have_text(re.compile(rf"^{number} "))


def figures(page: Page, size: int | None = None) -> list[tuple[str, float]]:
    """The retriever and the first figure of each row of the table, in its order."""
    rows = page.locator("table#results tbody tr")
    found = []
    for row in rows.all():
        if size is None or row.get_attribute("data-distractors") == str(size):
            number = re.search(r"\d\.\d+", row.locator("[data-key=value]").inner_text())
            assert number is not None
            found.append((row.get_attribute("data-curve") or "", float(number[0])))
    return found


# Results


def test_it_opens_and_draws_a_curve_of_each_retriever(made: tuple[Run, Path], show: Open) -> None:
    run, file = made
    page = show(file).page
    page.wait_for_selector("#curve-chart[data-state=ready]")
    chart = page.locator("#curve-chart")
    assert chart.get_attribute("data-curves") == str(len(run.labels))
    assert page.locator("#curve-chart .scatterlayer .trace").count() >= len(run.labels)
    sample = run.manifest["fingerprint"]["data"]["sample"]
    assert ("not AlpsBench" in page.locator("#subtitle").inner_text()) == sample


def test_a_point_under_the_pointer_shows_its_figures(made: tuple[Run, Path], show: Open) -> None:
    run, file = made
    page = show(file).page
    page.wait_for_selector("#curve-chart[data-state=ready]")
    point = page.locator("#curve-chart .scatterlayer .trace .points path.point").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    awaited(page.locator("#curve-chart .hoverlayer")).to_contain_text(run.labels[0])
    text = page.locator("#curve-chart .hoverlayer").text_content() or ""
    assert all(name in text for name in run.labels)
    assert re.search(r"0\.\d\d", text)


def test_a_curve_is_toggled_with_pointer_and_keyboard(made: tuple[Run, Path], show: Open) -> None:
    run, file = made
    page = show(file).page
    page.wait_for_selector("#curve-chart[data-state=ready]")
    box = page.locator(f"#curve-toggles input[data-curve='{run.labels[0]}']")
    box.click()
    page.wait_for_selector(f"#curve-chart[data-curves='{len(run.labels) - 1}']")
    box.focus()
    page.keyboard.press("Space")
    page.wait_for_selector(f"#curve-chart[data-curves='{len(run.labels)}']")


def test_k_and_metric_change_chart_and_table(made: tuple[Run, Path], show: Open) -> None:
    run, file = made
    page = show(file).page
    page.wait_for_selector("#curve-chart[data-state=ready]")
    page.select_option("#k", "5")
    page.wait_for_selector("#curve-chart[data-title='recall@5']")
    means = {
        (cell.retriever, cell.estimates[Recall(5)].mean)
        for cell in run.summary((5,)).cells
        if cell.distractors == 1000
    }
    shown = {(name, value) for name, value in figures(page, 1000)}
    assert shown == {(name, round(mean, 3)) for name, mean in means}
    page.select_option("#metric", "nDCG")
    page.wait_for_selector("#curve-chart[data-title='nDCG@5']")
    page.select_option("#metric", "E[RR]")
    assert page.locator("#k").is_disabled()


def test_the_table_is_sorted_by_its_heads(made: tuple[Run, Path], show: Open) -> None:
    _, file = made
    page = show(file).page
    head = page.locator("table#results th:has(button[data-sort=value])")
    for order in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        values = [value for _, value in figures(page)]
        assert values == sorted(values, reverse=order == "descending")
    page.locator("table#results button[data-sort=retriever]").click()
    names = [name for name, _ in figures(page)]
    assert names == sorted(names)
    assert head.get_attribute("aria-sort") == "none"


# Single queries


def test_misses_are_filtered_and_counted(made: tuple[Run, Path], show: Open) -> None:
    run, file = made
    page = show(file).page
    tab(page, "queries")
    label = run.labels[0]
    page.select_option("#q-a", label)
    page.select_option("#q-n", "1000")
    page.select_option("#q-k", "5")
    values = outcomes(run, label, 1000, 5)
    for outcome, mine in (
        ("miss", {query for query, value in values.items() if value == 0}),
        ("hit", {query for query, value in values.items() if value == 1}),
        ("partly", {query for query, value in values.items() if 0 < value < 1}),
    ):
        page.select_option("#q-outcome", outcome)
        wait_for_count(page, len(mine))
        items = page.locator("#q-list li[data-query]").all()
        shown = [item.get_attribute("data-query") for item in items]
        assert set(shown) <= mine
        assert len(shown) == min(len(mine), 25)


def test_a_query_shows_its_ranking_with_the_gold_marked(made: tuple[Run, Path], show: Open) -> None:
    run, file = made
    opened = show(file)
    page = opened.page
    tab(page, "queries")
    page.select_option("#q-n", "100")
    page.select_option("#q-a", run.labels[0])
    page.select_option("#q-outcome", "hit")
    page.locator("#q-list a").first.click()
    page.wait_for_selector("#q-detail[data-state=ready]")
    query = page.locator("#q-detail").get_attribute("data-query")
    [row] = [
        row
        for row in run.rows
        if (row.query, row.retriever, row.distractors) == (query, run.labels[0], 100)
    ]
    ranking = page.locator(f".ranking[data-side=a][data-curve='{run.labels[0]}']")
    positions = [
        int(one.get_attribute("data-position") or -1)
        for one in ranking.locator("tr[data-position]").all()
    ]
    assert positions[: len(row.top)] == [position for position, _ in row.top]
    gold = ranking.locator("tr.gold")
    assert gold.first.get_attribute("data-position") == str(row.golds[0])
    assert "gold" in gold.first.inner_text()
    assert page.evaluate("document.activeElement.id") == "q-heading"
    # The address is that of this query: another reader, and the back button.
    address = page.evaluate("location.hash")
    assert f"q={quote(str(query), safe='')}" in address or f"q={query}" in address
    other = show(file, address).page
    other.wait_for_selector("#q-detail[data-state=ready]")
    assert other.locator("#q-detail").get_attribute("data-query") == query
    page.go_back()
    page.locator("#q-detail").wait_for(state="hidden")


def test_two_retrievers_stand_side_by_side(made: tuple[Run, Path], show: Open) -> None:
    run, file = made
    page = show(file).page
    tab(page, "queries")
    a, b = run.labels[:2]
    page.select_option("#q-a", a)
    page.select_option("#q-b", b)
    page.select_option("#q-n", "1000")
    page.select_option("#q-outcome", "b-beats-a")
    one, two = (outcomes(run, label, 1000, int(page.input_value("#q-k"))) for label in (a, b))
    better = {query for query in one if two[query] > one[query]}
    wait_for_count(page, len(better))
    page.locator("#q-list a").first.click()
    page.wait_for_selector("#q-detail[data-state=ready]")
    assert page.locator("#q-detail").get_attribute("data-query") in better
    sides = page.locator("#q-detail .ranking")
    assert [side.get_attribute("data-curve") for side in sides.all()] == [a, b]
    assert all(side.locator(".gold-rank").inner_text() for side in sides.all())


# How it can be used


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.className"))


def tab_to(page: Page, selector: str, limit: int = 60) -> None:
    """Press Tab until an element that matches has the focus."""
    for _ in range(limit):
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by Tab; the focus is on {focused(page)}")


def test_it_is_used_by_keyboard_alone(sample: tuple[Run, Path], show: Open) -> None:
    run, file = sample
    page = show(file).page
    page.wait_for_selector("#curve-chart[data-state=ready]")
    press(page, "Tab")
    assert page.evaluate("document.activeElement.matches('a.skip')")
    press(page, "Enter")
    awaited(page.locator("#main")).to_be_focused()
    tab_to(page, "#k")
    press(page, "ArrowDown")
    page.wait_for_selector("#curve-chart[data-title='recall@5']")
    tab_to(page, "#curve-toggles input")
    press(page, "Space")
    page.wait_for_selector(f"#curve-chart[data-curves='{len(run.labels) - 1}']")
    tab_to(page, "button[data-sort=value]")
    press(page, "Enter")
    assert page.locator("th[aria-sort=descending]").count() == 1
    tab_to(page, "#tab-results")
    press(page, "ArrowRight")
    page.wait_for_selector("#panel-queries:not([hidden])")
    assert focused(page) == "tab-queries"
    tab_to(page, "#q-n")
    press(page, "End")
    tab_to(page, "#q-outcome")
    press(page, *"miss")
    misses = [q for q, value in outcomes(run, run.labels[0], SIZES[-1], 5).items() if value == 0]
    wait_for_count(page, len(misses))
    tab_to(page, "#q-list a")
    press(page, "Enter")
    page.wait_for_selector("#q-detail[data-state=ready]")
    first = page.locator("#q-detail").get_attribute("data-query")
    assert focused(page) == "q-heading"
    tab_to(page, "#q-next")
    press(page, "Enter")
    awaited(page.locator("#q-detail")).not_to_have_attribute("data-query", str(first))
    tab_to(page, "#tab-queries", 90)
    press(page, "End")
    page.wait_for_selector("#panel-runs:not([hidden])")
    press(page, "Home")
    page.wait_for_selector("#panel-results:not([hidden])")


def test_what_has_the_focus_is_seen(sample: tuple[Run, Path], show: Open) -> None:
    page = show(sample[1]).page
    press(page, "Tab", "Tab", "Tab")
    style = "getComputedStyle(document.activeElement)"
    assert page.evaluate(f"{style}.outlineStyle") != "none"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(sample: tuple[Run, Path], show: Open, theme: str) -> None:
    run, file = sample
    page = show(file).page
    page.select_option("#theme", theme)
    page.wait_for_selector(f"html[data-theme={theme}]")
    found = {}
    for name in tabs(page):
        tab(page, name)
        if name == "queries":
            page.select_option("#q-b", run.labels[1])
            page.locator("#q-list a").first.click()
            page.wait_for_selector("#q-detail[data-state=ready]")
        found[name] = violations(page)
    assert not any(found.values()), json.dumps(found, indent=1)


def test_the_theme_follows_the_system_and_the_choice(sample: tuple[Run, Path], show: Open) -> None:
    page = show(sample[1], color_scheme="dark").page

    def light() -> bool:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128

    assert not light()
    page.select_option("#theme", "light")
    page.wait_for_selector("html[data-theme=light]")
    assert light()
    page.select_option("#theme", "auto")
    page.wait_for_selector("html[data-theme=auto]")
    assert not light()


def test_a_phone_needs_no_sideways_scrolling(made: tuple[Run, Path], show: Open) -> None:
    _, file = made
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    page = show(file, **phone).page
    for name in tabs(page):
        tab(page, name)
        assert width_of_overflow(page) <= 0, name
    tab(page, "queries")
    page.locator("#q-list a").first.tap()
    page.wait_for_selector("#q-detail[data-state=ready]")
    assert width_of_overflow(page) <= 0


def test_without_scripts_the_table_is_there(sample: tuple[Run, Path], show: Open) -> None:
    run, file = sample
    page = show(file, java_script_enabled=False).page
    assert page.locator("table#results tbody tr").count() == len(run.labels) * len(SIZES)


def test_every_tab_has_its_figures(sample: tuple[Run, Path], show: Open) -> None:
    run, file = sample
    page = show(file).page
    assert tabs(page) == list(TABS)
    for name in TABS:
        panel = tab(page, name)
        assert panel.locator("h2").first.is_visible()
        assert f"tab={name}" in page.evaluate("location.hash") or name == "results"
    tab(page, "significance")
    cells = page.locator("#sig-matrix td[data-a][data-b]")
    assert cells.count() >= len(run.labels) * (len(run.labels) - 1) // 2
    tab(page, "breakdown")
    page.select_option("#by", "language")
    assert page.locator("#breakdown-table tr[data-group]").count() > 2
    tab(page, "audit")
    assert page.locator("#audit-table tbody tr").count() > 5
    tab(page, "runs")
    assert page.locator("section.run").count() == 1


# Texts


def test_hostile_texts_are_text(hostile: tuple[Run, Path], show: Open) -> None:
    _, file = hostile
    page = show(file).page
    page.wait_for_selector("#curve-chart[data-state=ready]")
    tab(page, "queries")
    seen = set()
    for number in range(len(HOSTILE)):
        page.locator("#q-list a").nth(number).click()
        page.wait_for_selector("#q-detail[data-state=ready]")
        text = page.locator("#q-detail").text_content() or ""
        for one in HOSTILE:
            shown = SHOWN.get(one, one)
            assert shown in text, shown
            seen.add(shown)
        assert not re.search("[\x1b\u202e]", text)
        page.locator("#q-close").click()
    assert len(seen) == len(HOSTILE)
    for name in tabs(page):
        tab(page, name)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0
    right_to_left = page.locator("#q-list [dir=auto]", has_text="الشاي").first
    tab(page, "queries")
    assert right_to_left.evaluate("one => getComputedStyle(one).direction") == "rtl"


def test_texts_are_found_by_search(hostile: tuple[Run, Path], show: Open) -> None:
    _, file = hostile
    page = show(file).page
    tab(page, "queries")
    page.fill("#q-search", "绿茶")
    wait_for_count(page, 2)
    page.select_option("select[data-field=category]", index=1)
    page.locator("#q-reset").click()
    wait_for_count(page, 12)
    assert page.input_value("#q-search") == ""


# The leaderboard


def test_the_leaderboard_is_sorted_and_plain(
    sample: tuple[Run, Path], show: Open, tmp_path: Path
) -> None:
    from analysis.leaderboard import build_leaderboard
    from analysis.leaderboard_page import page as made

    run, _ = sample
    file = tmp_path / "board.html"
    file.write_text(made(build_leaderboard([run], Recall(1)), tmp_path, "html"), "utf-8")
    for scheme in ("light", "dark"):
        page = show(file, color_scheme=scheme).page
        assert violations(page) == []
        assert width_of_overflow(page) <= 0
        heads = page.locator("thead button")
        heads.nth(1).click()
        assert page.locator("tbody th b").all_inner_texts() == sorted(run.labels)
        heads.nth(2).focus()
        press(page, "Enter")
        assert page.locator("th[aria-sort=descending]").count() == 1
        cells = page.locator("tbody td:nth-child(3)").all_inner_texts()
        values = [float(text[:5]) for text in cells]
        assert values == sorted(values, reverse=True)
