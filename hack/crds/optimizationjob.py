"""OptimizationJob (Trainer API v1alpha1, KEP-2605): a definition without a controller, as upstream's still is."""

from __future__ import annotations

from typing import Any, Final

from crds import schema
from crds.definitions import conditions, custom_resource
from crds.kubernetes import META, definition
from crds.schema import Schema, immutable, rule
from crds.trainjob import TRAINJOB_SPEC
from trainmaster.runtime.api import constants

_LABEL_LENGTH: Final = 64
_NUMBER_PATTERN: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_PARAMETER_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_ORDERED: Final = rule("double(self.min) < double(self.max)", "min must be strictly less than max")


def _short(description: str, **limits: Any) -> Schema:
    return schema.string(description, length=(1, _LABEL_LENGTH), **limits)


def _exactly_one(*fields: str) -> Schema:
    present = ",".join(f"has(self.{field})" for field in fields)
    return rule(
        f"[{present}].filter(x,x==true).size() == 1",
        f"exactly one of the fields in [{' '.join(fields)}] must be set",
    )


def _interval(description: str, *rules: Schema) -> Schema:
    return schema.obj(
        {
            "min": _short("Least value, a number as text.", pattern=_NUMBER_PATTERN),
            "max": _short("Greatest value, a number as text.", pattern=_NUMBER_PATTERN),
            "type": schema.string("What sort of number is drawn.", default="Float", enum=("Int", "Float")),
        },
        description,
        required=("min", "max"),
        rules=rules,
    )


_SEARCH_SPACE: Final = schema.obj(
    {
        "uniform": _interval("Every value of the interval is as likely.", _ORDERED),
        "logUniform": _interval(
            "Every order of magnitude of the interval is as likely.",
            rule("double(self.min) > 0.0", "min must be strictly greater than 0"),
            _ORDERED,
        ),
        "categorical": schema.obj(
            {
                "choices": schema.set_list(
                    schema.string(length=(0, _LABEL_LENGTH)), "The values to choose from.", min_items=1, max_items=100
                )
            },
            "One of several values.",
            required=("choices",),
        ),
    },
    "The values that the parameter may take.",
    rules=[_exactly_one("uniform", "logUniform", "categorical")],
)

_PARAMETER: Final = schema.obj(
    {"name": _short("Name of the parameter.", pattern=_PARAMETER_PATTERN), "searchSpace": _SEARCH_SPACE},
    required=("name", "searchSpace"),
)

_OBJECTIVE: Final = schema.obj(
    {
        "metric": _short("The metric that the trials report."),
        "direction": schema.string("What is better.", default="Minimize", enum=("Maximize", "Minimize")),
    },
    required=("metric",),
)

_SEARCH_ALGORITHM: Final = {
    **schema.obj(
        {
            "random": schema.obj(
                {"seed": schema.integer("Makes the draws repeatable.", format="int64")}, "Values are drawn at random."
            ),
            "grid": schema.obj(description="Every combination of values is tried."),
        },
        "How values are chosen.",
        rules=[_exactly_one("random", "grid")],
    ),
    "default": {"random": {}},
}

_TEMPLATE: Final = schema.obj(
    {
        "metadata": {
            **definition(f"{META}.ObjectMeta"),
            "description": "Labels and annotations of the TrainJobs.",
            "x-kubernetes-validations": [
                rule("!has(self.name) && !has(self.namespace)", "name and namespace cannot be set in a template.")
            ],
        },
        "spec": TRAINJOB_SPEC,
    },
    "The TrainJob that each trial runs.",
    required=("spec",),
)


def _trials(description: str) -> Schema:
    return schema.integer(description, default=1, minimum=1, maximum=100)


_SPEC: Final = schema.obj(
    {
        "objectives": schema.map_list(_OBJECTIVE, "What to optimize.", key="metric", min_items=1, max_items=1),
        "searchAlgorithm": _SEARCH_ALGORITHM,
        "parameters": schema.map_list(
            _PARAMETER, "The parameters to search over.", key="name", min_items=1, max_items=100
        ),
        "numTrials": _trials("How many trials run in all."),
        "parallelTrials": _trials("How many trials run at once."),
        "trainJobTemplate": _TEMPLATE,
    },
    "What to optimize, and over which parameters.",
    required=("objectives", "parameters", "trainJobTemplate"),
    rules=[
        immutable("OptimizationJobSpec is immutable and cannot be updated after creation"),
        rule("self.parallelTrials <= self.numTrials", "parallelTrials cannot exceed numTrials"),
        rule(
            "!has(self.searchAlgorithm.grid) || self.parameters.all(p, has(p.searchSpace.categorical))",
            "Grid search requires all parameters to be Categorical; Uniform and LogUniform are not supported.",
        ),
    ],
)

_ASSIGNMENT: Final = schema.obj(
    {"name": _short("The parameter."), "value": _short("Its value.")}, required=("name", "value")
)

_STATUS: Final = schema.obj(
    {
        "conditions": conditions("Whether the search is complete or has failed.", max_items=100),
        "result": schema.obj(
            {
                "trainJobName": schema.string("The best trial.", length=(1, 63)),
                "parameters": schema.map_list(_ASSIGNMENT, "Its parameters.", key="name", max_items=100),
            },
            "The best trial so far.",
            required=("trainJobName",),
        ),
    },
    "What has been observed.",
)


def optimization_job() -> dict[str, Any]:
    """Return the definition of OptimizationJob."""
    return custom_resource(
        group=constants.GROUP,
        version=constants.VERSION,
        kind="OptimizationJob",
        description="A search for the best parameters of a TrainJob. No controller acts on it yet.",
        properties={"spec": _SPEC, "status": _STATUS},
        required=("spec",),
    )
