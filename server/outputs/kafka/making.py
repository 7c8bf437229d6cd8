"""Makes the Kafka target of an output, and asks brokers beforehand whether they would take its records."""

from collections.abc import Callable
from functools import partial

from ....protocol.errors import ConfigError, SluiceError
from ...logging import redactor
from ..forms.registry import form_of, rules_of
from ..settings import Output
from ..target import Asked, MissingError, Report
from .settings import KafkaSettings
from .target import KafkaTarget
from .translation import translate


def make(output: Output, group: Callable[[], str]) -> KafkaTarget:
    """See `Making.make`."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    translated = translate(output.library, output.folder)
    for secret in translated.secrets:
        redactor.hide(secret)
    if not translated.settings.get("bootstrap.servers"):
        raise ConfigError(f"{output}: kafka.bootstrap.servers has to be given: host:port, host:port …")
    transactional = settings.transactional
    if transactional is None:
        transactional = output.shared and not form_of(settings.form).not_transactional
    if transactional and not (output.shared or settings.transactional_id):
        raise ConfigError(
            f"{output}: transactions need a name that no other producer of these brokers uses: set"
            f" sluice.output.{output.name}.transactionalId"
        )

    def identify() -> tuple[str, str]:
        """Return the name of the transactions, and the key of the output's place: cluster/destination/output."""
        name = settings.transactional_id or f"{group()}-{output.destination}-{output.name}"
        return name, f"{settings.transactional_id or group()}/{output.destination}/{output.name}"

    return KafkaTarget(
        rules_of(output, settings),
        settings,
        translated,
        identify if transactional else None,
        source=output.source,
        shape=output.shape,
        strict=output.strict,
    )


def examine(output: Output, report: Report, asked: Asked | None = None) -> None:
    """See `Making.examine`."""
    del asked
    try:
        target = make(output, lambda: "")
    except SluiceError as error:
        report.wrong(output, error)
        return
    questions: list[Callable[[], str]] = [partial(target.fit, topic) for topic in target.fixed_topics]
    if target.keeps_place:
        questions.append(target.fit_positions)
    for ask in questions:
        try:
            report.good(output, ask())
        except MissingError as error:
            report.note(output, error)
        except SluiceError as error:
            report.wrong(output, error)
