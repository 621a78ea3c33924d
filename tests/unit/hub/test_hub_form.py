"""The spawn page, read as a browser and a screen reader would."""

from __future__ import annotations

import dataclasses

import pytest
from bs4 import BeautifulSoup, Tag

from gaia_hub.form.render import render_page
from gaia_hub.form.view import AWAY, NO_CARDS, Availability, build_page
from gaia_hub.profiles import DEFAULT_PROFILES, read_menu
from gaia_plugin.api.models import Amounts, CardView, Fit
from gaia_plugin.units import GIB

MENU = read_menu(DEFAULT_PROFILES, {})
EVIL = "<script>alert('x')</script>\"><img src=x onerror=y>"


def card(free: int = 94 * GIB // 4, cores: int = 100, name: str = "Sim", healthy: bool = True) -> CardView:
    return CardView(
        uuid="GPU-0",
        index=0,
        name=name,
        healthy=healthy,
        total=Amounts(memory=94 * GIB // 4, cores=100),
        free=Amounts(memory=free, cores=cores),
        used=0,
        slots=() if cores == 100 else ("bob",),
    )


def fits(**refused: str) -> dict[str, Fit]:
    return {
        key: Fit(fits=key not in refused, reason=refused.get(key, "")) for key in MENU.keys if key != "none"
    }


def page(
    availability: Availability, entered: dict[str, list[object]] | None = None, menu: object = MENU
) -> Tag:
    return BeautifulSoup(f"<form>{render_page(build_page(menu, availability, entered))}</form>", "html5lib")


def radio(soup: Tag, key: str) -> Tag:
    found = soup.select_one(f"input[type=radio][name=profile][value={key}]")
    assert found is not None
    return found


def checked(soup: Tag) -> list[str]:
    return [str(each["value"]) for each in soup.select("input[name=profile][checked]")]


def mode(soup: Tag) -> list[str]:
    return [str(each["value"]) for each in soup.select("input[type=radio][name=compute][checked]")]


def test_an_elastic_profile_says_what_is_guaranteed() -> None:
    share = {"key": "a", "name": "A", "memory": "4GiB", "cores": 25, "compute": "elastic"}
    menu = read_menu([share, {**share, "key": "b", "compute": "hard"}], {"enabled": False})
    fit = {"a": Fit(fits=True), "b": Fit(fits=True)}
    soup = page(Availability((card(),), fit), menu=menu)
    words = "25 % is guaranteed, and more while the card is idle."
    assert words in soup.select_one("#gaia-option-a-about").get_text()
    assert "guaranteed" not in soup.select_one("#gaia-option-b-about").get_text()


def test_every_field_has_a_label_and_every_description_exists() -> None:
    soup = page(Availability((card(),), fits()))
    assert len(soup.select("input")) == len(MENU.keys) + 4
    for field in soup.select("input"):
        assert soup.select_one(f"label[for={field['id']}]"), field
        for described in str(field["aria-describedby"]).split():
            assert soup.find(id=described), described
    ids = [each["id"] for each in soup.select("[id]")]
    assert len(ids) == len(set(ids))
    legend = soup.select_one("fieldset > legend")
    assert legend is not None
    assert legend.get_text()


def test_what_is_free_stands_there_as_text() -> None:
    soup = page(Availability((card(free=14 * GIB // 4, cores=40),), fits()))
    text = soup.select_one(".gaia-card").get_text(" ", strip=True)
    assert "3.5 GiB of 23.5 GiB free" in text
    assert "40 % free" in text
    assert "1 slice in use" in text
    assert all(bar["aria-hidden"] == "true" for bar in soup.select(".gaia-bar"))


def test_the_first_that_can_start_is_chosen() -> None:
    assert checked(page(Availability((card(),), fits()))) == ["small"]
    assert checked(page(Availability((card(),), fits(small="No.")))) == ["medium"]


def test_what_cannot_start_is_disabled_with_its_reason() -> None:
    soup = page(Availability((card(),), fits(card="Only 3.5 GiB are free.")))
    off = radio(soup, "card")
    assert off.has_attr("disabled")
    assert "Only 3.5 GiB are free." in soup.find(id=off["aria-describedby"]).get_text()
    assert not radio(soup, "small").has_attr("disabled")


@pytest.mark.parametrize(
    ("availability", "notice"), [(Availability(problem=AWAY), AWAY), (Availability(), NO_CARDS)]
)
def test_without_agent_or_cards_only_none_can_start(availability: Availability, notice: str) -> None:
    soup = page(availability)
    assert soup.select_one("[role=status]").get_text() == notice
    assert [each["value"] for each in soup.select("input[type=radio]:not([disabled])")] == ["none"]
    assert checked(soup) == ["none"]
    assert all(field.has_attr("disabled") for field in soup.select("input[type=number]"))


def test_a_refused_form_comes_back_as_it_was_filled_in() -> None:
    entered: dict[str, list[object]] = {"profile": ["own"], "memory_gib": ["40"], "cores": ["33"]}
    soup = page(Availability((card(),), fits()), entered)
    assert checked(soup) == ["own"]
    assert soup.find(id="gaia-memory")["value"] == "40"
    assert soup.find(id="gaia-cores")["value"] == "33"


def test_own_numbers_choose_between_hard_and_elastic_in_plain_words() -> None:
    soup = page(Availability((card(),), fits()))
    assert mode(soup) == ["hard"]
    assert "Exactly this share" in soup.find(id="gaia-mode-hard-about").get_text()
    assert "more while the card is idle" in soup.find(id="gaia-mode-elastic-about").get_text()
    group = soup.select_one("fieldset.gaia-modes > legend")
    assert group.get_text()
    menu = read_menu(DEFAULT_PROFILES, {"compute": "elastic"})
    assert mode(page(Availability((card(),), fits()), menu=menu)) == ["elastic"]
    off = page(Availability((card(),), fits(own="No.")))
    assert all(each.has_attr("disabled") for each in off.select("input[name=compute]"))


@pytest.mark.parametrize(
    ("entered", "shown"),
    [(["elastic"], "elastic"), (["turbo"], "hard"), (["hard", "elastic"], "hard"), ([], "hard")],
)
def test_the_mode_of_a_refused_form_comes_back(entered: list[object], shown: str) -> None:
    form: dict[str, list[object]] = {"profile": ["own"], "memory_gib": ["40"], "cores": ["33"]}
    assert mode(page(Availability((card(),), fits()), {**form, "compute": entered})) == [shown]


def test_number_fields_know_their_limits() -> None:
    menu = read_menu(DEFAULT_PROFILES, {"limit_memory": "6GiB", "limit_cores": 30})
    soup = page(Availability((card(free=3 * GIB),), fits()), menu=menu)
    memory, cores = soup.find(id="gaia-memory"), soup.find(id="gaia-cores")
    assert (memory["min"], memory["max"], memory["step"], memory["value"]) == ("0.25", "6", "0.25", "3")
    assert (cores["min"], cores["max"], cores["value"]) == ("1", "30", "25")


def test_nothing_foreign_becomes_markup() -> None:
    menu = read_menu([{"key": "a", "name": EVIL[:80], "description": EVIL, "memory": "1GiB", "cores": 1}], {})
    availability = Availability(
        (card(name=EVIL),), {"a": Fit(fits=False, reason=EVIL), "own": Fit(fits=True)}
    )
    entered: dict[str, list[object]] = {"profile": ["own"], "memory_gib": ['"><b>'], "cores": [EVIL[:40]]}
    soup = page(availability, entered, menu)
    assert len(soup.select("script")) == 1
    assert not soup.select("img, b")
    assert EVIL in soup.select_one(".gaia-card-name").get_text()
    assert soup.find(id="gaia-memory")["value"] == '"><b>'
    notice = dataclasses.replace(availability, problem=EVIL)
    assert not page(notice, None, menu).select("img")


def test_the_page_asks_no_other_host() -> None:
    html = render_page(build_page(MENU, Availability((card(),), fits())))
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html


def test_an_ill_card_says_so() -> None:
    soup = page(Availability((card(healthy=False),), fits()))
    assert "takes no new slices" in soup.select_one(".gaia-card").get_text()


def test_how_far_a_slice_may_grow_is_said() -> None:
    profiles = [
        {"key": "a", "name": "A", "memory": "2GiB", "cores": 10, "max_memory": "4GiB", "max_cores": 20},
        {"key": "b", "name": "B", "memory": "2GiB", "cores": 10, "max_memory": "2GiB", "max_cores": 10},
    ]
    menu = read_menu(profiles, {"enabled": False})
    soup = page(Availability((card(),), {"a": Fit(fits=True), "b": Fit(fits=True)}), menu=menu)
    assert "up to 4 GiB and 20 %" in soup.find(id="gaia-option-a-about").get_text()
    assert "row" not in soup.find(id="gaia-option-b-about").get_text()
    assert not soup.select("input[type=number]")
