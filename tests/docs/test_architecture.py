"""The page on the architecture lists the rooms of the controller from the top to the bottom."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTROLLER = ROOT / "controller/trainmaster/controller"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LINKED = re.compile(r"^\| \[[^]]+\]\(\.\./controller/trainmaster/controller/(\S+?)/?\)", re.MULTILINE)
IMPORTED = re.compile(r"^\s*from trainmaster\.controller\.([\w.]+) import", re.MULTILINE)

ROOMS = LINKED.findall(PAGE.partition("| room | what is in it |")[2].partition("\n\n")[0])
"""Folders of the controller, in the order of the page."""


def room_of(path: str) -> str | None:
    """The innermost room in which a module is."""
    return next((room for room in sorted(ROOMS, key=len, reverse=True) if f"{path}/".startswith(f"{room}/")), None)


def test_every_room_of_the_controller_is_listed() -> None:
    folders = {path.parent.name for path in CONTROLLER.glob("*/__init__.py")}
    assert {room for room in ROOMS if "/" not in room} == folders


def test_no_room_imports_one_that_is_listed_above_it() -> None:
    upwards = set()
    for path in CONTROLLER.rglob("*.py"):
        room = room_of(path.parent.relative_to(CONTROLLER).as_posix())
        for name in IMPORTED.findall(path.read_text(encoding="utf-8")):
            other = room_of(name.replace(".", "/"))
            if room and other and ROOMS.index(other) < ROOMS.index(room):
                upwards.add((room, other))
    assert upwards == set()
