"""What TiDB has given to a pump as the source: transactions whose rows need TiDB's definitions of tables to be read."""
