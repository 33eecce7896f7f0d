"""Rules of affinities to nodes and to pods."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    forbidden,
    invalid,
    label,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.core.validation.selectors import node_requirement
from trainmaster.devcluster.apiserver.registry.labels import label_key, label_key_problems, label_selector
from trainmaster.runtime.jsontree import JsonObject

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_affinity(path: str, affinity: JsonObject) -> Iterator[FieldError]:
    """Check what a pod wants of its node, and of the pods on it."""
    if (to_node := affinity.get("nodeAffinity")) is not None:
        yield from _node_affinity(f"{path}.nodeAffinity", to_node)
    for field in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(field) or {}
        for index, term in enumerate(given.get(_REQUIRED) or ()):
            yield from _pod_term(f"{path}.{field}.{_REQUIRED}[{index}]", term)
        for index, weighted in enumerate(given.get(_PREFERRED) or ()):
            here = f"{path}.{field}.{_PREFERRED}[{index}]"
            yield from _weight(here, weighted)
            yield from _pod_term(f"{here}.podAffinityTerm", weighted.get("podAffinityTerm") or {})


def _weight(path: str, weighted: JsonObject) -> Iterator[FieldError]:
    weight = weighted.get("weight") or 0
    if not 1 <= weight <= 100:
        yield FieldError(f"{path}.weight", "Invalid", weight, "must be in the range 1-100")


def _node_affinity(path: str, affinity: JsonObject) -> Iterator[FieldError]:
    if (selector := affinity.get(_REQUIRED)) is not None:
        yield from node_selector(f"{path}.{_REQUIRED}", selector)
    for index, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        here = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(here, preferred)
        # A value that no label can have is only never preferred.
        yield from _node_term(f"{here}.preference", preferred.get("preference") or {}, check_values=False)


def node_selector(path: str, selector: JsonObject) -> Iterator[FieldError]:
    """Check the terms of which a node must meet one."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_term(f"{path}.nodeSelectorTerms[{index}]", term, check_values=True)


def _node_term(path: str, term: JsonObject, *, check_values: bool) -> Iterator[FieldError]:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from node_requirement(f"{path}.matchExpressions[{index}]", requirement, check_values=check_values)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        yield from _field_requirement(f"{path}.matchFields[{index}]", requirement)


def _field_requirement(path: str, requirement: JsonObject) -> Iterator[FieldError]:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        yield FieldError(f"{path}.operator", "Invalid", operator, "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", text)
    key = requirement.get("key") or ""
    if key != "metadata.name":
        yield FieldError(f"{path}.key", "Invalid", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from subdomain(f"{path}.values[{index}]", value)


def _pod_term(path: str, term: JsonObject) -> Iterator[FieldError]:
    selector = term.get("labelSelector")
    yield from label_selector(f"{path}.labelSelector", selector)
    yield from label_selector(f"{path}.namespaceSelector", term.get("namespaceSelector"))
    for name in term.get("namespaces") or ():
        yield from label(f"{path}.namespace", name)
    yield from _label_keys(path, term, selector)
    topology = term.get("topologyKey") or ""
    if not topology:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from invalid(f"{path}.topologyKey", topology, label_key_problems(topology))


def _label_keys(path: str, term: JsonObject, selector: JsonObject | None) -> Iterator[FieldError]:
    """Check keys of labels whose values are those of the pod; creation adds them to the selector."""
    matched, mismatched = term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or []
    for field, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and selector is None:
            yield forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from label_key(f"{path}.{field}[{index}]", key)
    seen = set((selector or {}).get("matchLabels") or ())
    for expression in (selector or {}).get("matchExpressions") or ():
        key = expression.get("key")
        if key in matched and key in seen:
            text = "exists in both matchLabelKeys and labelSelector"
            yield FieldError(f"{path}[{matched.index(key)}]", "Invalid", key, text)
        seen.add(key)
    for index, key in enumerate(matched):
        if key in mismatched:
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield FieldError(f"{path}.matchLabelKeys[{index}]", "Invalid", key, text)
