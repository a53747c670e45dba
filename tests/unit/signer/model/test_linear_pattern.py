from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.model.linear_pattern import InvalidPattern, check_pattern, matches


@pytest.mark.parametrize(
    ("pattern", "text", "covers"),
    [
        ("", "", True),
        ("", "x", False),
        ("OPS-[0-9]+", "OPS-17", True),
        ("OPS-[0-9]+", "OPS-17x", False),
        ("^OPS-[0-9]+$", "OPS-17", True),
        (r"(INC|CHG)\d{7}", "CHG0000017", True),
        (r"(?:INC|CHG)\d{7}", "CHG000001", False),
        (r".{10,}", "0123456789", True),
        (r".{10,}", "012345678", False),
        (r"a{2,3}", "aaaa", False),
        (r"[^a-c]+", "xyz", True),
        (r"[^a-c]+", "xbz", False),
        (r"[\w.-]+ \S+", "a.b-c d", True),
        (r"[]", "", None),
        (r"\D\W\S", "a b", None),
        (r"cost\$", "cost$", True),
        ("ü+", "üü", True),
        ("(a|)b", "b", True),
        ("(a*)*b", "aab", True),
        (".", "\n", False),
    ],
)
def test_matches(pattern: str, text: str, covers: bool | None) -> None:
    if covers is None:
        expected = None if pattern == "[]" else bool(re.fullmatch(pattern, text))
        if expected is None:
            with pytest.raises(InvalidPattern):
                check_pattern(pattern)
            return
        covers = expected
    assert matches(pattern, text) is covers


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("x" * 257, "at most 256 characters"),
        ("(a", "ends too early"),
        ("a)", "without '('"),
        ("*a", "must not have '*' there"),
        ("a**", "repeats a repetition"),
        ("a+?", "repeats a repetition"),
        ("a{257}", "at most 256"),
        ("a{3,2}", "at most 256"),
        ("a{x}", "write a repetition as"),
        ("a{1", "write a repetition as"),
        ("(?=a)", "begins with '?'"),
        (r"\1", "backslash"),
        (r"\b", "backslash"),
        ("a^b", "must not have '^' there"),
        ("a$b", "must not have '$' there"),
        ("[b-a]", "end is before its begin"),
        ("[a", "ends too early"),
        ("[[:alpha:]]", "write '[' in a class"),
        ("[]", "has an empty class"),
        ("(" * 17 + ")" * 17, "nests groups too deeply"),
        ("((a{60}){60}){60}", "is too large"),
        ("(((){99}){99}){99}", "is too large"),
        ("\\", "ends too early"),
    ],
)
def test_invalid(pattern: str, message: str) -> None:
    with pytest.raises(InvalidPattern, match=re.escape(message)):
        check_pattern(pattern)


def test_no_text_is_slow() -> None:
    """``re`` takes hours for this, so the test would not end."""
    assert not matches("(a+)+b", "a" * 1024)
    assert not matches("a*" * 20 + "b", "a" * 1024)


SIMPLE = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d"]),
    lambda inner: st.one_of(
        st.builds("({}|{})".format, inner, inner),
        st.builds("({})*".format, inner),
        st.builds("({})?".format, inner),
        st.builds("({}){{1,2}}".format, inner),
        st.builds("{}{}".format, inner, inner),
    ),
    max_leaves=5,
)


@given(SIMPLE, st.text("ab1", max_size=6))
def test_like_re(pattern: str, text: str) -> None:
    assert matches(pattern, text) is bool(re.fullmatch(pattern, text))


@given(st.text("ab()[]{}*+?|\\^$.-,1d", max_size=20))
def test_no_pattern_breaks_it(pattern: str) -> None:
    try:
        check_pattern(pattern)
    except InvalidPattern:
        return
    matches(pattern, "ab1")
