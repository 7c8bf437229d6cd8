"""What is written into the sources: topics, each a list of statements. `{s}` is the schema."""

from collections.abc import Sequence
from typing import NamedTuple

Statements = list[str]


class Topic(NamedTuple):
    """Statements that are about one question."""

    name: str
    statements: Statements
    short: bool = True
    """Belongs to the short form too."""


def is_ddl(statement: str) -> bool:
    """Whether a statement changes what tables look like, so that all before it has to be read first."""
    return not statement.upper().startswith(
        ("INSERT", "UPDATE", "DELETE", "REPLACE", "SELECT", "SET ", "BEGIN", "COMMIT", "XA ")
    )


Values = dict[str, Sequence[str]]
"""A type to literals of it; NULL is written for each anyway."""

INTEGERS: Values = {
    "TINYINT": ["0", "-128", "127", "1"],
    "TINYINT UNSIGNED": ["0", "127", "128", "255"],
    "TINYINT(1)": ["0", "1", "-1"],
    "BOOL": ["TRUE", "FALSE"],
    "TINYINT(3) ZEROFILL": ["7", "255"],
    "SMALLINT": ["0", "-32768", "32767"],
    "SMALLINT UNSIGNED": ["0", "32767", "32768", "65535"],
    "MEDIUMINT": ["0", "-8388608", "8388607"],
    "MEDIUMINT UNSIGNED": ["0", "8388607", "8388608", "16777215"],
    "INT": ["0", "-2147483648", "2147483647"],
    "INT UNSIGNED": ["0", "2147483647", "2147483648", "4294967295"],
    "INT(10) UNSIGNED ZEROFILL": ["42", "4294967295"],
    "BIGINT": ["0", "-9223372036854775808", "9223372036854775807"],
    "BIGINT UNSIGNED": ["0", "9223372036854775807", "9223372036854775808", "18446744073709551615"],
    "BIT(1)": ["b'0'", "b'1'"],
    "BIT(8)": ["b'0'", "b'10000000'", "255"],
    "BIT(33)": ["0", "8589934591"],
    "BIT(64)": ["0", "1", "18446744073709551615"],
    "YEAR": ["1901", "2155", "0", "1970", "2026"],
}
FRACTIONS: Values = {
    "FLOAT": [
        "0",
        "-0.0",
        "1",
        "0.1",
        "1e-3",
        "1e7",
        "9999999",
        "3.4028235e38",
        "1.17549435e-38",
        "-2.5",
        "123456.789",
    ],
    "FLOAT(7,3)": ["1.5", "1234.567", "-0.001"],
    "FLOAT UNSIGNED": ["0", "16777216"],
    "DOUBLE": [
        "0",
        "1",
        "0.1",
        "1e-3",
        "0.0009",
        "1e7",
        "1e22",
        "1.7976931348623157e308",
        "5e-324",
        "2.2250738585072014e-308",
        "-1e-5",
    ],
    "DOUBLE(10,2)": ["1.5", "99999999.99"],
    "DOUBLE UNSIGNED": ["0", "123456789.125"],
    "DECIMAL": ["0", "9999999999", "-9999999999"],
    "DECIMAL(10,2)": ["5", "0", "5.1", "5.01", "-0.05", "99999999.99", "-99999999.99"],
    "DECIMAL(10,2) UNSIGNED": ["5", "0.99"],
    "DECIMAL(8,3) ZEROFILL": ["5", "0.999"],
    "DECIMAL(20,9)": ["1", "0.000000001", "-12345678901.123456789"],
    "DECIMAL(20,10)": ["1.5", "1", "0.0000000001", "-9999999999.9999999999"],
    "DECIMAL(65,30)": [
        "0",
        "1",
        "0.000000000000000000000000000001",
        "-12345678901234567890123456789012345.123456789012345678901234567891",
    ],
    "DECIMAL(30,0)": ["0", "1000000000", "999999999999999999999999999999"],
    "DECIMAL(9,9)": ["0", "0.5", "0.000000001"],
}
TEMPORAL: Values = {
    "DATE": ["'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2020-00-00'", "'2020-02-00'", "'2024-02-29'"],
    "TIME": ["'00:00:00'", "'-838:59:59'", "'838:59:59'", "'100:00:00'", "'-00:00:01'", "'101:02:03'"],
    "TIME(1)": ["'00:00:00'", "'-00:00:00.5'", "'23:59:59.9'"],
    "TIME(3)": ["'00:00:00'", "'-00:00:00.001'", "'100:00:00.500'", "'-12:34:56.789'"],
    "TIME(6)": ["'00:00:00'", "'-838:59:58.999999'", "'00:00:00.000001'"],
    "DATETIME": [
        "'1000-01-01 00:00:00'",
        "'9999-12-31 23:59:59'",
        "'0000-00-00 00:00:00'",
        "'2020-00-00 00:00:00'",
        "'2026-03-29 02:30:00'",
    ],
    "DATETIME(1)": ["'0000-00-00 00:00:00'", "'2020-01-01 12:00:00.5'"],
    "DATETIME(3)": ["'0000-00-00 00:00:00'", "'2020-01-01 12:00:00'", "'2020-01-01 12:00:00.007'"],
    "DATETIME(6)": ["'9999-12-31 23:59:59.999999'", "'2020-01-01 12:00:00.000001'"],
    "TIMESTAMP NULL": [
        "'1970-01-01 00:00:01'",
        "'2038-01-19 03:14:07'",
        "'0000-00-00 00:00:00'",
        "'2026-03-29 00:59:59'",
        "'2026-03-29 01:00:00'",
        "'2026-10-25 00:30:00'",
        "'2026-10-25 01:30:00'",
    ],
    "TIMESTAMP(2) NULL": ["'0000-00-00 00:00:00'", "'2020-06-01 12:00:00.07'"],
    "TIMESTAMP(6) NULL": ["'2020-06-01 12:00:00.000001'", "'2038-01-19 03:14:07.999999'"],
}
_ODD = ["''", "'a'", "' a '", "'tab\\tnewline\\nquote''\"back\\\\slash'", "'zero\\0byte'", "'日本語'", "'😀 emoji'"]
STRINGS: Values = {
    "CHAR(10)": [*_ODD[:3], "'日本語'", "'😀'"],
    "CHAR(0)": ["''"],
    "CHAR(255)": [*_ODD, "REPEAT('é', 255)"],
    "VARCHAR(50)": _ODD,
    "VARCHAR(300)": [*_ODD, "REPEAT('x', 300)"],
    "VARCHAR(10) CHARACTER SET ascii": ["''", "'ascii'"],
    "TINYTEXT": _ODD,
    "TEXT": [*_ODD, "REPEAT('é', 30000)"],
    "MEDIUMTEXT": [*_ODD, "REPEAT('日', 50000)"],
    "LONGTEXT": _ODD,
    "TEXT(100)": ["'sized'", "''"],
    "ENUM('a','b','日本')": ["'a'", "'日本'", "''", "0"],
    "SET('x','y','z')": ["''", "'x'", "'x,z'", "7"],
    "SET(" + ",".join(f"'m{i}'" for i in range(64)) + ")": ["1", "18446744073709551615", "9223372036854775808"],
}
CHARSETS: Values = {
    "VARCHAR(20) CHARACTER SET latin1": ["'plain'", "'café €'"],
    "CHAR(20) CHARACTER SET latin1": ["'plain'", "'naïve'"],
    "TEXT CHARACTER SET latin1": ["'ÿ'"],
    "VARCHAR(20) CHARACTER SET gbk": ["'plain'", "'中文'"],
    "VARCHAR(20) CHARACTER SET sjis": ["'日本語'"],
    "VARCHAR(20) CHARACTER SET utf16": ["'ab'", "'😀'"],
    "VARCHAR(20) CHARACTER SET ucs2": ["'ab'"],
    "VARCHAR(20) CHARACTER SET utf32": ["'ab'"],
    "VARCHAR(20) CHARACTER SET utf8": ["'é中'"],
    "VARCHAR(20) CHARACTER SET koi8r": ["'привет'"],
    "TEXT CHARACTER SET cp1251": ["'привет'"],
    "ENUM('é','b') CHARACTER SET latin1": ["'é'", "'b'"],
}
BINARIES: Values = {
    "BINARY(4)": ["''", "x'00000000'", "x'01020304'", "x'ff00'", "x'c3a9'"],
    "BINARY(255)": ["''", "REPEAT(x'ff', 255)"],
    "VARBINARY(10)": ["''", "x'00'", "x'ff80417f'", "x'f09f9880'"],
    "VARBINARY(300)": ["''", "REPEAT(x'80', 300)"],
    "TINYBLOB": ["''", "x'00ff'"],
    "BLOB": ["''", "x'00ff'", "REPEAT(x'e9', 30000)"],
    "MEDIUMBLOB": ["''", "x'00ff'", "REPEAT(x'00', 70000)"],
    "LONGBLOB": ["''", "'text'", "x'00ff'"],
    "CHAR(5) CHARACTER SET binary": ["'a'", "x'ff'"],
    "VARCHAR(5) CHARACTER SET binary": ["'a'", "x'ff'"],
    "TEXT CHARACTER SET binary": ["'a'", "x'ff'"],
    "VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": ["'a'", "'é'"],
    "TEXT COLLATE utf8mb4_bin": ["'a'", "'é'"],
}
GEOMETRIES: Values = {
    "GEOMETRY": ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))')"],
    "POINT": ["ST_GeomFromText('POINT(-1.5 1e10)')"],
    "LINESTRING": ["ST_GeomFromText('LINESTRING(0 0,1 1,2 3)')"],
    "POLYGON": ["ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))')"],
    "MULTIPOINT": ["ST_GeomFromText('MULTIPOINT(0 0,1 1)')"],
    "GEOMETRYCOLLECTION": ["ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')"],
}
JSON: Values = {
    "JSON": [
        "'null'",
        "'true'",
        "'0'",
        "'-1'",
        "'18446744073709551615'",
        "'1.5'",
        "'1e20'",
        "'1e-7'",
        "'100.0'",
        "'\"\"'",
        "'\"é 日本 😀\"'",
        '\'"tab\\\\t quote\\\\" slash/ back\\\\\\\\ \\\\u0001 \\\\u007f"\'',
        "'[]'",
        "'{}'",
        '\'[1, [2, {"a": null}], "x"]\'',
        '\'{"b": 1, "aa": 2, "c": {"d": [true, false]}, "": 0}\'',
        "CONCAT('[', REPEAT('\"0123456789\",', 7000), '1]')",
    ]
}
JSON_MADE: Values = {
    "JSON": [
        "JSON_ARRAY(CAST('2020-01-02' AS DATE), CAST('2020-01-02 03:04:05.6' AS DATETIME(6)), CAST('3:4:5' AS TIME))",
        "JSON_OBJECT('t', CAST('100:00:00' AS TIME), 'n', CAST('-00:00:00.5' AS TIME(3)), 'z', CAST('0:0:0' AS TIME))",
        "JSON_ARRAY(1.50, 5.00, 0.00, -0.25, 123456789012345678901234567890.123)",
        "JSON_OBJECT('b', CAST(x'00ff41' AS BINARY), 'bit', b'101')",
        "JSON_OBJECT('b', CAST(x'410042' AS BINARY))",
        "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)",
        "JSON_ARRAY(1e0, 0.1e0, 1e7, 1e100, -1.5e-10, 3)",
    ]
}


