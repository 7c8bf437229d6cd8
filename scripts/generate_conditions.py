"""Write the table of conditions into docs/metrics.md, and their alert rules into docs/operations.md.

With ``--check`` nothing is written; the exit status says whether the pages are up to date.
"""

import json
import sys
from pathlib import Path
from typing import Any

from sluice.server.conditions import PUMPS, TABLE, Condition, Severity

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN = "<!-- conditions: written by scripts/generate_conditions.py from server/conditions.py; change that. -->\n"
END = "<!-- end of conditions -->\n"
LABELS = {Severity.ERROR: "critical", Severity.WARNING: "warning"}
"""What alert managers call the severities."""
FURTHER = """\
      - alert: NotServed  # what no server can say of itself
        expr: sum by (destination) (sluice_destination_state{state="running"}) != 1 or absent(sluice_destination_state)
        for: 30s
        labels: {severity: critical}
      - alert: ClientLag  # by what you promise
        expr: sum by (destination, client) (sluice_client_lag_seconds) > 300
        labels: {severity: warning}
"""


ALL: tuple[Condition[Any], ...] = (*TABLE, *PUMPS)


def row(condition: Condition[Any]) -> str:
    """Return the line of a condition in the table."""
    return f"| `{condition.name}` | {condition.severity} | {condition.meaning} | {condition.advice} |\n"


def rule(condition: Condition[Any]) -> str:
    """Return the alert rule of a condition, as Prometheus reads it."""
    metric = "sluice_condition" if condition in TABLE else "sluice_pump_condition"
    name = condition.name.title().replace("-", "")
    return (
        f"      - alert: {name}\n"
        f'        expr: {metric}{{condition="{condition.name}"}} > 0\n'
        f"        for: {condition.lasting}\n"
        f"        labels: {{severity: {LABELS[condition.severity]}}}\n"
        f"        annotations: {{summary: {json.dumps(condition.meaning)}, action: {json.dumps(condition.advice)}}}\n"
    )


def parts() -> dict[Path, str]:
    """Return what stands between the marks of each page."""
    table = "| condition | severity | when | what to do |\n| --- | --- | --- | --- |\n" + "".join(map(row, ALL))
    rules = "groups:\n  - name: sluice\n    rules:\n" + "".join(map(rule, ALL)) + FURTHER
    return {DOCS / "metrics.md": table, DOCS / "operations.md": f"```yaml\n{rules}```\n"}


def page(path: Path, part: str) -> str:
    """Return the text of a page with its part as it has to be."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{part}\n{END}{after}"


def main() -> int:
    """Write the pages, or compare them."""
    stale = [path for path, part in parts().items() if page(path, part) != path.read_text()]
    if "--check" not in sys.argv:
        for path in stale:
            path.write_text(page(path, parts()[path]))
        return 0
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
