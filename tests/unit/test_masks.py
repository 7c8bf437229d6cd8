"""Masks: what becomes of the values of columns, and of their types."""

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.columns import SourceColumn
from sluice.instance.sink.masks import Mask, Masks
from sluice.protocol.canal.entry_pb2 import Column as PbColumn
from sluice.protocol.canal.tags import EventType
from sluice.protocol.errors import ConfigError, DecodeError, FilterError
from tests.unit.plans import packed, plan, rows
from tests.unit.test_config import filled, instance

SECRET = "a secret of more than sixteen characters"
SHA256, FIRST3, NULL, HMAC = Mask("sha256"), Mask("first", 3), Mask("null"), Mask("hmac")


def masked(kind: str, mask: Mask, *values: bytes | None, secret: bytes = b"") -> list[PbColumn]:
    """The columns of inserted rows, beside a key."""
    plans = plan("tinyint", kind, masks={"C1": mask}, mask_secret=secret)
    data = b"".join((b"\xfe\1" if it is None else b"\xfc\1" + it) for it in values)
    return [after[1] for _, after in rows(plans.encode(data, EventType.INSERT))]


def text_of(kind: str, mask: Mask, value: bytes, secret: bytes = b"") -> str:
    (column,) = masked(kind, mask, value, secret=secret)
    return column.value


class TestValues:
    def test_sha256_is_that_of_the_text_in_hexadecimal(self) -> None:
        assert text_of("varchar(9)", SHA256, b"\3abc") == hashlib.sha256(b"abc").hexdigest()
        assert text_of("int", SHA256, (42).to_bytes(4, "little")) == hashlib.sha256(b"42").hexdigest()

    @given(st.text(max_size=60), st.binary(max_size=100))
    def test_hmac_is_keyed_by_the_secret(self, text: str, secret: bytes) -> None:
        data = text.encode()
        expected = hmac.new(secret, data, "sha256").hexdigest()
        assert text_of("varchar(63)", HMAC, packed(data), secret) == expected

    @pytest.mark.parametrize(
        ("text", "left"), [("", ""), ("ab", "ab"), ("abcd", "abc"), ("äöüß", "äöü"), ("漢😀é!", "漢😀é")]
    )
    def test_first_leaves_whole_characters(self, text: str, left: str) -> None:
        assert text_of("varchar(9)", FIRST3, packed(text.encode())) == left

    def test_null_is_null(self) -> None:
        assert [(it.isNull, it.value) for it in masked("varchar(9)", NULL, b"\3abc")] == [(True, "")]

    @pytest.mark.parametrize("mask", [SHA256, FIRST3, NULL, HMAC])
    def test_null_stays_null(self, mask: Mask) -> None:
        (column,) = masked("int", mask, None, secret=b"s")
        assert column.isNull

    def test_values_that_differ_only_behind_a_mask_are_no_update(self) -> None:
        plans = plan("tinyint", "varchar(9)", "varchar(9)", masks={"C1": FIRST3, "C2": NULL})
        image = b"\xf8\1\4abc1\1x", b"\xf8\1\4abc2\1y"
        ((_, after),) = rows(plans.encode(b"".join(image), EventType.UPDATE))
        assert [it.updated for it in after] == [False, False, False]

    def test_the_differences_of_a_document_are_not_delivered(self) -> None:
        """Without the document before there is nothing to hash."""
        plans = plan("tinyint", "json", masks={"C1": SHA256})
        data = b"\xfe\1" + b"\1\1\xfc\1\0\0\0\0"
        with pytest.raises(DecodeError, match=r"shop.t.c1: differences of a document cannot be masked"):
            plans.encode(data, EventType.UPDATE, b"\1", b"\3", partial_json=True)


class TestTypes:
    @pytest.mark.parametrize(
        ("kind", "value", "mask", "mysql_type", "sql_type"),
        [
            ("int", b"\1\0\0\0", SHA256, "char(64)", 1),
            ("bigint unsigned", b"\1" * 8, HMAC, "char(64)", 1),
            ("varchar(9)", b"\1a", SHA256, "char(64)", 1),
            ("int", b"\1\0\0\0", FIRST3, "varchar(3)", 12),
            ("date", b"\1\1\1", FIRST3, "varchar(3)", 12),
            ("varchar(9)", b"\1a", FIRST3, "varchar(9)", 12),
            ("int", b"\1\0\0\0", NULL, "int", 4),
        ],
    )
    def test_a_column_says_what_its_values_have_become(
        self, kind: str, value: bytes, mask: Mask, mysql_type: str, sql_type: int
    ) -> None:
        column, null = masked(kind, mask, value, None)
        assert (column.mysqlType, column.sqlType) == (null.mysqlType, null.sqlType) == (mysql_type, sql_type)

    def test_a_large_unsigned_number_is_a_text_like_all_others(self) -> None:
        assert masked("bigint unsigned", SHA256, b"\xff" * 8)[0].sqlType == 1

    def test_the_columns_of_a_table_are_shown_so(self) -> None:
        masks = Masks("shop.users.age: sha256")
        assert masks.shown("shop", "users", SourceColumn("Age", "int")).mysql_type == "char(64)"
        assert masks.shown("shop", "items", SourceColumn("age", "int")).mysql_type == "int"


