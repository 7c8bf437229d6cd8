"""What SHOW GRANTS says that an account may do."""

import pytest

from sluice.server.outputs.mysql.rights import Rights

WRITES = ("SELECT", "INSERT", "UPDATE", "DELETE")


@pytest.mark.parametrize(
    ("grants", "lacking"),
    [
        (["GRANT USAGE ON *.* TO `w`@`%`"], list(WRITES)),
        (["GRANT ALL PRIVILEGES ON *.* TO `w`@`%` IDENTIFIED BY PASSWORD '*x' WITH GRANT OPTION"], []),
        (["GRANT SELECT, INSERT, UPDATE, DELETE ON `shop`.* TO `w`@`%`"], []),
        (["GRANT SELECT, INSERT ON `shop`.* TO `w`@`%`", "GRANT UPDATE, DELETE ON `shop`.`t` TO `w`@`%`"], []),
        (
            ["GRANT SELECT, INSERT ON `shop`.* TO `w`@`%`", "GRANT UPDATE, DELETE ON `shop`.`u` TO `w`@`%`"],
            ["UPDATE", "DELETE"],
        ),
        (["GRANT ALL PRIVILEGES ON `sh%`.* TO `w`@`%`"], []),
        ([r"GRANT ALL PRIVILEGES ON `sho\_`.* TO `w`@`%`"], list(WRITES)),
        (["GRANT SELECT, INSERT, UPDATE ON `sho_`.* TO `w`@`%`"], ["DELETE"]),
    ],
)
def test_rights_on_a_table_come_from_all_that_match_it(grants: list[str], lacking: list[str]) -> None:
    assert Rights("'w'@'%'", grants).lacking(WRITES, "shop", "t") == lacking


def test_rights_on_a_table_are_none_on_its_schema() -> None:
    rights = Rights("'w'@'%'", ["GRANT CREATE ON `shop`.`t` TO `w`@`%`", "GRANT DROP ON `shop`.* TO `w`@`%`"])
    assert rights.lacking(("CREATE", "DROP"), "shop", "*") == ["CREATE"]
    assert rights.advice(["CREATE"], "shop", "*") == "GRANT CREATE ON `shop`.* TO 'w'@'%'"


def test_an_account_with_roles_does_not_say_all_that_it_may_do() -> None:
    assert Rights("'w'@'%'", ["GRANT USAGE ON *.* TO `w`@`%`"]).is_known
    assert not Rights("'w'@'%'", ["GRANT USAGE ON *.* TO `w`@`%`", "GRANT `writer`@`%` TO `w`@`%`"]).is_known
