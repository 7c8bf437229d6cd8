"""The outputs of a destination, as its files configure them: Canal's message queue, or several by name."""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...instance.config import InstanceConfig
from ...instance.plugins import PluginError
from ...instance.properties import Lookup, Property, unknown
from ...instance.sink.filters import TableFilter
from ...instance.zones import local_time_zone
from ...protocol.errors import ConfigError, FilterError
from .registry import KINDS, kind_of
from .settings import PLACE, PREFIX, Output, OutputNames, OutputSettings

CANALS: Final = "mq"
"""The output that `canal.serverMode` makes."""
CANALS_CLIENT: Final = 1001
"""The client that it is, as in Canal, so that cursors pass to and from it."""
DUE: Final = ("clientId", "filter", "where", "start")
"""What says which changes an output is due."""
RENAMED: Final = {
    "canal.mq.topic": "topic",
    "canal.mq.dynamicTopic": "dynamicTopic",
    "canal.mq.partition": "partition",
    "canal.mq.partitionsNum": "partitionsNum",
    "canal.mq.partitionHash": "partitionHash",
    "canal.mq.dynamicTopicPartitionNum": "dynamicTopicPartitionNum",
    "canal.mq.database.hash": "databaseHash",
    "canal.mq.flatMessage": "format",
    "canal.mq.transaction": "transactional",
    "canal.mq.servers": "kafka.bootstrap.servers",
    "canal.mq.acks": "kafka.acks",
    "canal.mq.retries": "kafka.retries",
    "canal.mq.batchSize": "kafka.batch.size",
    "canal.mq.lingerMs": "kafka.linger.ms",
    "canal.mq.maxRequestSize": "kafka.max.request.size",
    "canal.mq.bufferMemory": "kafka.buffer.memory",
    "canal.mq.compressionType": "kafka.compression.type",
}
"""Canal's keys, of its older versions too, and what they are of that output."""
FREE: Final = "canal.mq.properties."
"""Before any setting of Java's producer, in Canal 1.1.4."""
FORMS: Final = {"true": "flat", "false": "canal"}
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def takes(key: str, *, queue: bool) -> bool:
    """Tell whether a key is one of outputs; ``queue``: `canal.serverMode` is ``kafka``."""
    if key in OutputNames.fields_by_key() or key.startswith((PREFIX, "kafka.")):
        return True
    return queue and (key in RENAMED or key.startswith(FREE))


def read_outputs(lookup: Lookup, instance: InstanceConfig, folder: Path, *, queue: bool, shared: bool) -> list[Output]:
    """Read the outputs of a destination; ``queue``: Canal's own is one of them.

    One with a mistake says so. Raises ConfigError when it cannot be known which there are.
    """
    names = list(dict.fromkeys(OutputNames.fill(lookup(OutputNames.fields_by_key()), folder).outputs))
    if queue and CANALS not in names:
        names.insert(0, CANALS)
    outputs = [_read(lookup, name, instance, folder, queue=queue, shared=shared) for name in names]
    clients: dict[int, str] = {}
    for number, it in enumerate(outputs):
        client_id = it.settings.client_id
        other = it.name if client_id is None else clients.setdefault(client_id, it.name)
        if other != it.name:
            outputs[number] = with_same_client(it, other)
    return outputs


def with_same_client(output: Output, other: str) -> Output:
    """Return an output that cannot be the client that it is to be, because another one is that."""
    mistake = (
        f"the outputs {other} and {output.name} are the same client, {output.client_id}: set"
        f" {PREFIX}{output.name}.clientId to another number"
    )
    return replace(output.of_client(None), mistake=mistake)


def possible(names: Iterable[str], outputs: Iterable[Output] = ()) -> set[str]:
    """Return the keys that outputs of these names have, so far as they are known by name, and those of ``outputs``."""
    keys = {key.replace(PLACE, it.name) for it in outputs for key in it.settings.fields_by_key()}
    keys |= {*OutputNames.fields_by_key(), *RENAMED}
    for kind, found in KINDS.items():
        keys |= {f"{kind}.{it}" for it in found.library}
        for name in names:
            keys |= {key.replace(PLACE, name) for key in found.settings.fields_by_key()}
            keys |= {f"{PREFIX}{name}.{kind}.{it}" for it in found.library}
    return keys


