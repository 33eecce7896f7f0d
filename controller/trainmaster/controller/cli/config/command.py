"""`trainmaster config check` and `trainmaster config show`.

Exit codes: 0 a manager would take the file (there may be warnings); 1 it would not; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from trainmaster.controller.cli.config.flags import add_training_operator_flags, notices_of_flags, overrides_of_flags
from trainmaster.controller.cli.config.show import as_json, as_yaml, job_kind_problems
from trainmaster.controller.cli.config.text import ConfigurationText, deciding, named_files, read_texts
from trainmaster.controller.cli.files.offline import Diagnostic, Severity
from trainmaster.controller.cli.options import add_feature_gates_option
from trainmaster.controller.cli.plugins.installed import plugin_notices, plugin_problems
from trainmaster.controller.cli.printers import FAILURE, counted, print_json
from trainmaster.controller.configuration import (
    ConfigurationInvalid,
    EffectiveConfiguration,
    Override,
    Problem,
    complete,
    decode_configuration,
)

_FILE_HELP = "configuration file, directory of *.yaml, or manifest of their ConfigMap; - for standard input"


def command(commands: Any) -> None:
    """Add the command."""
    config: argparse.ArgumentParser = commands.add_parser(
        "config",
        description="Configuration files of the controller.",
    )
    actions = config.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = actions.add_parser(
        "check",
        help="tell everything that is wrong with files",
        description="Report all errors in configuration files, and options without effect, with line and column. "
        "Installed plugins check their options.",
    )
    check.add_argument("files", nargs="+", metavar="FILE", help=_FILE_HELP)
    check.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    check.set_defaults(run=run_check)
    show = actions.add_parser(
        "show",
        help="print all options that are in effect, and where each comes from",
        description="Print each option in effect and its source (file, flag or default), as a configuration file.",
    )
    show.add_argument(
        "--config",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help=f"{_FILE_HELP}. May be repeated; merged in order; default: built-in defaults",
    )
    show.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")
    add_training_operator_flags(show)
    show.set_defaults(run=run_show)
    for parser in (check, show):
        add_feature_gates_option(parser)


def run_check(arguments: argparse.Namespace) -> int:
    """Tell what is wrong with files; returns the exit code."""
    texts, effective, problems = _read(arguments)
    notices: list[Problem] = []
    if effective is not None:
        problems = [*effective.problems, *plugin_problems(effective), *job_kind_problems(effective)]
        notices = [*effective.notices, *plugin_notices(effective)]
    read = ", ".join(each.described for each in texts) or None
    order = {each.file: number for number, each in enumerate(texts)}
    diagnostics = sorted(
        [*_located("error", problems, texts), *_located("warning", notices, texts)],
        key=lambda each: (order.get(each.file, 0), each.line or 0, each.column or 0),
    )
    if arguments.output == "json":
        listed = [{key: value for key, value in asdict(each).items() if key != "object"} for each in diagnostics]
        print_json({"valid": not problems, "read": read, "problems": listed})
        return FAILURE if problems else 0
    for each in diagnostics:
        print(each)
    counts = f"{counted(len(problems), 'error')}, {counted(len(notices), 'warning')}"
    print(f"trainmaster: {f'{read}: ' if read else ''}{counts}", file=sys.stderr)
    return FAILURE if problems else 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print what is in effect; returns the exit code."""
    texts, effective, problems = _read(arguments, list(overrides_of_flags(arguments)))
    problems = problems if effective is None else list(effective.problems)
    for each in _located("error", problems, texts):
        print(each, file=sys.stderr)
    if effective is None or problems:
        return FAILURE
    notices = [*effective.notices, *notices_of_flags(effective.overrides, effective.configuration)]
    for each in _located("warning", notices, texts):
        print(each, file=sys.stderr)
    if arguments.output == "json":
        print_json(as_json(effective, texts))
    else:
        print(as_yaml(effective, texts), end="")
    return 0


def _read(
    arguments: argparse.Namespace, overrides: Sequence[Override] = ()
) -> tuple[list[ConfigurationText], EffectiveConfiguration | None, list[Problem]]:
    """Return the texts, if all could be read, and either what is in effect or what is wrong."""
    texts: list[ConfigurationText] = []
    for file in arguments.files:
        try:
            texts += read_texts(file)
        except ConfigurationInvalid as error:
            return [], None, [each._replace(file=file) for each in error.problems]
    try:
        configuration = decode_configuration(named_files(texts))
        return texts, complete(configuration, feature_gates=arguments.feature_gates, overrides=overrides), []
    except ConfigurationInvalid as error:
        return texts, None, list(error.problems)


def _located(severity: Severity, problems: list[Problem], texts: Sequence[ConfigurationText]) -> Iterator[Diagnostic]:
    for problem in problems:
        text = deciding(texts, problem)
        line, column = text.locate(problem) if text is not None else (problem.line, problem.column)
        file = text.file if text is not None else problem.file
        yield Diagnostic(severity, file, line, column, "", problem.path, problem.message)
