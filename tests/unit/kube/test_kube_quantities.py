import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaia_plugin.kube.quantities import LARGEST, NotWhole, whole_number

WHOLE = [
    ("0", 0), ("1", 1), ("16", 16), ("007", 7), ("+3", 3), ("-0", 0), ("0.0", 0),
    ("0e99", 0), ("0e999999999", 0),
    ("1k", 1000), ("2k", 2000), ("1e3", 1000), ("1E3", 1000), ("1e+3", 1000), ("1.5k", 1500), (".5k", 500),
    ("1Ki", 1024), ("1.5Ki", 1536), ("2000m", 2), ("3000000u", 3), ("4000000000n", 4), ("10e-1", 1),
    ("5.", 5),
    ("1M", 10**6), ("1Mi", 1 << 20), ("1E", 10**18), ("7Ei", 7 << 60), ("1.0", 1),
    ("9223372036854775807", LARGEST),
]  # fmt: skip

NOT = {
    "not a number": [
        "", " ", "1 ", "8\n", ".", "one", "1e", "1K", "1ki", "k", "--1", "1,5", "0x10", "1_000", "٣", "NaN",
        "1" * 65, "1e3k",
    ],
    "negative": ["-1", "-1k", "-0.5", "-9223372036854775808"],
    "not a whole number": ["1500m", "0.5", "1n", "1e-1", "1e-999999999", "1.0001Ki"],
    "more than": ["9223372036854775808", "8Ei", "10E", "1e19", "1e999999999", "1e" + "9" * 60, "9" * 64],
}  # fmt: skip


@pytest.mark.parametrize(("text", "number"), WHOLE)
def test_a_whole_number_is_read_in_every_form_that_kubernetes_has(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(("why", "text"), [(why, text) for why, texts in NOT.items() for text in texts])
def test_what_is_no_whole_number_is_refused(why: str, text: str) -> None:
    with pytest.raises(NotWhole, match=why):
        whole_number(text)


@settings(deadline=None)
@given(
    st.text(max_size=80)
    | st.from_regex(r"[+-]?[0-9]{0,30}\.?[0-9]{0,30}([eE][+-]?[0-9]{1,12}|[numkMGTPE]i?)?")
)
def test_no_text_crashes_it(text: str) -> None:
    with contextlib.suppress(NotWhole):
        assert 0 <= whole_number(text) <= LARGEST
