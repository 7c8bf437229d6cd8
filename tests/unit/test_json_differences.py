"""Differences of a JSON value become the document after them, or Canal's expression."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.values.json_differences import apply, express
from sluice.protocol.errors import DecodeError
from tests.unit.entries import mutated
from tests.unit.test_json import document, is_json

REPLACE, INSERT, REMOVE = range(3)
Difference = tuple[int, str] | tuple[int, str, Any]

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def packed(data: bytes) -> bytes:
    """Precede the bytes by their length."""
    size = len(data)
    return (bytes([size]) if size < 0xFB else b"\xfc" + size.to_bytes(2, "little")) + data


def differences(*those: Difference) -> bytes:
    """Write them as an event has them."""
    return b"".join(
        bytes([operation]) + packed(path.encode()) + b"".join(packed(document(it)) for it in value)
        for operation, path, *value in those
    )


def changed(before: Any, *those: Difference) -> str:
    return apply(document(before), differences(*those))


class TestTheDocumentAfterThem:
    def test_bytes_as_a_server_sent_them(self) -> None:
        """UPDATE t SET j = JSON_SET(j, '$.a', 2): MySQL 8.0.36."""
        assert apply(bytes.fromhex("00 0100 0c00 0b00 0100 05 0100 61"), b"\0\3$.a\3\5\2\0") == '{"a": 2}'

    @pytest.mark.parametrize(
        ("before", "difference", "after"),
        [
            ({"a": 1}, (REPLACE, "$.a", [1, {"x": None}]), '{"a": [1, {"x": null}]}'),
            ({"a": 1}, (REPLACE, "$", [1]), "[1]"),
            ([1, 2, 3], (REPLACE, "$[1]", "x"), '[1, "x", 3]'),
            ([1, 2, 3], (REPLACE, "$[last]", "x"), '[1, 2, "x"]'),
            ([1, 2, 3], (REPLACE, "$[last-2]", "x"), '["x", 2, 3]'),
            ({"a": 1}, (INSERT, "$.b", 2), '{"a": 1, "b": 2}'),
            ({}, (INSERT, "$.b", 2), '{"b": 2}'),
            ([1, 2], (INSERT, "$[1]", 9), "[1, 9, 2]"),
            ([1, 2], (INSERT, "$[7]", 9), "[1, 2, 9]"),
            ([1, 2], (INSERT, "$[last]", 9), "[1, 9, 2]"),
            ([1, 2], (INSERT, "$[last-7]", 9), "[9, 1, 2]"),
            ([], (INSERT, "$[0]", 9), "[9]"),
            ({"a": 1, "b": 2}, (REMOVE, "$.a"), '{"b": 2}'),
            ([1, 2, 3], (REMOVE, "$[0]"), "[2, 3]"),
            ([[1], [2, {"k": [3, 4]}]], (REMOVE, "$[1][1].k[0]"), '[[1], [2, {"k": [4]}]]'),
            ({"a": 1}, (REPLACE, "$.a[0]", 2), '{"a": 2}'),
            ({"a": 1}, (REPLACE, "$.a[last][0]", 2), '{"a": 2}'),
            ({"a": {"b": 1}}, (REPLACE, "$[0].a[0].b", 2), '{"a": {"b": 2}}'),
        ],
    )
    def test_each_operation_at_each_depth(self, before: Any, difference: Difference, after: str) -> None:
        assert changed(before, difference) == after

    def test_one_acts_on_what_those_before_it_left(self) -> None:
        assert (
            changed(
                {"a": [1], "c": 3},
                (INSERT, "$.b", {}),
                (INSERT, "$.b.new", [0]),
                (INSERT, "$.b.new[1]", 1),
                (INSERT, "$.b.new[2]", 2),
                (INSERT, "$.b.new[3]", 3),
                (REMOVE, "$.b.new[0]"),
                (REPLACE, "$.a", {"z": 0}),
                (REPLACE, "$.a.z", 5),
                (REMOVE, "$.c"),
            )
            == '{"a": {"z": 5}, "b": {"new": [1, 2, 3]}}'
        )

    def test_none_leave_the_document(self) -> None:
        assert changed({"a": 1}) == '{"a": 1}'

    def test_keys_are_in_the_order_of_their_length_then_of_their_bytes(self) -> None:
        assert changed({"bb": 1, "d": 2}, *((INSERT, f"$.{key}", 0) for key in ("a", "ccc", "e", "aa", "é"))) == (
            '{"a": 0, "d": 2, "e": 0, "aa": 0, "bb": 1, "é": 0, "ccc": 0}'
        )

    @pytest.mark.parametrize(
        ("path", "key"),
        [
            ('$."a b"', "a b"),
            ('$."a.b[0]"', "a.b[0]"),
            ('$."it\'s"', "it's"),
            (r'$."say \"x\" \\ \/"', 'say "x" \\ /'),
            (r'$."\b\f\n\r\t\u0001\u001F"', "\b\f\n\r\t\x01\x1f"),
            ('$.""', ""),
            ("$.été_$1", "été_$1"),
            ('$."👍"', "👍"),
        ],
    )
    def test_names_are_written_as_the_server_writes_them(self, path: str, key: str) -> None:
        before = {key: 1, "other": 2}
        assert json.loads(changed(before, (REPLACE, path, 3))) == {key: 3, "other": 2}
        assert json.loads(changed(before, (REMOVE, path), (INSERT, path, 4))) == {key: 4, "other": 2}

    def test_large_documents(self) -> None:
        before = {f"key{i}": ["x" * 100, i] for i in range(2000)}
        after = apply(document(before, large=True), differences((REPLACE, "$.key77[1]", -1), (REMOVE, "$.key1999")))
        assert json.loads(after) == {**{k: before[k] for k in list(before)[:-1]}, "key77": ["x" * 100, -1]}

    @pytest.mark.parametrize(
        ("before", "difference"),
        [
            ({"a": 1}, (REPLACE, "$.b", 1)),
            ({"a": 1}, (REMOVE, "$.b")),
            ({"a": 1}, (INSERT, "$.a", 1)),
            ({"a": 1}, (INSERT, "$.b.c", 1)),
            ({"a": 1}, (INSERT, "$.a.c", 1)),
            ({"a": 1}, (INSERT, "$.a[1]", 1)),
            ({"a": 1}, (REPLACE, "$[1]", 1)),
            ({"a": 1}, (INSERT, "$", 1)),
            ({"a": 1}, (REMOVE, "$")),
            ([1], (REPLACE, "$[1]", 1)),
            ([1], (REMOVE, "$[last-1]")),
            ([1], (REPLACE, "$.a", 1)),
            ([], (REMOVE, "$[last]")),
        ],
    )
    def test_what_does_not_fit_is_an_error(self, before: Any, difference: Difference) -> None:
        with pytest.raises(DecodeError, match="do not fit the value before them"):
            changed(before, difference)

    @pytest.mark.parametrize(
        "path",
        [
            *("", "a", "$a", "$.", "$..a", "$[", "$[]", "$[x]", "$[1", "$[last", "$[last-]", "$[last+1]", "$**.a"),
            *('$."a', '$."a\\', r'$."\u00"', r'$."\u0100"', r'$."\u00zz"', "$[11111111111]", "$" + "[0]" * 101),
        ],
    )
    def test_what_is_not_a_path_is_an_error(self, path: str) -> None:
        with pytest.raises(DecodeError):
            changed({"a": [1]}, (REPLACE, path, 1))

    @pytest.mark.parametrize("data", [b"\3\3$.a", b"\0\3$.a", b"\0\x09$.a", b"\1\3$.a\0", b"\0\3$.a\3\5", b"\2\xfc"])
    def test_broken_differences_are_an_error(self, data: bytes) -> None:
        with pytest.raises(DecodeError):
            apply(document({"a": 1}), data)

    def test_an_empty_value_before_is_an_error(self) -> None:
        with pytest.raises(DecodeError, match="do not fit"):
            apply(b"", b"\2\3$.a")

    @given(DOCUMENTS, DOCUMENTS, st.data())
    def test_any_place_of_any_document_is_changed_as_python_would(self, it: Any, new: Any, data: st.DataObject) -> None:
        holder: Any = [it]
        key: Any = 0
        path = "$[0]"
        while isinstance(holder[key], (dict, list)) and holder[key] and data.draw(st.booleans()):
            holder = holder[key]
            key = data.draw(st.sampled_from(sorted(holder))) if isinstance(holder, dict) else len(holder) - 1
            path += f".{json.dumps(key, ensure_ascii=False)}" if isinstance(holder, dict) else f"[{key}]"
        before = document([it])
        operation = data.draw(st.sampled_from((REPLACE, REMOVE)))
        if operation == REMOVE:
            root = json.loads(apply(before, differences((REMOVE, path))))
            del holder[key]
        else:
            root = json.loads(apply(before, differences((REPLACE, path, new))))
            holder[key] = new
        assert root == ([it] if path != "$[0]" else [new] if operation == REPLACE else [])

    @given(DOCUMENTS, st.data())
    def test_mutated_bytes_are_a_text_or_an_error(self, it: Any, data: st.DataObject) -> None:
        before = document({"a": it, "b": [{}, it]})
        those = differences((REPLACE, "$.a", it), (INSERT, '$.b[0]."x"', it), (REMOVE, "$.b[last-1]"))
        with suppress(DecodeError):
            assert is_json(apply(mutated(data, before), mutated(data, those)))


class TestCanalsExpression:
    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\0\3$.a\3\5\2\0", "JSON_REPLACE(c, '$.a', 2)"),
            (b"\1\3$.b\3\4\0\0", "JSON_INSERT(c, '$.b', null)"),
            (b"\1\6$.b[0]\3\x0c\1x", "JSON_ARRAY_INSERT(c, '$.b[0]', \"x\")"),
            (b"\2\3$.a", "JSON_REMOVE(c, '$.a')"),
            (b"\2\6$.\"it'", "JSON_REMOVE(c, '$.\"it\\'')"),
            (b'\2\x08$."it\'s"', "JSON_REMOVE(c, '$.\"it\\'s\"')"),
            (
                b"\0\3$.a\3\5\2\0\0\3$.b\3\5\3\0\2\3$.c",
                "JSON_REMOVE(JSON_REPLACE(c, '$.a', 2, '$.b', 3), '$.c')",
            ),
            (b"", "c"),
        ],
    )
    def test_differences_are_calls_around_the_column(self, data: bytes, text: str) -> None:
        assert express("c", data) == text

    @pytest.mark.parametrize("data", [b"\3\3$.a", b"\0\3$.a", b"\0\x09$.a", b"\1\3$.a\0", b"\0\3$.a\3\5"])
    def test_broken_differences_are_an_error(self, data: bytes) -> None:
        with pytest.raises(DecodeError, match=r"not (a JSON value|differences of a JSON value)"):
            express("c", data)
