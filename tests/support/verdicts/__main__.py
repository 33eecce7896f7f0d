"""For developers: how many recorded verdicts the server agrees with, file by file, and how the others differ."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import fnmatch
import tempfile
from collections import Counter
from pathlib import Path

import yaml
from support.verdicts.answers import difference
from support.verdicts.cases import case, case_names, relist
from support.verdicts.player import bare_server

from trainmaster.runtime.jsontree import JsonObject


async def _play(names: list[str]) -> dict[str, JsonObject]:
    with tempfile.TemporaryDirectory() as directory:
        async with bare_server(Path(directory)) as player, player.cluster_objects(map(case, names)):
            return {name: await player.play(case(name)) for name in names}


def _lines(tree: JsonObject) -> list[str]:
    return yaml.safe_dump(tree, width=160).splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m support.verdicts", description=__doc__)
    parser.add_argument("pattern", nargs="*", default=["*"], help="names of cases, such as 'pods-fields/*'")
    parser.add_argument("--show", action="store_true", help="print how the answers differ")
    parser.add_argument("--write", action="store_true", help="bring api-differences.yaml up to date")
    options = parser.parse_args()
    if options.write and options.pattern != ["*"]:
        parser.error("--write needs the answers to all cases: leave the patterns out")
    names = [name for name in case_names() if any(fnmatch.fnmatch(name, each) for each in options.pattern)]
    answers = asyncio.run(_play(names))
    levels = {name: level for name in names if (level := difference(case(name)["expect"], answers[name])) is not None}
    if options.show:
        for name, level in levels.items():
            print(f"{name} [{level}] {case(name)['about']}")
            compared = difflib.unified_diff(_lines(case(name)["expect"]), _lines(answers[name]), lineterm="", n=2)
            print("\n".join(f"    {line}" for line in list(compared)[3:]))
    print(f"{'file':24}{'cases':>6}{'code':>8}{'causes':>8}{'object':>8}{'text':>8}   that agree so far")
    files = [*dict.fromkeys(name.partition("/")[0] for name in names)]
    for prefix in [*files, ""]:
        here = [name for name in names if name.startswith(f"{prefix}/" if prefix else "")]
        count = Counter(levels.get(name) for name in here)
        agree = len(here)
        row = [f"{prefix or 'all':24}{agree:6}"]
        for level in ("code", "causes", "object", "text"):
            agree -= count[level]
            row.append(f"{100 * agree / len(here):7.1f}%")
        print("".join(row))
    if options.write:
        relist(levels)


if __name__ == "__main__":
    main()
