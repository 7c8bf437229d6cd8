"""Regular expressions from outside: what they mean, what is refused, and that none takes long."""

import gc
import re

import pytest
import re2

from sluice.instance.sink.filters import TableFilter
from sluice.instance.sink.patterns import MAX_WEIGHT, Matcher, translate
from sluice.protocol.errors import FilterError
from tests.effort import times
from tests.patterns import Patterns

NAMES = [
    chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000 and (code < 0x600 or code % times(7, 1) == 0)
]
"""Characters that may be in a name: every one in `make test-all`."""


def matched(pattern: str, names: list[str]) -> list[str]:
    matcher = Matcher([translate(pattern)])
    return [name for name in names if matcher.matches(name)]


def matched_by_python(pattern: str, names: list[str]) -> list[str]:
    compiled = re.compile(pattern, re.IGNORECASE)
    return [name for name in names if compiled.fullmatch(name)]


# --- what they mean --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(times(1, 4)))
def test_a_pattern_means_what_it_means_to_python(seed: int) -> None:
    patterns, compared = Patterns(seed), 0
    while compared < 500:
        item = patterns.item()
        try:
            translated = Matcher([translate(item)])
        except FilterError:
            continue
        compiled = re.compile(item, re.IGNORECASE)
        for schema, table in patterns.names(20):
            name = f"{schema}.{table}"
            assert translated.matches(name) == (compiled.fullmatch(name) is not None), (item, name)
        compared += 1


@pytest.mark.parametrize(
    "pattern",
    [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"[\w$]", r"[^\w$]", r"[\d_]", r"[^\d]", r"[\D]", r"[\s_]", r"[\S]"],
)
def test_a_class_holds_the_characters_of_all_languages_that_it_holds_in_python(pattern: str) -> None:
    assert matched(pattern, NAMES) == matched_by_python(pattern, NAMES)


def test_letters_that_differ_in_case_only_are_the_same_ones_as_in_python() -> None:
    variants: dict[str, set[str]] = {}
    for name in NAMES:
        for variant in (name.lower(), name.upper(), name.title(), name.casefold()):
            if len(variant) == 1 and variant != name:
                variants.setdefault(name, set()).add(variant)
                variants.setdefault(variant, set()).add(name)
    variants["i"] |= {"\u0130", "\u0131"}  # Python folds the dotted and the dotless i
    for letter, others in variants.items():
        names = sorted(others)
        assert matched(re.escape(letter), names) == matched_by_python(re.escape(letter), names), letter


@pytest.mark.parametrize("pattern", ["[\u0130]", "[ğ-\u0131]", "[^\u0130-ſ]", "[\u0131-ž]", "[^a-z]", "[h-j]"])  # noqa: RUF001
def test_a_range_over_the_dotless_i_holds_it_in_all_its_cases(pattern: str) -> None:
    names = ["\u0130", "\u0131", "i", "I", "j", "ž", "a", "ſ"]  # noqa: RUF001
    assert matched(pattern, names) == matched_by_python(pattern, names)


