"""Write docs/configuration.md from the configuration models: ``python scripts/generate_configuration.py``.

With ``--check`` nothing is written; the exit status says whether the page is up to date.
"""

import ast
import re
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr

from sluice.instance.config import InstanceConfig
from sluice.instance.properties import environment_name
from sluice.instance.settings import Settings
from sluice.instance.sources.kafka.config import TopicConfig
from sluice.instance.sources.kinds import CONFIGS
from sluice.instance.sources.mysql.config import BinlogConfig
from sluice.server.canal_keys import WITHOUT_EFFECT
from sluice.server.config import ServerConfig
from sluice.server.front import FrontConfig
from sluice.server.fronts import FRONTS
from sluice.server.outputs.file.settings import FileSettings
from sluice.server.outputs.forms.settings import RecordSettings
from sluice.server.outputs.kafka.settings import KafkaSettings
from sluice.server.outputs.mysql.settings import MysqlSettings
from sluice.server.outputs.settings import OutputNames, OutputSettings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"
WIDTH = 119
"""Characters of a line, without the backslash at its end."""

HEAD = r"""# Configuration

<!-- Written by scripts/generate_configuration.py from the models; change those. -->

You configure Sluice with Canal's own files: `canal.properties` in the conf folder, and an `instance.properties` in a
folder for each destination. A setting in `instance.properties` overrides the same setting in `canal.properties`, where
it applies to all destinations. Keys that start with `canal.` have the meaning that they have in Canal. Keys that start
with `sluice.` are Sluice's own.

* The files use Java's syntax. Double a backslash (`shop\\..*`); a backslash at the end of a line continues the line.
  `${key}` and `${key:default}` insert the value of another key or of an environment variable.
* You can set every key in the environment, which overrides the files: `canal.instance.dbPassword` is
  `SLUICE_INSTANCE_DB_PASSWORD`. As in Canal, you can also set a variable with the dotted name itself.
* Kubernetes sets variables such as `SLUICE_PORT=tcp://10.0.0.1:80` for a service called `sluice`. Sluice ignores them
  and logs a warning.
* You can keep a password or another secret in a file of its own, as Docker and Kubernetes provide it:
  `canal.instance.dbPasswordFile = /run/secrets/db`, or `SLUICE_INSTANCE_DB_PASSWORD_FILE` in the environment. This
  works for every key that ends with `password`, `passwd` or `secret`. Sluice removes the line end of the file and
  nothing else. With `canal.auto.scan` a destination picks up a new password when its file changes. Logins of Canal's
  clients need the new `canal.passwd` within 5 s after its file changes, unless it is empty or invalid.
* An empty value means the default.
* Relative paths start at the folder of `canal.properties`.
* Sluice warns about a key that has no effect, at start and in `sluice check`. For an unknown key it names the nearest
  known one. For a key that only Canal uses it gives the reason.
"""

