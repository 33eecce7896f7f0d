"""The web page in a real browser: logging in, reading, what is brought up to date, and that nothing hostile runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.browser import Page, browser_page
from support.history import at, record
from support.installations import allow_listing, allow_url
from support.processes import account_token
from support.stack import api_server
from support.web import web_page

from trainmaster.controller.history.record import JobRecord, Sample, TimelineEntry
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.kube.clock import SystemClock, time_text

pytestmark = pytest.mark.nightly

HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
NOW = time_text(SystemClock().now())

JOBS = (
    record(
        1,
        name="bert",
        ended=NOW,
        result="Failed",
        cause="OutOfMemory",
        message=HOSTILE,
        samples=tuple(Sample(at(minute), 10 * minute, {"loss": f"{1 / minute}"}) for minute in range(1, 6)),
        timeline=(TimelineEntry(at(0), "Created"), TimelineEntry(at(5), "Failed", HOSTILE)),
    ),
    record(2, name=HOSTILE, ended=NOW, runtime=HOSTILE),
)

CONTRASTS = """
(() => {
  const channel = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => { const [r, g, b] = parts(colour).map(channel); return 0.2126*r + 0.7152*g + 0.0722*b; };
  const behind = node => { for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (parts(colour)[3] !== 0) return colour; } return "rgb(255, 255, 255)"; };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some(each => each.nodeType === 3 && each.data.trim());
    if (!own || !node.getClientRects().length) continue;
    const [one, other] = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName}.${node.className}: ${getComputedStyle(node).color} on ${behind(node)}`);
  }
  return poor;
})()
"""

NAMELESS = """
[...document.querySelectorAll("input, select, button, a, svg, progress")].filter(each =>
  !(each.labels && each.labels.length) && !each.getAttribute("aria-label") && !each.textContent.trim()
).map(each => each.outerHTML)
"""


def write(file: Path, *records: JobRecord) -> None:
    store = sqlite_store(file)
    store.write(records, now=SystemClock().now())
    store.close()


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Page, str, str]]:
    """A browser, the page of a manager, and a token of somebody who may see all of it."""
    write(tmp_path / "history.sqlite", *JOBS)
    async with api_server(tmp_path, rbac=True) as stack:
        token = await account_token(stack.client, "ann")
        await allow_url(stack.client, "ann", "/web/")
        await allow_listing(stack.client, "ann")
        async with (
            web_page(stack.access, tmp_path / "history.sqlite", auth=True) as url,
            browser_page(tmp_path / "browser") as page,
        ):
            # Only of this very machine does a browser keep such a cookie without HTTPS.
            yield page, url.replace("127.0.0.1", "localhost"), token


async def readable(page: Page) -> None:
    """Everything has a name and enough contrast, in light and in dark."""
    assert await page.evaluate(NAMELESS) == []
    for dark in (False, True):
        await page.emulate(width=1200, height=900, dark=dark)
        await page.evaluate("new Promise(painted => requestAnimationFrame(() => requestAnimationFrame(painted)))")
        poor = await page.evaluate(CONTRASTS)
        assert poor == [], f"dark: {dark}: {poor[:5]}"


async def test_somebody_logs_in_reads_and_logs_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, url, token):
        await page.open(url)
        assert await page.evaluate("document.title") == "Log in · Trainmaster"
        await readable(page)
        await page.evaluate("document.getElementById('token').value = 'wrong'; document.forms[0].requestSubmit()")
        await page.until("document.querySelector('[role=alert]')?.textContent.includes('does not know this token')")
        fill = f"document.getElementById('token').value = {token!r}; document.forms[0].requestSubmit()"
        await page.evaluate(fill)
        await page.until("document.querySelector('h1')?.textContent === 'Jobs'")
        assert await page.evaluate("document.querySelector('.user').textContent") == "system:serviceaccount:default:ann"
        assert await page.evaluate("document.cookie") == "", "no script reads it"
        await readable(page)

        # What is hostile is text, and the times are those of the reader's clock.
        assert HOSTILE in await page.evaluate("document.querySelector('table').innerText")
        assert "UTC" not in await page.evaluate("document.querySelector('td time').textContent")

        # What has ended meanwhile appears by itself.
        write(tmp_path / "history.sqlite", record(3, name="newest", ended=NOW))
        await page.evaluate("refresh()")
        await page.until("document.querySelector('table').innerText.includes('newest')")
        assert await page.evaluate("document.getElementById('notice').textContent") == ""

        # One job, and back.
        await page.evaluate("[...document.querySelectorAll('td a')].find(each => each.textContent === 'bert').click()")
        await page.until("document.querySelector('h1')?.textContent.includes('team-a/bert')")
        shown = await page.evaluate("document.body.innerText")
        for part in ("Why: OutOfMemory", HOSTILE, "What to do", "Timeline", "progress (%)", "loss"):
            assert part in shown
        assert await page.evaluate("document.querySelectorAll('svg polyline').length") == 2
        await readable(page)
        await page.evaluate("document.querySelector('.back a').click()")
        await page.until("document.querySelector('h1')?.textContent === 'Jobs'")

        # It is all there without JavaScript.
        await page._call("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(f"{url}?state=Failed")
        assert await page.evaluate("[...document.querySelectorAll('td a')].map(each => each.textContent)") == ["bert"]
        assert "UTC" in await page.evaluate("document.querySelector('td time').textContent")
        await page._call("Emulation.setScriptExecutionDisabled", value=False)

        await page.open(url)
        await page.evaluate("document.querySelector('header form').requestSubmit()")
        await page.until("document.title === 'Log in · Trainmaster'")
        await page.open(url)
        assert await page.evaluate("document.title") == "Log in · Trainmaster"

        assert await page.evaluate("window.hacked === undefined")
        assert page.errors == []
        assert {each for each in page.requests if not each.startswith(url)} <= {url.replace("/web/", "/favicon.ico")}
