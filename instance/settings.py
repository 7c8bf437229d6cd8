"""How a configuration model declares its keys, and how it is filled from properties."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from sluice.instance.properties import Property
from sluice.protocol.errors import ConfigError


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
    def fields_by_key(cls) -> dict[str, str]:
        """Return the property keys of the model, each with the name of its field."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def fill(cls, properties: Mapping[str, Property], folder: Path, **given: Any) -> Self:
        """Build the model from the properties it knows; a blank value stands for the default, as in Canal.

        Relative paths start at ``folder``. ``given`` are values by field name, which win. Raises ConfigError with key
        and place of all that is wrong.
        """
        chosen = {
            key: properties[key].value
            for key, name in cls.fields_by_key().items()
            if key in properties and properties[key].value and name not in given
        }
        try:
            return cls.model_validate(chosen | given, context={"folder": folder})
        except ValidationError as error:
            raise ConfigError("\n".join(_complaints(error, properties))) from None


# What is wrong, by pydantic's type of error. The value is not shown: it may be a password that went to the wrong key.
_TEXTS = {
    "bool_parsing": "has to be true or false",
    "enum": "has to be {expected}",
    "float_parsing": "has to be a number",
    "int_parsing": "has to be a whole number",
    "literal_error": "has to be {expected}",
    "missing": "has to be given",
}


def _complaints(error: ValidationError, properties: Mapping[str, Property]) -> list[str]:
    complaints = []
    for item in error.errors(include_url=False, include_input=False):
        key = str(item["loc"][0]) if item["loc"] else ""
        text = item["msg"].removeprefix("Value error, ")
        if item["type"] in _TEXTS:
            text = _TEXTS[item["type"]].format(**item.get("ctx", {}))
        origin = f"{properties[key].origin}: " if key in properties else ""
        complaints.append(f"{origin}{key}: {text}" if key else text)
    return complaints


CANALS_FOLDER = Path("../conf")
"""How Canal's own files name the folder that they are in, seen from its folder of programs."""


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    folder = info.context["folder"] if info.context else Path()
    if path == CANALS_FOLDER:
        return Path(os.path.normpath(folder))
    return Path(os.path.normpath(folder / path))


FolderPath = Annotated[Path, AfterValidator(_from_folder)]
"""A path that, when relative, starts at the folder of ``canal.properties``."""
