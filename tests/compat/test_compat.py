"""What Sluice delivers is what stock Canal 1.1.7 delivers, but for the deviations that are documented."""

import re
from pathlib import Path

import pytest

from tests.compat.comparing import Difference
from tests.compat.differences import ALLOWED, ANY, DEFAULT, STRICT
from tests.compat.run import SOURCES, Source, perform, problems

DEVIATIONS = Path(__file__).parents[2] / "docs" / "deviations.md"


@pytest.mark.extended
def test_entries_equal_canals() -> None:
    result = perform(Source("mysql97"), short=True)
    assert list(problems(result)) == []
    assert all(result.compared.values())


@pytest.mark.soak
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_entries_of_the_whole_script_equal_canals(source: Source) -> None:
    assert list(problems(perform(source))) == []


def test_every_difference_that_is_allowed_is_documented_with_its_switch() -> None:
    restored, _, always = DEVIATIONS.read_text().partition("\n## Always different")
    documented = {
        subject: modes
        for text, modes in ((restored, {DEFAULT}), (always, {DEFAULT, STRICT}))
        for subject in re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    }
    assert {it.deviation for it in ALLOWED} <= documented.keys()
    assert [it for it in ALLOWED if not set(it.modes) <= documented[it.deviation]] == []


def test_no_difference_is_allowed_whatever_the_texts_are() -> None:
    assert [it for it in ALLOWED if it.relation is None and ANY in (it.canal, it.sluice)] == []


@pytest.mark.parametrize(
    ("deviation", "topic", "context", "canal", "sluice", "other"),
    [
        ("`DECIMAL`", "fractions", "decimal(10,2)", "5.0", "5.00", "5.10"),
        ("`DECIMAL`", "fractions", "decimal(20,10)", "1.500000000", "1.5000000000", "1.4000000000"),
        ("`DECIMAL`", "fractions", "decimal(30,9)", "1.0", "1.00", "1.000000000"),
        ("charset of text", "charsets", "varchar(20)", "caf\ufffd \ufffd", "café €", "cafe €"),
        ("`FLOAT` and `DOUBLE`", "fractions", "float", "1.17549435E-38", "1.1754944E-38", "1.1754945E-38"),
        ("JSON text", "json", "json", "[1.0E20, true]", "[1e20, true]", "[1e20, 1]"),
        ("JSON text", "json", "json", '"\\u007f"', '"\x7f"', "\x7f"),
        ("JSON text", "json", "json", '{"a": 1.0, "b": 2}', '{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
        ("JSON text", "json_made", "json", '["A"]', '["base64:type15:QQBC"]', '["base64:type15:QkI="]'),
        ("JSON text", "json_made", "json", '["00:00:00"]', '["00:00:00.000000"]', '["00:00:01.000000"]'),
        (
            "`DATE` inside JSON",
            "json_made",
            "json",
            '["2020-01-02 00:00:00.000000"]',
            '["2020-01-02"]',
            '["2020-01-03"]',
        ),
    ],
)
def test_only_the_text_that_follows_from_the_other_is_allowed(
    deviation: str, topic: str, context: str, canal: str, sluice: str, other: str
) -> None:
    rules = [it for it in ALLOWED if it.deviation == deviation]
    explained = [
        any(it.explains(Difference(topic, "row.after.value", context, canal, text, "", "c0")) for it in rules)
        for text in (sluice, other)
    ]
    assert explained == [True, False]


@pytest.mark.parametrize(("sluice", "explained"), [('{"b": "A\\u0000B"}', True), ('{"b": "B\\u0000A"}', False)])
def test_under_strict_canal_binary_values_inside_json_are_canals_up_to_a_zero_byte(
    sluice: str, *, explained: bool
) -> None:
    (rule,) = [it for it in ALLOWED if it.deviation == "binary values inside JSON"]
    assert rule.explains(Difference("json_made", "row.after.value", "json", '{"b": "A"}', sluice, "")) is explained
