"""Commands as advice writes them out: with the job and its namespace, to be pasted into a shell. Pure."""

from __future__ import annotations

import shlex

from trainmaster.controller.explain.view import JobView


def trainmaster(view: JobView, verb: str, *options: str) -> str:
    """Return the command that does something with the job."""
    name = view.name if view.is_trainjob else f"{view.kind.lower()}/{view.name}"
    return shlex.join(["trainmaster", verb, name, *options, "-n", view.namespace, *view.command_options])


def kubectl(view: JobView, *words: str, namespaced: bool = True) -> str:
    """Return a command of kubectl, in the namespace of the job or in none but what the words name."""
    where = ["-n", view.namespace] if namespaced else []
    return shlex.join(["kubectl", *words, *where, *view.command_options])
