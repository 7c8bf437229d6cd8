"""Canal's scramble, against known values and its own definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.server.tcp.auth import Account, is_scramble_of
from tests.canal import scramble, stored

STORED = bytes.fromhex(stored("canal"))
SEED = bytes.fromhex("d370ac834355681f")


@pytest.mark.parametrize(
    ("password", "digest"),
    [
        ("canal", "E3619321C1A937C46A0D8BD1DAC39F93B27D4458"),
        ("admin", "4ACFE3202A5FF5CF467898FC58AAB1D615029441"),
        ("123456", "6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9"),
    ],
)
def test_passwords_are_stored_as_canal_stores_them(password: str, digest: str) -> None:
    assert stored(password) == digest.lower()


def test_the_scramble_of_canals_own_client_is_accepted() -> None:
    token = bytes.fromhex("713801594b313b859e9645cc8c4941d1604c1b72")
    assert scramble("canal", SEED) == token.hex().encode()
    assert is_scramble_of(token, SEED, STORED)


@given(st.text(), st.binary(min_size=8, max_size=8))
def test_the_scramble_of_the_password_is_accepted(password: str, seed: bytes) -> None:
    account = Account("", bytes.fromhex(stored(password)))
    assert account.admits("anybody", scramble(password, seed), seed)
    assert account.admits("anybody", scramble(password, seed).upper(), seed)


@given(st.binary(min_size=20, max_size=20), st.binary(min_size=8, max_size=8))
def test_no_other_token_is(token: bytes, seed: bytes) -> None:
    assert not is_scramble_of(token, seed, STORED)


def test_a_scramble_for_another_seed_is_not() -> None:
    assert not Account("", STORED).admits("", scramble("canal", SEED), SEED[::-1])


@pytest.mark.parametrize(
    ("account", "user", "token", "admitted"),
    [
        (Account("", b""), "anybody", b"", True),
        (Account("", b""), "anybody", b"no scramble", True),
        (Account("canal", b""), "other", b"", False),
        (Account("canal", STORED), "other", b"no scramble", False),
        (Account("canal", STORED), "canal", b"", False),
        (Account("canal", STORED), "canal", b"00" * 20, False),
        (Account("canal", STORED), "canal", b"00" * 25, False),
    ],
)
def test_canals_order_of_decisions(account: Account, user: str, token: bytes, admitted: bool) -> None:
    assert account.admits(user, token, SEED) is admitted


@pytest.mark.parametrize("token", [b"canal", b"0", b"00" * 19, b"0 " * 20, b"\xff" * 40])
def test_bytes_that_are_not_a_scramble_are_an_error(token: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Account("", STORED).admits("", token, SEED)
