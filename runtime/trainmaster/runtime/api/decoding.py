"""Reading API objects from JSON, with errors that people can act on.

- What the API server accepted is accepted here; fields that we do not know are kept.
- A value of the wrong type is an `ApiTypeError` that names each field by its JSON path. Nothing is coerced.
- The given object is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainmaster.runtime.api import constants
from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

_Model = TypeVar("_Model", bound=ApiModel)

_LONGEST_VALUE = 80  # characters of a wrong value that a message shows

_EXPECTED = {
    "bool_type": "a boolean",
    "dict_type": "an object",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "process_count_type": 'an integer, "auto", "cpu" or "gpu"',
    "quantity_type": 'a quantity, that is a number or a string like "500m"',
    "string_type": "a string",
}


class ApiTypeError(ValueError):
    """An object does not have the types of its API; `problems` has one line for each field that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = tuple(problems)


class ObjectUnreadable(ApiTypeError):
    """An object exists, but only its metadata could be read. It is neither missing nor empty."""

    def __init__(self, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        name = f"{namespace}/{metadata['name']}" if (namespace := metadata.get("namespace")) else metadata["name"]
        super().__init__([f"{obj.get('kind')} {name} exists but cannot be read: {why_unreadable(obj)}; correct it"])


def parse_trainjob(obj: Any) -> TrainJob:
    """Read a TrainJob from its JSON object (which may have come from a user's file and be anything).

    Raises:
        ApiTypeError: It does not have the types of its API; the text names each field.
    """
    if isinstance(obj, dict) and obj.get("spec") is None:
        # The CRD lets a TrainJob without spec pass; what it lacks is then the reference to a runtime.
        obj = {**obj, "spec": {}}
    return _parse(TrainJob, obj)


def parse_runtime(obj: Any) -> TrainingRuntime | ClusterTrainingRuntime:
    """Read a TrainingRuntime or a ClusterTrainingRuntime, whichever the object's kind says.

    Raises:
        ApiTypeError: It does not have the types of its API; the text names each field.
    """
    if not isinstance(obj, dict):
        raise ApiTypeError([f"must be an object, got {shown(obj)}"])
    match obj.get("kind"):
        case constants.TRAINING_RUNTIME_KIND:
            return _parse(TrainingRuntime, obj)
        case constants.CLUSTER_TRAINING_RUNTIME_KIND:
            return _parse(ClusterTrainingRuntime, obj)
        case kind:
            expected = f'"{constants.TRAINING_RUNTIME_KIND}" or "{constants.CLUSTER_TRAINING_RUNTIME_KIND}"'
            raise ApiTypeError([f"kind: must be {expected}, got {shown(kind)}"])


def parse_part(model: type[_Model], value: Any, path: str) -> _Model:
    """Read a part of an object, of which `path` tells where it is; null is the same as an empty object."""
    try:
        return _parse(model, {} if value is None else value)
    except ApiTypeError as error:
        problems = [f"{path}.{each}" if _names_field(each) else f"{path}: {each}" for each in error.problems]
    raise ApiTypeError(problems)


def _names_field(problem: str) -> bool:
    return ": " in problem and not problem.startswith(("must", "is ", "a key"))


def _parse(model: type[_Model], obj: Any) -> _Model:
    try:
        return model.model_validate(obj)
    except ValidationError as error:
        problems = [_problem(details) for details in error.errors(include_url=False)]
    # Outside of the handler: pydantic's own text has nothing to add for whoever reads the traceback.
    raise ApiTypeError(problems)


def _problem(details: ErrorDetails) -> str:
    *above, last = details["loc"] or ("",)
    if last == "[key]":
        return f"{json_path(above[:-1])}: every key must be a string, got {shown(details['input'])}"
    path = json_path(details["loc"])
    return f"{path}: {_text(details)}" if path else _text(details)


def _text(details: ErrorDetails) -> str:
    kind = details["type"]
    if kind == "missing":
        return "is required"
    if kind == "invalid_key":
        return "a key of a JSON object must be a string; put it in quotes"
    if kind == "value_error":
        return str(details["ctx"]["error"])
    if kind == "literal_error":
        expected = str(details["ctx"]["expected"]).replace("'", '"')
    else:
        expected = _EXPECTED.get(kind, "valid")
    return f"must be {expected}, got {shown(details['input'])}"


def json_path(location: Sequence[int | str]) -> str:
    """Return a location as people write it: `spec.trainer.env[0].name`."""
    return "".join(map(_step, location)).removeprefix(".")


def _step(step: int | str) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    # A key of a map may hold anything; a message stays on one line.
    return f".{step}" if step.isprintable() else f"[{shown(step)}]"


def shown(value: Any) -> str:
    """Return how a wrong value is printed: as JSON where it is short, otherwise what it is."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        text = type(value).__name__
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
