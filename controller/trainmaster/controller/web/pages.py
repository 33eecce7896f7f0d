"""The pages, as HTML; pure.

They work without JavaScript; what there is of it refreshes them and writes times as its reader's clock shows them. All
links are relative, so that the page may be behind a proxy that has a path of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.findings import Finding
from trainmaster.controller.explain.state import WORDS
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.web.charts import charts
from trainmaster.controller.web.html import Child, Markup, tag
from trainmaster.controller.web.jobs import MOST_SHOWN, Listing, ShownJob

TITLE: Final = "Trainmaster"
_EVIDENCE: Final = 5
UNKNOWN: Final = "-"


def job_path(record: JobRecord) -> str:
    """Return the path of the page of a job, from that of the list."""
    return "jobs/" + "/".join(quote(each, safe="") for each in (record.namespace, record.kind, record.name, record.uid))


def _page(title: str, root: str, *content: Child, user: str | None, refreshed: bool = False) -> str:
    logout = tag("form", tag("button", "Log out"), method="post", action=f"{root}logout") if user is not None else None
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · {TITLE}" if title != TITLE else title),
        tag("link", rel="stylesheet", href=f"{root}style.css"),
        tag("script", src=f"{root}page.js", defer=True),
    )
    header = tag(
        "header",
        tag("a", TITLE, href=root or "./", class_="brand"),
        tag("nav", tag("span", user, class_="user") if user else None, logout, aria_label="session"),
    )
    body = tag(
        "body",
        tag("a", "To the content", href="#content", class_="skip"),
        header,
        tag("main", *content, id="content", data_refreshed=refreshed, tabindex="-1"),
        tag("p", id="notice", role="status"),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def list_page(
    listing: Listing,
    *,
    namespaces: Sequence[str],
    namespace: str,
    state: str,
    user: str | None,
    notice: str = "",
) -> str:
    """Write the list of jobs.

    Args:
        namespace: The one that is chosen; empty: all.
        state: Likewise of states.
        user: Whose session it is; None where nobody has to say who they are.
    """
    counts = {each: sum(job.state == each for job in listing.jobs) for each in WORDS}
    summary = [
        tag("a", tag("strong", number), f" {each}", href=_query(namespace, each), class_=f"tile {each.lower()}")
        for each, number in counts.items()
        if number
    ]
    rows = [_row(each) for each in listing.jobs]
    header = tag("tr", *(tag("th", name, scope="col") for name in _COLUMNS))
    table = tag(
        "table",
        tag("caption", "Jobs: those that have not ended first, then those that ended last", class_="hidden"),
        tag("thead", header),
        tag("tbody", *rows),
    )
    return _page(
        TITLE,
        "",
        tag("h1", "Jobs"),
        tag("p", notice, class_="problem", role="alert") if notice else None,
        _filters(namespaces, namespace, state),
        tag("p", *summary, class_="tiles") if summary else None,
        tag("div", table, class_="wide", tabindex="0", role="region", aria_label="table of jobs") if rows else None,
        None if rows else tag("p", "There are no such jobs in the namespaces that you may see.", class_="empty"),
        tag("p", f"Only {MOST_SHOWN} jobs are shown: choose a namespace or a state.") if listing.more else None,
        tag("p", f"Jobs of the cluster that were not looked at: {listing.left_out}. Choose a namespace.")
        if listing.left_out
        else None,
        user=user,
        refreshed=True,
    )


_COLUMNS: Final = ("State", "Namespace", "Job", "Kind", "Runtime", "Cause", "Progress", "Created", "Ended")


def _query(namespace: str, state: str) -> str:
    wanted = {"namespace": namespace, "state": state}
    return "?" + urlencode({name: value for name, value in wanted.items() if value})


def _filters(namespaces: Sequence[str], namespace: str, state: str) -> Markup:
    if namespace and namespace not in namespaces:
        namespaces = [*namespaces, namespace]

    def choice(name: str, label: str, values: Iterable[str], chosen: str) -> Markup:
        options = [tag("option", "all", value="", selected=not chosen)]
        options += [tag("option", each, value=each, selected=each == chosen) for each in values]
        return tag("label", f"{label} ", tag("select", *options, name=name))

    return tag(
        "form",
        choice("namespace", "Namespace", namespaces, namespace),
        choice("state", "State", WORDS, state),
        tag("button", "Show"),
        method="get",
        class_="filters",
    )


def _row(job: ShownJob) -> Markup:
    record = job.record
    last = record.samples[-1].percentage if record.samples else None
    cells: list[Child] = [
        _badge(job.state),
        record.namespace,
        tag("a", record.name, href=job_path(record)),
        record.kind,
        record.runtime or UNKNOWN,
        _cause(record.cause) if record.cause else UNKNOWN,
        UNKNOWN if last is None else f"{last} %",
        _time(record.created),
        _time(record.ended),
    ]
    return tag("tr", *(tag("td", cell) for cell in cells))


def _badge(state: str) -> Markup:
    return tag("span", state, class_=f"badge {state.lower()}")


def _cause(cause: str) -> Markup:
    known = _known_cause(cause)
    return tag("span", cause, title=known.summary if known is not None else None)


def _known_cause(cause: str) -> Cause | None:
    try:
        return Cause(cause)
    except ValueError:
        return None


def _time(text: str) -> Markup:
    return tag("time", text.replace("T", " ").replace("Z", " UTC"), datetime=text) if text else Markup(UNKNOWN)


def job_page(job: ShownJob, *, user: str | None, notice: str = "") -> str:
    """Write the page of a job."""
    record, root = job.record, "../../../../"
    return _page(
        f"{record.namespace}/{record.name}",
        root,
        tag("p", tag("a", "← all jobs", href=root), class_="back"),
        tag("h1", _badge(job.state), " ", f"{record.namespace}/{record.name}"),
        tag("p", notice, class_="problem", role="alert") if notice else None,
        _why(job),
        _facts(job),
        _progress(record),
        _timeline(record),
        _conditions(job),
        user=user,
        refreshed=job.is_live,
    )


def _why(job: ShownJob) -> Markup | None:
    record = job.record
    if job.findings:
        return tag("section", *(_finding(each) for each in job.findings), class_="why")
    if not record.cause and not record.message:
        return None
    known = _known_cause(record.cause)
    return tag(
        "section",
        tag("h2", f"Why: {record.cause}" if record.cause else "How it ended"),
        tag("p", f"{known.summary[:1].upper()}{known.summary[1:]}.") if known is not None else None,
        tag("pre", record.message, class_="message") if record.message else None,
        tag("p", f"Exit code {record.exit_code}") if record.exit_code is not None else None,
        (tag("h3", "What to do"), tag("ul", *(tag("li", each) for each in known.advice)))
        if known is not None and known.advice
        else None,
        class_="why",
    )


def _finding(finding: Finding) -> Child:
    evidence = [tag("li", f"{each.object}: ", tag("span", each.text, class_="text")) for each in finding.evidence]
    advice = [tag("li", each) for each in finding.what_next]
    return (
        tag("h2", f"Why: {finding.cause}"),
        tag("p", f"{finding.cause.summary[:1].upper()}{finding.cause.summary[1:]} ({finding.certainty.word})."),
        tag("ul", *evidence[:_EVIDENCE], class_="evidence"),
        (tag("h3", "What to do"), tag("ul", *advice)) if advice else None,
    )


def _facts(job: ShownJob) -> Markup:
    record = job.record
    accelerators = ", ".join(f"{number} {name}" for name, number in sorted(record.accelerators.items()))
    facts: Mapping[str, Child] = {
        "Kind": f"{record.kind} ({record.api_version})",
        "Runtime": record.runtime,
        "Submitted by": record.user,
        "Nodes": "" if record.nodes is None else str(record.nodes),
        "Accelerators": accelerators,
        "Restarts": str(record.restarts),
        "Suspensions": str(record.suspensions) if record.suspensions else "",
        "Created": _time(record.created) if record.created else "",
        "Started": _time(record.started) if record.started else "",
        "Ended": _time(record.ended) if record.ended else "",
        "Deleted": _time(record.deleted) if record.deleted else ("" if job.is_live else "yes"),
        "UID": record.uid,
    }
    rows = [(tag("dt", name), tag("dd", value)) for name, value in facts.items() if value]
    return tag("section", tag("h2", "Facts"), tag("dl", *rows), class_="facts")


def _progress(record: JobRecord) -> Markup | None:
    if not record.samples:
        return None
    last = record.samples[-1]
    numbers = [tag("li", f"{name}: {value}") for name, value in sorted(last.metrics.items())]
    return tag(
        "section",
        tag("h2", "Progress"),
        None
        if last.percentage is None
        else tag(
            "p",
            tag("progress", value=last.percentage, max=100, aria_label="progress"),
            f" {last.percentage} %",
        ),
        tag("ul", *numbers, class_="numbers") if numbers else None,
        tag("p", "Reported ", _time(last.time)) if last.time else None,
        *charts(record.samples),
    )


def _timeline(record: JobRecord) -> Markup | None:
    if not record.timeline:
        return None
    entries = [
        tag("li", _time(each.time), " ", tag("strong", each.event), f" {each.text}" if each.text else None)
        for each in record.timeline
    ]
    return tag("section", tag("h2", "Timeline"), tag("ol", *entries, class_="timeline"))


def _conditions(job: ShownJob) -> Markup | None:
    if not job.conditions:
        return None
    header = tag("tr", *(tag("th", name, scope="col") for name in ("Type", "Status", "Reason", "Message", "Since")))
    rows = [
        tag(
            "tr",
            tag("td", each["type"]),
            tag("td", each["status"]),
            tag("td", each.get("reason", "")),
            tag("td", each.get("message", ""), class_="text"),
            tag("td", _time(each.get("lastTransitionTime", ""))),
        )
        for each in job.conditions
    ]
    table = tag("table", tag("thead", header), tag("tbody", *rows))
    shown = tag("div", table, class_="wide", tabindex="0", role="region", aria_label="table of conditions")
    return tag("section", tag("h2", "Conditions"), shown)


def login_page(root: str, *, problem: str = "") -> str:
    """Write the page on which somebody shows a token."""
    return _page(
        "Log in",
        root,
        tag("h1", "Log in"),
        tag("p", problem, class_="problem", role="alert") if problem else None,
        tag(
            "form",
            tag("label", "A token of yours for this cluster", for_="token"),
            tag(
                "input",
                type="password",
                id="token",
                name="token",
                required=True,
                autocomplete="off",
                spellcheck="false",
                aria_describedby="how",
            ),
            tag("button", "Log in"),
            method="post",
            action=f"{root}login",
            class_="login",
        ),
        tag(
            "p",
            "Nobody but the API server sees it: it says who you are and what you may see. For a service account ",
            tag("code", "kubectl create token NAME"),
            " makes one.",
            id="how",
        ),
        user=None,
    )


def refusal_page(root: str, *, title: str, text: str, user: str | None) -> str:
    """Write a page that says why there is nothing to see, and what to do."""
    return _page(
        title,
        root,
        tag("h1", title),
        tag("p", text, role="alert"),
        tag("p", tag("a", "To all jobs", href=root or "./")),
        user=user,
    )
