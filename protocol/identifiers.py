"""Names of schemas, tables and columns in statements of MySQL and MariaDB."""


def quote_name(name: str) -> str:
    """Quote the name of a column, table or schema."""
    return f"`{name.replace('`', '``')}`"


def quote_table(schema: str, table: str) -> str:
    """Quote the name of a schema and of a table in it."""
    return f"{quote_name(schema)}.{quote_name(table)}"
