"""Pages as HTML: whatever jobs are called and say, it stays text."""

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.history import at, record

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, ObjectReference
from trainmaster.controller.history.record import JobRecord, Sample, TimelineEntry
from trainmaster.controller.web.charts import charts
from trainmaster.controller.web.html import Markup, tag
from trainmaster.controller.web.jobs import Listing, ShownJob
from trainmaster.controller.web.pages import job_page, job_path, list_page, login_page, refusal_page

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><script>alert(1)</script>",
    "javascript:alert(1)",
    "&lt;script&gt;",
    "]]><svg/onload=alert(1)>",
)


class Read(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "input", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_job(text: str) -> JobRecord:
    return record(
        1,
        uid=text,
        name=text,
        namespace=text,
        kind=text,
        runtime=text,
        user=text,
        cause=text,
        message=text,
        result="Failed",
        created=text,
        ended=text,
        accelerators={text: 1},
        samples=(Sample(at(1), 10, {text: "1"}), Sample(at(2), 20, {text: "2"})),
        timeline=(TimelineEntry(text, text, text),),
    )


def pages_of(text: str) -> list[str]:
    condition = {"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text}
    evidence = Evidence(ObjectReference(text, text, text), text)
    finding = Finding(Cause.OUT_OF_MEMORY, Certainty.CERTAIN, [evidence], advice=[text])
    job = ShownJob(hostile_job(text), "Failed", [condition], is_live=True, findings=[finding])
    return [
        list_page(
            Listing([job], 0, more=False), namespaces=[text], namespace=text, state="Failed", user=text, notice=text
        ),
        job_page(job, user=text, notice=text),
        job_page(ShownJob(hostile_job(text), "Failed"), user=text),
        login_page("", problem=text),
        refusal_page("", title=text, text=text, user=text),
    ]


ALLOWED_SCRIPTS = {"page.js", "../../../../page.js"}


def check(page: str, text: str) -> None:
    read = Read(page)
    assert read.open == []
    for name, attributes in read.elements:
        assert name not in {"img", "iframe", "object", "embed", "base", "style"}, name
        assert not {each for each in attributes if each.startswith("on") or each == "style"}, attributes
        if name == "script":
            assert attributes["src"] in ALLOWED_SCRIPTS
        if name == "a":
            href = attributes["href"] or ""
            assert href.startswith(("jobs/", "../", "./", "?", "#")), href
    assert text in read.text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(text: str) -> None:
    for page in pages_of(text):
        check(page, text)


@given(st.text(alphabet="<>\"'&/=!-abc \n;#x3", max_size=40).filter(lambda text: text.strip() and "\r" not in text))
def test_no_text_becomes_markup(text: str) -> None:
    for page in pages_of(text):
        check(page, text)


def test_the_list_and_the_page_of_a_job_tell_what_there_is() -> None:
    listing = Listing([ShownJob(record(1), "Succeeded")], 7, more=True)
    text = Read(list_page(listing, namespaces=[], namespace="", state="", user=None)).text
    assert "Only 200 jobs are shown" in text
    assert "Jobs of the cluster that were not looked at: 7." in text
    empty = Listing([], 0, more=False)
    text = Read(list_page(empty, namespaces=[], namespace="", state="", user=None)).text
    assert "There are no such jobs" in text
    job = record(1, result="Failed", cause="OutOfMemory", message="rank 1", exit_code=137)
    text = Read(job_page(ShownJob(job, "Failed"), user="ann")).text
    for part in ("Why: OutOfMemory", "rank 1", "Exit code 137", "What to do", "ann", "Log out"):
        assert part in text
    assert "Log out" not in Read(job_page(ShownJob(job, "Failed"), user=None)).text


NUMBERS = st.sampled_from(["1", "-1e308", "1e308", "nan", "inf", "", "x", "0", "1e-300"])


@given(st.lists(st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(-5, 200)), NUMBERS), max_size=20))
def test_whatever_numbers_there_are_the_lines_stay_in_their_charts(reports: list[tuple[int, int | None, str]]) -> None:
    samples = [
        Sample(at(minute), percentage, {"loss": value}) for minute, percentage, value in sorted(reports, key=str)
    ]
    for chart in charts(samples):
        (points,) = [attributes["points"] for name, attributes in Read(chart).elements if name == "polyline"]
        for point in (points or "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 640
            assert 0 <= y <= 120


def test_a_chart_is_described_in_words_and_a_job_has_its_own_way() -> None:
    (chart,) = charts([Sample(at(1), None, {"loss": "0.5"}), Sample(at(2), None, {"loss": "0.25"})])
    assert 'aria-label="loss: from 0.5 to 0.25, in 2 reports"' in chart
    assert not list(charts([Sample(at(1), 50, {"loss": "0.5"})]))
    # The way to a job has one part for each name and what is no markup is escaped.
    job = record(1, namespace="a/b", kind="../..", name="?x#y", uid="%2e")
    assert job_path(job) == "jobs/a%2Fb/..%2F../%3Fx%23y/%252e"
    assert tag("a", "<b>", tag("i", "&"), 7, None, ["x", Markup("<br>")], href='"', hidden=True, title=None) == (
        '<a href="&quot;" hidden>&lt;b&gt;<i>&amp;</i>7x<br></a>'
    )
