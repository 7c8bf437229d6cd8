"""The folder of files in which the server and its destinations are configured: what it has, and how it is read."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from ...instance.config import DESTINATION_NAME, InstanceConfig
from ...instance.plugins import PluginError
from ...instance.properties import Lookup, Property, read_properties
from ...instance.settings import Settings
from ...instance.sources.kinds import CONFIGS, config_of
from ...protocol.errors import ConfigError, FencedError, FilterError, UnknownDestinationError
from ..front import FrontConfig
from ..fronts import FRONTS
from ..grpc.config import PumpConfig
from ..logging import redactor
from ..outputs.configured import read_outputs
from ..outputs.registry import complaints
from ..outputs.settings import Output
from ..processes import ALL, Share
from ..stamp import Stamp, stamp_of
from . import canal_group
from .addresses import Addresses
from .keys import INSTANCE_KEYS
from .settings import NAMES_HAVE, ServerConfig

F = TypeVar("F", bound=FrontConfig)

MAIN_FILE = "canal.properties"
INSTANCE_FILE = "instance.properties"
META_KEY = "sluice.instance.meta"
SOURCE_KEY = "sluice.instance.source"
ROUTE_KEY = "sluice.instance.route"


class UnsupportedError(ConfigError):
    """A destination needs a part of Canal that Sluice does not have."""


class Configuration:
    """The files of a conf folder. Destinations' files are read when they are asked for, so that changes are seen."""

    def __init__(self, conf: Path, environ: Mapping[str, str], share: Share = ALL, **given: Any) -> None:
        """Read ``canal.properties`` of the folder ``conf``, or that file itself. Raises ConfigError.

        ``given`` are settings of the server and its fronts by field name, which win. ``share`` says which of its
        processes this is.
        """
        self.main_file = conf / MAIN_FILE if conf.is_dir() else conf
        self.folder = self.main_file.parent
        if not self.main_file.is_file():
            raise ConfigError(f"{self.main_file} does not exist; name the folder that holds {MAIN_FILE} with --conf")
        self.environ = environ
        self._of_views: dict[str, tuple[Stamp | None, InstanceConfig, Mapping[str, Property]]] = {}
        """Destinations that have views, as their files were."""
        self._secrets: dict[str, set[Path]] = {}
        """The files with secrets that were read for each destination."""
        self.properties = read_properties(self.main_file)
        """Of the main file."""
        self.secrets: set[Path] = set()
        """The files with secrets that were read for the server."""
        lookup = Lookup(self.properties, environ=environ, secrets=self.secrets)
        settings = _filled((ServerConfig, *FRONTS), lookup, self.folder, given)
        self.server: ServerConfig = settings[0]
        self._whole = Addresses(self.server, settings[1:])
        self._whole.require_known()
        self.share = share
        self._mains: dict[str, str] = {}
        """The destinations that those of the folder are views of, or they themselves, as far as that was read."""
        self.addresses = self._whole.of_process(share.number)
        for it in settings:
            _hide_secrets(it)

    @property
    def fronts(self) -> tuple[FrontConfig, ...]:
        """What serves clients in this process."""
        return self.addresses.fronts

    @property
    def has_pump(self) -> bool:
        """Whether a pump for TiDB is served; it needs no destination."""
        return self.addresses.front(PumpConfig).is_served

    def renewed(self, kind: type[F]) -> F:
        """Return the configuration of a front with what the files with secrets have now. Raises ConfigError."""
        (front,) = _filled((kind,), Lookup(self.properties, environ=self.environ), self.folder, {})
        _hide_secrets(front)
        return cast("F", front)

    def instance_file(self, destination: str) -> Path:
        """Return where the settings of ``destination`` are, or would be."""
        return self.server.conf_dir / destination / INSTANCE_FILE

    def stamp(self, destination: str) -> tuple[Stamp | None, ...] | None:
        """Return when and what the file of a destination was, and those of its secrets; None if it has no file."""
        own = stamp_of(self.instance_file(destination))
        if own is None:
            return None
        return own, *map(stamp_of, sorted(self._secrets.get(destination, ())))

    def found(self) -> list[str]:
        """Return the destinations that have a file, sorted by name."""
        return sorted(file.parent.name for file in self.server.conf_dir.glob(f"*/{INSTANCE_FILE}"))

    def destinations(self) -> list[str]:
        """Return the destinations to start: those named and, when the folder is watched, those found in it.

        Of several processes it is those that this one has.
        """
        names = dict.fromkeys([*self.server.names, *(self.found() if self.server.auto_scan else ())])
        return [name for name in names if self.has(name)]

    def has(self, destination: str) -> bool:
        """Whether this process has a destination, if there is one of the name. Views are with their mains."""
        self._read_main(destination)
        return self._holder(destination) == self.share.number

    def _read_main(self, destination: str) -> None:
        """Read where a destination belongs, if there are several processes: it may be a view by now."""
        if self.share != ALL:
            with contextlib.suppress(ConfigError):  # it is not started then, and stays where it was
                route = _route(self.lookup(destination))
                self._mains[destination] = route.value if route is not None else destination

    def _holder(self, destination: str) -> int:
        return self.share.holder(self._mains.get(destination, destination))

    def require(self, destination: str) -> None:
        """Raise FencedError, with the URL of the process that has the destination, unless it is this one.

        It reads no file: of which destination it is a view is what was last read.
        """
        number = self._holder(destination)
        if number != self.share.number:
            raise FencedError(
                f"destination:{destination[:200]} belongs to process {number} of this server",
                self._whole.of_process(number).url,
            )

    def check(self) -> None:
        """Read all destinations to start. Raises one ConfigError with all mistakes.

        Neither a destination that only Canal could serve blocks the others, nor a package that is to bring a kind of
        source, output or form.
        """
        mistakes = []
        for destination in self.destinations():
            try:
                self.instance(destination)
                self.outputs(destination)
            except (UnsupportedError, PluginError):
                continue  # the others can start; that this one cannot is said then
            except ConfigError as error:
                mistakes += [f"{destination}: {line}" for line in str(error).splitlines()]
        if mistakes:
            raise ConfigError("\n".join(mistakes))

    def instance(self, destination: str) -> InstanceConfig:
        """Read the settings of a destination: its own file over ``canal.properties``.

        Raises ConfigError; UnknownDestinationError when it is neither named in ``canal.properties`` nor has a file;
        FencedError when another process has it.
        """
        _check_name(destination)
        file = self.instance_file(destination)
        if destination not in self.server.names and not file.is_file():
            raise UnknownDestinationError(
                f"there is no destination {destination!r}: {file} does not exist, and canal.destinations does not name"
                " it"
            )
        self._read_main(destination)
        self.require(destination)
        lookup = self.lookup(destination)
        kind = kind_of(lookup)
        route = _route(lookup)
        try:
            if route is not None:
                config = self._view(destination, route, lookup)
            else:
                config = kind.read(lookup, self.folder, destination)
        except ConfigError as error:
            if file.is_file():
                raise
            raise ConfigError(f"{error}\n{file} does not exist: write it, or change canal.destinations") from None
        self._check_meta(config)
        _hide_secrets(config)
        return config

    def implied(self, destination: str) -> str:
        """Return what the file of beans of a group says without being written anywhere; empty when there is none."""
        lookup = self.lookup(destination)
        beans = beans_of(lookup, destination)
        if beans.value != canal_group.BEANS:
            return ""
        found = lookup((canal_group.STORE_KEY, META_KEY)).items()
        texts = [f"{key} = {item.value}" for key, item in found if item.origin == beans.origin]
        return f"{beans.origin}: {beans.value} implies {' and '.join(texts)}" if texts else ""

    def views_first(self, names: Iterable[str]) -> list[str]:
        """Return destinations in the order to start them: a main destination begins where the clients of its views are.

        What cannot be read is at the end.
        """

        def is_view(name: str) -> bool:
            with contextlib.suppress(ConfigError):
                return _route(self.lookup(name)) is not None
            return False

        return sorted(names, key=is_view, reverse=True)

    def _view(self, destination: str, route: Property, lookup: Lookup) -> InstanceConfig:
        """Read the settings of a view: its own, and those of its main destination. Raises ConfigError."""
        main, where = route.value, f"{route.origin}: {ROUTE_KEY}"
        if main == destination:
            raise ConfigError(f"{where}: a destination cannot be a view of itself: name another one, or remove the key")
        try:
            config, shared = self._main_of_views(main)
        except ConfigError as error:
            raise type(error)(f"{where}: {error}") from None
        except UnknownDestinationError as error:
            raise ConfigError(f"{where}: {error}") from None
        kind, file = type(config), self.instance_file(destination)
        own = kind.fields_with("of_view")
        given = read_properties(file) if file.is_file() else {}
        mistakes = [
            f"{item.origin}: {key} belongs to destination {main}, of which {destination} is a view: set it in"
            f" {self.instance_file(main)}, or leave it out"
            for key, item in given.items()
            if item.value and key in INSTANCE_KEYS and key not in own
        ]
        if config.shared_filter:
            mistakes.append(
                f"{where}: {main} has sluice.instance.sharedFilter = true, so that what is read for its views would"
                " depend on its clients: set that to false"
            )
        if mistakes:
            raise ConfigError("\n".join(mistakes))
        found = kind.fill({**shared, **lookup(own)}, self.folder, destination=destination).as_view(config)
        try:
            config.table_filter().narrow(found.filter_regex)
        except FilterError as error:
            raise ConfigError(f"{where}: canal.instance.filter.regex of {destination}: {error}") from None
        return found

    def _main_of_views(self, destination: str) -> tuple[InstanceConfig, Mapping[str, Property]]:
        """Return the settings of a destination, and the properties that its views share; read again when its file is.

        Raises as `instance`.
        """
        _check_name(destination)
        seen = stamp_of(self.instance_file(destination))
        known = self._of_views.get(destination)
        if known is not None and known[0] == seen:
            return known[1:]
        lookup = self.lookup(destination)
        if (route := _route(lookup)) is not None:  # it may lead back to here
            raise ConfigError(f"{destination} is itself a view, of {route.value}: name that one")
        config = self.instance(destination)
        keys = config.fields_by_key().keys() - config.fields_with("of_view").keys()
        self._of_views[destination] = seen, config, lookup(keys)
        return self._of_views[destination][1:]

    def outputs(self, destination: str) -> list[Output]:
        """Read the outputs of a destination. Raises ConfigError for a mistake in any of them."""
        outputs = self.outputs_as_found(destination)
        if wrong := [it for it in outputs if it.mistake]:
            kind = PluginError if all(it.lacks_plugin for it in wrong) else ConfigError
            raise kind("\n".join(it.mistake for it in wrong))
        return outputs

    def outputs_as_found(self, destination: str) -> list[Output]:
        """Read the outputs of a destination, also those with a mistake, which they say.

        Raises ConfigError when it cannot be known which there are.
        """
        outputs = read_outputs(
            self.lookup(destination),
            self.instance(destination),
            self.folder,
            queue=self.queue,
            shared=bool(self.server.zk_servers),
        )
        for it in outputs:
            _hide_secrets(it.settings)
        return [it if it.mistake else _checked(it) for it in outputs]

    @property
    def queue(self) -> bool:
        """Whether each destination sends its changes to Canal's message queue."""
        return self.server.server_mode == "kafka"

    def _check_meta(self, config: InstanceConfig) -> None:
        """Refuse to share destinations whose cursors only this server can see: that loses changes without a word."""
        if self.server.zk_servers and not config.meta.is_shared:
            raise ConfigError(
                f"canal.zkServers is set, but cursors are kept in {config.meta}, where other servers cannot see them:"
                " set sluice.instance.meta to zookeeper, or leave canal.zkServers empty"
            )
        if not self.server.zk_servers and config.meta.is_shared:
            raise ConfigError(f"cursors are to be kept in ZooKeeper ({config.meta}): set canal.zkServers")

    def lookup(self, destination: str) -> Lookup:
        """Own file over main file; the file may be missing when main file and environment say enough, as in Canal."""
        file = self.instance_file(destination)
        own = read_properties(file) if file.is_file() else {}
        name = {"canal.instance.destination": Property(destination, "name of the folder")}
        given = Lookup(self.properties, own, name, environ=self.environ)
        secrets = self._secrets.setdefault(destination, set())
        default = {META_KEY: Property("zookeeper", "default with canal.zkServers")} if self.server.zk_servers else {}
        beans = _settings_of_beans(given, destination, shared=bool(self.server.zk_servers))
        return Lookup(default, beans, self.properties, own, name, environ=self.environ, secrets=secrets)