def typed(name: str, types: Values) -> Topic:
    """Every value of every type: inserted by one statement of many rows, updated to the next one, and deleted."""
    columns = [f"c{number} {kind}" for number, kind in enumerate(types)]
    count = max(len(values) for values in types.values())
    rows = ["(1" + ", NULL" * len(types) + ")"]
    for number in range(count):
        values = [values[number % len(values)] for values in types.values()]
        rows.append(f"({number + 2}, {', '.join(values)})")
    nulls = ", ".join(f"c{number} = NULL" for number in range(0, len(types), 2))
    return Topic(
        name,
        [
            f"CREATE TABLE {name} (id INT PRIMARY KEY, {', '.join(columns)})",
            f"INSERT INTO {name} VALUES {', '.join(rows)}",
            f"UPDATE {name} SET {nulls}",
            f"DELETE FROM {name}",
            *(f"INSERT INTO {name} VALUES {row}" for row in rows[:3]),
        ],
    )


_IMAGES = [
    "INSERT INTO images (id, a) VALUES (1, 'x')",
    "INSERT INTO images VALUES (2, 'y', 'blob', 5), (3, NULL, NULL, NULL)",
    "UPDATE images SET n = 6 WHERE id = 2",
    "UPDATE images SET a = NULL, b = '' WHERE id IN (2, 3)",
    "UPDATE images SET id = 10 WHERE id = 1",
    "DELETE FROM images WHERE id > 2",
    "INSERT INTO keyless VALUES (1, 'x', 'y'), (1, 'x', 'y')",
    "UPDATE keyless SET v = 'z' LIMIT 1",
    "DELETE FROM keyless",
    "DELETE FROM images",
    "INSERT INTO uniques VALUES (1, 2, NULL)",
    "UPDATE uniques SET v = 3",
    "DELETE FROM uniques",
]

