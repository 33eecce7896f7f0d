"""Answers in the form in which they were recorded, and how deep two of them differ.

An accepted object is described by its difference from what was sent, or, if it was patched, from what was there. What
the server chooses at random or by the clock is replaced by a word in angle brackets.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from trainmaster.runtime.jsontree import JsonObject

Level: TypeAlias = Literal["code", "causes", "object", "text"]
"""How deep an answer differs from the recorded one: in its code; in what it complains of; in the object; in words."""

_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{8,}\b")
_TIME = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
_WHOLE_OBJECT = re.compile(r'Invalid value: "\{\\"(?:apiVersion|kind|metadata)\\".*?\}":', re.DOTALL)
_GO_VALUE = re.compile(r"Invalid value: [\{\[].{150,}?[\}\]]: (?=[a-z])", re.DOTALL)
_GO_DIFFERENCE = re.compile(r"\n@@ .*", re.DOTALL)
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"
_VOLATILE = frozenset({"uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp"})
_RECENT = timedelta(hours=1)
_ABSENT = object()


@dataclass(frozen=True)
class Answer:
    """One answer of the server, and what led to it."""

    code: int
    body: JsonObject
    warnings: tuple[str, ...]
    sent: JsonObject
    """The body of the request; empty for a JSON patch."""
    before: JsonObject | None
    """The object as it was, if there was one and this is a patch."""


def recorded_form(answer: Answer, namespace: str) -> JsonObject:
    """Bring an answer into the form of a case's `expect`."""
    words = _Words(namespace, answer.sent)
    form: JsonObject = {"code": answer.code}
    if answer.code >= 300:
        form |= _refusal(answer.body, words)
    else:
        base = answer.sent if answer.before is None else answer.before
        old, new = (words.tree(_lasting(each, answer.sent, words)) for each in (base, answer.body))
        added, lost = _added(old, new), sorted(_lost(old, new, ""))
        if added is not _ABSENT:
            form["defaults" if answer.before is None else "changes"] = added
        if lost:
            form["dropped" if answer.before is None else "removed"] = lost
    if answer.warnings:
        form["warnings"] = sorted(map(words.text, answer.warnings))
    return form


def difference(expected: JsonObject, seen: JsonObject) -> Level | None:
    """Say how deep an answer differs from the recorded one; None if it does not."""
    if expected == seen:
        return None
    if expected["code"] != seen["code"]:
        return "code"
    if _complaints(expected) != _complaints(seen):
        return "causes"
    outcome = ("defaults", "changes", "dropped", "removed")
    return "object" if any(expected.get(part) != seen.get(part) for part in outcome) else "text"


def _complaints(form: JsonObject) -> set[tuple[str, str]]:
    return {(str(cause.get("field")), str(cause.get("reason"))) for cause in form.get("causes") or ()}


class _Words:
    """Replaces what is different each time in the texts of one answer."""

    def __init__(self, namespace: str, sent: JsonObject) -> None:
        metadata = _dict(sent.get("metadata"))
        prefix = metadata.get("generateName") if not metadata.get("name") else None
        self.namespace = namespace
        self.now = datetime.now(UTC)
        self.generated = re.compile(f"{re.escape(prefix)}{_SUFFIX}\\b") if prefix else None
        self.prefix = prefix

    def text(self, text: str) -> str:
        text = _ADDRESS.sub("<pointer>", _UID.sub("<uid>", text.replace(self.namespace, "NS")))
        if self.generated is not None:
            text = self.generated.sub(f"{self.prefix}<random>", text)
        text = _WHOLE_OBJECT.sub('Invalid value: "<object>":', _TIME.sub(self._time, text))
        return _GO_DIFFERENCE.sub("\n<difference>", _GO_VALUE.sub("Invalid value: <object>: ", text))

    def tree(self, node: Any) -> Any:
        match node:
            case dict():
                return {self.text(key): self.tree(value) for key, value in node.items()}
            case list():
                return [self.tree(value) for value in node]
            case str():
                return self.text(node)
        return node

    def _time(self, match: re.Match[str]) -> str:
        try:
            moment = datetime.fromisoformat(match[1] + match[2])
        except ValueError:
            return match[0]
        return "<now>" if abs(moment - self.now) < _RECENT else match[0]


