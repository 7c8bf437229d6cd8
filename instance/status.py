"""What a parser says about itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParserStatus:
    """How far a parser is, and what it has done since its start."""

    behind: float | None = None
    """Seconds: all that the source wrote before then is read; None if unknown so far. It is 0 while the source has
    nothing to send. The source's clock counts, and its events give whole seconds."""
    received_bytes: int = 0
    events: int = 0
    transactions: int = 0
    connections: int = 0
    """Dumps begun: one, and another after each loss of the connection."""
    quarantined: int = 0
    """Row events in the quarantine list."""
    future_rows: int = 0
    """Rows that were read with columns which may be younger than they are."""
    dml_statements: int = 0
    """Changes that the source logged as statements, so that their rows could not be delivered."""
    open_xa: str = ""
    """Position where the oldest XA transaction was prepared that has not ended yet; empty if none is known."""
