"""The pictures of docs/report.md and of README.md: a report in Chromium at several sizes.

python -m tests.report_pictures RUN [--out docs]

RUN is a run on the embedded sample. `make report-pictures` makes it first.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from analysis.report import write_report
from analysis.runs import Run, read_run
from tests.browser import Opened, started_browser
from tests.kit import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DESKTOP = {"viewport": {"width": 1200, "height": 780}}
TALL = {"viewport": {"width": 1200, "height": 900}}
WIDE = {"viewport": {"width": 1440, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 1.5, "is_mobile": True}
LANGUAGES = {"chinese": "zh", "arabic": "ar"}


def query_of(run: Run, language: str) -> str:
    """The first query of a language whose gold both compared retrievers rank among the first."""
    for row in run.rows:
        if f"_{language}_" in row.query and row.ties and row.ties[0] == (0, 1):
            return row.query
    raise SystemExit(f"no query of `{language}` is a hit")


def pictures(run: Run) -> dict[str, tuple[str, dict[str, Any], str]]:
    """By name: the fragment of the page, the window, and what must be ready."""
    a, b = run.labels[:2]
    chart, detail = "#curve-chart[data-state=ready]", "#q-detail[data-state=ready]"
    found = {
        "report": ("", DESKTOP, chart),
        "report_dark": ("#theme=dark&k=5", DESKTOP, chart),
        "report_phone": ("", PHONE, chart),
        "report_breakdown": ("#tab=breakdown", TALL, "#breakdown-chart[data-state=ready]"),
        "report_significance": ("#tab=significance", DESKTOP, "#sig-matrix"),
    }
    for name, language in LANGUAGES.items():
        query = quote(query_of(run, language), safe="")
        found[f"report_{name}"] = (f"#q={query}&a={a}&b={b}&n=100", WIDE, detail)
    return found


def take(browser: Browser, page: Path, out: Path, run: Run) -> None:
    """Write one PNG for each picture."""
    for name, (fragment, window, ready) in pictures(run).items():
        opened = Opened(browser, page, fragment, **window)
        opened.page.wait_for_selector(ready)
        if ready.startswith("#q-"):
            opened.page.locator("#q-detail").scroll_into_view_if_needed()
            opened.page.locator("#q-detail").screenshot(path=out / f"{name}.png")
        else:
            opened.page.screenshot(path=out / f"{name}.png")
        assert not opened.faults, opened.faults
        opened.close()
        print(out / f"{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    asked = parser.parse_args()
    run = read_run(asked.run)
    with tempfile.TemporaryDirectory(prefix="recallbed-report-") as made:
        page = Path(made) / "report.html"
        write_report([run], page)
        with started_browser() as browser:
            take(browser, page, asked.out, run)


if __name__ == "__main__":
    main()