def _refusal(status: JsonObject, words: _Words) -> JsonObject:
    causes = [
        {part: words.text(str(cause[part])) for part in ("field", "reason", "message") if cause.get(part) is not None}
        for cause in (status.get("details") or {}).get("causes") or ()
    ]
    causes.sort(key=lambda cause: [cause.get(part, "") for part in ("field", "reason", "message")])
    form: JsonObject = {
        "reason": status.get("reason"),
        "message": _in_order(words.text(status.get("message") or ""), causes),
    }
    return form | ({"causes": causes} if causes else {})


def _in_order(message: str, causes: list[JsonObject]) -> str:
    """Sort the errors that a message lists: where the server walks over maps their order is random."""
    head, _, tail = message.partition(": [")
    errors = sorted({f"{cause.get('field')}: {cause.get('message')}" for cause in causes})
    joined = ", ".join(errors)
    complete = len(errors) > 1 and len(tail) == len(joined) + 1 and all(error in tail for error in errors)
    return f"{head}: [{joined}]" if complete else message


def _lasting(obj: Any, sent: JsonObject, words: _Words) -> Any:
    """Return an object without what is different each time."""
    if not isinstance(obj, dict):
        return obj
    lasting = dict(obj)
    if isinstance(obj.get("metadata"), dict):
        metadata = {key: value for key, value in obj["metadata"].items() if key not in _VOLATILE}
        if words.prefix and metadata.get("name"):
            metadata["name"] = re.sub(f"{_SUFFIX}$", "<random>", metadata["name"])
        lasting["metadata"] = metadata
    if isinstance(obj.get("spec"), dict) and obj.get("kind") in _SPECS:
        lasting["spec"] = _SPECS[obj["kind"]](dict(obj["spec"]), _dict(sent.get("spec")))
    return lasting


def _pod_spec(spec: JsonObject, asked: JsonObject) -> JsonObject:
    """Leave out the account that admission gives: the recording server had no such admission."""
    if not asked.get("serviceAccountName") and not asked.get("serviceAccount"):
        for field in ("serviceAccountName", "serviceAccount"):
            if spec.get(field) == "default":
                del spec[field]
    return spec


def _service_spec(spec: JsonObject, asked: JsonObject) -> JsonObject:
    """Replace the addresses and ports that the server chose."""
    known = {asked.get("clusterIP"), *(asked.get("clusterIPs") or ()), "None", "", None}
    if "clusterIP" in spec and spec["clusterIP"] not in known:
        spec["clusterIP"] = "<ip>"
    if "clusterIPs" in spec:
        spec["clusterIPs"] = [each if each in known else "<ip>" for each in spec["clusterIPs"] or ()]
    ports = {_dict(port).get("nodePort") for port in asked.get("ports") or ()}
    if "ports" in spec:
        spec["ports"] = [
            {**port, "nodePort": "<port>"} if port.get("nodePort") and port["nodePort"] not in ports else port
            for port in spec["ports"] or ()
        ]
    if spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = "<port>"
    return spec


_SPECS: dict[str, Callable[[JsonObject, JsonObject], JsonObject]] = {"Pod": _pod_spec, "Service": _service_spec}


def _dict(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _added(old: Any, new: Any) -> Any:
    """Return the part of a tree that is not in the old one; lists of other length count as a whole."""
    match old, new:
        case dict(), dict():
            parts = {key: _added(old[key], value) if key in old else value for key, value in new.items()}
            return {key: part for key, part in parts.items() if part is not _ABSENT} or _ABSENT
        case list(), list() if len(old) == len(new) and any(isinstance(each, dict) for each in new):
            items = [_added(*pair) for pair in zip(old, new, strict=True)]
            if all(item is _ABSENT for item in items):
                return _ABSENT
            return [{} if item is _ABSENT else item for item in items]
    return _ABSENT if old == new and type(old) is type(new) else new


def _lost(old: Any, new: Any, path: str) -> Iterator[str]:
    """Give the paths of what the old tree has and the new one has not."""
    match old, new:
        case dict(), dict():
            for key, value in old.items():
                here = f"{path}.{key}" if path else key
                if key in new:
                    yield from _lost(value, new[key], here)
                else:
                    yield here
        case list(), list() if len(old) == len(new):
            for index, pair in enumerate(zip(old, new, strict=True)):
                yield from _lost(*pair, f"{path}[{index}]")