SHAPES = Topic(
    "shapes",
    [
        "CREATE TABLE two_keys (v VARCHAR(9), b INT, a INT, PRIMARY KEY (a, b))",
        "INSERT INTO two_keys VALUES ('x', 1, 2), ('', 3, 4)",
        "UPDATE two_keys SET v = 'x'",
        "UPDATE two_keys SET a = a + 10, v = NULL",
        "REPLACE INTO two_keys VALUES ('new', 1, 12)",
        "INSERT INTO two_keys VALUES ('odku', 1, 12) ON DUPLICATE KEY UPDATE v = 'odku'",
        "DELETE FROM two_keys",
        "CREATE TABLE wide (" + ", ".join(f"c{i} INT" for i in range(500)) + ", PRIMARY KEY (c7))",
        "INSERT INTO wide VALUES (" + ", ".join(map(str, range(500))) + ")",
        "UPDATE wide SET c499 = NULL, c250 = 0",
        "DELETE FROM wide",
        "CREATE TABLE made_of (a INT PRIMARY KEY, b INT AS (a + 1) VIRTUAL, c INT AS (a * 2) STORED, d INT DEFAULT 9)",
        "INSERT INTO made_of (a) VALUES (1), (2)",
        "UPDATE made_of SET a = 5 WHERE a = 1",
        "CREATE TABLE `naïve 表` (`ключ` INT PRIMARY KEY, `a b` INT, `日本` VARCHAR(9), `Case` INT)",
        "INSERT INTO `naïve 表` VALUES (1, 2, '値', 3)",
        "UPDATE `naïve 表` SET `a b` = 7",
        "CREATE TABLE MixedCase (Id INT PRIMARY KEY, VAL VARCHAR(5))",
        "INSERT INTO MixedCase VALUES (1, 'v')",
        "CREATE TABLE parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3",
        "INSERT INTO parts VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
        "UPDATE parts SET v = 0",
        "CREATE TABLE commented (id INT PRIMARY KEY COMMENT 'it''s, (a)', v DECIMAL(5,2) DEFAULT '1.50') COMMENT='t'",
        "INSERT INTO commented (id) VALUES (1)",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (1, 1)",
        "DELETE FROM child",
        "CREATE TABLE auto (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "INSERT INTO auto (v) VALUES (1), (2), (3)",
        "CREATE TABLE only_key (id INT PRIMARY KEY)",
        "INSERT INTO only_key VALUES (1)",
        "UPDATE only_key SET id = 2",
        "CREATE TABLE isam (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
        "INSERT INTO isam VALUES (1, 1), (2, 2)",
        "UPDATE isam SET v = 5",
        "DELETE FROM isam",
    ],
    short=False,
)