def _filled(
    models: Iterable[type[Settings]], lookup: Lookup, folder: Path, given: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Fill several models. Raises one ConfigError with the mistakes in all of them."""
    filled: list[Settings] = []
    mistakes: list[str] = []
    for model in models:
        own = {name: value for name, value in given.items() if name in model.model_fields}
        try:
            filled.append(model.fill(lookup(model.fields_by_key()), folder, **own))
        except ConfigError as error:
            mistakes += str(error).splitlines()
    if mistakes:
        raise ConfigError("\n".join(dict.fromkeys(mistakes)))
    return tuple(filled)


def _checked(output: Output) -> Output:
    """Return an output with what is wrong between its settings, if anything is."""
    try:
        complaints(output)
    except ConfigError as error:
        return replace(output, mistake=str(error), lacks_plugin=isinstance(error, PluginError))
    return output


def _check_name(destination: str) -> None:
    """Raise UnknownDestinationError for what is no name of a destination, nor of a folder here."""
    if not re.fullmatch(DESTINATION_NAME, destination):
        raise UnknownDestinationError(f"there is no destination {destination[:200]!r}: a name {NAMES_HAVE}")


def _route(lookup: Lookup) -> Property | None:
    """Return the name of the destination that one is a view of, and where that stands."""
    found = lookup((ROUTE_KEY,)).get(ROUTE_KEY)
    return found if found is not None and found.value else None


def kind_of(lookup: Lookup) -> type[InstanceConfig]:
    """Return what can be configured with the kind of source that a destination has."""
    default = Property(InstanceConfig.model_fields["source"].default, "default")
    given = lookup((SOURCE_KEY,)).get(SOURCE_KEY, default)
    name = given.value.lower() or default.value
    try:
        return config_of(name)
    except ConfigError as error:
        own = " or ".join(map(repr, CONFIGS))
        where = f"{given.origin}: {SOURCE_KEY}"
        raise type(error)(f"{where}: has to be {own}, or what a package brings: {error}") from None


def _hide_secrets(settings: Settings) -> None:
    for secret in settings.secrets():
        redactor.hide(secret)


def _bean_keys(destination: str) -> tuple[str, str]:
    return "canal.instance.global.spring.xml", f"canal.instance.{destination}.spring.xml"


def beans_of(lookup: Lookup, destination: str) -> Property:
    """Return the file of Spring beans that Canal is told to use for a destination; "" for none."""
    found = [it for it in lookup(_bean_keys(destination)).values() if it.value]
    return found[-1]._replace(value=found[-1].value.rpartition("/")[2]) if found else Property("", "")


def _settings_of_beans(lookup: Lookup, destination: str, *, shared: bool) -> dict[str, Property]:
    """Translate the file of Spring beans, by which Canal is told where cursors are kept, and whether it is a group."""
    item = beans_of(lookup, destination)
    match item.value:
        case "file-instance.xml":
            return {META_KEY: item._replace(value="file")}
        case "memory-instance.xml":
            return {META_KEY: item._replace(value="memory")}
        case "default-instance.xml":
            return {META_KEY: item._replace(value="period")}
        case canal_group.BEANS:
            meta = {META_KEY: item._replace(value="period" if shared else "file")}
            return meta | canal_group.group_settings(lookup, item.origin)
        case "":
            return {}
        case other:
            raise UnsupportedError(
                f"{item.origin}: {other} is not supported; use file-instance.xml, which keeps cursors in a file,"
                " default-instance.xml, which keeps them in ZooKeeper, memory-instance.xml, or group-instance.xml for"
                " several sources"
            )
