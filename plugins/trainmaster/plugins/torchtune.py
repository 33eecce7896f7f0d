"""Torchtune: fine-tuning of language models, the part of Torch for TrainJobs whose command is `tune run`.

The user gives the settings of the fine-tuning as `args`. Which recipe and which configuration they are settings of
follows from the model, from the method (full, LoRA or QLoRA) and from what the training runs on; where the model lies
and where the result goes is the runtime's business. The name of the runtime says which model it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.info import Info
from trainmaster.runtime.rendezvous import Rendezvous, node_count

_TUNE_RUN: Final = ["tune", "run"]

_LLAMA3_2_1B: Final = "llama3_2/1B"
_LLAMA3_2_3B: Final = "llama3_2/3B"
_LLAMA3_3_70B: Final = "llama3_3/70B"
_QWEN2_5_1_5B: Final = "qwen2_5/1.5B"
_MODELS: Final = (_LLAMA3_2_1B, _LLAMA3_2_3B, _LLAMA3_3_70B, _QWEN2_5_1_5B)

_IMMUTABLE_SETTINGS: Final = frozenset(
    {"output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir"}
)
"""Settings that the runtime's command makes and users may not: they name places on the runtime's volumes."""


class _Method(Enum):
    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"


@dataclass(frozen=True, slots=True)
class _Scale:
    """What a fine-tuning runs on."""

    nodes: int
    processes: int | str
    """Processes per node; a word if torchrun counts them."""

    gpus: int
    """GPUs per node."""

    @property
    def is_one_device(self) -> bool:
        return self.nodes == 1 and (self.processes == 1 or self.gpus == 1)

    @property
    def needs_rendezvous(self) -> bool:
        per_node = self.processes if isinstance(self.processes, int) else self.gpus
        return self.nodes > 1 or per_node > 1


def is_asked_for(job: TrainJob) -> bool:
    """Tell whether a TrainJob wants to be fine-tuned with torchtune."""
    return bool(job.spec.trainer and job.spec.trainer.command == _TUNE_RUN)


def command(info: Info, job: TrainJob, meeting: Rendezvous, processes: int | str) -> list[str]:
    """Complete `tune run`: rendezvous, recipe, configuration, and the settings that are the runtime's."""
    model = _model(job)
    if not model:
        raise Rejected(
            f'the name of the runtime, "{job.spec.runtime_ref.name}", does not say which model torchtune is to train; '
            "runtimes of torchtune are called like torchtune-llama3.2-1b"
        )
    scale = _Scale(meeting.nodes, processes, info.trainer_gpus)
    recipe, configuration = _recipe(scale, _method(job))
    runtimes = (info.trainer_container or {}).get("command") or []
    return [
        *_TUNE_RUN,
        *([f"--rdzv_endpoint={meeting.address}"] if scale.needs_rendezvous else []),
        recipe,
        "--config",
        f"{model}{configuration}",
        *(word for word in runtimes if _key(word) in _IMMUTABLE_SETTINGS),
    ]


def validate(info: Info, job: TrainJob, processes: int | str) -> Iterator[FieldError]:
    """Check that there is a recipe for what a TrainJob asks torchtune to do."""
    nodes = node_count(info, job)
    model = _model(job)
    method = _method(job)
    runtime = job.spec.runtime_ref.name
    if model not in _MODELS:
        detail = f"must have a supported pretrained model, invalid model configured: {model}"
        yield FieldError("spec.runtimeRef.name", detail, value=runtime)
    if nodes > 1 and model != _LLAMA3_3_70B:
        yield FieldError("spec.trainer.numNodes", f"must be 1 for {model} model", value=nodes)
    if method is not _Method.FULL and nodes > 1:
        detail = "LoRA fine-tuning is not supported for multi-node training in TorchTune"
        yield FieldError("spec.trainer.numNodes", detail, value=nodes)
    elif method is _Method.QLORA:
        scale = _Scale(nodes, processes, info.trainer_gpus)
        yield from _check_qlora(model, job, scale)
    for index, word in enumerate(_arguments(job)):
        if _key(word) in _IMMUTABLE_SETTINGS:
            detail = f'must not set immutable config "{_key(word)}" in trainer args; it is managed by the runtime'
            yield FieldError(f"spec.trainer.args[{index}]", detail, value=word)


def _check_qlora(model: str, job: TrainJob, scale: _Scale) -> Iterator[FieldError]:
    if model == _QWEN2_5_1_5B:
        yield FieldError(
            "spec.runtimeRef.name", f"QLoRA is not supported for {model} model", value=job.spec.runtime_ref.name
        )
    elif model in (_LLAMA3_2_1B, _LLAMA3_2_3B) and not scale.is_one_device:
        resources = job.spec.trainer.resources_per_node if job.spec.trainer else None
        yield FieldError(
            "spec.trainer.numProcPerNode",
            f"must be auto or 1 for {model} model when using QLoRA",
            value=scale.processes,
        )
        yield FieldError(
            "spec.trainer.resourcesPerNode",
            f"must have gpu resource with value 1 for {model} model when using QLoRA",
            value=resources,
        )


def _model(job: TrainJob) -> str:
    """Read the model from the name of the runtime: torchtune-llama3.2-1b is for llama3_2/1B."""
    match job.spec.runtime_ref.name.split("-"):
        case [_, family, size]:
            return f"{family.replace('.', '_')}/{size.upper()}"
        case _:
            return ""


def _recipe(scale: _Scale, method: _Method) -> tuple[str, str]:
    """Return the recipe, and what its configuration is called after the model."""
    if scale.is_one_device:
        recipe = "full_finetune_single_device" if method is _Method.FULL else "lora_finetune_single_device"
        return recipe, f"_{method.value}_single_device"
    if scale.nodes == 1 and method is not _Method.FULL:
        return "lora_finetune_distributed", f"_{method.value}"
    return "full_finetune_distributed", "_full_multinode" if scale.nodes > 1 else "_full"


def _method(job: TrainJob) -> _Method:
    arguments = _arguments(job)
    if _is_on(arguments, "model.quantize_base") and not _is_on(arguments, "model.use_dora"):
        return _Method.QLORA
    if any("model.lora_attn_modules" in word for word in arguments):
        return _Method.LORA
    return _Method.FULL


def _is_on(arguments: Sequence[str], setting: str) -> bool:
    pairs = (word.partition("=") for word in arguments)
    return any(setting in key and value.strip().lower() == "true" for key, _, value in pairs)


def _key(word: str) -> str:
    return word.partition("=")[0]


def _arguments(job: TrainJob) -> list[str]:
    return (job.spec.trainer.args if job.spec.trainer else None) or []
