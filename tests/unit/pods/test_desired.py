"""What an annotation may say of a size."""

from __future__ import annotations

import json

import pytest

from gaia_plugin.agent.pods.desired import _Pause, part_of
from gaia_plugin.api.models import Resize
from gaia_plugin.errors import Code, Refusal


@pytest.mark.parametrize(
    ("desired", "containers", "wish"),
    [
        ({"memory": "8GiB", "cores": 50}, ["main"], Resize(memory="8GiB", cores=50)),
        ({"memory": "8GiB"}, ["main"], Resize(memory="8GiB")),
        ({"cores": 5}, ["main"], Resize(cores=5)),
        ({"main": {"memory": "8GiB"}}, ["main"], Resize(memory="8GiB")),
        ({"main": {"cores": 5}}, ["main", "side"], Resize(cores=5)),
        ({"side": {"cores": 5}}, ["main", "side"], None),
        ({"memory": {"memory": "8GiB"}, "main": {"cores": 1}}, ["memory", "main"], Resize(cores=1)),
    ],
)
def test_what_is_meant_for_a_container(desired: object, containers: list[str], wish: Resize | None) -> None:
    assert part_of(json.dumps(desired), "main", containers) == wish


@pytest.mark.parametrize(
    ("text", "containers", "sentence"),
    [
        ("", ["main"], "Write it as"),
        ("8GiB", ["main"], "Write it as"),
        ("[]", ["main"], "Write it as"),
        ("{}", ["main"], "Write it as"),
        ("null", ["main"], "Write it as"),
        ("NaN", ["main"], "Write it as"),
        ('{"memory": "8GiB"', ["main"], "Write it as"),
        ('{"memory": "' + "8" * 600 + '"}', ["main"], "Write it as"),
        ('{"memory": "8GiB"}', ["main", "side"], "main or side"),
        ('{"memory": "8GiB", "colour": "red"}', ["main"], "not memory beside 'colour'"),
        ('{"cores": 5, "main": {}}', ["main"], "not cores beside 'main'"),
        ('{"core": 5}', ["main"], "No container 'core' of this pod has a slice; it is main."),
        (
            '{"other": {"memory": "8GiB"}}',
            ["main", "side"],
            "'other' of this pod has a slice; those are main and side.",
        ),
        ('{"main": {"memory": "8GiB", "colour": 1}}', ["main"], "takes memory, cores or both"),
        ('{"main": []}', ["main"], "takes memory, cores or both"),
        ('{"main": {}}', ["main"], "takes memory, cores or both"),
    ],
)
def test_what_is_none_is_told_with_what_to_write(text: str, containers: list[str], sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        part_of(text, "main", containers)
    assert refused.value.code is Code.INVALID_AMOUNT
    assert sentence in refused.value.sentence


def test_room_makes_the_next_try_sooner() -> None:
    pause = _Pause(tried=100.0, length=30.0)
    assert not pause.over(100.5, room=True)
    assert pause.over(101.0, room=True)
    assert not pause.over(129.0, room=False)
    assert pause.over(130.0, room=False)