def _read(lookup: Lookup, name: str, instance: InstanceConfig, folder: Path, *, queue: bool, shared: bool) -> Output:
    """Read one of them, with its mistake if it has one."""
    own = f"{PREFIX}{name}."
    found = {
        key.removeprefix(own): item
        for key, item in lookup({*possible([name]), *lookup.keys}).items()
        if key.startswith(own)
    }
    if queue and name == CANALS:
        found = _of_canal(lookup) | {key: item for key, item in found.items() if item.value}
    output = Output(
        instance.destination,
        name,
        _usable(found, folder),
        shared,
        instance.strict_canal,
        folder=folder,
        source=(instance.address[0], instance.address[1]),
        instance=instance,
        shape=hashlib.sha256(repr((instance.main.shape(), instance.shape())).encode()).hexdigest()[:16],
        has_transactions=not instance.filter_transaction_entry,
        has_shared_filter=instance.shared_filter,
        is_merged=instance.main.is_merged,
        time_zone=instance.time_zone or local_time_zone(),
    )
    try:
        complete = _complete(output, found, lookup)
        _check_filter(complete, instance)
    except ConfigError as error:
        return replace(output, mistake=str(error), lacks_plugin=isinstance(error, PluginError))
    return complete


def _check_filter(output: Output, instance: InstanceConfig) -> None:
    """Raise ConfigError when the output would not be served with its filter."""
    try:
        if instance.shared_filter:
            found = TableFilter(output.settings.filter)
        else:
            found = instance.table_filter().narrow(output.settings.filter, is_whole=True)
    except FilterError as error:
        raise ConfigError(f"{PREFIX}{output.name}.filter: {error}") from None
    if missing := [".".join(it) for it in output.settings.needed if not found.accepts(*it)]:
        raise ConfigError(
            f"{output}: the filters of the destination and of the output leave out {', '.join(missing)}, which it"
            " needs: add it to canal.instance.filter.regex, and to the output's filter if that has one"
        )


def _usable(found: Mapping[str, Property], folder: Path) -> OutputSettings:
    """Return what can be used of settings that say which changes an output is due, whatever is wrong with others."""
    usable: dict[str, Property] = {}
    for key in DUE:
        given = {f"{PREFIX}{PLACE}.{key}": found[key]} if key in found else {}
        with contextlib.suppress(ConfigError):
            OutputSettings.fill(given, folder)
            usable |= given
    return OutputSettings.fill(usable, folder)


def _complete(output: Output, found: dict[str, Property], lookup: Lookup) -> Output:
    """Return an output with all of its settings. Raises ConfigError for a mistake."""
    name, folder, own = output.name, output.folder, f"{PREFIX}{output.name}."
    if not NAME.fullmatch(name):
        raise ConfigError(f"sluice.outputs: {name[:200]!r} is not a name: letters, digits, '_' and '-'")
    type_ = found.get("type", Property("kafka", "")).value
    try:
        kind = kind_of(type_)
    except ConfigError as error:
        raise type(error)(
            f"{found['type'].origin}: {own}type has to be {' or '.join(KINDS)}, or what a package brings: {error}"
        ) from None
    known = kind.settings.fields_by_key()
    # The environment may have keys of a kind that is known only now.
    given = lookup(key.replace(PLACE, name) for key in known)
    found = {key.removeprefix(own): item for key, item in given.items()} | found
    prefix = f"{type_}."
    library = {
        key.removeprefix(prefix): item
        for key, item in lookup({*possible([]), *lookup.keys}).items()
        if key.startswith(prefix)
    }
    library |= {key.removeprefix(prefix): item for key, item in found.items() if key.startswith(prefix)}
    properties = {f"{PREFIX}{PLACE}.{key}": item for key, item in found.items()}
    try:
        settings: OutputSettings = kind.settings.fill(properties, folder)
    except ConfigError as error:
        raise ConfigError(str(error).replace(PLACE, name)) from None
    meant = [it.replace(PLACE, name) for it in known]
    complaints = tuple(
        f"{item.origin}: {unknown(own + key, meant)}"
        for key, item in found.items()
        if not key.startswith(prefix) and f"{PREFIX}{PLACE}.{key}" not in known
    )
    return replace(output, settings=settings, library=library, unknown=complaints)


def _of_canal(lookup: Lookup) -> dict[str, Property]:
    found = {"clientId": Property(str(CANALS_CLIENT), "default with canal.serverMode = kafka")}
    for key, item in lookup({*RENAMED, *(it for it in lookup.keys if it.startswith(FREE))}).items():
        if key.startswith(FREE):
            found[f"kafka.{key.removeprefix(FREE)}"] = item
        elif key == "canal.mq.flatMessage":
            found["format"] = item._replace(value=FORMS.get(item.value.lower(), item.value))
        elif key != "canal.mq.transaction" or item.value.lower() == "true":
            found[RENAMED[key]] = item
    return found
