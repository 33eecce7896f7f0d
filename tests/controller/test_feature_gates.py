"""Feature gates."""

from __future__ import annotations

import pytest

from trainmaster.controller import feature_gates
from trainmaster.controller.feature_gates import FeatureSpec, UnknownFeature, enabled_features, parse_feature_gates


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        feature_gates,
        "FEATURES",
        {"New": FeatureSpec("ALPHA", default=False), "Old": FeatureSpec("BETA", default=True)},
    )


def test_the_command_line_form() -> None:
    assert parse_feature_gates("A=true, B=False,") == {"A": True, "B": False}
    for text in ("A", "A=1", "A=yes"):
        with pytest.raises(UnknownFeature, match="write it as Name=true or Name=false"):
            parse_feature_gates(text)


@pytest.mark.usefixtures("gates")
def test_later_sources_win() -> None:
    """A stage switches its gates, but not those that are named."""
    assert enabled_features({"New": True}, {"New": False}) == {"New": False, "Old": True}
    assert enabled_features({"AllAlpha": True, "AllBeta": False, "Old": True}) == {"New": True, "Old": True}


def test_an_unknown_gate_is_an_error() -> None:
    with pytest.raises(UnknownFeature, match="unknown feature gate 'Nwe'; known are: "):
        enabled_features({"Nwe": True})
