"""What plugins return: checked, and taken over as copies of the framework's own.

Guarantees:
- What does not fit the interface is the fault of the plugin that returned it, and is not passed on.
- What is passed on is JSON that no plugin has a hold of: changed later, it would change what is written for another
  TrainJob. Of plugins of our own it is taken over as it is: they make JSON, and keep nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

import orjson

from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework.interface import ApplyWhen, Desired, StatusReport
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import JobKey
from trainmaster.runtime.names import path_segment
from trainmaster.runtime.ownership import is_controlled_by, owner_reference

MOST_RESULTS: Final = 100_000
"""What one call may return; an object that concerns every TrainJob of a cluster has some tens of thousands of them."""


def truth(result: Any) -> bool:
    """Check what `applies_to` returned.

    Raises:
        TypeError: It is neither True nor False.
    """
    if not isinstance(result, bool):
        raise TypeError(f"it must return True or False, not {result!r:.80}")
    return result


def nothing(result: Any) -> None:
    """Check what an enforcing call returned, which nobody reads.

    Raises:
        TypeError: It is what a function returns that has not run yet.
    """
    if result is not None and (inspect.isawaitable(result) or inspect.isgenerator(result)):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"it must change what it is given and return nothing, not {type(result).__name__}")


def objects_of(job: TrainJob, *, own: bool) -> Callable[[Any], list[Desired]]:
    """Return the check of what `build` returns: each object complete, in the namespace of the TrainJob and owned by it.

    The check raises TypeError or ValueError.

    Args:
        own: Whether all plugins are our own.
    """
    namespace, owner = job.metadata.namespace, owner_reference(job)

    def owned(obj: JsonObject) -> JsonObject:
        owned: JsonObject = {**obj, "metadata": {"namespace": namespace, **obj["metadata"]}}
        owned["metadata"].setdefault("ownerReferences", [dict(owner)])
        what = f"{obj['kind']} {obj['metadata']['name']}"
        if owned["metadata"]["namespace"] != namespace:
            raise ValueError(f"{what} is in namespace {owned['metadata']['namespace']!r}, not in that of the TrainJob")
        if not is_controlled_by(owned, job):
            raise ValueError(f"the ownerReferences of {what} do not make the TrainJob its controller")
        return owned

    return lambda result: [Desired(owned(_object_of(each, own=own)), each.when) for each in collected(result)]


def _object_of(desired: Any, *, own: bool) -> JsonObject:
    """Return the object that a plugin built after checking that it is one."""
    if not isinstance(desired, Desired):
        raise TypeError(f"build must return Desired objects, not {type(desired).__name__}")
    try:
        api_version, kind, name = desired.identity
    except (AttributeError, KeyError, TypeError):
        api_version = kind = name = ""
    if not (_is_text(api_version) and _is_text(kind) and _is_text(name)):
        raise ValueError("it built something without apiVersion, kind and metadata.name")
    fault = path_segment(name)
    if fault:
        raise ValueError(f"the name of a {kind}, {name!r:.80}, {' and '.join(fault)}")
    what = f"{kind} {name}"
    if not isinstance(desired.when, ApplyWhen):
        raise TypeError(f"when to write {what} must be an ApplyWhen, not {desired.when!r}")
    obj: JsonObject = desired.object if own else _json(desired.object, what)
    return obj


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def field_results(result: Any) -> tuple[list[FieldError], list[FieldWarning]]:
    """Check what `validate` returns, and tell errors and warnings apart.

    Raises:
        TypeError: It holds something else.
    """
    errors: list[FieldError] = []
    warnings: list[FieldWarning] = []
    for each in collected(result):
        match each:
            case FieldError(path=str(), detail=str()):
                errors.append(each)
            case FieldWarning(path=str(), detail=str()):
                warnings.append(each)
            case FieldError() | FieldWarning():
                fields: dict[str, Any] = {"path": each.path, "detail": each.detail}
                wrong = next(name for name, value in fields.items() if not isinstance(value, str))
                raise TypeError(
                    f"the {wrong} of a {type(each).__name__} must be a text, not {fields[wrong]!r:.80}; for several "
                    "problems return several of them"
                )
            case _:
                raise TypeError(f"it must return FieldError and FieldWarning objects, not {type(each).__name__}")
        str(each).encode()  # a value that cannot be shown, or text that is none, is no use to anybody
    return errors, warnings


def report(result: Any, *, own: bool) -> StatusReport | None:
    """Check what `status` returns.

    Args:
        result: It.
        own: Whether all plugins are our own.

    Raises:
        TypeError: It is no report.
    """
    if result is None:
        return None
    if not isinstance(result, StatusReport):
        raise TypeError(f"it must return a StatusReport, not {result!r:.80}")
    if own:
        return result
    conditions, jobs_status = _json([result.conditions, result.jobs_status], "what its StatusReport holds")
    if not (isinstance(conditions, list) and all(map(_is_condition, conditions))):
        raise TypeError(f"the conditions of its StatusReport must have type and status, not {result.conditions!r:.80}")
    if jobs_status is not None and not (
        isinstance(jobs_status, list) and all(isinstance(each, dict) for each in jobs_status)
    ):
        raise TypeError(f"jobs_status of its StatusReport must be a list of objects, not {result.jobs_status!r:.80}")
    return StatusReport(conditions, jobs_status)


def _is_condition(condition: Any) -> bool:
    return isinstance(condition, dict) and all(isinstance(condition.get(field), str) for field in ("type", "status"))


def job_keys(result: Any) -> list[JobKey]:
    """Check what `Watch.jobs` returns: namespaces and names of TrainJobs.

    Raises:
        TypeError: It holds something else.
    """
    keys: list[JobKey] = []
    for each in collected(result):
        match each:
            case (str(namespace), str(name)) if namespace and name:
                keys.append((namespace, name))
            case _:
                raise TypeError(f"it must return pairs of the namespace and the name of a TrainJob, not {each!r:.80}")
    return keys


def index_values(result: Any) -> list[str]:
    """Check what a function of `Watch.indexes` returns: the values under which an object is found.

    Raises:
        TypeError: It holds something else.
    """
    values = collected(result)
    for each in values:
        if not isinstance(each, str):
            raise TypeError(f"it must return texts, the values under which the object is found, not {each!r:.80}")
    return values


def collected(result: Iterable[Any]) -> list[Any]:
    """Collect what a call returned; a generator runs here, where its errors are caught."""
    if isinstance(result, str | bytes | dict):
        raise TypeError(f"it must return a list, or yield, not {type(result).__name__}")
    collected = list(islice(result, MOST_RESULTS + 1))
    if len(collected) > MOST_RESULTS:
        raise ValueError(f"it returns more than {MOST_RESULTS:,} results")
    return collected


def _json(value: Any, what: str) -> Any:
    try:
        return orjson.loads(orjson.dumps(value))
    except orjson.JSONEncodeError as error:
        raise TypeError(f"{what} is no JSON: {error}") from error
