"""Filters of tables: what Canal's own matcher takes and leaves, and what Sluice does."""

from collections.abc import Iterator

import pytest

from sluice.instance.sink.filters import TableFilter
from sluice.protocol.errors import FilterError
from tests.clients.canal_server import FilterProcess
from tests.clients.led import ClientError
from tests.effort import times
from tests.patterns import Patterns


@pytest.fixture(scope="module")
def canal() -> Iterator[FilterProcess]:
    with FilterProcess() as process:
        yield process


@pytest.mark.parametrize("seed", range(times(1, 3)))
def test_random_patterns_match_what_they_match_in_canal(canal: FilterProcess, seed: int) -> None:
    patterns, compared, matched = Patterns(seed), 0, 0
    while compared < times(250, 500):
        text = ",".join(patterns.item() for _ in range(1 + compared % 2))
        names = patterns.names(20)
        try:
            tables = TableFilter(text)
            verdicts = canal.accepts(text, names)
        except (FilterError, ClientError):  # one of them refuses it; Canal also when its matcher has no stack left
            continue
        for name, verdict in zip(names, verdicts, strict=True):
            assert tables.accepts(*name) == verdict, (text, name)
        compared += 1
        matched += sum(verdicts)
    assert matched > 50


@pytest.mark.parametrize(
    ("text", "name", "in_canal", "here"),
    [
        (r"shop\.(a|ab)", ("shop", "ab"), True, True),
        (r"shop\.a|shop\.ab", ("shop", "ab"), False, True),
        (r"shop\.a{1,2},crm\.b", ("shop", "aa"), False, True),
        (r"shop\.adi", ("shop", "ad\u0131"), False, True),  # a Turkish dotless i
    ],
)
def test_where_canal_and_sluice_differ(
    canal: FilterProcess, text: str, name: tuple[str, str], in_canal: bool, here: bool
) -> None:
    assert canal.accepts(text, [name]) == [in_canal]
    assert TableFilter(text).accepts(*name) is here
