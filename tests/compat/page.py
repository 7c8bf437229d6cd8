"""Writes docs/compat.md out of the results of the runs."""

import html
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.compat.comparing import Difference
from tests.compat.differences import DEFAULT, STRICT
from tests.compat.run import Result

PAGE = Path(__file__).parents[2] / "docs" / "compat.md"
UNDOCUMENTED = "**not documented**"
INTRODUCTION = """# Entries compared with Canal's

`make compat` has written this page. It runs stock Canal 1.1.7 and Sluice on the same source. It writes a
[script](../tests/compat/script.py) of DDL and DML into the source, reads both by Canal's own Java client, and compares
entry by entry:

* All fields of the header, and the properties.
* Every field of every column, before and after.
* The statements.
* The begin and end of transactions.
* Whether a field is on the wire at all.

The run reads Sluice twice: as it is by default, and under `canal.instance.parser.strictCanal = true`. It writes
TIMESTAMP values in a zone with daylight saving time.

If both write the same value in different texts, the run accepts only the one text that
[follows from the other](../tests/compat/relations.py). Examples are JSON that is equal as values, and text that is its
own bytes read as UTF-8.

The run fails at a difference that is not in [Deviations from Canal](deviations.md). It also fails if a
[listed one](../tests/compat/differences.py) no longer occurs. It ignores begins and ends of transactions without rows:
Canal and Sluice deliver one of them every five seconds.

Canal 1.1.7 reads MySQL 9.7 only from a given position, so all sources start at one. It cannot read MariaDB 11.8 at all,
nor MariaDB 10.11 by GTID: its `MariaGTIDSet` fails at the first GTID event.

"""


def write(results: Sequence[Result]) -> None:
    """Write the page."""
    PAGE.write_text(INTRODUCTION + _entries(results) + "\n" + _differences(results))


def _entries(results: Sequence[Result]) -> str:
    """What was compared: topics by sources."""
    topics = list(dict.fromkeys(topic for result in results for topic in result.compared))
    lines = [
        "## Entries\n",
        "Each cell has the number of Canal's entries. In brackets: differences by default, under `strictCanal`.\n",
        f"| topic | {' | '.join(str(it.source) for it in results)} |",
        f"| --- |{' ---: |' * len(results)}",
        f"| version | {' | '.join(it.version.split('-')[0] for it in results)} |",
    ]
    lines += [f"| {topic} | {' | '.join(_cell(result, topic) for result in results)} |" for topic in topics]
    totals = (f"**{sum(it.compared.values()):,}** {_counts(it, None)}".strip() for it in results)
    lines.append(f"| all | {' | '.join(totals)} |")
    return "\n".join(lines) + "\n"


def _cell(result: Result, topic: str) -> str:
    return f"{result.compared[topic]:,} {_counts(result, topic)}".strip() if result.compared[topic] else ""


def _counts(result: Result, topic: str | None) -> str:
    counts = [
        sum(found.topic == topic or topic is None for _, found in result.explained[mode] if _is_steady(found))
        for mode in (DEFAULT, STRICT)
    ]
    return f"({counts[0]}, {counts[1]})" if any(counts) else ""


def _is_steady(found: Difference) -> bool:
    """Whether it is one at every run; how far the source is when a schema is asked for is not."""
    return found.field != "header.props.sluice.schema"


def _differences(results: Sequence[Result]) -> str:
    """The differences that were found, by deviation."""
    found: dict[str, dict[str, list[tuple[str, Difference]]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for mode, pairs in result.explained.items():
            for rule, difference in pairs:
                found[rule.deviation][mode].append((str(result.source), difference))
            for difference in result.unexplained[mode]:
                found[UNDOCUMENTED][mode].append((str(result.source), difference))
    lines = [
        "## Differences\n",
        "[Deviations from Canal](deviations.md) lists each under its name, with what restores Canal's behavior.\n",
        "| deviation | sources | by default | under `strictCanal` | Canal, for example | Sluice |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for deviation, modes in sorted(found.items()):
        everything = [it for pairs in modes.values() for it in pairs]
        sources = dict.fromkeys(source.split(" ")[0] for source, _ in everything)
        _, example = min(everything, key=lambda it: (len(str(it[1].canal)) + len(str(it[1].sluice)), str(it)))
        steady = all(_is_steady(it) for _, it in everything)
        counts = " | ".join(
            f"{len(modes[mode]):,}" if steady or not modes[mode] else "some" for mode in (DEFAULT, STRICT)
        )
        lines.append(
            f"| {deviation} | {', '.join(sources)} | {counts} | {_shown(example.canal)} | {_shown(example.sluice)} |"
        )
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    """A value in a cell."""
    if value is None:
        return "nothing"
    text = str(value) if len(str(value)) <= 70 else f"{str(value)[:67]}…"
    visible = "".join(it if it.isprintable() else f"\\u{ord(it):04x}" for it in text).replace("|", "&#124;")
    return f"<code>{html.escape(visible, quote=False)}</code>" if visible else '`""`'
