"""`trainmaster config check` and `config show`: errors and warnings with their places; what is in effect, and why."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from support.commands import Ran

from trainmaster.controller.cli import main
from trainmaster.controller.configuration import Configuration, effective_configuration, load_configuration
from trainmaster.controller.feature_gates import FEATURES, known_gates

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
NAMED = "apiVersion config.trainer.kubeflow.org/v1alpha1 and kind Configuration"
NO_UTF8 = "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(text: str | bytes, *options: str) -> int:
    Path("config.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return main(["config", "check", "config.yaml", *options])


WRONG = (
    HEAD
    + """\
webhok: {}
webhook:
  port: "9443"
metrics:
  bindAddress: "0"
  auth:
    enabled: yes please
controller:
  groupKindConcurrency:
    TrainJob.trainer.kubeflow.org: 0
"""
)


def test_all_errors_are_told_with_line_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(WRONG) == 1
    printed = capsys.readouterr()
    assert printed.out == (
        'config.yaml:3:1: error: webhok: unknown field (did you mean "webhook"?)\n'
        "config.yaml:5:3: error: webhook.port: must be a whole number, got '9443'\n"
        "config.yaml:9:5: error: metrics.auth.enabled: must be true or false, got 'yes please'\n"
        "config.yaml:12:5: error: controller.groupKindConcurrency.TrainJob.trainer.kubeflow.org: must be greater than "
        "or equal to 1, got 0\n"
    )
    assert printed.err == "trainmaster: config.yaml: 4 errors, 0 warnings\n"


def test_a_good_file_is_told_in_a_line_and_what_has_no_effect_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(HEAD) == 0
    assert tuple(capsys.readouterr()) == ("", "trainmaster: config.yaml: 0 errors, 0 warnings\n")
    assert check(HEAD + "statusServer:\n  qps: 7\n") == 0
    assert capsys.readouterr().out == (
        "config.yaml:4:3: warning: statusServer.qps: no effect: the feature gate TrainJobStatus is off, so there is no "
        "status server\n"
    )
    assert check(HEAD + "statusServer:\n  qps: 7\n", "--feature-gates", "TrainJobStatus=true") == 0
    assert capsys.readouterr().out == ""


CONFIG_MAP = """\
# As `kubectl get -o yaml` prints it.
apiVersion: v1
kind: {kind}
{before}apiVersion: v1
{indent}kind: ConfigMap
{indent}metadata:
{indent}  name: kubeflow-trainer-config
{indent}data:
{indent}  other: text
{indent}  controller_manager_config.yaml: |
{indent}    apiVersion: config.trainer.kubeflow.org/v1alpha1
{indent}    kind: Configuration

{indent}    webhook:
{indent}      port: 0
"""


@pytest.mark.parametrize(("before", "column"), [("", 7), ("---\n", 7), ("items:\n- ", 9)])
def test_the_manifest_of_the_config_map_will_do(before: str, column: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines and columns are those of the manifest."""
    text = CONFIG_MAP.format(
        kind="List" if "items" in before else "Namespace", before=before, indent="  " if "items" in before else ""
    )
    if not before:
        text = text.replace("kind: Namespace\napiVersion: v1\n", "", 1)
    line = text.splitlines().index(next(line for line in text.splitlines() if "port: 0" in line)) + 1
    assert check(text) == 1
    printed = capsys.readouterr()
    assert printed.out == (
        f"config.yaml:{line}:{column}: error: webhook.port: must be greater than or equal to 1, got 0\n"
    )
    assert printed.err == (
        "trainmaster: key controller_manager_config.yaml of ConfigMap kubeflow-trainer-config: 1 error, 0 warnings\n"
    )


def test_a_quoted_text_in_a_config_map_has_the_place_of_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert check(json.dumps({**head, "data": {"any.yaml": f"{HEAD}\n\n\ntls: 5\n"}}, indent=1)) == 1
    assert capsys.readouterr().out == "config.yaml:8:3: error: tls: must be a mapping of options, got 5\n"


