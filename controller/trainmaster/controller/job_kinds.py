"""The kinds of jobs that a configuration has served.

Kinds read no files. Where an option of a kind is a text, such as `initContainerTemplate` of `pytorchjob`, the option of
the same name with `File` at its end names a file that has the text; it is read once, when the manager starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.configuration import Configuration
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import SECTION, load_job_kinds

_FILE: Final = "File"


def job_kinds(configuration: Configuration, points: Iterable[EntryPoint] | None = None) -> list[JobKind]:
    """Load the kinds of jobs that are served; none if they are switched off.

    Args:
        points: The entry points that there are; default is everything installed.

    Raises:
        PluginInvalid: A kind does not load, does not fit the interface, or a file that its options name cannot be read.
    """
    settings = configuration.training_operator
    if not settings.enabled:
        return []
    return load_job_kinds(
        points,
        enabled=settings.enable_scheme,
        options={kind: _with_texts(kind, options) for kind, options in settings.options.items()},
        cluster_domain=settings.cluster_domain,
        max_replicas=settings.max_replicas,
    )


def text_option(name: str) -> str | None:
    """Return the option whose text is in the file that an option names; None if it names none."""
    text_name = name.removesuffix(_FILE)
    return None if text_name in ("", name) else text_name


def _with_texts(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Put the texts of files in the place of their names."""
    texts = dict(options)
    for name, path in options.items():
        text_name = text_option(name)
        if text_name is None or not isinstance(path, str):
            continue
        option = f"{SECTION}.options.{kind}.{name}"
        if text_name in options:
            raise PluginInvalid(f"{option}: {text_name} is given as well; leave out one of the two")
        try:
            texts[text_name] = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise PluginInvalid(f"{option}: cannot read {path}: {why}; correct the path, or leave it out") from error
        del texts[name]
    return texts
