"""OptimizationJob (Trainer API v1alpha1, KEP-2605): a definition without a controller, as upstream's still is.

Nothing is read with these models.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from trainmaster.runtime.api import constants
from trainmaster.runtime.api.meta import ApiModel, Condition, Definition, ObjectMeta, Schema
from trainmaster.runtime.api.trainjob import TrainJobSpec

_LABEL: Final = Schema(minLength=1, maxLength=64)
_NUMBER: Final = Schema(minLength=1, maxLength=64, pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$")
_TRIALS: Final = Schema(minimum=1, maximum=100)
_ORDERED: Final = ("double(self.min) < double(self.max)", "min must be strictly less than max")


def _exactly_one(*fields: str) -> Schema:
    present = ",".join(f"has(self.{field})" for field in fields)
    return Schema(
        (
            f"[{present}].filter(x,x==true).size() == 1",
            f"exactly one of the fields in [{' '.join(fields)}] must be set",
        )
    )


class _Interval(ApiModel):
    min: Annotated[str, _NUMBER]
    """Least value, a number as text."""
    max: Annotated[str, _NUMBER]
    """Greatest value, a number as text."""
    type: Annotated[str, Schema(enum=["Int", "Float"])] = "Float"
    """What sort of number is drawn."""


class Categorical(ApiModel):
    """One of several values."""

    choices: Annotated[list[Annotated[str, Schema(maxLength=64)]], Schema(list_type="set", minItems=1, maxItems=100)]
    """The values to choose from."""


class SearchSpace(ApiModel):
    """The values that the parameter may take."""

    __schema__: ClassVar[Schema] = _exactly_one("uniform", "logUniform", "categorical")

    uniform: Annotated[_Interval | None, Schema(_ORDERED)] = None
    """Every value of the interval is as likely."""
    log_uniform: Annotated[
        _Interval | None,
        Schema(("double(self.min) > 0.0", "min must be strictly greater than 0"), _ORDERED),
    ] = None
    """Every order of magnitude of the interval is as likely."""
    categorical: Categorical | None = None


class _Parameter(ApiModel):
    name: Annotated[str, _LABEL, Schema(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the parameter."""
    search_space: SearchSpace


class _Objective(ApiModel):
    metric: Annotated[str, _LABEL]
    """The metric that the trials report."""
    direction: Annotated[str, Schema(enum=["Maximize", "Minimize"])] = "Minimize"
    """What is better."""


class RandomSearch(ApiModel):
    """Values are drawn at random."""

    seed: Annotated[int | None, Schema(format="int64")] = None
    """Makes the draws repeatable."""


class GridSearch(ApiModel):
    """Every combination of values is tried."""


class SearchAlgorithm(ApiModel):
    """How values are chosen."""

    __schema__: ClassVar[Schema] = _exactly_one("random", "grid")

    random: RandomSearch | None = None
    grid: GridSearch | None = None


class TrainJobTemplate(ApiModel):
    """The TrainJob that each trial runs."""

    metadata: Annotated[
        ObjectMeta | None,
        Schema(("!has(self.name) && !has(self.namespace)", "name and namespace cannot be set in a template.")),
    ] = None
    """Labels and annotations of the TrainJobs."""
    spec: TrainJobSpec


class OptimizationJobSpec(ApiModel):
    """What to optimize, and over which parameters."""

    __schema__: ClassVar[Schema] = Schema(
        ("self == oldSelf", "OptimizationJobSpec is immutable and cannot be updated after creation"),
        ("self.parallelTrials <= self.numTrials", "parallelTrials cannot exceed numTrials"),
        (
            "!has(self.searchAlgorithm.grid) || self.parameters.all(p, has(p.searchSpace.categorical))",
            "Grid search requires all parameters to be Categorical; Uniform and LogUniform are not supported.",
        ),
    )

    objectives: Annotated[list[_Objective], Schema(keys=["metric"], minItems=1, maxItems=1)]
    """What to optimize."""
    search_algorithm: Annotated[SearchAlgorithm | None, Schema(default={"random": {}})] = None
    parameters: Annotated[list[_Parameter], Schema(keys=["name"], minItems=1, maxItems=100)]
    """The parameters to search over."""
    num_trials: Annotated[int, _TRIALS] = 1
    """How many trials run in all."""
    parallel_trials: Annotated[int, _TRIALS] = 1
    """How many trials run at once."""
    train_job_template: TrainJobTemplate


class _Assignment(ApiModel):
    name: Annotated[str, _LABEL]
    """The parameter."""
    value: Annotated[str, _LABEL]
    """Its value."""


class Result(ApiModel):
    """The best trial so far."""

    train_job_name: Annotated[str, Schema(minLength=1, maxLength=63)]
    """The best trial."""
    parameters: Annotated[list[_Assignment] | None, Schema(keys=["name"], maxItems=100)] = None
    """Its parameters."""


class OptimizationJobStatus(ApiModel):
    """What has been observed."""

    conditions: Annotated[list[Condition] | None, Schema(keys=["type"], maxItems=100)] = None
    """Whether the search is complete or has failed."""
    result: Result | None = None


class OptimizationJob(ApiModel):
    """A search for the best parameters of a TrainJob. No controller acts on it yet."""

    __definition__: ClassVar[Definition] = Definition(constants.GROUP, constants.VERSION)

    spec: OptimizationJobSpec
    status: OptimizationJobStatus | None = None