NAMED_A = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [\n", ":2:1: error: did not find expected node content"),
        ("a: 1\n---\nb: 1\n", ":2:1: error: expected a single document in the stream but found another document"),
        ("a: 1\na: 2\n", ':2:1: error: key "a" is already set'),
        (NAMED_A + "data: {b: c, d: e}\n",
         ": error: ConfigMap a has no key controller_manager_config.yaml; it has: b, d"),
        (NAMED_A, ": error: ConfigMap a has no key controller_manager_config.yaml; it has: none"),
        (NAMED_A + "data: {controller_manager_config.yaml: {webhook: {}}}\n",
         ": error: ConfigMap a: the value of controller_manager_config.yaml must be a text: put | after the key"),
        (NAMED_A + "data: {b: c}\n---\n" + NAMED_A.replace("a}", "b}"),
         ": error: there are several ConfigMaps that may be meant: a, b; give one of them"),
        ("", f": error: the file must hold a mapping with {NAMED}"),
        (b"\xff\xfe", ": error: failed to read config file: config.yaml: it is no UTF-8: " + NO_UTF8),
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_said(text: str | bytes, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(text) == 1
    assert capsys.readouterr().out == f"config.yaml{error}\n"


def test_standard_input_will_do_and_a_missing_file_will_not(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO((HEAD + "tls: 1\n").encode())))
    assert tuple(ran("config", "check", "-", code=1)) == (
        "-:3:1: error: tls: must be a mapping of options, got 1\n",
        "trainmaster: standard input: 1 error, 0 warnings\n",
    )
    assert ran("config", "check", "none.yaml", code=1).out == (
        "none.yaml: error: failed to read config file: none.yaml: No such file or directory\n"
    )


def test_installed_plugins_are_asked_about_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, beside what else is wrong; a manager would tell of the first."""
    text = """\
featureGates: {Colour: true}
plugins:
  disabled: [jax, toch]
  options:
    jax: {a: 1}
    torch: {b: 2}
    mpi: {c: 3}
    trainjobstatus: {}
    somebodys: {}
"""
    assert check(HEAD + text) == 1
    assert capsys.readouterr().out.splitlines() == [
        (f"config.yaml:3:16: error: featureGates.Colour: unknown feature gate (there are: {', '.join(known_gates())})"),
        'config.yaml:5:19: error: plugins.disabled[1]: no such plugin is installed here (did you mean "torch"?)',
        "config.yaml:7:5: warning: plugins.options.jax: no effect: the plugin is in plugins.disabled",
        (
            "config.yaml:8:5: error: plugins.options.torch: plugin 'torch' (trainmaster.plugins.torch:Torch, from "
            "trainmaster) has no option 'b', nor any other; remove plugins.options.torch of the configuration file"
        ),
        (
            "config.yaml:9:5: error: plugins.options.mpi: plugin 'mpi' (trainmaster.plugins.mpi:MPI, from trainmaster) "
            "has no option 'c', nor any other; remove plugins.options.mpi of the configuration file"
        ),
        "config.yaml:10:5: warning: plugins.options.trainjobstatus: no effect: the feature gate TrainJobStatus is off",
        (
            "config.yaml:11:5: error: plugins.options.somebodys: no such plugin is installed here (there are: claims, "
            "coscheduling, flux, jax, jobset, mpi, plainml, resilience, slices, torch, ...)"
        ),
    ]


def test_programs_get_problems_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(HEAD + "webhook: {port: 0}\n", "-o", "json") == 1
    place = {"file": "config.yaml", "line": 3, "column": 11, "path": "webhook.port"}
    problem = {"severity": "error", **place, "message": "must be greater than or equal to 1, got 0"}
    found = json.loads(capsys.readouterr().out)
    assert found == {"valid": False, "read": "config.yaml", "problems": [problem]}


def shown(capsys: pytest.CaptureFixture[str], *options: str, text: str | None = None) -> str:
    if text is not None:
        Path("config.yaml").write_text(HEAD + text)
        options = ("--config", "config.yaml", *options)
    assert main(["config", "show", *options]) == 0
    return capsys.readouterr().out


FILE = """\
webhook:
  port: 1234
clientConnection: {qps: 7}
featureGates: {AllAlpha: true}
plugins:
  disabled:
  - flux
  options:
    torch: {}
"""


def test_each_value_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, text=FILE).splitlines()
    for line in (
        "kind: Configuration  # config.yaml:2",
        "  port: 1234  # config.yaml:4",
        "  enabled: true  # default",
        "  qps: 7.0  # config.yaml:5",
        "  burst: 100  # default",
        "  TrainJobStatus: true  # config.yaml:6",
        "  disabled:  # config.yaml:8",
        "  - flux",
    ):
        assert line in lines, line
    assert "  TrainJobStatus: false  # --feature-gates=TrainJobStatus=false" in shown(
        capsys, "--feature-gates", "TrainJobStatus=false", text=FILE
    )
    # The name of a gate wins over that of its stage, whoever says which.
    assert "  TrainJobStatus: true  # config.yaml:3" in shown(
        capsys, "--feature-gates", "AllAlpha=false", text="featureGates: {TrainJobStatus: true}\n"
    )


def test_what_is_shown_is_a_file_that_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    printed = shown(capsys, text=FILE)
    Path("again.yaml").write_text(printed)
    first, again = effective_configuration(Path("config.yaml")), effective_configuration(Path("again.yaml"))
    assert again.features == first.features
    gates: dict[str, object] = {"feature_gates": {}}
    assert again.configuration.model_copy(update=gates) == first.configuration.model_copy(update=gates)
    Path("defaults.yaml").write_text(shown(capsys))
    assert load_configuration(Path("defaults.yaml")).model_copy(update=gates) == Configuration()
    # Without a file all are defaults.
    printed = shown(capsys)
    values = [line for line in printed.splitlines()[1:] if not line.strip().startswith("- ")]
    assert all("  # default" in line or line.endswith(":") for line in values)
    assert "  host: null  # default: all interfaces\n" in printed
    assert "  minVersion: null  # default: 1.2\n" in printed


def test_programs_get_what_is_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(shown(capsys, "-o", "json", text=FILE))
    assert report["configuration"]["webhook"]["port"] == 1234
    assert report["configuration"]["featureGates"] == dict.fromkeys(FEATURES, True)
    assert report["origins"]["webhook.port"] == {"source": "file", "place": "config.yaml:4"}
    assert report["origins"]["webhook.host"] == {"source": "default", "place": "all interfaces"}
    assert report["origins"]["featureGates.TrainJobStatus"] == {"source": "file", "place": "config.yaml:6"}


def test_a_config_map_is_shown_with_its_own_lines_and_warnings_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    # A config map is shown with its own lines.
    held = "".join(f"    {line}\n" for line in (HEAD + FILE).splitlines())
    Path("map.yaml").write_text(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  controller_manager_config.yaml: |\n{held}"
    )
    assert "  port: 1234  # map.yaml:9" in shown(capsys, "--config", "map.yaml").splitlines()
    # Warnings stand beside what is shown.
    Path("config.yaml").write_text(HEAD + "statusServer: {port: 7}\n")
    assert main(["config", "show", "--config", "config.yaml"]) == 0
    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out)["statusServer"]["port"] == 7
    assert printed.err.startswith("config.yaml:3:16: warning: statusServer.port: no effect: ")


@pytest.mark.parametrize("text", ["webhook: {port: 0}\n", "webhook: {port: 8081}\n"])
def test_what_no_manager_would_take_is_not_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.yaml").write_text(HEAD + text)
    assert main(["config", "show", "--config", "config.yaml"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ": error: " in printed.err


def write_two() -> None:
    Path("conf").mkdir()
    Path("conf/a.yaml").write_text(HEAD + "webhook:\n  port: 1\n  prot: 2\n")
    Path("conf/b.yaml").write_text(HEAD + "history: {enabled: true}\nwebhook:\n  port: 0\n")


@pytest.mark.parametrize("given", [("conf",), ("conf/a.yaml", "conf/b.yaml")])
def test_several_files_are_checked_together_each_with_its_own_lines(given: tuple[str, ...], ran: Ran) -> None:
    write_two()
    assert tuple(ran("config", "check", *given, code=1)) == (
        (
            'conf/a.yaml:5:3: error: webhook.prot: unknown field (did you mean "port"?)\n'
            "conf/b.yaml:5:3: error: webhook.port: must be greater than or equal to 1, got 0\n"
        ),
        "trainmaster: conf/a.yaml, conf/b.yaml: 2 errors, 0 warnings\n",
    )
    Path("conf/a.yaml").write_text("kind: Configuration\n")
    assert ran("config", "check", *given, code=1).out == (
        "conf/a.yaml:1:1: error: apiVersion: is missing; it must be 'config.trainer.kubeflow.org/v1alpha1'\n"
    )
    assert ran("config", "check", "conf/b.yaml", "none.yaml", code=1).out == (
        "none.yaml: error: failed to read config file: none.yaml: No such file or directory\n"
    )


def test_a_config_map_of_several_files_is_checked_as_a_manager_reads_it(ran: Ran) -> None:
    write_two()
    data = {name: Path("conf", name).read_text() for name in ("b.yaml", "a.yaml")}
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held"}}
    config_map = {**head, "data": {**data, "notes": "none"}}
    Path("map.yaml").write_text(yaml.safe_dump(config_map, default_style="|"))
    lines = Path("map.yaml").read_text().splitlines()
    misspelled, wrong = (lines.index(f"    {text}") + 1 for text in ("  prot: 2", "  port: 0"))
    assert tuple(ran("config", "check", "map.yaml", code=1)) == (
        (
            f'map.yaml:{misspelled}:7: error: webhook.prot: unknown field (did you mean "port"?)\n'
            f"map.yaml:{wrong}:7: error: webhook.port: must be greater than or equal to 1, got 0\n"
        ),
        "trainmaster: key a.yaml of ConfigMap held, key b.yaml of ConfigMap held: 2 errors, 0 warnings\n",
    )


def test_of_several_files_each_value_says_from_which_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    write_two()
    Path("conf/a.yaml").write_text(HEAD + "webhook:\n  port: 1\n  host: a\n")
    Path("conf/b.yaml").write_text(HEAD + "webhook:\n  port: 2\n")
    lines = shown(capsys, "--config", "conf/a.yaml", "--config", "conf/b.yaml").splitlines()
    assert "  port: 2  # conf/b.yaml:4" in lines
    assert "  host: a  # conf/a.yaml:5" in lines
    assert lines == shown(capsys, "--config", "conf").splitlines()
