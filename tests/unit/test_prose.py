"""The check of prose finds each phrase and each long sentence, where they are, and takes no code for prose."""

import pytest

from scripts.check_prose import AVERAGE, LABEL, LONGEST, Rule, findings, rules

RULES = rules()


def sentence(words: int) -> str:
    return " ".join(["Word", *["word"] * (words - 2), "the"]) + "."


def of_page(text: str) -> list[str]:
    return list(findings("page.md", text, RULES))


def of_code(text: str) -> list[str]:
    return list(findings("module.py", text, RULES))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.phrase)
def test_a_rule_finds_its_phrase_and_not_what_looks_like_it(rule: Rule) -> None:
    found = of_page(rule.example)
    assert [it.partition(": write ")[2] for it in found] == [f'"{rule.instead}"']
    assert [it.partition(": write ")[2] for it in of_code(f'raise Error("{rule.example}")')] == [f'"{rule.instead}"']
    assert of_page(rule.right) == []


def test_a_finding_says_where_what_and_what_to_write_instead() -> None:
    (found,) = of_page("# Title\n\nThe server is up.\nThe source is\naway for now.\n")
    assert found == 'page.md:4: "is away": write "is unavailable"'
    (found,) = of_code('def f():\n    raise Error(\n        f"{it}: the source"\n        " is away"\n    )\n')
    assert found == 'module.py:4: "is away": write "is unavailable"'


def test_the_longest_sentence_of_a_page_is_found() -> None:
    short = f"{sentence(2)}\n\n" * 20
    assert of_page(f"{short}{sentence(LONGEST)}") == []
    assert of_page(f"{short}* {sentence(3)} {sentence(LONGEST + 1)}\n") == [
        f"page.md:41: a sentence of {LONGEST + 1} words: write several, of at most {LONGEST} words"
    ]
    assert len(of_page(f"{short}| a |\n| --- |\n| {sentence(LONGEST + 1)} |\n")) == 1


def test_an_average_above_the_limit_is_found() -> None:
    assert of_page(f"{sentence(AVERAGE)} {sentence(AVERAGE)}") == []
    assert of_page(f"{sentence(AVERAGE)} {sentence(AVERAGE + 1)}") == [
        f"page.md:1: {AVERAGE + 0.5} words a sentence on average: write shorter sentences, at most {AVERAGE}"
    ]


def test_labels_do_not_lower_the_average() -> None:
    label = sentence(LABEL)
    assert len(of_page(f"# {label}\n\n{sentence(AVERAGE + 1)}\n\n| {label} |\n| --- |\n| {label} |\n")) == 1


def test_paragraphs_items_and_cells_are_sentences_of_their_own() -> None:
    half = sentence(LONGEST // 2 + 1).rstrip(".")
    short = f"{sentence(2)}\n\n" * 20
    assert (
        of_page(f"{short}{half}\n\n* {half}\n* {half}\n\n| {half} | {half} |\n| --- | --- |\n| {half} | {half} |\n")
        == []
    )


def test_code_and_targets_of_links_are_no_prose() -> None:
    page = f"`ZooKeeper is away`, [here](it-is-away.md 'is away').\n\n```console\n{sentence(99)} It is away.\n```\n"
    assert of_page(page) == []
    assert len(of_page("The server `db1` is away, as `sluice status` shows.")) == 1


@pytest.mark.parametrize(
    "code",
    ['"""It is away."""', "x = 1  # it's away, it is away", 'x = "`it is away`"', 'x = 1\n"""It is away.\n\nIt is."""'],
)
def test_docstrings_comments_and_quoted_code_are_no_texts(code: str) -> None:
    assert of_code(code) == []


@pytest.mark.parametrize(
    "code",
    [
        'log.info("the source is away")',
        'log.info(\n    "the source"\n    # why\n    " is away"\n)',
        "raise Error(f'{name} is away')",
        "raise Error(f\"{'it is away' if x else ''}\")",
        'HELP = """usage:\n  the source is away\n"""',
        'cdef int f() except -1:\n    raise Error("the source is away")',
    ],
)
def test_texts_in_code_are_read(code: str) -> None:
    assert len(of_code(code)) == 1


def test_a_long_sentence_in_code_is_found_and_sql_is_none() -> None:
    assert len(of_code(f'raise Error("{sentence(LONGEST + 1)}")')) == 1
    assert of_code(f'raise Error("{sentence(LONGEST)}")') == []
    assert of_code(f'cursor.execute("SELECT {", ".join(["field"] * LONGEST * 2)} FROM t")') == []
