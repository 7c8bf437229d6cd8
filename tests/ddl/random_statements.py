"""Random statements that mostly succeed: they know what tables there are."""

import random
from collections.abc import Mapping

from sluice.instance.sources.mysql.history.tables import Column, Table
from tests.ddl.oracle import DATABASES, Key

NAMES = ("a", "b", "c", "d", "E", "f g", "h`i", "日本", "order", "Key", "x1", "first", "after")
TABLES = ("t", "u", "_t_gho", "_t_del", "_t_new", "w x", "select", "T2", "表")
# fmt: off
TYPES = (
    "INT", "INTEGER(7)", "TINYINT", "TINYINT(1)", "SMALLINT", "MEDIUMINT", "BIGINT", "INT4", "INT8", "BOOL",
    "INT(5)", "BIT", "BIT(9)", "FLOAT", "FLOAT(7)", "FLOAT(30)", "DOUBLE", "REAL", "DATE", "YEAR", "TIME(3)",
    "DATETIME", "DATETIME(6)", "TIMESTAMP(2)", "BINARY", "BINARY(9)", "VARBINARY(40)", "BLOB", "BLOB(12)",
    "TINYBLOB", "LONGBLOB", "POINT", "GEOMETRY", "GEOMETRYCOLLECTION",
)
# fmt: on
SPACED = (
    "INT UNSIGNED",
    "INT(3) UNSIGNED ZEROFILL",
    "TINYINT ZEROFILL",
    "BIGINT SIGNED",
    "TINYINT(1) UNSIGNED",
    "DECIMAL",
    "DEC(8) UNSIGNED",
    "NUMERIC(9, 3)",
    "FIXED(5,1) ZEROFILL",
    "DOUBLE PRECISION",
    "DOUBLE(9, 2) UNSIGNED",
    "FLOAT(7,4)",
    "LONG VARBINARY",
    "LONG",
)
TEXTS = (
    "CHAR",
    "CHAR(7)",
    "CHARACTER(4)",
    "VARCHAR(30)",
    "CHARACTER VARYING(21)",
    "TINYTEXT",
    "TEXT",
    "TEXT(40)",
    "TEXT(70)",
    "TEXT(300)",
    "MEDIUMTEXT",
    "LONGTEXT",
    "LONG VARCHAR",
    "ENUM('a','b ','it''s')",
    r"SET('x','y\'z','\\','\n')",
    'ENUM("q","r,s",")")',
)
CHARSETS = ("utf8", "utf8mb4", "latin1", "gbk", "ucs2", "binary", "ascii")
COLLATIONS = ("utf8mb4_bin", "latin1_swedish_ci", "utf8_bin", "gbk_chinese_ci", "binary")
SPACES = (" ", "  ", "\n", "\t", " /* ; */ ", " -- it's\n", ' # "\n', "/**/ ")


