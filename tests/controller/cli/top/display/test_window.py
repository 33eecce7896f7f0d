"""Which jobs are shown of many, and which one is selected."""

from __future__ import annotations

from support.top import NOW, top_job

from trainmaster.controller.cli.top.cluster.attention import Order, TopJob
from trainmaster.controller.cli.top.display.window import Window

JOBS = [top_job(f"job-{number:03}") for number in range(100)]


def window(jobs: list[TopJob] = JOBS) -> Window:
    made = Window()
    made.order = Order.NAME
    made.take(jobs, NOW)
    return made


def shown(of: Window, height: int = 10) -> list[str]:
    return [job.row.name for job in of.shown(height)]


def selected(of: Window) -> str:
    assert of.job is not None
    assert of.job.key == of.selected_key
    return of.job.row.name


def test_as_many_as_there_is_room_for_are_shown() -> None:
    view = window()
    assert shown(view) == [f"job-{number:03}" for number in range(10)]
    assert (view.count, selected(view)) == (100, "job-000")
    # With more room the rows are filled.
    view = window()
    view.move_to_end(first=False)
    shown(view, 10)
    assert shown(view, 40) == [f"job-{number:03}" for number in range(60, 100)]
    # A filter holds for jobs that come later.
    view = window()
    view.filter = "job-01"
    view.take(JOBS, NOW)
    assert view.count == 10
    assert selected(view) == "job-010"


def test_the_selected_one_is_always_seen() -> None:
    view = window()
    shown(view)
    view.move(12)
    assert shown(view)[-1] == "job-012"
    view.move(-5)
    assert shown(view)[0] == "job-003"
    view.move(-5)
    assert shown(view)[0] == "job-002"
    view.move_page(1)
    assert selected(view) == "job-012"
    view.move_to_end(first=False)
    assert shown(view)[-1] == "job-099"
    view.move(5)
    assert selected(view) == "job-099"
    assert "job-099" in shown(view, 3)
    view.move_to_end(first=True)
    assert shown(view)[0] == "job-000"


def test_before_somebody_chooses_the_first_one_is_selected_and_then_it_stays_selected() -> None:
    view = window()
    view.take([top_job("a"), *JOBS], NOW)
    assert selected(view) == "a"
    # A selected job stays selected while others come and go.
    view = window()
    view.move(50)
    view.take([*[top_job(f"a-{number:03}") for number in range(10)], *JOBS], NOW)
    assert (selected(view), view.selected) == ("job-050", 60)
    view.take(JOBS[:50], NOW)
    assert selected(view) == "job-049"
    view.take([], NOW)
    assert view.job is None
    assert shown(view) == []
