"""Rules of what the scheduler reads besides affinities: tolerations, spreading, gates."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden, invalid, one_of, required
from trainmaster.devcluster.apiserver.registry.labels import label_key, label_selector
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists", "Lt", "Gt")
_POLICIES = ("Honor", "Ignore")
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")


def validate_tolerations(path: str, tolerations: list[JsonObject]) -> Iterator[FieldError]:
    """Check which taints a pod bears."""
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            yield from label_key(f"{here}.key", key)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield FieldError(f"{here}.operator", "Invalid", operator, text)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield FieldError(f"{here}.effect", "Invalid", effect, text)
        if operator in ("", "Equal"):
            problems = label_value(value)
            yield from invalid(f"{here}.operator", value, [";".join(problems)] if problems else [])
        elif operator == "Exists":
            if value:
                text = "value must be empty when `operator` is 'Exists'"
                yield FieldError(f"{here}.operator", "Invalid", value, text)
        else:  # comparisons are known and not yet allowed
            listed = ", ".join(f'"{each}"' for each in _OPERATORS)
            yield FieldError(f"{here}.operator", "NotSupported", operator, f"supported values: {listed}")
        if effect:
            yield from one_of(f"{here}.effect", effect, _EFFECTS)


def validate_spreading(path: str, constraints: list[JsonObject]) -> Iterator[FieldError]:
    """Check how pods spread over the cluster."""
    for index, constraint in enumerate(constraints):
        here = f"{path}[{index}]"
        skew, action = constraint.get("maxSkew") or 0, constraint.get("whenUnsatisfiable") or ""
        topology = constraint.get("topologyKey") or ""
        if skew <= 0:
            yield FieldError(f"{here}.maxSkew", "Invalid", skew, "must be greater than zero")
        if not topology:
            yield required(f"{here}.topologyKey", "can not be empty")
        yield from one_of(f"{here}.whenUnsatisfiable", action, _ACTIONS)
        if any(
            (each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") == (topology, action)
            for each in constraints[index + 1 :]
        ):
            pair = "{topologyKey, whenUnsatisfiable}"
            yield FieldError(f"{here}.{pair}", "Duplicate", f"{{{topology}, {action}}}")
        if (domains := constraint.get("minDomains")) is not None:
            if domains <= 0:
                yield FieldError(f"{here}.minDomains", "Invalid", domains, "must be greater than zero")
            if action != "DoNotSchedule":
                text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield FieldError(f"{here}.minDomains", "Invalid", domains, text)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if (policy := constraint.get(field)) is not None:
                yield from one_of(f"{here}.{field}", policy, _POLICIES)
        yield from _label_keys(f"{here}.matchLabelKeys", constraint)
        yield from label_selector(f"{here}.labelSelector", constraint.get("labelSelector"))


def _label_keys(path: str, constraint: JsonObject) -> Iterator[FieldError]:
    keys, selector = constraint.get("matchLabelKeys") or [], constraint.get("labelSelector")
    if keys and selector is None:
        yield forbidden(path, "must not be specified when labelSelector is not set")
    matched = set((selector or {}).get("matchLabels") or ())
    expressions = (selector or {}).get("matchExpressions") or ()
    selected = [*matched, *(each.get("key") for each in expressions)]
    for index, key in enumerate(keys):
        yield from label_key(f"{path}[{index}]", key)
        # Creation adds each of the keys to the selector once.
        if key in matched or selected.count(key) > 1:
            text = "exists in both matchLabelKeys and labelSelector"
            yield FieldError(f"{path}[{index}]", "Invalid", key, text)


def validate_gates(path: str, gates: list[JsonObject]) -> Iterator[FieldError]:
    """Check what keeps a pod from being scheduled."""
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        yield from label_key(f"{path}[{index}]", name)
        if name in seen:
            yield FieldError(f"{path}[{index}]", "Duplicate", name)
        seen.add(name)
