"""Query parameters: from text to the options of a request.

Guarantees:
- every parameter is checked before anything is read or written; a wrong value is a 4xx Status that names the parameter;
- booleans are read as Go reads them (`1`, `t`, `true`, `True`, ...), since clients in several languages write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)

Query: TypeAlias = Mapping[str, str]
_Parsed = TypeVar("_Parsed")

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list or watch request asks for."""

    labels: LabelSelector | None = None
    fields: FieldSelector | None = None
    labels_text: str = ""
    fields_text: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    timeout_seconds: int | None = None
    allow_bookmarks: bool = False
    send_initial_events: bool = False
    initial_events_refused: bool = False
    """`sendInitialEvents=false` was given: even a watch from the newest version starts without the present objects."""

    @property
    def selects(self) -> bool:
        """Whether a selector narrows the request."""
        return bool(self.labels_text or self.fields_text)


def read_list_options(query: Query, *, watching: bool) -> ListOptions:
    """Read the options of a list or a watch."""
    labels_text, fields_text = query.get("labelSelector", ""), query.get("fieldSelector", "")
    initial = read_boolean(query, "sendInitialEvents")
    options = ListOptions(
        labels=_parsed(parse_label_selector, labels_text, parameter="labelSelector"),
        fields=_parsed(parse_field_selector, fields_text, parameter="fieldSelector"),
        labels_text=labels_text,
        fields_text=fields_text,
        limit=read_integer(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        timeout_seconds=read_integer(query, "timeoutSeconds"),
        allow_bookmarks=read_boolean(query, "allowWatchBookmarks"),
        send_initial_events=initial,
        initial_events_refused="sendInitialEvents" in query and not initial,
    )
    if problems := _contradictions(options, watching=watching, query=query):
        raise errors.invalid("meta.k8s.io", "ListOptions", "", problems)
    return options


def read_boolean(query: Query, name: str) -> bool:
    """Read a boolean; absent means false and an empty value true (`?watch`)."""
    text = query.get(name)
    if text is None or text in _FALSE:
        return False
    if text in _TRUE or text == "":
        return True
    raise errors.bad_request(f'query parameter {name}: "{text}" is not a boolean; use true or false')


def read_integer(query: Query, name: str) -> int | None:
    """Read a whole number that is not negative; absent or empty means None."""
    text = query.get(name, "")
    if not text:
        return None
    if not _is_number(text):
        raise errors.bad_request(f'query parameter {name}: "{text}" is not a whole number of at most 19 digits')
    return int(text)


def read_resource_version(text: str) -> int | None:
    """Read a resource version: None for "" (the latest)."""
    if not text:
        return None
    if not _is_number(text):
        problem = FieldError("resourceVersion", "Invalid", text, "must be a number that this server has given out")
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [problem])
    return int(text)


def read_dry_run(values: list[str], kind: str) -> bool:
    """Read `dryRun`, whose only value is `All`; `kind` is that of the options, for errors."""
    for value in values:
        if value != "All":
            problem = FieldError("dryRun", "NotSupported", value, 'supported values: "All"')
            raise errors.invalid("meta.k8s.io", kind, "", [problem])
    return bool(values)


def _is_number(text: str) -> bool:
    # isdecimal alone would admit digits of other scripts, and more digits than int() is willing to convert.
    return text.isascii() and text.isdecimal() and len(text) <= 19


def _parsed(parse: Callable[[str], _Parsed], text: str, *, parameter: str) -> _Parsed | None:
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise errors.bad_request(f"query parameter {parameter}: {error}") from error


def _contradictions(options: ListOptions, *, watching: bool, query: Query) -> list[FieldError]:
    match, version = options.resource_version_match, options.resource_version
    problems = []

    def forbid(field: str, why: str) -> None:
        problems.append(FieldError(field, "Forbidden", None, why))

    if watching:
        initial = "sendInitialEvents" in query
        if initial and match != "NotOlderThan":
            forbid("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        elif match and not initial:
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        return problems
    if options.send_initial_events:
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match:
        if match not in {"Exact", "NotOlderThan"}:
            problems.append(
                FieldError("resourceVersionMatch", "NotSupported", match, 'supported values: "Exact", "NotOlderThan"')
            )
        if not version:
            forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        if options.continue_token:
            forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        if match == "Exact" and version == "0":
            forbid("resourceVersionMatch", 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if options.continue_token and version not in {"", "0"}:
        forbid("resourceVersion", "specifying resource version is not allowed when using continue")
    return problems
