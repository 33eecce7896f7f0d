"""`trainmaster plugins list`, `show`, `check` and `new`: what that writes works, and passes its own tests.

Exit codes: 0 all is well; 1 a plugin is broken, or there is none of the name; 2 wrong arguments, or a configuration
that cannot be used.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from trainmaster.controller.cli.configured import effective_of
from trainmaster.controller.cli.options import (
    CommandError,
    add_configuration_options,
    add_traceback_option,
    reporting_errors,
)
from trainmaster.controller.cli.plugins.installed import (
    BROKEN,
    InstalledPlugin,
    installed_plugins,
    plugin_notices,
    plugin_problems,
    quarantined_plugins,
    shown,
    with_quarantine,
)
from trainmaster.controller.cli.printers import FAILURE, aligned, counted, print_json, to_yaml
from trainmaster.controller.configuration import Problem
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework.interface import API_VERSION
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.version import __version__


def command(commands: Any) -> None:
    """Add the command."""
    plugins: argparse.ArgumentParser = commands.add_parser(
        "plugins",
        description="The plugins of this installation, as a controller with the same configuration would load them.",
    )
    actions = plugins.add_subparsers(title="commands", metavar="COMMAND", required=True)
    list_ = actions.add_parser(
        "list",
        help="list the plugins, in the order in which they run",
        description="List installed plugins: those that would load, in order, then the others, and why.",
    )
    list_.add_argument("--manager", metavar="URL", help="address of a manager's probes, to show quarantined plugins")
    list_.set_defaults(run=reporting_errors(run_list))
    show = actions.add_parser(
        "show",
        help="tell everything about one plugin",
        description="Show what a plugin serves, needs from the cluster, and has as options.",
    )
    show.add_argument("name", metavar="NAME", help="the name of its entry point")
    show.set_defaults(run=reporting_errors(run_show))
    check = actions.add_parser(
        "check",
        help="tell what is wrong with the plugins, and what in their configuration has no effect",
        description="Load the plugins, with their options, and tell all that is wrong with them.",
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="these only; default: all")
    check.set_defaults(run=reporting_errors(run_check))
    for parser, form in ((list_, "table"), (show, "yaml"), (check, "text")):
        add_configuration_options(parser)
        parser.add_argument("-o", "--output", choices=(form, "json"), default=form, help=f"default: {form}")
        add_traceback_option(parser)
    new = actions.add_parser(
        "new",
        help="write a package with a plugin to begin with",
        description="Write a package with a plugin that works, its tests and how to build it.",
    )
    new.add_argument(
        "name", metavar="NAME", help="of the plugin: lower-case letters, digits and -, such as cost-labels"
    )
    new.add_argument("--directory", type=Path, metavar="DIR", help="where to write it; default: ./NAME")
    new.set_defaults(run=reporting_errors(run_new))


def run_list(arguments: argparse.Namespace) -> int:
    """List the plugins; returns the exit code."""
    plugins = installed_plugins(effective_of(arguments))
    if arguments.manager:
        plugins = list(with_quarantine(plugins, quarantined_plugins(arguments.manager)))
    broken = [each for each in plugins if each.state == BROKEN]
    _print_tracebacks(arguments, broken)
    if arguments.output == "json":
        print_json([each.as_json() for each in plugins])
    else:
        print("\n".join(aligned([_HEAD, *map(_row, plugins)])))
        for each in plugins:
            if each.reason:
                print(f"trainmaster: {each.name} is {each.state}: {each.reason}", file=sys.stderr)
    return FAILURE if broken else 0


def run_show(arguments: argparse.Namespace) -> int:
    """Tell about one plugin; returns the exit code."""
    plugins = installed_plugins(effective_of(arguments))
    (plugin,) = _chosen(plugins, [arguments.name])
    _print_tracebacks(arguments, [plugin])
    told = shown(plugin)
    if arguments.output == "json":
        print_json(told)
    else:
        print(to_yaml(told), end="")
    return FAILURE if plugin.state == BROKEN else 0


def run_check(arguments: argparse.Namespace) -> int:
    """Tell what is wrong; returns the exit code."""
    effective = effective_of(arguments)
    if arguments.names or arguments.traceback:
        installed = installed_plugins(effective)
        _print_tracebacks(arguments, _chosen(installed, arguments.names) if arguments.names else installed)
    problems, notices = list(plugin_problems(effective)), list(plugin_notices(effective))
    if arguments.names:
        problems, notices = (
            [each for each in found if any(_concerns(each, name) for name in arguments.names)]
            for found in (problems, notices)
        )
    told = [
        {"severity": severity, "path": each.path, "message": each.message}
        for severity, found in (("error", problems), ("warning", notices))
        for each in found
    ]
    if arguments.output == "json":
        print_json({"valid": not problems, "problems": told})
        return FAILURE if problems else 0
    for each in told:
        print(": ".join(part for part in each.values() if part))
    print(f"trainmaster: {counted(len(problems), 'error')}, {counted(len(notices), 'warning')}", file=sys.stderr)
    return FAILURE if problems else 0


def run_new(arguments: argparse.Namespace) -> int:
    """Write a package; returns the exit code."""
    directory: Path = arguments.directory or Path(arguments.name)
    for each in write_package(arguments.name, directory):
        print(each)
    steps = f"cd {directory}; pip install -e '.[test]'; pytest; trainmaster plugins show {arguments.name}"
    print(f"trainmaster: now: {steps}", file=sys.stderr)
    return 0


_HEAD = ["NAME", "DISTRIBUTION", "VERSION", "MATURITY", "EXTENSION POINTS", "ORDER", "STATE"]


def _row(plugin: InstalledPlugin) -> list[str]:
    descriptor = plugin.descriptor
    return [
        plugin.name,
        plugin.distribution,
        plugin.version,
        descriptor.maturity if descriptor else "-",
        ",".join(descriptor.extension_points) if descriptor else "-",
        str(plugin.position or "-"),
        plugin.state,
    ]


def _print_tracebacks(arguments: argparse.Namespace, plugins: Iterable[InstalledPlugin]) -> None:
    """Print where in its code each plugin has failed, if that is asked for."""
    for each in plugins:
        if arguments.traceback and each.error is not None and each.error.__cause__ is not None:
            print(f"trainmaster: plugin {each.name} does not load:", file=sys.stderr)
            traceback.print_exception(each.error.__cause__, file=sys.stderr)


def _concerns(problem: Problem, name: str) -> bool:
    return f"plugin {name!r}" in problem.message or problem.path.startswith(f"plugins.options.{name}")


def _chosen(plugins: Sequence[InstalledPlugin], names: Sequence[str]) -> list[InstalledPlugin]:
    by_name = {each.name: each for each in plugins}
    for name in names:
        if name not in by_name:
            raise CommandError(f"no plugin {name!r} is installed {did_you_mean(name, by_name)}")
    return [by_name[name] for name in names]


_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME: Final = 40

_TEMPLATES: Final = Path(__file__).parent / "template"


def write_package(name: str, directory: Path) -> list[Path]:
    """Write a package with a plugin of a name.

    The directory must not exist, or be empty.

    Returns:
        The files that were written.

    Raises:
        CommandError: The name cannot be one, or there is something already, or it cannot be written.
    """
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME or keyword.iskeyword(module):
        raise CommandError(
            f"{name!r} cannot be the name of a plugin: use lower-case letters, digits and -, with a letter first, at "
            f"most {_LONGEST_NAME} characters, for instance cost-labels"
        )
    taken = {point.name: point for point in discover()}.get(name)
    if taken is not None:
        raise CommandError(f"a plugin {name!r} is installed already ({taken.value}); choose another name")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CommandError(f"{directory} exists and is not empty; choose another --directory, or remove it")
    words = {
        "name": name,
        "module": module,
        "klass": "".join(word.capitalize() for word in name.split("-")),
        "api_version": ".".join(map(str, API_VERSION)),
        "release": __version__,
        "version": ".".join(__version__.split(".")[:2]),
    }
    try:
        return list(_written(directory, words))
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}") from error


def _written(directory: Path, words: dict[str, str]) -> Iterator[Path]:
    for template in sorted(_TEMPLATES.rglob("*.in")):
        relative = str(template.relative_to(_TEMPLATES).with_suffix("")).replace("__module__", words["module"])
        target = directory / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(template.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
        yield target