IMAGES = Topic(
    "images",
    [
        "CREATE TABLE images (id INT PRIMARY KEY, a VARCHAR(10) DEFAULT 'd', b BLOB, n INT)",
        "CREATE TABLE keyless (n INT, v VARCHAR(9), w VARCHAR(9))",
        "CREATE TABLE uniques (u INT NOT NULL UNIQUE, v INT, w INT)",
        *_IMAGES,
        "SET SESSION binlog_row_image = MINIMAL",
        *_IMAGES,
        "SET SESSION binlog_row_image = NOBLOB",
        *_IMAGES,
        "SET SESSION binlog_row_image = FULL",
    ],
)

TRANSACTIONS = Topic(
    "transactions",
    [
        "CREATE TABLE t1 (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE t2 (id INT PRIMARY KEY, v VARCHAR(20))",
        "BEGIN",
        "INSERT INTO t1 VALUES (1, 'a')",
        "INSERT INTO t2 VALUES (1, 'a')",
        "UPDATE t1 SET v = 'b'",
        "DELETE FROM t2",
        "COMMIT",
        "SET autocommit = 0",
        "INSERT INTO t1 VALUES (2, 'c')",
        "UPDATE t1 SET v = 'd'",
        "COMMIT",
        "SET autocommit = 1",
        "BEGIN",
        "INSERT INTO t1 VALUES (3, 'x')",
        "INSERT INTO t2 VALUES (3, 'x')",
        "COMMIT",
        "INSERT INTO t1 VALUES " + ", ".join(f"({i}, REPEAT('v', 20))" for i in range(100, 1100)),
        "DELETE FROM t1 WHERE id >= 100",
    ],
)