@pytest.mark.parametrize(
    ("item", "table", "accepted"),
    [
        (r"(?!mysql\.).*\..*", "shop.orders", True),
        (r"(?!mysql\.).*\..*", "mysql.user", False),
        (r"^(?!mysql\.|sys\.).*\..*$", "SYS.config", False),
        (r"(?!mysql\.)(?!.*_tmp$).*\..*", "shop.orders_tmp", False),
        (r"(?!mysql\.)(?!.*_tmp$).*\..*", "shop.orders_tmp2", True),
        (r"(?!shop\.a).*\.a|shop\.aa", "shop.aa", True),  # it concerns its alternative only
        (r"(?i)SHOP\.(?P<table>a)(?#one)", "shop.a", True),
        (r"shop\.a{2}{", "shop.aa{", True),
        (r"shop\.a(|b)", "shop.a", True),
    ],
)
def test_a_pattern_keeps_what_is_not_refused(item: str, table: str, accepted: bool) -> None:
    assert TableFilter(item).accepts(*table.split(".")) is accepted


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "place", "instead"),
    [
        (r"shop\.(?=x).*", r"'(?=' at character 7", "black.regex"),
        (r"shop\.(?!x).*", r"'(?!' at character 7", "beginning of an item"),
        (r"((?!a).*)\.b", r"'(?!' at character 2", "beginning of an item"),
        (r"shop\.(?<=x).*", r"'(?<=' at character 7", "black.regex"),
        (r"shop\.(?<!x).*", r"'(?<!' at character 7", "black.regex"),
        (r"(a)\.\1", r"'\1' at character 6", "write the text out"),
        (r"(?P<n>a)\.(?P=n)", r"'(?P=' at character 11", "write the text out"),
        (r"shop\.a++", r"'+' at character 9", r"write 'shop\.a+'"),
        (r"shop\.a{2}+b", r"'+' at character 11", r"write 'shop\.a{2}b'"),
        (r"shop\.(?>a)", r"'(?>' at character 7", r"write 'shop\.(?:a)'"),
        (r"(a)?shop\.(?(1)a|b)", r"'(?(' at character 11", "both alternatives"),
        (r"shop\.a\Z", r"'\Z' at character 8", r"write 'shop\.a'"),
        (r"shop\.a\z", r"'\z' at character 8", r"write 'shop\.a'"),
        (r"sch\u00f6n\..*", r"'\u00f6' at character 4", r"write 'schön\..*'"),
        (r"shop\.\U0001f600", r"'\U0001f600' at character 7", "write 'shop\\.\U0001f600'"),
        (r"shop\.\ud800", r"'\u' at character 7", "not a character"),
        (r"shop\.\xg1", r"'\x' at character 7", "not a character"),
        (r"shop\.\bitems", r"'\b' at character 7", "what may stand there"),
        (r"shop\.\Bitems", r"'\B' at character 7", "what may stand there"),
        (r"shop\.[\W_]", r"'\W' at character 8", r"[^\w"),
        (r"shop\.[[:alpha:]]+", r"'[:' at character 8", "[a-z]"),
        (r"shop\.\p{L}+", r"'\p' at character 7", "the character itself"),
        (r"shop\.\Qa\E", r"'\Q' at character 7", "the character itself"),
        (r"shop\.\012", r"'\0' at character 7", "the character itself"),
        (r"shop\.x{,3}", r"'{,3}' at character 8", r"write 'shop\.x{0,3}'"),
        (r"shop\.x{1001}", r"'{1001}' at character 8", "1000 times"),
        (r"shop\.x{3,2}", r"'{3,2}' at character 8", "ends before it begins"),
        (r"shop\.(?s)a", r"'(?s' at character 7", "no flag"),
        (r"(?x)shop\.a", r"'(?x' at character 1", "no flag"),
        (r"*\.orders", r"'*' at character 1", "nothing that can be repeated"),
        (r"shop\.a**", r"'*' at character 9", "nothing that can be repeated"),
        (r"shop\.^*", r"'*' at character 8", "nothing that can be repeated"),
        (r"shop\.(", r"'(' at character 7", "not closed"),
        (r"shop\.a)", r"')' at character 8", "closes nothing"),
        (r"shop\.[a", r"'[' at character 7", "not closed"),
        (r"shop\.(?#a", r"'(?#' at character 7", "not closed"),
        (r"shop\.[z-a]", r"'-a' at character 9", "before it begins"),
        (r"shop\.[a-\d]", r"'-\' at character 9", "at a class"),
        ("shop.a\\", r"'\' at character 7", "nothing follows"),
        (r"shop\\..*", r"'\\' at character 5", "double the backslash"),
    ],
)
def test_what_a_linear_engine_lacks_or_takes_otherwise_is_refused_at_its_place(
    item: str, place: str, instead: str
) -> None:
    with pytest.raises(FilterError) as caught:
        TableFilter(rf"crm\..*,{item}")
    assert place in str(caught.value)
    assert instead in str(caught.value)


def test_half_a_character_is_refused_in_a_filter_and_matches_nothing_in_a_name() -> None:
    with pytest.raises(FilterError, match="lone surrogate") as caught:
        TableFilter("shop\\.\ud800")
    assert str(caught.value).isascii()
    assert not TableFilter(r"shop\.a").accepts("shop", "\ud800")


# --- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item", [r"sec\.(a|a)*!", r"sec\.(a+)+!", r"sec\.(a|aa)+!", r"sec\.(.*a){20}!", r"(?!(.*a){30}!)sec\.(a*)*b"]
)
def test_no_pattern_takes_long_to_match(item: str) -> None:
    assert not TableFilter(item).accepts("sec", "a" * 64)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"shop\." + "a" * MAX_WEIGHT, "too long"),
        (r"shop\." + r"\w" * 66, "too large"),
        (r"shop\." + r"[\w$]" * 66, "too large"),
        (r"shop\." + r"\D*" * 660, "too large"),
        (r"shop\." + r"[\S]" * 660, "too large"),
        ("|".join(r"(?!a)b\.c" for _ in range(66)), "too large"),
        (r"shop\.(a{1000}){1000}", "too large"),
        (r"shop\.(\w{100}){10}", "too large"),
        ("(" * 1000 + r"a\.b" + ")" * 1000, "100 deep"),
    ],
)
def test_a_filter_that_takes_much_memory_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        TableFilter(text)


def test_an_unused_filter_takes_no_memory() -> None:
    def count() -> int:
        gc.collect()
        return sum(type(it).__module__ == "re2" for it in gc.get_objects())

    kept = TableFilter(r"shop\..*")
    re2.purge()
    before = count()
    for number in range(20):
        TableFilter(rf"shop\.t{number}")
    assert count() == before
    assert kept.accepts("shop", "t1")


def test_thousands_of_tables_may_be_listed() -> None:
    tables = TableFilter(",".join(rf"shop\.orders_{number}" for number in range(2000)))
    assert tables.accepts("shop", "orders_1999")
    assert not tables.accepts("shop", "orders_2000")
    assert tables.narrow(r"shop\.orders_7").include
    with pytest.raises(FilterError, match="matches nothing"):
        tables.narrow(r"shop\.orders_2000")


@pytest.mark.parametrize("unit", ["(?#", "{1", "{" * 7, "(?P<", r"a\.", "[" * 5, "(?!a"])
def test_no_pattern_takes_long_to_read(unit: str) -> None:
    with pytest.raises(FilterError):
        TableFilter(r"shop\..*").narrow("crm" + unit * (MAX_WEIGHT // len(unit) - 2) + r"\.(?=")