class TestConfiguration:
    def test_masks_are_found_whatever_the_case(self) -> None:
        masks = Masks("shop.users.email: SHA256; shop.users.phone : first 3;crm.a.b:null")
        assert masks.of("SHOP", "Users") == {"EMAIL": SHA256, "PHONE": FIRST3}
        assert masks.of("shop", "orders") == {}
        assert not masks.need_secret

    def test_names_in_backticks_are_the_names(self) -> None:
        masks = Masks("`shop`.`users`.`email`: sha256; shop.`us``ers`. `e``mail` : null")
        assert masks.of("shop", "users") == {"EMAIL": SHA256}
        assert masks.of("shop", "us`ers") == {"E`MAIL": NULL}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("shop.users: sha256", "is not a mask: write schema.table.column: sha256"),
            ("shop.users.email", "is not a mask"),
            ("shop.users.email: md5", "the masks are null, sha256, hmac and first 3"),
            ("shop.users.email: first", "the masks are"),
            ("shop.users.email: first 0", "the masks are"),
            ("shop.users.email: first 99999", "of 1 to 10000 characters"),
            ("s.t.a: null; S.T.A: sha256", "S.T.A has two masks"),
            ("s.t.a: null; s.t.`a`: sha256", "s.t.`a` has two masks"),
            ("`shop.users`.email: null", "'`shop.users`.email': write each name without quotes, or in backticks"),
            ("shop.us`ers.email: null", "a backtick in it doubled"),
            ('"shop"."users"."email": null', "write each name without quotes"),
            ("shop.users.``: null", "is not a mask"),
        ],
    )
    def test_what_is_not_a_mask_is_refused(self, text: str, reason: str) -> None:
        with pytest.raises(FilterError, match=reason):
            Masks(text)
        with pytest.raises(ConfigError, match=f"f:1: sluice.instance.filter.mask: .*{reason}"):
            filled(sluice__instance__filter__mask=text)

    def test_a_key_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"sluice.instance.filter.mask: shop.t.c0 belongs to the primary key"):
            plan("int", masks={"C0": SHA256})

    @pytest.mark.parametrize("left_out", [{"black_fields": frozenset({"C0"})}, {"fields": frozenset({"C1"})}])
    def test_a_key_that_is_not_delivered_may_have_a_mask(self, left_out: dict[str, Any]) -> None:
        encoded = plan("tinyint", "tinyint", masks={"C0": SHA256}, **left_out).encode(b"\xfc\1\2", EventType.INSERT)
        assert [[it.value for it in after] for _, after in rows(encoded)] == [["2"]]

    @pytest.mark.parametrize("secret", ["", "fifteen letters"])
    def test_hmac_needs_a_secret(self, secret: str) -> None:
        with pytest.raises(
            ConfigError, match=r"hmac needs sluice.instance.filter.mask.secret, of at least 16"
        ) as error:
            filled(
                sluice__instance__filter__mask="s.t.a: hmac",
                sluice__instance__filter__mask__secret=secret,
            )
        assert not secret or secret not in str(error.value)

    def test_the_secret_is_in_no_text_and_what_shapes_entries_has_a_fingerprint_of_it(self) -> None:
        settings = {"filter_mask": "s.t.a: hmac"}
        one, other = (instance(**settings, mask_secret=it) for it in (SECRET, SECRET + "2"))
        assert SECRET not in f"{one!r} {one} {one.model_dump(mode='json')} {one.shape()}"
        assert SECRET in one.secrets()
        assert one.shape() == instance(**settings, mask_secret=SECRET).shape()
        assert one.shape() != other.shape()
        assert one.shape()["sluice.instance.filter.mask"] == "s.t.a: hmac"
        assert "sluice.instance.filter.mask.secret" not in instance(mask_secret=SECRET).shape()