SAVEPOINTS = Topic(
    "savepoints",
    [
        "BEGIN",
        "INSERT INTO t1 VALUES (50, 'x')",
        "SAVEPOINT s",
        "INSERT INTO t1 VALUES (51, 'y')",
        "ROLLBACK TO SAVEPOINT s",
        "INSERT INTO t1 VALUES (52, 'z')",
        "COMMIT",
    ],
    short=False,
)

XA = Topic(
    "xa",
    [
        "XA START 'x1'",
        "INSERT INTO t1 VALUES (60, 'xa')",
        "XA END 'x1'",
        "XA PREPARE 'x1'",
        "XA COMMIT 'x1'",
        "XA START 'x2', 'b', 3",
        "INSERT INTO t1 VALUES (61, 'xa')",
        "XA END 'x2', 'b', 3",
        "XA COMMIT 'x2', 'b', 3 ONE PHASE",
        "XA START 'x3'",
        "INSERT INTO t1 VALUES (62, 'xa')",
        "XA END 'x3'",
        "XA PREPARE 'x3'",
        "XA ROLLBACK 'x3'",
    ],
)


NAMES = Topic(
    "names",
    [
        "CREATE TABLE `d😀日` (id INT, `c😀` VARCHAR(9) COMMENT '😀')",
        "INSERT INTO `d😀日` VALUES (1, '😀')",
        "TRUNCATE TABLE `d😀日`",
    ],
)
"""MariaDB refuses them."""


def large(count: int) -> Topic:
    """A transaction of more entries than Canal's buffer holds (1024)."""
    return Topic(
        "large",
        [
            "CREATE TABLE large (id INT PRIMARY KEY, v INT)",
            "BEGIN",
            *(f"INSERT INTO large VALUES ({i}, {i})" for i in range(count)),
            "COMMIT",
        ],
        short=False,
    )


def cut(rows: int) -> Topic:
    """Transactions that fill Canal's buffer to the last place, so that their end comes alone."""
    statements = ["CREATE TABLE cut (id INT PRIMARY KEY)", "{rows query} = 0"]
    for first in (0, rows, 2 * rows):
        inserts = [f"INSERT INTO cut VALUES ({i})" for i in range(first, first + rows)]
        statements += ["BEGIN", *inserts, "COMMIT"]
    return Topic("cut", [*statements, "{rows query} = DEFAULT"], short=False)


