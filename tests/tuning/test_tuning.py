"""The experiments of the tuning guide can be run, and their tables say what came out. No time is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import run_module

from bench.api import Api
from bench.burst import Load, measure
from bench.figures import FIGURES
from generator import PlaceUnknown
from trainmaster.controller.configuration import Configuration
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject
from tuning.experiments import EXPERIMENTS, Experiment, Large, OfManyRuntimes, Variant
from tuning.report import TITLES, page
from tuning.results import Measurement, Results, read, write

ROOT = Path(__file__).resolve().parents[2]
ALL = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))


@ALL
def test_managers_take_what_is_varied(experiment: Experiment) -> None:
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    for jobs in experiment.runs:
        variants = experiment.variants_of(jobs)
        assert variants[0] is experiment.variants[0]
        for variant in variants:
            load = experiment.load(variant, jobs)
            assert load.jobs == jobs
            Configuration.model_validate({**head, **load.configuration})


@ALL
def test_what_is_looked_at_is_measured_and_has_a_title(experiment: Experiment) -> None:
    assert set(experiment.figures) <= FIGURES.keys() & TITLES.keys()
    assert len({each.name for each in experiment.variants}) == len(experiment.variants)


def test_a_large_trainjob_is_as_large_as_the_table_says() -> None:
    size = {each: len(json.dumps(each.job(1)["spec"])) for each in (Large(), OfManyRuntimes())}
    assert 16 * 1024 < size[Large()] - size[OfManyRuntimes()] < 18 * 1024


def _page(**tables: str) -> str:
    names = ["machine", "sizing", *EXPERIMENTS]
    return "".join(
        f"<!-- Figures of {name}: of a test. -->\n{tables.get(name, '')}<!-- End of figures. -->\n" for name in names
    )


def _results(*, rates: dict[str, list[float]], experiment: str = "slow", jobs: int = 1000) -> Results:
    results = Results()
    for variant, values in rates.items():
        for value in values:
            results.add(experiment, jobs, variant, {"create.rate": value})
    return results


def test_what_is_varied_is_told_as_a_ratio_to_the_first_line() -> None:
    first, *others = EXPERIMENTS["slow"].variants
    results = _results(rates={first.name: [99, 100, 104], others[0].name: [51, 50, 42], others[1].name: [90, 101, 120]})
    lines = page(_page(), results).splitlines()
    row = {each.split(" | ")[0]: each.split(" | ")[2] for each in lines if each.startswith("| ") and "---" not in each}
    assert row[f"| {first.name}"] == "100"
    assert row[f"| {others[0].name}"] == "x 0.50"
    assert row[f"| {others[1].name}"] == "same", "some of its runs were slower and some faster"


def test_sizes_are_beside_each_other_and_lead_to_limits() -> None:
    results = Results()
    for jobs, memory in ((10_000, 300.0), (100, 120.0)):
        results.add("sizes", jobs, "defaults", {"manager.peak_memory": memory, "restart.cpu": 0.5})
    text = page(_page(), results)
    assert "| TrainJobs | 100, once | 10,000, once |" in text
    assert "| peak memory | 120 MB | 300 MB (x 2.50) |" in text
    assert "| 100 | 192Mi | 100m | 50, 100 |" in text
    assert "| 10,000 | 512Mi | 300m | 100, 200 |" in text


def test_writing_twice_changes_nothing_and_what_was_there_before_goes() -> None:
    results = _results(rates={"16 workers": [100.0]})
    once = page(_page(slow="\nan old table\n\n"), results)
    assert "an old table" not in once
    assert page(once, results) == once


def test_a_page_without_a_place_for_some_figures_is_refused() -> None:
    with pytest.raises(PlaceUnknown, match="but there are machine, sizing, sizes"):
        page(_page().replace("Figures of slow", "Figures of fast"), Results())


def test_each_repetition_is_compared_with_the_one_beside_it() -> None:
    assert Measurement([1, 2, 3]).median == 2
    assert Measurement([3, 8, 5]).ratio_to(Measurement([1, 4, 2])) == 2.5
    assert Measurement([3, 8, 5]).ratio_to(Measurement([1, 4, 6])) == 1, "it was not more each time"
    assert Measurement([6.0]).ratio_to(Measurement([2, 3, 4])) == 2
    assert Measurement([6.0]).ratio_to(Measurement([4.0])) == 1.5
    assert Measurement([0.0, 0.0]).ratio_to(Measurement([0.0, 0.0])) == 1


def test_results_grow_and_only_what_is_done_anew_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert read(path).experiments == {}
    results = _results(rates={"one": [1.0]})
    results.add("slow", 100, "one", {"create.rate": 5.0})
    write(path, results)
    again = read(path)
    again.forget("slow", 100)
    again.forget("unknown", 100)
    again.add("slow", 1000, "one", {"create.rate": 2.0})
    assert again.experiments["slow"][1000]["one"]["create.rate"] == [1.0, 2.0]
    assert again.measurement("slow", 100, "one", "create.rate") is None
    path.write_text("[]")
    with pytest.raises(ValueError, match="make tuning"):
        read(path)


def test_variants_that_take_too_long_are_left_out_of_large_runs() -> None:
    first, small, large = Variant("first"), Variant("small"), Variant("large", sizes=(1_000, 10_000))
    runs = {1_000: 3, 10_000: 1, 50_000: 1}
    experiment = Experiment(name="any", runs=runs, variants=(first, small, large), figures=())
    assert experiment.variants_of(1_000) == (first, small, large)
    assert experiment.variants_of(10_000) == (first, large)
    assert experiment.variants_of(50_000) == (first,)
    assert experiment.variants_of(7) == (first, small, large), "somebody asks for it"


async def test_experiments_take_turns_and_keep_what_they_measure(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    run = await run_module("tuning", "--only", "options", "--jobs", "10001", "--repeat", "0", "--json", str(path))
    assert run.code == 2
    assert "'0' is no number; use one from 1 up" in run.err
    run = await run_module("tuning", "--only", "metrics", "--jobs", "2", "--json", str(path))
    assert run.code == 0, run.err
    variants = read(path).experiments["metrics"][2]
    assert list(variants) == [each.name for each in EXPERIMENTS["metrics"].variants]
    assert all(set(each) == set(EXPERIMENTS["metrics"].figures) for each in variants.values())
    with_metrics, without = (each["manager.series"][0] for each in variants.values())
    assert without < with_metrics


async def test_the_cluster_is_prepared_and_reached_without_tls(tmp_path: Path) -> None:
    found: list[JsonObject] = []

    async def prepare(api: Api) -> None:
        found.append(await api.send("GET", TRAINJOBS.path()))

    plugins = {"idle": "tuning.idle_plugin:Idle"}
    load = Load(jobs=2, workload=Large(), phases=(), prepare=prepare, plugins=plugins, uses_tls=False)
    measured = await measure(load, tmp_path, say=lambda _: None)
    assert [each["items"] for each in found] == [[]]
    assert '"idle"' in (tmp_path / "manager.log").read_text()
    assert measured.requests["create"].counts["patch jobsets"] == 2
    assert '"server": "http://127.0.0.1:' in (tmp_path / "without-tls.kubeconfig").read_text()
