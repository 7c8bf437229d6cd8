"""Write docs/configuration.md from the configuration models: ``python scripts/generate_configuration.py``.

With ``--check`` nothing is written; the exit status says whether the page is up to date.
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr

from sluice.instance.config import InstanceConfig
from sluice.instance.properties import environment_name
from sluice.instance.settings import Settings
from sluice.instance.sources.kinds import CONFIGS
from sluice.instance.sources.mysql.config import BinlogConfig
from sluice.server.canal_keys import WITHOUT_EFFECT
from sluice.server.config import ServerConfig
from sluice.server.outputs.kafka.settings import KafkaSettings
from sluice.server.outputs.settings import OutputNames, OutputSettings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"

HEAD = r"""# Configuration

<!-- Written by scripts/generate_configuration.py from the models; change those. -->

Sluice is configured by Canal's own files: `canal.properties` in the conf folder, and for each destination a folder with
an `instance.properties`. The latter overrides the former: every setting of a destination may be in
`canal.properties`, where it holds for all of them. Keys that start with `canal.` mean what they mean in Canal; those
that start with `sluice.` are ours.

* The files have Java's syntax: a backslash is doubled (`shop\\..*`); at the end of a line it continues it. `${key}` and
  `${key:default}` insert the value of another key, or of an environment variable.
* Every key can be given by the environment, which wins over files: `canal.instance.dbPassword` is
  `SLUICE_INSTANCE_DB_PASSWORD`. Canal's way, a variable with the dotted name itself, works too. What Kubernetes sets
  for a service called `sluice`, such as `SLUICE_PORT=tcp://10.0.0.1:80`, is ignored, with a warning.
* A password or another secret may be in a file of its own, as Docker and Kubernetes give them:
  `canal.instance.dbPasswordFile = /run/secrets/db`, or `SLUICE_INSTANCE_DB_PASSWORD_FILE` in the environment. So every
  key can be given that ends with `password`, `passwd` or `secret`. The end of the file's line is left out; all else
  counts as it is. With `canal.auto.scan` a destination takes a new password up when its file changes.
* An empty value stands for the default.
* Relative paths start at the folder of `canal.properties`.
* A key that has no effect is named in a warning at start and by `sluice check`: an unknown one with the nearest known
  one, one that only Canal uses with the reason.
"""

LIBRARY = """
**`kafka.…`**\\
The settings of the producer, for all outputs to Kafka, by the names of Java's producer or of librdkafka; with
`sluice.output.<name>.` before them for one of them. [Kafka](kafka.md#settings-of-the-producer) has them all.\\
Environment: `SLUICE_KAFKA_SASL_PASSWORD` is `kafka.sasl.password`.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    parts += ["\n## The server (`canal.properties`)\n", *sections(ServerConfig)]
    parts += ["\n## A destination (`instance.properties`)\n", *sections(InstanceConfig)]
    for config in CONFIGS.values():
        title = f"{config.source_title} as the source of a destination (`instance.properties`)"
        parts += [f"\n## {title[0].upper()}{title[1:]}\n", *sections(config)]
    parts += ["\n## A binlog as the source, of a server or in files (`instance.properties`)\n", *sections(BinlogConfig)]
    parts += ["\n## Outputs: changes sent to other systems (`instance.properties`)\n"]
    parts += [*sections(OutputNames), *sections(OutputSettings)]
    parts += ["\n## An output to Kafka (`instance.properties`)\n", *sections(KafkaSettings), LIBRARY]
    parts += ["\n## Keys of Canal that have no effect\n\n| keys | because |\n| --- | --- |\n"]
    reasons = defaultdict(list)
    for pattern, reason in WITHOUT_EFFECT.items():
        reasons[reason].append(f"`{readable(pattern)}`")
    parts += [f"| {', '.join(keys)} | {reason} |\n" for reason, keys in reasons.items()]
    return "".join(parts)


def sections(model: type[Settings]) -> list[str]:
    """Return the settings of a model, without those of its base, under the headings that its source has as comments."""
    parts = []
    headings = headings_of(model)
    inherited = {name for base in model.__bases__ for name in getattr(base, "model_fields", ())}
    for name, field in model.model_fields.items():
        if name in inherited:
            continue
        if name in headings:
            parts.append(f"\n### {headings[name]}\n")
        unit = (field.json_schema_extra or {}).get("unit")  # type: ignore[union-attr]
        facts = [f"Environment: `{environment_name(field.alias or name)}`"]
        if choices := choices_of(field.annotation):
            facts.append("one of " + ", ".join(f"`{choice}`" for choice in choices))
        if name == "destination":
            facts.append("default: the name of the folder")
        else:
            facts.append("has to be given" if field.is_required() else f"default: {default_text(field.default)}")
        if unit:
            facts.append(f"unit: {unit}")
        description = " ".join((field.description or "").split())
        parts.append(f"\n**`{field.alias}`**\\\n{description}\\\n{'; '.join(facts)}.\n")
    return parts


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
