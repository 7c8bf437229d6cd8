"""Java's properties files, placeholders, and the environment over them."""

import os
from pathlib import Path

import pytest

from sluice.instance.properties import Lookup, Property, environment_name, parse_properties, read_properties
from sluice.protocol.errors import ConfigError


def values(text: str) -> dict[str, str]:
    return {key: item.value for key, item in parse_properties(text, "f").items()}


def resolve(key: str, *files: dict[str, str], **environ: str) -> str:
    layers = [{name: Property(value, "f:1") for name, value in file.items()} for file in files]
    return Lookup(*layers, environ=environ)([key])[key].value


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb", "a", "b"),
        ("a = = b", "a", "= b"),
        ("  \t a = b \t", "a", "b"),
        ("a", "a", ""),
        ("a =", "a", ""),
        (r"a\ b\=c\:d = e", "a b=c:d", "e"),
        (r"a = C:\\temp", "a", r"C:\temp"),
        (r"filter = shop\\..*", "filter", r"shop\..*"),
        (r"filter = shop\..*", "filter", "shop..*"),
        (r"a = 1\t2\n3", "a", "1\t2\n3"),
        (r"a = \u00e4\u4e2D", "a", "ä中"),
        (r"a = \ud83d\ude00", "a", "😀"),
        ("a = password#with!marks", "a", "password#with!marks"),
        ("a = b\\\n    c", "a", "bc"),
        ("a = b\\\\\nc = d", "a", "b\\"),
        ("a\\\n = b", "a", "b"),
        ("a = b\\", "a", "b"),
    ],
)
def test_a_line_is_read_as_java_reads_it(line: str, key: str, value: str) -> None:
    assert values(line)[key] == value


def test_comments_and_empty_lines_are_not_properties() -> None:
    assert values("# a = 1\n\n  ! b = 2\\\nc = 3\n \t\n") == {"c": "3"}


def test_a_comment_sign_begins_no_comment_on_a_continued_line() -> None:
    assert values("a = b,\\\n  #c") == {"a": "b,#c"}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_end_of_line_counts(end: str) -> None:
    assert values(end.join(["a = 1", "# c", "b = 2"])) == {"a": "1", "b": "2"}


def test_the_last_of_several_lines_counts_and_names_its_place() -> None:
    assert parse_properties("a = 1\nb = \\\n 2\na = 3", "x.properties") == {
        "a": Property("3", "x.properties:4"),
        "b": Property("2", "x.properties:2"),
    }


def test_a_broken_unicode_escape_is_an_error_that_names_its_place() -> None:
    with pytest.raises(ConfigError, match=r"^f:2: \\u has to be followed by four"):
        parse_properties("a = 1\nb = C:\\users", "f")


def test_a_file_is_utf8_or_else_latin1(tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig", "latin-1"):
        (tmp_path / encoding).write_bytes("a = grün".encode(encoding))
        assert read_properties(tmp_path / encoding)["a"].value == "grün"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*/missing: No such file"):
        read_properties(tmp_path / "missing")


def test_a_later_file_overrides_an_earlier_one() -> None:
    assert resolve("a", {"a": "1"}, {"a": "2"}) == "2"
    assert resolve("a", {"a": "1"}, {"a": ""}) == ""


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("canal.instance.dbPassword", "SLUICE_INSTANCE_DB_PASSWORD"),
        ("canal.instance.master.journal.name", "SLUICE_INSTANCE_MASTER_JOURNAL_NAME"),
        ("sluice.http.tlsCert", "SLUICE_HTTP_TLS_CERT"),
    ],
)
def test_a_key_has_a_name_in_the_environment(key: str, name: str) -> None:
    assert environment_name(key) == name


def test_the_environment_overrides_files_by_our_name_before_canals() -> None:
    file = {"canal.auto.scan": "file"}
    assert resolve("canal.auto.scan", file, **{"canal.auto.scan": "dotted"}) == "dotted"
    assert resolve("canal.auto.scan", file, **{"canal.auto.scan": "dotted", "SLUICE_AUTO_SCAN": "ours"}) == "ours"
    assert resolve("canal.auto.scan", file, SLUICE_AUTO_SCAN=" ") == "file"


class TestSecretsInFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        file = tmp_path / "shop"
        file.write_bytes("pä$${b}ss \r\n".encode())
        return file

    SECRET = "pä$${b}ss "
    """As it is: it has no placeholders, and its spaces count."""

    @pytest.mark.parametrize("key", ["canal.instance.dbPassword", "canal.passwd", "kafka.sasl.password", "mask.secret"])
    def test_a_key_with_file_names_the_file(self, key: str, file: Path) -> None:
        found = parse_properties(f"{key}File = {file}", "own")
        assert Lookup(found, environ={})([key]) == {key: Property(self.SECRET, "own:1")}

    def test_so_does_a_variable(self, file: Path) -> None:
        for name in ("SLUICE_INSTANCE_DB_PASSWORD_FILE", "canal.instance.dbPasswordFile"):
            assert resolve("canal.instance.dbPassword", {}, **{name: str(file)}) == self.SECRET
        assert resolve("canal.instance.dbPassword", {}, SLUICE_INSTANCE_DB_PASSWORD="own", **{name: "x"}) == "own"

    def test_of_two_files_of_properties_the_later_one_counts_whichever_key_it_has(self, file: Path) -> None:
        named, given = parse_properties(f"dbPasswordFile = {file}", "a"), parse_properties("dbPassword = b", "b")
        assert Lookup(named, given, environ={})(["dbPassword"])["dbPassword"].value == "b"
        assert Lookup(given, named, environ={})(["dbPassword"])["dbPassword"].value == self.SECRET

    def test_a_placeholder_takes_it_and_its_name_may_have_some(self, file: Path) -> None:
        text = f"a.password = ${{b.password}}\nb.passwordFile = {file.parent}/${{name}}\nname = {file.name}"
        assert Lookup(parse_properties(text, "own"), environ={})(["a.password"])["a.password"].value == self.SECRET

    def test_keys_that_are_no_secrets_keep_their_names(self) -> None:
        assert parse_properties("a.sslKeyFile = x", "own") == {"a.sslKeyFile": Property("x", "own:1")}

    def test_both_in_one_file_are_an_error(self) -> None:
        both = r"own:2: dbPasswordFile and dbPassword \(own:1\) are both given: leave one out"
        with pytest.raises(ConfigError, match=both):
            parse_properties("dbPassword = a\ndbPasswordFile = /b", "own")
        assert parse_properties("dbPassword = a\ndbPasswordFile =", "own") == {"dbPassword": Property("a", "own:1")}

    @pytest.mark.parametrize(
        ("name", "content", "text"),
        [
            ("none", None, r"cannot read dbPassword from /.*/none: No such file or directory"),
            ("folder", None, r"/.*/folder, which is to hold dbPassword, is not a file"),
            ("pipe", None, r"/.*/pipe, which is to hold dbPassword, is not a file"),
            ("large", b"x" * (64 << 10) + b"x", "which is to hold dbPassword, has more than 65536 bytes"),
            ("binary", b"s3cr\xff", "/binary, which is to hold dbPassword, is not UTF-8"),
        ],
    )
    def test_what_cannot_be_read_is_named_without_its_content(
        self, name: str, content: bytes | None, text: str, tmp_path: Path
    ) -> None:
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")
        if content is not None:
            (tmp_path / name).write_bytes(content)
        lookup = Lookup(parse_properties(f"dbPasswordFile = {tmp_path / name}", "own"), environ={})
        with pytest.raises(ConfigError, match=f"own:1: .*{text}") as raised:
            lookup(["dbPassword"])
        assert "s3cr" not in str(raised.value)

    def test_it_is_named_by_its_whole_path(self) -> None:
        lookup = Lookup(parse_properties("dbPasswordFile = db", "own"), environ={})
        with pytest.raises(
            ConfigError, match="own:1: the file with dbPassword has to be named by its whole path, not db"
        ):
            lookup(["dbPassword"])


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("${b}", "B"),
        ("${b:x}", "B"),
        ("${c:x}", "x"),
        ("${c}", ""),
        ("${c:}", ""),
        ("${empty:x}", "x"),
        ("<${b}/${c:d:e}>", "<B/d:e>"),
        ("${c:${d:${b}}}", "B"),
        ("${${name}}", "B"),
        ("${HOST:localhost}:3306", "db1:3306"),
        ("$b {b} $", "$b {b} $"),
    ],
)
def test_placeholders_are_replaced(value: str, result: str) -> None:
    assert resolve("a", {"a": value, "b": "B", "empty": "", "name": "b"}, HOST="db1") == result


def test_a_placeholder_that_leads_back_to_itself_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"f:1: the placeholder \$\{a\} leads back"):
        resolve("a", {"a": "${b}", "b": "${a}"})


def test_a_placeholder_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(ConfigError, match="f:1: a placeholder is not closed"):
        resolve("a", {"a": "x${b:${c}"})
