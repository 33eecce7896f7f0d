"""Rules: everything in `x-kubernetes-validations` of one schema, checked against an object and the one it replaces.

- A rule with oldSelf is skipped where there is no old value, so a field may be added later; with `optionalOldSelf` it
  is evaluated without one. List items correlate by the keys of a list of type map; below other lists, and below atomic
  maps, nothing correlates.
- Ratcheting: what was broken before and is left as it was becomes a warning, except for rules with oldSelf.
- All rules of one object together get a second; what is left by then is refused, not skipped.
- Null has no rules. Of what an update shares with the old object only the rules are evaluated that compare the two.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError
from trainmaster.devcluster.apiserver.schema.cel.compiler import Rule, RuleProblem, Scope, compile_rule
from trainmaster.devcluster.apiserver.schema.cel.equality import by_key, is_equal, key_of
from trainmaster.devcluster.apiserver.schema.cel.program import (
    BudgetExceeded,
    CompilationFailed,
    EvaluationFailed,
    LibraryMissing,
)
from trainmaster.runtime.jsontree import JsonObject

_SECONDS = 1.0  # of CPU, whatever else runs: the cost budget of the API server is meant to be about this long
_OUT_OF_TIME = "validation failed due to running out of cost budget, no further validation rules will be run"


@dataclass(frozen=True, slots=True)
class Result:
    """What the rules say about an object."""

    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Node:
    """The part of a schema that leads to rules."""

    schema: JsonObject
    rules: tuple[Rule, ...] = ()
    broken: tuple[RuleProblem, ...] = ()
    branches: tuple[_Node, ...] = ()
    properties: Mapping[str, _Node] = field(default_factory=dict)
    values: _Node | None = None
    items: _Node | None = None
    compares: bool = False
    """Whether there are rules, here or below, by which an object may not stay as it is."""

    @property
    def matters(self) -> bool:
        return bool(self.rules or self.broken or self.branches or self.properties or self.values or self.items)


class Rules:
    """The compiled rules of one schema; without a schema there are none.

    `problems` are the rules that do not compile, each with its place below the schema. Objects do not pass these. With
    `deferred`, for a schema whose rules are known to compile, each is compiled when an object needs it first; where
    there is no library for that, the result of a check says so in a warning.
    """

    def __init__(
        self,
        schema: JsonObject | None = None,
        *,
        deferred: bool = False,
    ) -> None:
        self.problems: list[tuple[str, RuleProblem]] = []
        self._deferred = deferred
        # Most of a large schema, as that of a pod's, leads to no rule.
        self._leading: set[int] = set()
        _note_leading(schema, self._leading)
        self._root = self._compile(schema or {}, schema or {}, "", is_resource=True, correlates=True)

    def __bool__(self) -> bool:
        return self._root.matters

    def check(
        self, new: JsonObject, old: JsonObject | None = None, *, clock: Callable[[], float] = time.thread_time
    ) -> Result:
        """Say which rules an object breaks, new or in place of the old one."""
        result = Result()
        if self:
            place = None if old is None else _Place(new, old, self._root.schema, None)
            with contextlib.suppress(_Stopped):
                _Check(result, clock).check(self._root, new, old, "", place)
        return result

    def _compile(
        self, entries: JsonObject, schema: JsonObject, path: str, *, is_resource: bool, correlates: bool
    ) -> _Node:
        """Compile the rules that `entries` adds to a schema, which is the same unless it is a branch of allOf."""
        scope = Scope(schema, is_resource, correlates, self._deferred)
        rules: list[Rule] = []
        broken: list[RuleProblem] = []
        for index, entry in enumerate(entries.get("x-kubernetes-validations") or ()):
            compiled = compile_rule(entry, scope)
            if isinstance(compiled, Rule):
                rules.append(compiled)
            else:
                broken += compiled
                place = f"{path}.x-kubernetes-validations[{index}]"
                self.problems += [(f"{place}.{problem.field}", problem) for problem in compiled]
        below = correlates and schema.get("x-kubernetes-map-type") != "atomic"
        properties = {
            name: node
            for name, child in (entries.get("properties") or {}).items()
            if (
                node := self._relevant(
                    child, schema.get("properties", {}).get(name), f"{path}.properties[{name}]", below
                )
            )
        }
        values = self._relevant(
            entries.get("additionalProperties"),
            schema.get("additionalProperties"),
            f"{path}.additionalProperties",
            below,
        )
        is_map = correlates and schema.get("x-kubernetes-list-type") == "map"
        items = self._relevant(entries.get("items"), schema.get("items"), f"{path}.items", is_map)
        branches = tuple(
            node
            for index, branch in enumerate(entries.get("allOf") or ())
            if (
                node := self._compile(
                    branch, schema, f"{path}.allOf[{index}]", is_resource=is_resource, correlates=correlates
                )
            ).matters
        )
        below_here = [*branches, *properties.values(), *(node for node in (values, items) if node is not None)]
        compares = any(rule.uses_old and not rule.freezes for rule in rules) or any(
            node.compares for node in below_here
        )
        return _Node(schema, tuple(rules), tuple(broken), branches, properties, values, items, compares)

    def _relevant(self, entries: Any, schema: Any, path: str, correlates: bool) -> _Node | None:
        if id(entries) not in self._leading or not isinstance(entries, dict) or not isinstance(schema, dict):
            return None
        is_resource = schema.get("x-kubernetes-embedded-resource") is True
        node = self._compile(entries, schema, path, is_resource=is_resource, correlates=correlates)
        return node if node.matters else None


def _note_leading(node: Any, leading: set[int]) -> bool:
    """Add the identities of the nodes of a schema with rules in or below them; tell whether this is one."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    found = [_note_leading(each, leading) for each in children]
    leads = any(found) or (isinstance(node, dict) and "x-kubernetes-validations" in node)
    if leads:
        leading.add(id(node))
    return leads