DDL = Topic(
    "ddl",
    [
        "CREATE TABLE d (id INT PRIMARY KEY, v INT)",
        "INSERT INTO d VALUES (1, 1)",
        "ALTER TABLE d ADD w INT",
        "INSERT INTO d VALUES (2, 2, 2)",
        "ALTER TABLE d ADD COLUMN (x VARCHAR(5), y INT)",
        "ALTER TABLE d MODIFY w BIGINT UNSIGNED FIRST",
        "INSERT INTO d VALUES (9, 3, 3, 'x', 4)",
        "ALTER TABLE d CHANGE w ww DECIMAL(5,1) AFTER v",
        "INSERT INTO d VALUES (4, 4, 1.5, NULL, NULL)",
        "ALTER TABLE d DROP COLUMN x, DROP y",
        "INSERT INTO d VALUES (5, 5, 2.5)",
        "ALTER TABLE d ALTER v SET DEFAULT 7",
        "ALTER TABLE d ALTER v DROP DEFAULT",
        "ALTER TABLE d ADD INDEX i (v)",
        "ALTER TABLE d ADD KEY i2 (v), ADD z INT",
        "ALTER TABLE d DROP INDEX i",
        "ALTER TABLE d DROP KEY i2",
        "ALTER TABLE d ADD UNIQUE u (z)",
        "ALTER TABLE d ADD CONSTRAINT k UNIQUE (v, z)",
        "ALTER TABLE d DROP INDEX k, DROP COLUMN z",
        "ALTER TABLE d DROP PRIMARY KEY",
        "INSERT INTO d VALUES (6, 6, 3.5)",
        "ALTER TABLE d ADD PRIMARY KEY (id)",
        "INSERT INTO d VALUES (7, 7, 4.5)",
        "ALTER TABLE d ENGINE=InnoDB",
        "ALTER TABLE d COMMENT = 'it''s a; comment -- no'",
        "ALTER TABLE d CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE d AUTO_INCREMENT = 100",
        "ALTER TABLE d ORDER BY v",
        "CREATE INDEX j ON d (v)",
        "CREATE UNIQUE INDEX ju ON d (id, v)",
        "DROP INDEX j ON d",
        "DROP INDEX ju ON d",
        "ALTER TABLE d RENAME TO d2",
        "INSERT INTO d2 VALUES (8, 8, 5.5)",
        "RENAME TABLE d2 TO d3",
        "INSERT INTO d3 VALUES (10, 10, 6.5)",
        "CREATE TABLE IF NOT EXISTS e LIKE d3",
        "CREATE TABLE IF NOT EXISTS e (other INT)",
        "RENAME TABLE d3 TO f, e TO g, f TO e",
        "INSERT INTO g VALUES (1, 1, 1)",
        "TRUNCATE TABLE g",
        "TRUNCATE g",
        "/* why not */ TRUNCATE TABLE g",
        "CREATE TABLE h (id INT PRIMARY KEY) /* a comment */",
        "CREATE TABLE `quoted` (\n  `id` int NOT NULL, -- a comment\n  PRIMARY KEY (`id`)\n)",
        "create table lower (id int)",
        "/*!40101 CREATE TABLE versioned (id INT) */",
        "# a comment\nCREATE TABLE hashed (id INT)",
        "-- a comment\nCREATE TABLE dashed (id INT)",
        "DROP TABLE h, quoted",
        "DROP TABLE IF EXISTS lower",
        "DROP TABLE IF EXISTS nowhere",
        "DROP TABLE {s}.hashed",
        "CREATE TABLE {s}.qualified (id INT)",
        "ALTER TABLE `{s}`.`qualified` ADD v INT",
        "INSERT INTO qualified VALUES (1, 2)",
        "DROP TABLE qualified, dashed",
        "CREATE TEMPORARY TABLE tmp (id INT)",
        "INSERT INTO tmp VALUES (1)",
        "DROP TEMPORARY TABLE tmp",
        "CREATE TABLE fk_parent (id INT PRIMARY KEY)",
        "CREATE TABLE fk_child (id INT PRIMARY KEY, p INT)",
        "ALTER TABLE fk_child ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES fk_parent (id)",
        "ALTER TABLE fk_child DROP FOREIGN KEY fk",
        "CREATE TABLE pt (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))",
        "ALTER TABLE pt ADD PARTITION (PARTITION p1 VALUES LESS THAN (20))",
        "ALTER TABLE pt TRUNCATE PARTITION p0",
        "ALTER TABLE pt DROP PARTITION p1",
        "ALTER TABLE pt REMOVE PARTITIONING",
        "CREATE TABLE cs (v VARCHAR(9)) DEFAULT CHARSET=latin1 COMMENT='é 中'",
        "ALTER TABLE cs DEFAULT CHARACTER SET utf8mb4",
    ],
)

OTHER_DDL = Topic(
    "other ddl",
    [
        "CREATE VIEW v AS SELECT 1 AS a",
        "ALTER VIEW v AS SELECT 2 AS a",
        "CREATE OR REPLACE VIEW v AS SELECT 3 AS a",
        "DROP VIEW v",
        "CREATE PROCEDURE p() SELECT 1",
        "CREATE PROCEDURE p2(IN a INT) BEGIN INSERT INTO t1 VALUES (a, 'p'); UPDATE t1 SET v = 'q' WHERE id = a; END",
        "CALL p2(70)",
        "DROP PROCEDURE p",
        "DROP PROCEDURE p2",
        "CREATE FUNCTION fn(a INT) RETURNS INT DETERMINISTIC RETURN a + 1",
        "INSERT INTO t1 VALUES (fn(70), 'f')",
        "DROP FUNCTION fn",
        "CREATE TRIGGER tr AFTER INSERT ON t1 FOR EACH ROW INSERT INTO t2 VALUES (NEW.id + 100, 'trigger')",
        "INSERT INTO t1 VALUES (80, 'x')",
        "DROP TRIGGER tr",
        "CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1",
        "ALTER EVENT ev COMMENT 'x'",
        "DROP EVENT ev",
        "CREATE USER 'compat_u'@'%' IDENTIFIED BY 'Abc-1'",
        "GRANT SELECT ON *.* TO 'compat_u'@'%'",
        "REVOKE SELECT ON *.* FROM 'compat_u'@'%'",
        "DROP USER 'compat_u'@'%'",
        "ANALYZE TABLE t1",
        "OPTIMIZE TABLE t1",
        "FLUSH TABLES",
        "CREATE DATABASE compat_other",
        "ALTER DATABASE compat_other CHARACTER SET latin1",
        "CREATE TABLE compat_other.t (id INT PRIMARY KEY)",
        "INSERT INTO compat_other.t VALUES (1)",
        "RENAME TABLE compat_other.t TO {s}.moved",
        "INSERT INTO moved VALUES (2)",
        "DROP DATABASE compat_other",
        "CREATE DATABASE IF NOT EXISTS elsewhere",
        "CREATE TABLE elsewhere.t (id INT PRIMARY KEY)",
        "INSERT INTO elsewhere.t VALUES (1)",
        "RENAME TABLE elsewhere.t TO {s}.came",
        "INSERT INTO came VALUES (2)",
        "RENAME TABLE {s}.came TO elsewhere.went",
        "INSERT INTO elsewhere.went VALUES (3)",
        "DROP DATABASE elsewhere",
    ],
    short=False,
)

