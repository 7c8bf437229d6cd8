"""How a configuration model declares its keys, and how it is filled from properties."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from ..protocol.errors import ConfigError
from ..store.remote import RemotePath
from .properties import Property


def setting(
    key: str, default: Any = ..., *, unit: str = "", shapes: bool = False, of_view: bool = False, **constraints: Any
) -> Any:
    """Declare a field that is read from the property ``key``; without ``default`` it must be given.

    The field's docstring, its default and ``unit`` make the configuration reference. ``shapes``: the same change is
    written as other entries, or as none, when its value is another one. ``of_view``: a view has a value of its own.
    """
    extra: dict[str, Any] = {"unit": unit, "shapes": shapes, "of_view": of_view}
    return Field(default, alias=key, json_schema_extra=extra, **constraints)


def names(value: Any) -> Any:
    """Return the names that a text lists, separated by commas, and any other value unchanged."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def urls(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the URLs of servers unchanged. Raises ValueError if one is none."""
    for url in value:
        if not re.fullmatch(r"https?://[^\s/@]+/?", url):
            raise ValueError(f"{url[:200]!r} is not the URL of a server, as http://pd-1:2379")
    return value


LONGEST_VALUE: Final = 1 << 20
"""Characters that a value may have: filters name many tables."""
LONGEST_COMPLAINT: Final = 2000
"""Characters of a complaint about a value that are shown."""
LONGEST_PATH: Final = 4095
LONGEST_NAME: Final = 255
"""Bytes of a path, and of a name in it (PATH_MAX and NAME_MAX of Linux)."""


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
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            if len(value) > LONGEST_VALUE:
                raise ValueError(f"is longer than {LONGEST_VALUE} characters")
            if "\0" in value or not is_text(value):
                raise ValueError("has an invalid character: NUL, or bytes that are not UTF-8")
        return value

    @classmethod
    def fields_by_key(cls) -> dict[str, str]:
        """Return the property keys of the model, each with the name of its field."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def fields_with(cls, what: str) -> dict[str, str]:
        """Return those of `fields_by_key` that are declared with ``shapes`` or ``of_view``."""
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        found = {name for name, extra in extras.items() if isinstance(extra, dict) and extra[what]}
        return {key: name for key, name in cls.fields_by_key().items() if name in found}

    def shaping(self) -> dict[str, Any]:
        """Return the values that shape entries, by key, as JSON can hold them."""
        names = set(self.fields_with("shapes").values())
        return self.model_dump(mode="json", include=names, by_alias=True)

    def secrets(self) -> list[str]:
        """Return the values that nothing may show."""
        return [value.get_secret_value() for value in vars(self).values() if isinstance(value, SecretStr)]

    @classmethod
    def fill(cls, properties: Mapping[str, Property], folder: Path, **given: Any) -> Self:
        """Build the model from the properties it knows; a blank value stands for the default, as in Canal.

        Relative paths start at ``folder``. ``given`` are values by field name, which win. Raises ConfigError with key
        and place of everything that is wrong.
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


# What is wrong, by pydantic's type of error. The value is not shown: it may be a password under the wrong key.
_TEXTS = {
    "bool_parsing": "has to be true or false",
    "enum": "has to be {expected}",
    "finite_number": "has to be a finite number",
    "float_parsing": "has to be a number",
    "greater_than": "has to be greater than {gt}",
    "greater_than_equal": "has to be {ge} or more",
    "int_from_float": "has to be a whole number",
    "int_parsing": "has to be a whole number",
    "int_parsing_size": "has to be a number of fewer digits",
    "less_than": "has to be less than {lt}",
    "less_than_equal": "has to be {le} or less",
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
        if len(text) > LONGEST_COMPLAINT:
            text = f"{text[: LONGEST_COMPLAINT // 2]} … {text[-LONGEST_COMPLAINT // 2 :]}"
        complaints.append(f"{origin}{key}: {text}" if key else text)
    return list(dict.fromkeys(complaints))  # a wrong item of a list may be there again


CANALS_FOLDER = Path("../conf")
"""How Canal's own files name their folder, seen from its folder of programs."""


def is_text(value: str) -> bool:
    """Tell whether a text can be written as UTF-8: the bytes of an environment variable need not be UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    folder = info.context["folder"] if info.context else Path()
    found = Path(os.path.normpath(folder if path == CANALS_FOLDER else folder / path))
    if len(os.fsencode(found)) > LONGEST_PATH or any(len(os.fsencode(name)) > LONGEST_NAME for name in found.parts):
        raise ValueError(f"is too long for a path: {LONGEST_PATH} bytes, and {LONGEST_NAME} for each name in it")
    return found


FolderPath = Annotated[Path, AfterValidator(_from_folder)]
"""A path that, when relative, starts at the folder of ``canal.properties``."""


def _remote(value: Any) -> Any:
    return RemotePath.parse(value) if isinstance(value, str) and "://" in value else value


AnyFolder = Annotated[FolderPath | InstanceOf[RemotePath], BeforeValidator(_remote)]
"""Such a path, or the URL of a folder in an object store."""
