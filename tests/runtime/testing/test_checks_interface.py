"""What a plugin says of itself, its sample and its options: what is wrong with them is found."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, field_serializer
from support.suites import GOOD, Good, failure, passes

from trainmaster.runtime.sdk import Desired, Info, Rejected, SecretFile


def test_a_misspelt_hook_is_found() -> None:
    class Misspelt:
        name = "misspelt"

        def enforce_mlpolicy(self, info: Info) -> None: ...

        def build(self) -> Iterable[Desired]:
            return ()

    told = failure("test_it_fits_the_interface", Misspelt)
    assert "enforce_mlpolicy is no extension point" in told
    assert "if enforce_ml_policy is meant" in told


def test_a_misspelt_place_is_found() -> None:
    class Lost(Good):
        after = ("Volcano",)

    told = failure("test_it_fits_the_interface", Lost)
    assert "names 'Volcano', and there is no plugin of that name" in told
    assert "write 'volcano'" in told


def test_options_that_it_does_not_take_are_found() -> None:
    told = failure("test_it_fits_the_interface", Good, options={"regoin": "us"})
    assert 'plugins.options.good.regoin: unknown field (did you mean "region"?)' in told


def test_a_sample_that_the_plugin_does_not_serve_is_found() -> None:
    told = failure("test_it_serves_its_sample", Good)
    assert "the plugin does not serve TrainJob demo-0" in told
    assert "give the suite a `runtime` with the policy" in told


def test_a_sample_that_cannot_be_built_is_found() -> None:
    class Strict(Good):
        def pre_build(self) -> None:
            raise Rejected("no room")

    told = failure("test_it_serves_its_sample", Strict, **GOOD)
    assert "TrainJob demo-0 cannot be built: no room" in told


def test_a_hook_that_fails_is_found() -> None:
    class Failing(Good):
        def pre_build(self) -> None:
            raise KeyError("region")

    told = failure("test_it_serves_its_sample", Failing, **GOOD)
    assert "plugin good failed in pre_build: KeyError: 'region'" in told
    assert "plugin good failed" in failure("test_it_is_idempotent", Failing, **GOOD)


def test_options_that_do_not_come_back_are_found() -> None:
    class Changing(Good):
        class Options(BaseModel):
            region: str = "eu"

            @field_serializer("region")
            def _shouted(self, region: str) -> str:
                return region + "!"

        options_model = Options  # type: ignore[assignment]  # another model

    told = failure("test_options_make_a_round_trip", Changing, **GOOD)
    assert "Options makes something else of what it prints itself: region is 'us!!' instead of 'us!'" in told


def test_the_path_of_a_secret_makes_a_round_trip(tmp_path: Path) -> None:
    """`trainmaster plugins show` describes options by the schema of their model."""

    class Keyed(Good):
        class Options(BaseModel):
            region: str = "eu"
            token: SecretFile
            other: SecretFile | None = None

        options_model = Options  # type: ignore[assignment]  # another model

    path = tmp_path / "token"
    path.write_text("secret")
    passes("test_options_make_a_round_trip", Keyed, options={"token": str(path)}, runtime=GOOD["runtime"])
    fields = Keyed.Options.model_json_schema()["properties"]
    assert fields["token"] == {"type": "string", "format": "path", "title": "Token"}


def test_a_model_that_cannot_be_described_is_found() -> None:
    class Opaque(Good):
        class Options(BaseModel):
            model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)
            region: str = "eu"
            handle: threading.Thread | None = None

        options_model = Options  # type: ignore[assignment]  # another model

    assert "Options has no JSON schema" in failure("test_options_make_a_round_trip", Opaque, **GOOD)


def test_a_model_that_takes_anything_is_found() -> None:
    class Lax(Good):
        class Config(BaseModel):
            model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
            zone: str = "a"

        ml_policy_config = Config  # type: ignore[assignment]  # another model

    told = failure("test_options_make_a_round_trip", Lax, **GOOD)
    assert "Config takes the unknown field" in told
