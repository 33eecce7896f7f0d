"""Replaying one plan: `pytest tests/sim/test_perturbations.py -k asked_for --plan "..."`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plan", help="the perturbation plan to replay, as a failing test prints it")