class _Stopped(Exception):
    """No further rules are evaluated."""


class _Place:
    """A value and the old one at the same place; `unchanged` is worked out once, and only if somebody asks."""

    __slots__ = ("_new", "_old", "_schema", "_unchanged", "above")

    def __init__(self, new: Any, old: Any, schema: JsonObject, above: _Place | None) -> None:
        self._new = new
        self._old = old
        self._schema = schema
        self.above = above
        self._unchanged: bool | None = None

    @property
    def unchanged(self) -> bool:
        """Whether this is as it was, or part of something that is."""
        if self._unchanged is None:
            if self._old is None and self.above is not None:
                self._unchanged = self.above.unchanged
            else:
                self._unchanged = is_equal(self._new, self._old, self._schema)
        return self._unchanged


class _Check:
    """One check of one object."""

    def __init__(self, result: Result, clock: Callable[[], float]) -> None:
        self._result = result
        self._clock = clock
        self._until = clock() + _SECONDS

    def check(self, node: _Node, new: Any, old: Any, path: str, place: _Place | None) -> None:
        if new is None or (new is old and not node.compares and isinstance(new, dict | list)):
            return
        if node.rules or node.broken:
            self._check_rules(node, new, old, path, place)
        for branch in node.branches:
            # A branch is not ratcheted by itself, only with what it is part of.
            self.check(branch, new, old, path, None if place is None else place.above)
        if isinstance(new, dict):
            known = old if isinstance(old, dict) and node.schema.get("x-kubernetes-map-type") != "atomic" else {}
            for name, child in node.properties.items():
                if name in new:
                    self._descend(child, new[name], known.get(name), f"{path}.{name}" if path else name, place)
            if node.values is not None:
                for name, value in new.items():
                    if name not in node.properties:
                        self._descend(node.values, value, known.get(name), f"{path}[{name}]", place)
        elif node.items is not None and isinstance(new, list):
            before = {}
            if isinstance(old, list) and node.schema.get("x-kubernetes-list-type") == "map":
                before = by_key(old, node.schema)
            for index, item in enumerate(new):
                known_item = before.get(key_of(item, node.schema)) if before else None
                self._descend(node.items, item, known_item, f"{path}[{index}]", place)

    def _descend(self, node: _Node, new: Any, old: Any, path: str, above: _Place | None) -> None:
        self.check(node, new, old, path, None if above is None else _Place(new, old, node.schema, above))

    def _check_rules(self, node: _Node, new: Any, old: Any, path: str, place: _Place | None) -> None:
        value = OMITTED if isinstance(new, dict | list) else new
        errors = self._result.errors
        errors += [FieldError(path, "Invalid", value, f"rule compile error: {each.text}") for each in node.broken]
        for rule in node.rules:
            if rule.needs_old and old is None:
                continue
            if self._clock() > self._until:
                errors.append(FieldError(path, "Invalid", value, _OUT_OF_TIME))
                raise _Stopped
            try:
                if rule.holds(new, old):
                    continue
            except EvaluationFailed as error:
                errors.append(FieldError(path, "Invalid", value, _failure(rule, error)))
                if isinstance(error, BudgetExceeded):
                    raise _Stopped from error
                continue
            except LibraryMissing as error:  # of a deferred rule, since others are found to be broken before
                self._result.warnings.append(str(error))
                raise _Stopped from error
            except CompilationFailed as error:  # of a deferred rule
                errors.append(FieldError(path, "Invalid", value, f"rule compile error: {error}"))
                raise _Stopped from error
            problem = _field_error(rule, new, old, path, value)
            if place is not None and not rule.uses_old and place.unchanged:
                self._result.warnings.append(str(problem))
            else:
                errors.append(problem)


def _field_error(rule: Rule, new: Any, old: Any, path: str, value: Any) -> FieldError:
    message = rule.message
    if rule.explain is not None:
        # If that fails the fixed message has to do, as on the API server.
        with contextlib.suppress(EvaluationFailed):
            message = rule.explain(new, old)
    where = f"{path}.{rule.path}" if path and rule.path else path or rule.path
    return FieldError(where, rule.kind, value, "" if rule.kind == "Duplicate" else message)


def _failure(rule: Rule, error: EvaluationFailed) -> str:
    if isinstance(error, BudgetExceeded):
        return (
            f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.text}"
        )
    if str(error).startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {rule.text}"
        )
    return f"{error} evaluating rule: {rule.text}"
