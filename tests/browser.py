"""A page in headless Chromium, with all that it says on the console and asks for elsewhere.

Chromium is `$CHROMIUM`, or the first of its usual names on PATH; nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import (
        Browser,
        ConsoleMessage,
        Locator,
        LocatorAssertions,
        Page,
        Request,
        Route,
    )

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
INSIDE = ("data:", "blob:", "about:")
"""Addresses that lead nowhere off the page."""


def chromium() -> str | None:
    """The program that shows the pages; None if there is none."""
    named = os.environ.get("CHROMIUM")
    names = (named,) if named else NAMES
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Start Chromium; it is closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=list(ARGUMENTS), headless=True
        )
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A file that is shown in a context of its own, which reaches nothing but the file.

    `faults` has errors and warnings of the console, exceptions, and requests off the page.
    """

    def __init__(self, browser: Browser, file: Path, fragment: str = "", **context: Any) -> None:
        self.url = file.resolve().as_uri()
        self.faults: list[str] = []
        given = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | context
        self._context = browser.new_context(**given)
        self._context.route("**/*", self._route)
        self._context.on("request", self._asked)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.goto(self.url + fragment)

    def close(self) -> None:
        self._context.close()

    def _inside(self, url: str) -> bool:
        return url.partition("#")[0] == self.url or url.startswith(INSIDE)

    def _route(self, route: Route) -> None:
        if self._inside(route.request.url):
            route.continue_()
        else:
            route.abort()

    def _asked(self, request: Request) -> None:
        if not self._inside(request.url):
            self.faults.append(f"request: {request.url}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")


def awaited(locator: Locator) -> LocatorAssertions:
    """Assertions that wait until they hold, without code that a page's policy would forbid."""
    from playwright.sync_api import expect

    return expect(locator)


def violations(page: Page, context: str | None = None) -> list[str]:
    """What axe-core finds that is serious or critical: the rule, and the elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, context=context).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def width_of_overflow(page: Page) -> int:
    """How many pixels a page is wider than its window."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )
