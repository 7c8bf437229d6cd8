"""What the files of a conf folder say without an effect, and what of them deserves a warning."""

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from ...instance.properties import Property, is_service_link, nearest, read_properties, unknown, variables_of
from ...instance.sources.kinds import CONFIGS
from ...instance.zones import has_daylight_saving
from ...protocol.errors import ConfigError
from ..canal_keys import may_be_a_mistake, why_without_effect
from ..outputs.configured import RENAMED, possible, takes
from ..outputs.registry import complaints
from ..outputs.settings import Output
from ..outputs.target import Complaints
from . import canal_group
from .folder import MAIN_FILE, SOURCE_KEY, Configuration, beans_of, kind_of
from .keys import INSTANCE_KEYS, KEYS, SERVER_KEYS

PLACEHOLDER = re.compile(r"\$\{([^:{}]+)")
BEAN_KEY = re.compile(r"canal\.instance\.(?!tsdb\.)[^.]+\.spring\.xml")
ALIKE = 0.9
"""How much a key of a group without effect has to be like a key with one, to be taken for a mistake."""
OTHER_VARIABLES = frozenset({"SLUICE_CONF", "SLUICE_MYSQL", "SLUICE_TOKEN", "SLUICE_TOKEN_FILE", "SLUICE_URL"})
"""Variables with our prefix that are not settings of the server."""


def understood(configuration: Configuration) -> dict[str, list[str]]:
    """Return the keys of each file that have an effect and a value."""
    own = [file for file in map(configuration.instance_file, configuration.destinations()) if file.is_file()]
    outputs = {it.name for it in _outputs(configuration)}
    keys = {*KEYS, *_keys_of_sources(configuration)}
    found: dict[str, list[str]] = defaultdict(list)
    for properties in (configuration.properties, *map(read_properties, own)):
        for key, item in properties.items():
            if item.value and (key in keys or BEAN_KEY.fullmatch(key) or _is_of_outputs(configuration, key, outputs)):
                found[item.origin.rpartition(":")[0]].append(key)
    return dict(found)


def find_warnings(configuration: Configuration) -> list[str]:
    """Name what is in files and environment and has no effect, each with its place and what to do about it."""
    files: dict[str | None, dict[str, Property]] = {None: configuration.properties}
    for destination in sorted({*configuration.server.names, *configuration.found()}):
        if configuration.instance_file(destination).is_file():  # it need not exist
            files[destination] = read_properties(configuration.instance_file(destination))
    values = [item.value for properties in files.values() for item in properties.values()]
    referred = {key for value in values for key in PLACEHOLDER.findall(value)}
    found = _outputs(configuration)
    outputs, of_sources = {it.name for it in found}, _keys_of_sources(configuration)
    without_effect: list[tuple[str, Property]] = []
    warnings = []
    known = {*KEYS, *of_sources, *(RENAMED if configuration.queue else ())}
    for name, properties in files.items():
        others = {
            key: item
            for key, item in properties.items()
            if key not in referred and not _is_of_outputs(configuration, key, outputs)
        }
        doubtful = {key for key in others.keys() - known if may_be_a_mistake(key)}
        mistakes = {key: nearest(key, known, ALIKE) for key in sorted(doubtful)}
        without_effect += (
            (key, item) for key, item in others.items() if not mistakes.get(key) and key not in of_sources
        )
        warnings += [f"{others[key].origin}: {unknown(key, [it])}" for key, it in mistakes.items() if it]
        warnings += _unknown(configuration, others, name, {*INSTANCE_KEYS, *of_sources})
    return [
        *missing(configuration),
        *_without_effect(without_effect),
        *warnings,
        *itertools.chain(*of_outputs(configuration)),
        *_variables(configuration.environ, possible(outputs, found) | of_sources),
        *itertools.chain(*(front.warnings() for front in configuration.fronts)),
        *_unreachable(configuration),
        *_ambiguous_zones(configuration),
        *_doubts(configuration),
    ]


def _unknown(
    configuration: Configuration,
    properties: Mapping[str, Property],
    destination: str | None,
    in_effect: Collection[str],
) -> list[str]:
    """Name the keys without effect in the file of a destination; None: in the main file, where these have one."""
    if destination is not None:
        with contextlib.suppress(ConfigError):  # it is not started then
            in_effect = _keys_of(configuration, destination)
    warnings = []
    for key, item in properties.items():
        if key in in_effect or BEAN_KEY.fullmatch(key) or why_without_effect(key):
            continue
        if key in INSTANCE_KEYS:
            kinds = " or ".join(name for name, config in CONFIGS.items() if key in config.fields_by_key())
            warnings.append(f"{item.origin}: {key} has an effect with {SOURCE_KEY} = {kinds} only")
        elif key not in SERVER_KEYS:
            warnings.append(f"{item.origin}: {unknown(key, KEYS)}")
        elif destination is not None:
            warnings.append(f"{item.origin}: {key} has an effect in {MAIN_FILE} only")
    return warnings


def missing(configuration: Configuration) -> list[str]:
    """Name what Canal would do with these files and Sluice does not."""
    texts = []
    if configuration.server.server_mode not in ("tcp", "kafka"):
        texts.append(
            f"canal.serverMode = {configuration.server.server_mode}: of message queues there is Kafka only, and nothing"
            " is lost: the changes wait at the cursor of Canal's own client, 1001, until a consumer fetches them, or"
            " Kafka (kafka) takes them"
        )
    return texts


def of_outputs(configuration: Configuration) -> Complaints:
    """Name what of the outputs' configuration nothing reads, and what is not followed."""
    unknown: list[str] = []
    unlike: list[str] = []
    for destination in configuration.destinations():
        with contextlib.suppress(ConfigError):  # it is not started then
            for it in configuration.outputs(destination):
                found = complaints(it)
                unknown += found.unknown
                unlike += found.unlike
    return Complaints(list(dict.fromkeys(unknown)), list(dict.fromkeys(unlike)))


def _is_of_outputs(configuration: Configuration, key: str, names: Collection[str]) -> bool:
    """Whether an output reads a key; there are those with `names`. Kafka's own keys mean nothing without any."""
    return takes(key, queue=configuration.queue) and (configuration.queue or key.startswith("sluice.") or bool(names))


def _outputs(configuration: Configuration) -> list[Output]:
    """Return all outputs; what each destination has is read and checked for it."""
    found: list[Output] = []
    for destination in configuration.destinations():
        with contextlib.suppress(ConfigError):  # it is not started then
            found += configuration.outputs(destination)
    return found


def _keys_of_sources(configuration: Configuration) -> set[str]:
    """Return the keys of the kinds of sources that destinations have, also of those of other packages."""
    keys: set[str] = set()
    for destination in configuration.destinations():
        with contextlib.suppress(ConfigError):  # it is not started then
            keys.update(_keys_of(configuration, destination))
    return keys


def _keys_of(configuration: Configuration, destination: str) -> Collection[str]:
    """Return the keys that have an effect for a destination. Raises ConfigError."""
    lookup = configuration.lookup(destination)
    found = set(kind_of(lookup).keys_in(lookup))
    if beans_of(lookup, destination).value == canal_group.BEANS:
        found.update(key for key in lookup.keys if canal_group.NUMBERED.fullmatch(key))
    return found


def _unreachable(configuration: Configuration) -> list[str]:
    host, port = configuration.addresses.address
    if not configuration.server.zk_servers or host not in ("127.0.0.1", "::1", "localhost"):
        return []
    text = (
        f"canal.zkServers is set, and others know this server as {host}:{port}, which only this host reaches: set"
        " canal.register.ip, unless all servers and clients are on it"
    )
    return [text]


def _ambiguous_zones(configuration: Configuration) -> list[str]:
    names = defaultdict(list)
    for destination in configuration.destinations():
        with contextlib.suppress(ConfigError):  # it is not a warning then
            names[configuration.instance(destination).time_zone].append(destination)
    return [
        f"{', '.join(destinations)}: TIMESTAMP values are written in {zone or 'the time zone of this process'},"
        " which has daylight saving, so that an hour of each year has two meanings; set sluice.instance.timeZone"
        " to UTC"
        for zone, destinations in names.items()
        if has_daylight_saving(zone)
    ]


def _doubts(configuration: Configuration) -> list[str]:
    warnings = []
    for destination in configuration.destinations():
        with contextlib.suppress(ConfigError):  # it is not a warning then
            config = configuration.instance(destination)
            warnings += [f"{destination}: {text}" for text in config.warnings() if not config.route]
    return warnings


def _without_effect(properties: Iterable[tuple[str, Property]]) -> list[str]:
    """One warning for each reason, since Canal's shipped file has a hundred of such keys; none of what is off."""
    places: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key, item in properties:
        reason = why_without_effect(key)
        if reason and item.value.lower() not in ("", "false") and key not in KEYS:
            file, _, line = item.origin.rpartition(":")
            places[reason][file].append(f"{key} (line {line})")
    return [
        f"without effect here: {reason}. In "
        + "; ".join(f"{file}: {', '.join(names)}" for file, names in files.items())
        for reason, files in places.items()
    ]


def _variables(environ: Mapping[str, str], outputs: Collection[str]) -> list[str]:
    """Name the variables without effect; ``outputs`` are the keys of outputs."""
    known = OTHER_VARIABLES | {name for key in (*KEYS, *outputs) for name, _ in variables_of(key)}
    links = sorted(name for name, value in environ.items() if is_service_link(name, value.strip()))
    services = tuple(f"{name.removesuffix('_PORT')}_{kind}_" for name in links for kind in ("PORT", "SERVICE"))
    return [
        *(
            f"environment variable {name} is ignored: {environ[name]} is not a port, but what Kubernetes sets for a"
            f" service called {name.removesuffix('_PORT').lower().replace('_', '-')}; rename the service, or set"
            " enableServiceLinks: false in the pod's spec"
            for name in links
        ),
        *(
            f"environment variable {unknown(name, known)}"
            for name in sorted(environ)
            if name.startswith("SLUICE_") and name not in known and name not in links and not name.startswith(services)
        ),
    ]
