"""Where destinations, clients and the pump stand, for people: a summary, then each of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..wording import counted, duration

WHOLE = 3
"""Maximum number of destinations that are shown in full; if there are more, each has one line."""
ERROR = "error"
"""The severity of a condition in which changes are not delivered, or will be lost (`sluice.server.conditions`)."""


STYLES = {"running": "green", "finished": "green", "online": "green", "error": "red"}
"""Colours of states; others are yellow."""


COUNTS = {"refused": "refused", "repeated": "repeated", "lone": "commits without a Prewrite", "late": "too late"}
"""What a pump counts of messages that drainers do not get, and how that is called."""


@dataclass(frozen=True)
class Summary:
    """Destinations and clients, counted, and what needs attention."""

    text: str
    conditions: Sequence[tuple[str, dict[str, Any]]]
    """What needs attention, each with its destination or pump, as the API says it."""

    @property
    def is_wrong(self) -> bool:
        """Whether changes are not delivered, or will be lost."""
        return any(it["severity"] == ERROR for _, it in self.conditions)

    def show(self, out: Console) -> None:
        """Print it."""
        verdict, style = ("all is well", "green") if not self.conditions else ("something needs attention", "yellow")
        if self.is_wrong:
            verdict, style = "something is wrong", "red"
        out.print(Text(verdict, style=f"bold {style}") + Text(f": {self.text}"))
        for destination, it in self.conditions:
            subject = ", ".join(filter(None, (destination, it["subject"])))
            style = "red" if it["severity"] == ERROR else "yellow"
            out.print(Text(f"  {subject}: {it['text']}", style=style))
            out.print(Text(f"    to do: {it['advice']}"))


def summarize(destinations: Sequence[dict[str, Any]], pumps: Sequence[dict[str, Any]] = ()) -> Summary:
    """Sum up what the API says of destinations and of the pump."""
    clients = [client for destination in destinations for client in destination["clients"]]
    parts = [_counted("destination", (it["state"] for it in destinations))]
    if clients:
        parts.append(_counted("client", (it["state"] for it in clients)))
        bound = "at least" if any(map(_is_further, clients)) else "at most"
        parts.append(f"{bound} {duration(max(it['lag']['seconds'] for it in clients), 1)} behind")
    if pumps:
        parts.append(_counted("pump", (it["state"] for it in pumps)))
    found = [(it["destination"], condition) for it in destinations for condition in it["conditions"]]
    found += [(f"pump {it['nodeId']}", condition) for it in pumps for condition in it["conditions"]]
    found.sort(key=lambda it: it[1]["severity"] != ERROR)
    return Summary(", ".join(parts), found)


def show_all(out: Console, destinations: Sequence[dict[str, Any]]) -> None:
    """Print where destinations stand: all that is known of a few, a line each of many, the slowest first."""
    if len(destinations) <= WHOLE:
        for destination in destinations:
            show(out, destination)
        return
    table = Table("destination", "state", "clients", "behind", "problems", box=None, header_style="bold")
    for it in sorted(destinations, key=_lag, reverse=True):
        clients, problems = it["clients"], [condition["name"] for condition in it["conditions"]]
        behind = f"{'at least ' if any(map(_is_further, clients)) else ''}{duration(_lag(it), 1)}" if clients else "-"
        state = Text(it["state"], style=STYLES.get(it["state"], "yellow"))
        table.add_row(Text(it["destination"]), state, str(len(clients)), behind, ", ".join(dict.fromkeys(problems)))
    out.print(table)


def show_pump(out: Console, pump: dict[str, Any]) -> None:
    """Print where a pump stands."""
    text = Text(f"pump {pump['nodeId']}", style="bold")
    text += Text(f"  {pump['state']}", style=STYLES.get(pump["state"], "yellow"))
    out.print(text + Text(f", at {pump['address']}, of the cluster {pump['clusterId']}"))
    counts = [f"{pump[name]} {what}" for name, what in COUNTS.items() if pump[name]]
    out.print(f"  taken  {', '.join([counted(pump['messages'], 'message'), *counts])}")
    out.print(f"  log    {pump['logBytes']} bytes in {counted(pump['logFiles'], 'file')}")
    out.print(f"  given  to commit_ts {pump['released']}, {counted(pump['streams'], 'stream')} open")
    if pump["open"]:
        out.print(f"  open   {counted(pump['open'], 'transaction')} without an end")


def _lag(destination: dict[str, Any]) -> float:
    return float(max((client["lag"]["seconds"] for client in destination["clients"]), default=0.0))


def _is_further(client: dict[str, Any]) -> bool:
    """Whether a client may be further behind than its seconds say."""
    return client["state"] in ("catching-up", "gone")


def lag_of(client: dict[str, Any]) -> str:
    """Say by how many seconds a client is behind."""
    return f"{'at least ' if _is_further(client) else ''}{duration(client['lag']['seconds'], 1)}"


def _counted(what: str, states: Iterable[str]) -> str:
    counts = Counter(states)
    number = counts.total()
    details = ", ".join(f"{count} {state}" for state, count in sorted(counts.items(), key=lambda it: (-it[1], it[0])))
    return f"{counted(number, what) if number else f'no {what}s'}{f' ({details})' if details else ''}"


def _show_parser(out: Console, source: dict[str, Any]) -> None:
    """Print how far the parser is."""
    behind = source["behind"]
    reading = "nothing read yet" if behind is None else f"{duration(behind)} behind" if behind >= 2 else "up to date"
    again = f", connected {source['connections']} times" if source["connections"] > 1 else ""
    lost = f", {counted(source['quarantined'], 'row event')} in quarantine" if source["quarantined"] else ""
    future = source["futureRows"]
    doubt = f", {counted(future, 'row')} read with columns that may be younger than they are" if future else ""
    out.print(f"  parser {reading}, {counted(source['transactions'], 'transaction')}{again}{lost}{doubt}")
    for it in source["members"]:
        waits = f", {counted(it['transactions'], 'transaction')} waiting" if it["transactions"] else ""
        late = f", {it['late']} late" if it["late"] else ""
        holds = ", the others wait for it" if it["holds"] else ""
        streams = ", delivers a transaction in parts" if it["streams"] else ""
        error = f": {it['error']}" if it["error"] else ""
        out.print(Text(f"  member {it['name']}  {it['state']}{error}{waits}{late}{streams}{holds}"))
    if source["openXa"]:
        out.print(Text(f"  XA     open since {source['openXa']}: XA RECOVER at the source lists it"))


def show_source(out: Console, source: dict[str, Any], title: str = "source") -> None:
    """Print which of several servers is read, and what keeps it from being switched."""
    others = f", can switch to {', '.join(source['others'])}" if source["others"] else ""
    switching = f", switching to {source['switching']}" if source["switching"] else ""
    out.print(Text(f"  {title} {source['address']}{others}{switching}"))
    if source["failures"]:
        text = f"    does not answer, {source['failures']} times in a row: {source['failure']}"
        out.print(Text(text, style="red"))
    for name, value in (("refused", source["refusal"]), ("lost", ", ".join(source["lost"]))):
        if value:
            out.print(Text(f"    {name:<8} {value}", style="yellow"))
    if source["accepted"]:
        out.print(Text(f"    accepted {', '.join(source['accepted'])}"))


def _show_log(out: Console, log: dict[str, Any], *, is_shared: bool) -> None:
    """Print what the log on disk holds."""
    out.print(f"  log    {log['bytes']} bytes in {counted(log['files'], 'file')}")
    for start, end in log["stretches"]:
        out.print(Text(f"  from {start}\n  to   {end}"))
    if is_shared:
        out.print(Text(f"  every server has it from {log['held']}" if log["held"] else "  one server writes no log"))
    for hold in log["holds"]:
        out.print(f"  client {hold['clientId']} holds {hold['bytes']} bytes in {counted(hold['files'], 'file')} of it")


def _show_state(out: Console, destination: dict[str, Any]) -> None:
    """Print the name and the state."""
    state = destination["state"]
    text = Text(destination["destination"], style="bold") + Text(f"  {state}", style=STYLES.get(state, "yellow"))
    if state == "standby" and destination["active"]:
        text += Text(f" for {destination['active']}")
    if destination["error"]:
        text += Text(f": {destination['error']}")
    out.print(text)
    if destination["route"]:
        out.print(Text(f"  view   of {destination['route']}, whose source, ring and log it shares"))


def _limits(client: dict[str, Any]) -> list[str]:
    """Say how much a client may get."""
    rate = [f"{client['maxRate']} bytes/s"] if client["maxRate"] else []
    return rate + ([f"{client['quotaUsed']} of {client['quota']} bytes of today"] if client["quota"] else [])


def show(out: Console, destination: dict[str, Any]) -> None:
    """Print where a destination and its clients stand."""
    _show_state(out, destination)
    if destination["source"] is not None:
        show_source(out, destination["source"])
    for name, it in destination["memberSources"].items():
        show_source(out, it, f"source of {name}")
    _show_parser(out, destination["parser"])
    full = ", full: the source is not read until clients ack" if destination["full"] else ""
    entries = counted(destination["entries"], "entry", "entries")
    stored = f"{entries}, {destination['bytes']} bytes, {destination['fill']:.0%} of the ring"
    out.print(f"  stored {stored}{full}")
    out.print(Text(f"  from {destination['first'] or '-'}\n  to   {destination['last'] or '-'}"))
    if (log := destination["log"]) is not None:
        _show_log(out, log, is_shared=bool(destination["active"]))
    for client in destination["clients"]:
        lag = client["lag"]
        text = Text(f"  client {client['clientId']}", style="bold")
        text += Text(f"  {client['state']}{': ' + client['error'] if client['error'] else ''}")
        least = "at least " if lag["atLeast"] else ""
        amount = f"{counted(lag['transactions'], 'transaction')}, {counted(lag['rows'], 'row')}"
        text += Text(f", {lag_of(client)}, {least}{amount} behind")
        out.print(text)
        details = {
            "lag": f"{lag['stage']}: {lag['explanation']}" if lag["stage"] != "none" else "",
            "to do": client["advice"],
            "cursor": client["position"],
            "filter": client["filter"],
            "log": "what it needs stays, beyond the limits (sluice protect)" if client["protected"] else "",
            "limit": ", ".join(_limits(client)),
            "owner": client["owner"] and f"token {client['owner']}",
            "batches": ", ".join(map(str, client["marks"])),
        }
        for name, value in details.items():
            if value:
                out.print(Text(f"    {name:<8} {value}"))
    lags = {client["clientId"]: lag_of(client) for client in destination["clients"]}
    for output in destination["outputs"]:
        text = Text(f"  output {output['name']}", style="bold")
        text += Text(f"  {output['state']}{': ' + output['error'] if output['error'] else ''}")
        again = f", began again {output['retries']} times" if output["retries"] else ""
        skipped = f", {output['skipped']} skipped" if output["skipped"] else ""
        amount = f"{counted(output['rows'], 'row')} in {counted(output['records'], 'record')}, {output['bytes']} bytes"
        behind = f", {lags[output['clientId']]} behind" if output["clientId"] in lags else ""
        out.print(text + Text(f", client {output['clientId']}{behind}, {amount}{again}{skipped}"))
        if output["lastError"] and not output["error"]:
            at = datetime.fromtimestamp(output["failed"]).astimezone()
            out.print(Text(f"    before   {at:%Y-%m-%d %H:%M:%S}: {output['lastError']}"))
        if output["lost"]:
            out.print(Text(f"    lost     {output['lost']}"))
