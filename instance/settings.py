"""How a configuration model declares its keys, and how it is filled from properties."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sluice.protocol.errors import ConfigError


class Property(NamedTuple):
    """A value as it was written, and where: ``conf/canal.properties:12``, or ``environment SLUICE_HTTP_PORT``."""

    value: str
    origin: str


def setting(key: str, default: Any = ..., *, unit: str = "", **constraints: Any) -> Any:
    """Declare a field that is read from the property ``key``; without ``default`` it must be given.

    The field's docstring, its default and ``unit`` make the configuration reference.
    """
    return Field(default, alias=key, json_schema_extra={"unit": unit}, **constraints)


class Settings(BaseModel):
    """Base of the configuration models: immutable, no unknown fields, filled by field name or by property key."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # an input may be a password
    )

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Return the property keys of the model, each with the name of its field."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def fill(cls, properties: dict[str, Property], **given: Any) -> Any:
        """Build the model from the properties it knows; a blank value stands for the default, as in Canal.

        ``given`` are values by field name, which win. Raises ConfigError with key and place of all that is wrong.
        """
        chosen = {
            key: properties[key].value
            for key, name in cls.keys().items()
            if key in properties and properties[key].value and name not in given
        }
        try:
            return cls.model_validate(chosen | given)
        except ValidationError as error:
            raise ConfigError("\n".join(_complaints(error, properties))) from None


def _complaints(error: ValidationError, properties: dict[str, Property]) -> list[str]:
    complaints = []
    for item in error.errors(include_url=False, include_input=False):
        key = str(item["loc"][0]) if item["loc"] else ""
        text = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            text = "has to be given"
        origin = f"{properties[key].origin}: " if key in properties else ""
        complaints.append(f"{origin}{key}: {text}" if key else text)
    return complaints
