"""TDSQL's subscription: a message of JSON for each row, and one for each GTID, XID and QUERY."""
