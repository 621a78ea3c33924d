"""The model's steps are the code's functions: a function that is renamed is renamed here, too."""

from __future__ import annotations

import inspect
from importlib import import_module
from operator import attrgetter

import pytest

from tests.model.agent import agent_steps
from tests.model.extender import extender_steps
from tests.model.names import CODE, TO_COME, function_of
from tests.model.rules import Rules
from tests.model.search import states_of
from tests.model.state import Model
from tests.model.stories import SHORT


@pytest.mark.parametrize("name", CODE)
def test_the_code_has_what_the_model_names(name: str) -> None:
    module, _, path = CODE[name].partition(":")
    found = attrgetter(path)(import_module(module))
    assert inspect.isfunction(found)
    assert path == name


def test_every_step_of_agent_and_extender_is_named() -> None:
    used = set()
    for story in SHORT:
        m = Model(Rules(), story)
        for s in states_of(m, most=4000):
            used |= {function_of(label) for label, _ in agent_steps(m, s)}
            used |= {function_of(label) for label, _ in extender_steps(m, s)}
    assert used == CODE.keys() | TO_COME.keys()