MADE = Topic(
    "create as select",
    [
        "CREATE TABLE original (id INT PRIMARY KEY)",
        "INSERT INTO original VALUES (1), (2)",
        "CREATE TABLE made SELECT id, id + 1 AS n, 'x' AS v FROM original",
        "CREATE TABLE IF NOT EXISTS made AS SELECT id FROM original",
        "CREATE TABLE alike LIKE made",
        "INSERT INTO alike SELECT * FROM made",
        "DROP TABLE made, alike",
    ],
)

ROWS_QUERIES = Topic(
    "rows-query events",
    [
        "CREATE TABLE rq (id INT PRIMARY KEY, v VARCHAR(20))",
        "{rows query} = 1",
        "INSERT INTO rq VALUES (1, 'é 日本 😀')",
        "UPDATE rq /* comment */ SET v = 'x' WHERE id = 1",
        "BEGIN",
        "INSERT INTO rq (id) VALUES (2), (3)",
        "DELETE FROM rq WHERE id = 2",
        "COMMIT",
        "insert into {s}.rq values (10, 'lower')",
        "DELETE rq FROM rq JOIN rq r2 USING (id)",
        "{rows query} = 0",
        "INSERT INTO rq VALUES (4, 'without')",
    ],
)

STATEMENTS = Topic(
    "statements",
    [
        "CREATE TABLE st (id INT PRIMARY KEY, v INT)",
        "SET SESSION binlog_format = STATEMENT",
        "INSERT INTO st VALUES (1, 1), (2, 2)",
        "UPDATE st SET v = 5 WHERE id = 1",
        "DELETE FROM st WHERE id = 2",
        "REPLACE INTO st VALUES (1, 9)",
        "SET SESSION binlog_format = ROW",
    ],
)

VARIABLES = Topic(
    "variables",
    [
        "CREATE TABLE vars (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20))",
        "SET SESSION binlog_format = STATEMENT",
        "SET @text = 'é', @number = 5, @nothing = NULL, @fraction = 1.50",
        "INSERT INTO vars (v) VALUES (@text)",
        "INSERT INTO vars VALUES (@number + 10, @nothing)",
        "UPDATE vars SET v = @fraction WHERE id = 1",
        "INSERT INTO vars (v) VALUES (RAND())",
        "SET SESSION binlog_format = ROW",
    ],
)

METADATA = Topic(
    "full metadata",
    [
        "SET GLOBAL binlog_row_metadata = FULL",
        "CREATE TABLE meta (id INT UNSIGNED PRIMARY KEY, v VARCHAR(9), e ENUM('a', 'b'), s SET('x'), t TEXT, j JSON)",
        "INSERT INTO meta VALUES (4294967295, 'é', 'b', 'x', 'text', '[1]'), (1, NULL, NULL, NULL, NULL, NULL)",
        "ALTER TABLE meta DROP v",
        "UPDATE meta SET e = 'a', t = NULL",
        "DELETE FROM meta",
        "SET GLOBAL binlog_row_metadata = DEFAULT",
    ],
)

