"""Search the stories, or show what goes wrong without a rule.

python -m tests.model                 every story
python -m tests.model two_readings    a shortest way to what goes wrong without this rule
python -m tests.model rules           the table of all rules
"""

from __future__ import annotations

import sys

from tests.model.rules import Rules, sentences
from tests.model.search import search
from tests.model.stories import SHORT, WHERE, story


def main(words: list[str]) -> None:
    """Do what the words say."""
    if not words:
        for each in SHORT:
            print(search(each, Rules()), flush=True)
        return
    for rule in WHERE if words == ["rules"] else words:
        found = search(story(WHERE[rule]), Rules().without(rule))
        if words == ["rules"]:
            print(f"| {rule} | {found.name} | {found.states} | {len(found.trace) - 1} | {found.sentence} |")
        else:
            print(f"Without {rule} ({sentences()[rule]})\n{found}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
