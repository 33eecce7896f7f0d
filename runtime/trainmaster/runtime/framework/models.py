"""Values that authors of plugins describe by models of pydantic: options, and policies called `custom`.

Guarantee: what is wrong is said field by field, with the path at which whoever wrote it finds it; a field that the
model does not have is wrong, too, unless the model allows others (`extra="allow"`).

Policies called `custom`: `mlPolicy.custom` and `podGroupPolicy.custom` of a runtime, which plugins give their
meaning.

The API server takes any `config`; the model of the plugin that the policy names says what may be in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from trainmaster.runtime.api.decoding import json_path, shown
from trainmaster.runtime.api.trainingruntime import CustomPolicy, MLPolicy, PodGroupPolicy
from trainmaster.runtime.field_errors import ErrorType, FieldError, did_you_mean
from trainmaster.runtime.framework.interface import Rejected

_Model = TypeVar("_Model", bound=BaseModel)

_OF_SECRETS: Final = "secret_file"
"""The type of errors about what may be a secret."""

CONFIG_PHASE: Final = "config"
"""What reading the `config` of a runtime is called in messages and metrics, where calls of plugins have their phase."""


class FieldProblem(NamedTuple):
    """What is wrong with one field."""

    path: str
    text: str
    value: Any
    type: ErrorType = "Invalid"
    """Required: there is no value; Forbidden: it is not to be shown."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"

    def at(self, prefix: str) -> FieldError:
        """Return it as an error of the object that has the field below `prefix`."""
        kind: ErrorType = self.type if _is_json(self.value) else "Forbidden"
        # An error of a field shows the value itself.
        detail = "" if kind == "Required" else self.text.removesuffix(_got(self.value))
        return FieldError(prefix + self.path, detail, kind, self.value)


class ModelInvalid(ValueError):
    """A value does not fit its model; `problems` has one entry for each field that is wrong."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class SecretFile:
    """An option that names a file which holds a secret: the configuration, which many may read, does not hold it.

    In a model it is a type like any other: `token: SecretFile`. The file is read when the secret is wanted, so that one
    that has been changed is found.
    """

    def __init__(self, path: str) -> None:
        self.path: Path = Path(path)
        """Of the file."""

    def read(self) -> str:
        """Return what is in the file, without white space around it.

        Raises:
            OSError: It cannot be read.
            ValueError: It is no text.
        """
        return self.path.read_text(encoding="utf-8").strip()

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"SecretFile({str(self.path)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validated, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe the option, for `trainmaster plugins show` and for editors."""
        return {"type": "string", "format": "path"}

    @classmethod
    def _validated(cls, value: Any) -> SecretFile:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str) or not Path(value).is_absolute():
            # What is given may be the secret itself, by mistake: it is not repeated.
            raise PydanticCustomError(_OF_SECRETS, "must be the absolute path of a file that holds the secret")
        try:
            cls(value).read()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ValueError(f"the file {value} cannot be read: {reason}") from error
        return cls(value)


def parse_model(model: type[_Model], value: Any, path: str) -> _Model:
    """Read a value by a model.

    Args:
        value: JSON; None is the same as an empty object.
        path: Where it stands, for instance `plugins.options.acme`.

    Raises:
        ModelInvalid: It does not fit.
    """
    given = {} if value is None else value
    problems = list(_unknown_fields(model, given, path)) if isinstance(given, Mapping) else []
    try:
        parsed = model.model_validate(given)
    except ValidationError as error:
        problems += [_problem(details, path) for details in error.errors(include_url=False)]
    else:
        if not problems:
            return parsed
    # Outside of the handler: pydantic's own text has nothing to add for whoever reads the traceback.
    raise ModelInvalid(_without_doubles(problems))


def _unknown_fields(model: type[BaseModel], given: Mapping[Any, Any], path: str) -> Iterator[FieldProblem]:
    if model.model_config.get("extra") == "allow":
        return
    fields = model.model_fields.items()
    known = {
        name for field, info in fields for name in (field, info.alias, info.validation_alias) if isinstance(name, str)
    }
    for name, value in given.items():
        if name not in known:
            shown_names = sorted(info.alias or field for field, info in fields)
            yield FieldProblem(
                _below(path, (str(name),)), f"unknown field {did_you_mean(str(name), shown_names)}", value
            )


def _problem(details: ErrorDetails, path: str) -> FieldProblem:
    value = details["input"]
    place = _below(path, details["loc"])
    match details["type"]:
        case "missing":
            return FieldProblem(place, "is required", None, "Required")
        case "value_error":
            return FieldProblem(place, str(details["ctx"]["error"]), value)
        case str() as kind if kind == _OF_SECRETS:
            return FieldProblem(place, details["msg"], None, "Forbidden")
        case _:
            return FieldProblem(place, details["msg"] + _got(value), value)


def _got(value: Any) -> str:
    return f", got {shown(value)}"


def _is_json(value: Any) -> bool:
    """Tell whether a value can be shown as it is: validators of a model may make anything of it."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _below(path: str, location: Sequence[int | str]) -> str:
    below = json_path(location)
    if not below or not path or below.startswith("["):
        return path + below
    return f"{path}.{below}"


def _without_doubles(problems: Sequence[FieldProblem]) -> list[FieldProblem]:
    """Keep one problem for each path: an unknown field is told of once, where the model forbids it as well."""
    return list({each.path: each for each in reversed(problems)}.values())[::-1]


def customs(ml_policy: MLPolicy | None, pod_group_policy: PodGroupPolicy | None) -> list[tuple[str, CustomPolicy]]:
    """Return the policies `custom` of a runtime, by the field that they are in."""
    found = []
    if ml_policy is not None and ml_policy.custom is not None:
        found.append(("mlPolicy", ml_policy.custom))
    if pod_group_policy is not None and pod_group_policy.custom is not None:
        found.append(("podGroupPolicy", pod_group_policy.custom))
    return found


def config_of(model: type[BaseModel], policy: str, custom: CustomPolicy) -> Any:
    """Return the `config` that a runtime has for a plugin as the plugin's model.

    Raises:
        Rejected: It does not fit the model.
    """
    try:
        return parse_model(model, custom.config, f"spec.{policy}.custom.config")
    except ModelInvalid as error:
        raise Rejected(f"the runtime cannot be used: {error}") from error


def config_problems(model: type[BaseModel], policy: str, custom: CustomPolicy) -> list[FieldError]:
    """Return what is wrong with the `config` that a runtime has for a plugin, field by field."""
    try:
        parse_model(model, custom.config, f"{policy}.custom.config")
    except ModelInvalid as error:
        return [problem.at("spec.") for problem in error.problems]
    return []


def unserved_text(
    policy: str, name: str, serving: Mapping[str, Collection[str]], *, not_loaded: Collection[str] = ()
) -> str:
    """Say that no plugin serves the policy `custom` of a name.

    Args:
        policy: `mlPolicy` or `podGroupPolicy`.
        serving: The plugins that are loaded, each with the policies whose `custom` it serves.
        not_loaded: Those that could not be loaded.
    """
    if name in not_loaded:
        return f"the plugin {name!r} did not load: the log of the manager says what to do"
    others = [served for served in serving.get(name, ()) if served != policy]
    if others:
        return f"the plugin {name!r} serves {others[0]}.custom, not {policy}.custom"
    if name in serving:
        return f"the plugin {name!r} is loaded, but serves no {policy}.custom"
    names = [each for each, policies in serving.items() if policy in policies]
    hint = f" {did_you_mean(name, names)}" if names else ""
    return f"no plugin of the name {name!r} is loaded{hint}"