class Statements:
    """Gives statements one after the other, the same ones for the same seed and the same tables."""

    def __init__(self, seed: int, *, mariadb: bool, version: tuple[int, ...]) -> None:
        self._chance = random.Random(seed)
        self._mariadb = mariadb
        self._version = version

    def next(self, tables: Mapping[Key, Table]) -> str:
        """Return a statement for these tables."""
        pick = self._chance.random
        keys = sorted(tables)
        if not keys or (len(keys) < 6 and pick() < 0.5) or pick() < 0.1:
            return self._decorated(self._create(keys))
        key = self._chance.choice(keys)
        table = tables[key]
        kind = pick()
        if kind < 0.72:
            return self._decorated(self._alter(key, table))
        if kind < 0.84:
            return self._decorated(self._rename(keys))
        if kind < 0.90:
            return self._decorated(f"DROP TABLE{self._maybe(' IF EXISTS')} {self._table(key)}")
        if kind < 0.93:
            return self._decorated(f"TRUNCATE{self._maybe(' TABLE')} {self._table(key)}")
        if kind < 0.96:
            return self._decorated(
                f"CREATE INDEX {self._name('i')} ON {self._table(key)} ({self._name(self._some(table).name)})"
            )
        return self._decorated(self._database())

    # --- statements

    def _create(self, keys: list[Key]) -> str:
        target = self._new_table()
        if keys and self._chance.random() < 0.2:
            like = self._table(self._chance.choice(keys))
            return f"CREATE TABLE{self._maybe(' IF NOT EXISTS')} {target} " + self._chance.choice(
                (f"LIKE {like}", f"(LIKE {like})")
            )
        names = self._chance.sample(NAMES, self._chance.randrange(1, 7))
        items = [self._definition(name, names[:at]) for at, name in enumerate(names)]
        if self._chance.random() < 0.6:
            items.append(f"{self._maybe('CONSTRAINT pk ')}PRIMARY KEY ({self._key_parts(names)})")
        if self._chance.random() < 0.3:
            items.append(
                f"{self._chance.choice(('KEY', 'INDEX i', 'UNIQUE', 'UNIQUE KEY u'))} ({self._key_parts(names[:1])})"
            )
        replaces = self._mariadb and self._chance.random() < 0.2
        exists = "" if replaces else self._maybe(" IF NOT EXISTS")
        return f"CREATE {'OR REPLACE ' if replaces else ''}TABLE{exists} {target} ({', '.join(items)}){self._options()}"

    def _alter(self, key: Key, table: Table) -> str:
        used: set[str] = set()
        if self._chance.random() < 0.08:  # not with others: MySQL 8.0.15 dies of some
            return f"ALTER TABLE {self._table(key)} CONVERT TO CHARACTER SET {self._chance.choice(CHARSETS[:4])}"
        items = [self._item(table, used) for _ in range(self._chance.choice((1, 1, 1, 2, 2, 3, 5)))]
        return f"ALTER TABLE {self._table(key)} {', '.join(items)}"

    def _item(self, table: Table, used: set[str]) -> str:
        free = [name for name in NAMES if name.lower() not in {it.name.lower() for it in table.columns} | used]
        old = [it for it in table.columns if it.name.lower() not in used]
        kind = self._chance.random()
        column = self._maybe("COLUMN ")
        if (kind < 0.35 or not old) and free:
            name = self._chance.choice(free)
            used.add(name.lower())
            if self._chance.random() < 0.15 and len(free) > 2:
                other = next(it for it in free if it != name)
                used.add(other.lower())
                return f"ADD {column}({self._definition(name, [])}, {self._definition(other, [])})"
            missing = self._maybe("IF NOT EXISTS ") if self._mariadb else ""
            return f"ADD {column}{missing}{self._definition(name, [])}{self._place(table, used)}"
        if not old:
            return "ENGINE=InnoDB"
        chosen = self._chance.choice(old)
        name = self._name(chosen.name)
        if kind < 0.47:
            used.add(chosen.name.lower())
            return f"DROP {column}{name}"
        if kind < 0.6:
            used.add(chosen.name.lower())
            return f"MODIFY {column}{self._definition(chosen.name, [])}{self._place(table, used)}"
        if kind < 0.7 and free:
            new = self._chance.choice(free)
            used |= {new.lower(), chosen.name.lower()}
            return f"CHANGE {column}{name} {self._definition(new, [])}{self._place(table, used)}"
        if kind < 0.76 and free and (self._version >= (8,)):
            new = self._chance.choice(free)
            used |= {new.lower(), chosen.name.lower()}
            return f"RENAME COLUMN {name} TO {self._name(new)}"
        return self._chance.choice(
            (
                f"ADD {self._maybe('CONSTRAINT ')}PRIMARY KEY ({self._key_parts([chosen.name])})",
                "DROP PRIMARY KEY",
                f"DROP PRIMARY KEY, ADD PRIMARY KEY ({self._key_parts([it.name for it in old])})",
                f"ADD {self._chance.choice(('INDEX', 'KEY k', 'UNIQUE'))} ({self._key_parts([chosen.name])})",
                f"ALTER {column}{name} SET DEFAULT 1",
                f"ALTER {column}{name} DROP DEFAULT",
                f"DEFAULT CHARSET={self._chance.choice(CHARSETS[:5])}",
                f"COLLATE {self._chance.choice(COLLATIONS[:3])}",
                f"CHARACTER SET {self._chance.choice(CHARSETS)} COMMENT='x, ADD y INT'",
                "ENGINE=InnoDB",
                "ENGINE = MyISAM ROW_FORMAT=DYNAMIC",
                "ALGORITHM=COPY",
                "COMMENT 'RENAME TO z'",
                "FORCE",
                f"RENAME TO {self._new_table()}",
                f"RENAME {self._new_table()}",
                f"ORDER BY {name}",
                "DISABLE KEYS",
                f"PARTITION BY HASH ({name}) PARTITIONS 2",
                f"ALTER {column}{name} SET INVISIBLE",
            )
        )

    def _rename(self, keys: list[Key]) -> str:
        source = self._chance.choice(keys)
        if self._chance.random() < 0.4 and len(keys) > 1:
            one, other = self._chance.sample(keys, 2)
            return (
                f"RENAME TABLE {self._table(one)} TO ddl_one.swap, {self._table(other)} TO {self._table(one)},"
                f" ddl_one.swap TO {self._table(other)}"
            )
        return f"RENAME TABLE {self._table(source)} TO {self._new_table()}"

    def _database(self) -> str:
        name = self._chance.choice(DATABASES)
        charset = self._chance.choice(CHARSETS[:4])
        return self._chance.choice(
            (
                f"ALTER DATABASE {name} CHARACTER SET {charset}",
                f"ALTER SCHEMA {name} DEFAULT COLLATE = {self._chance.choice(COLLATIONS[:3])}",
                f"CREATE DATABASE IF NOT EXISTS {name} CHARSET {charset}",
                f"CREATE DATABASE IF NOT EXISTS {name}",
            )
        )

    # --- parts

    def _definition(self, name: str, others: list[str]) -> str:
        kind = self._chance.random()
        attributes = ""
        if kind < 0.45:
            text = self._chance.choice(TEXTS)
            if self._chance.random() < 0.3:
                text += self._chance.choice((" CHARACTER SET ", " CHARSET ")) + self._chance.choice(CHARSETS)
            elif self._chance.random() < 0.15:
                text += self._chance.choice((" ASCII", " UNICODE", " BINARY", " BYTE"))
            if self._chance.random() < 0.1:
                text += f" COLLATE {self._chance.choice(COLLATIONS)}"
        elif kind < 0.75:
            text = self._chance.choice(TYPES)
        else:
            text = self._chance.choice(SPACED)
        if others and self._version >= (5, 7) and self._chance.random() < 0.08:
            always = self._maybe("GENERATED ALWAYS ")
            virtual = self._maybe(" VIRTUAL")
            return f"{self._name(name)} INT {always}AS (length({self._name(others[0])})){virtual}"
        if self._chance.random() < 0.25:
            attributes += self._chance.choice((" NULL", " NOT NULL", " DEFAULT NULL", " COMMENT 'it''s (, \\' x'"))
        if self._chance.random() < 0.05:
            attributes += " UNIQUE KEY" if self._chance.random() < 0.5 else " PRIMARY KEY"
        if self._chance.random() < 0.1:
            attributes += "/*!80023 INVISIBLE */" if not self._mariadb else "/*M!100300 INVISIBLE */"
        if self._chance.random() < 0.05:
            attributes += "/*!99999 NOT THERE */"
        return f"{self._name(name)} {text}{attributes}"

    def _key_parts(self, names: list[str]) -> str:
        chosen = self._chance.sample(names, min(len(names), self._chance.randrange(1, 3)))
        return ", ".join(self._name(it) + self._maybe(" ASC") for it in chosen)

    def _place(self, table: Table, used: set[str]) -> str:
        kind = self._chance.random()
        if kind < 0.2:
            return " FIRST"
        others = [it.name for it in table.columns if it.name.lower() not in used] or [""]
        return f" AFTER {self._name(self._chance.choice(others))}" if kind < 0.45 and others[0] else ""

    def _options(self) -> str:
        found = ""
        if self._chance.random() < 0.3:
            found += self._chance.choice((" ENGINE=InnoDB", " ENGINE MyISAM", " TYPE=x", " ROW_FORMAT=DYNAMIC"))
        if self._chance.random() < 0.4:
            found += f" DEFAULT CHARSET={self._chance.choice(CHARSETS[:6])}"
        elif self._chance.random() < 0.2:
            found += f", COLLATE {self._chance.choice(COLLATIONS)}"
        return found + self._maybe(" COMMENT='a; b'")

    def _some(self, table: Table) -> Column:
        return self._chance.choice(table.columns)

    def _new_table(self) -> str:
        return self._table((self._chance.choice(DATABASES), self._chance.choice(TABLES)))

    def _table(self, key: Key) -> str:
        schema, name = key
        if schema == DATABASES[0] and self._chance.random() < 0.5:
            return self._name(name)
        return f"{schema}{self._chance.choice(('.', ' . ', '.'))}{self._name(name)}"

    def _name(self, name: str) -> str:
        if name.isalnum() and name.lower() not in ("order", "key", "select") and self._chance.random() < 0.5:
            return name
        return "`" + name.replace("`", "``") + "`"

    def _maybe(self, text: str) -> str:
        return text if self._chance.random() < 0.4 else ""

    def _decorated(self, sql: str) -> str:
        """The same in other spaces, comments and cases of letters."""
        if self._chance.random() < 0.3:
            sql = self._chance.choice(SPACES) + sql
        if self._chance.random() < 0.2:
            sql = sql.replace("TABLE ", f"TABLE{self._chance.choice(SPACES)}", 1)
        if self._chance.random() < 0.1:
            sql = sql.replace("ALTER", "alter").replace("CREATE", "Create").replace("COLUMN", "column")
        if self._chance.random() < 0.1:
            sql = sql.replace("TABLE", "/*!32312 TABLE */", 1)
        return sql + self._maybe(";") if self._chance.random() < 0.2 else sql