COMPRESSED = Topic(
    "compressed transactions",
    [
        "CREATE TABLE compressed (id INT PRIMARY KEY, v VARCHAR(200))",
        "SET SESSION binlog_transaction_compression = ON",
        "INSERT INTO compressed VALUES (1, REPEAT('x', 200)), (2, REPEAT('y', 200))",
        "BEGIN",
        "UPDATE compressed SET v = 'é'",
        "DELETE FROM compressed WHERE id = 1",
        "COMMIT",
        "SET SESSION binlog_transaction_compression = OFF",
    ],
)

MODERN = Topic(
    "what mysql 9 adds",
    [
        "CREATE TABLE invisible (id INT PRIMARY KEY, v INT INVISIBLE DEFAULT 3, w INT CHECK (w > 0))",
        "INSERT INTO invisible (id, w) VALUES (1, 2)",
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE TABLE without_key (v INT)",
        "INSERT INTO without_key VALUES (1), (2)",
        "SET SESSION sql_generate_invisible_primary_key = OFF",
        "CREATE TABLE functional (id INT PRIMARY KEY, v INT, INDEX f ((v + 1)), INDEX d (v DESC))",
        "INSERT INTO functional VALUES (1, 2)",
        "UPDATE functional SET v = 3",
    ],
)

MARIADB_ONLY = Topic(
    "what mariadb adds",
    [
        "CREATE OR REPLACE TABLE replaced (id INT PRIMARY KEY)",
        "CREATE OR REPLACE TABLE replaced (id INT PRIMARY KEY, v INT)",
        "INSERT INTO replaced VALUES (1, 2) RETURNING id",
        "ALTER TABLE replaced ADD COLUMN IF NOT EXISTS w INT, ADD INDEX IF NOT EXISTS i (w)",
        "INSERT INTO replaced VALUES (2, 2, 2)",
        "DROP INDEX IF EXISTS i ON replaced",
        "CREATE SEQUENCE sq START WITH 5",
        "SELECT NEXTVAL(sq)",
        "DROP SEQUENCE sq",
    ],
)

COMPRESSED_QUERIES = Topic(
    "compressed queries",
    [
        "SET GLOBAL log_bin_compress = ON",
        "SET GLOBAL log_bin_compress_min_len = 10",
        "CREATE TABLE squeezed (id INT PRIMARY KEY, v VARCHAR(300))",
        "INSERT INTO squeezed VALUES (1, REPEAT('x', 300)), (2, REPEAT('y', 300))",
        "UPDATE squeezed SET v = 'short'",
        "SET GLOBAL log_bin_compress = OFF",
    ],
)

ROTATION = Topic("rotation", ["FLUSH BINARY LOGS", "INSERT INTO t1 VALUES (90, 'after the rotation')"])


def script(server: str, *, gtid: bool = False, short: bool = False) -> list[Topic]:
    """Name the topics for a source.

    `short`: those of the short form; `gtid`: without statements that the GTID mode of MySQL 5.7 and 8.0.15 forbids.
    """
    mariadb = server.startswith("mariadb")
    topics = [
        typed("integers", INTEGERS),
        typed("fractions", FRACTIONS),
        typed("temporal", TEMPORAL),
        typed("strings", STRINGS),
        typed("charsets", CHARSETS),
        typed("binaries", BINARIES),
        typed("geometries", GEOMETRIES),
        typed("json", JSON),
        *([] if mariadb else [typed("json_made", JSON_MADE)]),
        SHAPES,
        IMAGES,
        TRANSACTIONS,
        SAVEPOINTS,
        XA,
        *([] if mariadb else [NAMES]),
        large(2500),
        cut(1024 if mariadb else 1023),
        ROWS_QUERIES,
        DDL,
        *([MADE] if server not in ("mysql57", "mysql80") or not gtid else []),
        OTHER_DDL,
        STATEMENTS,
        VARIABLES,
        *([METADATA] if server != "mysql57" else []),
        *([COMPRESSED, MODERN] if server == "mysql97" else []),
        *([MARIADB_ONLY, COMPRESSED_QUERIES] if mariadb else []),
        ROTATION,
    ]
    return [topic for topic in topics if topic.short or not short]


def statements(topic: Topic, server: str, schema: str) -> Statements:
    """Fill in what depends on the source."""
    mariadb = server.startswith("mariadb")
    variable = "SET SESSION binlog_annotate_row_events" if mariadb else "SET SESSION binlog_rows_query_log_events"
    return [it.replace("{s}", schema).replace("{rows query}", variable) for it in topic.statements]