LIBRARY = """
**`kafka.…`**\\
Settings of the producer, for all outputs to Kafka. Use the names of Java's producer or of librdkafka. Prefix them with
`sluice.output.<name>.` to set them for one output. [Kafka](kafka.md#settings-of-the-producer) lists them all.\\
Environment: `SLUICE_KAFKA_SASL_PASSWORD` is `kafka.sasl.password`.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    server = sections(ServerConfig)
    others = server.index("\n### Several servers\n")
    fronts = [*sections(FrontConfig), *(part for front in FRONTS for part in sections(front))]
    parts += ["\n## The server (`canal.properties`)\n", *server[:others], *fronts, *server[others:]]
    parts += ["\n## A destination (`instance.properties`)\n", *sections(InstanceConfig)]
    for config in CONFIGS.values():
        title = f"{config.source_title} as the source of a destination (`instance.properties`)"
        if own := sections(config):
            parts += [f"\n## {title[0].upper()}{title[1:]}\n", *own]
    parts += [
        "\n## Binlog settings, for a server or files as the source (`instance.properties`)\n",
        *sections(BinlogConfig),
        "\n## Topic settings, for TiDB's changes in Kafka as the source (`instance.properties`)\n",
        *sections(TopicConfig),
    ]
    parts += ["\n## Outputs: changes sent to other systems (`instance.properties`)\n"]
    parts += [*sections(OutputNames), *sections(OutputSettings)]
    parts += [
        "\n## An output to Kafka (`instance.properties`)\n",
        *sections(RecordSettings),
        *sections(KafkaSettings),
        LIBRARY,
        "\n## An output to MySQL or MariaDB (`instance.properties`)\n",
        *sections(MysqlSettings),
    ]
    parts += ["\n## An output to files (`instance.properties`)\n", *sections(FileSettings)]
    parts += ["\n## Keys of Canal that have no effect\n\n| keys | reason |\n| --- | --- |\n"]
    reasons = defaultdict(list)
    for pattern, reason in WITHOUT_EFFECT.items():
        reasons[reason].append(f"`{readable(pattern)}`")
    parts += [f"| {', '.join(keys)} | {reason} |\n" for reason, keys in reasons.items()]
    return "".join(parts)


def sections(model: type[Settings]) -> list[str]:
    """Return the settings that a model describes, without those of its base, under its headings.

    The headings are comments in its source.
    """
    parts = []
    headings = headings_of(model)
    inherited = {key for base in model.__bases__ for key in getattr(base, "fields_by_key", dict)()}
    for name, field in model.model_fields.items():
        if field.alias in inherited or not field.description:
            continue
        if name in headings:
            parts.append(f"\n### {headings[name]}\n")
        unit = (field.json_schema_extra or {}).get("unit")  # type: ignore[union-attr]
        facts = [f"Environment: `{environment_name(field.alias or name)}`"]
        if choices := choices_of(field.annotation):
            facts.append("one of " + ", ".join(f"`{choice}`" for choice in choices))
        if name == "destination":
            facts.append("default: name of the folder")
        else:
            facts.append("required" if field.is_required() else f"default: {default_text(field.default)}")
        if unit:
            facts.append(f"unit: {unit}")
        description = wrapped(" ".join((field.description or "").split()))
        parts.append(f"\n**`{field.alias}`**\\\n{description}\\\n{'; '.join(facts)}.\n")
    return parts


def wrapped(text: str) -> str:
    """Break a text into lines, but no code and no link."""
    whole = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", lambda it: it[0].replace(" ", "\0"), text)
    lines = textwrap.fill(whole, WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def headings_of(model: type[Settings]) -> dict[str, str]:
    """Return the comments in the body of the model that stand alone, each with the first field below it."""
    path = ROOT / Path(*model.__module__.split(".")[1:]).with_suffix(".py")
    source = path.read_text()
    body = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == model.__name__
    )
    lines = source.splitlines()
    headings = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = re.fullmatch(r"    # (.*?)\.", lines[node.lineno - 3])
            if comment and not lines[node.lineno - 2]:
                headings[node.target.id] = comment[1]
    return headings


def choices_of(annotation: Any) -> list[str]:
    """Return the values that a field of fixed choices can have."""
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    if hasattr(annotation, "__members__"):
        return [str(choice) for choice in annotation]
    return [choice for inner in get_args(annotation) for choice in choices_of(inner)]


def default_text(default: Any) -> str:
    """Write a default as it would stand in a file."""
    match default:
        case None | "" | () | SecretStr() | Path() if str(default) in ("None", "", "()", "."):
            return "empty"
        case bool():
            return f"`{str(default).lower()}`"
        case tuple():
            return f"`{','.join(default)}`"
        case str():
            return "`" + default.replace("\\", "\\\\") + "`"
        case _:
            return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def readable(pattern: str) -> str:
    """Turn the regular expression of a key into what people write."""
    text = pattern.replace("(global|[^.]+)", "<destination>").replace("[^.]+", "<destination>")
    text = text.replace("[12]", "{1,2}").replace("\\.", ".").replace(".*", "*")
    return text.replace("(", "{").replace(")", "}").replace("|", ",")


def main() -> None:
    """Write or check the page."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        sys.exit(f"{PAGE} is not up to date; run python scripts/generate_configuration.py")


if __name__ == "__main__":
    main()
