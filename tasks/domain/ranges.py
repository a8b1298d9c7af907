"""Types of settings: a number with its range, a choice, a name. A range stands with its field. pydantic checks it
on the command line, in forms, in files and in code."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
)
from pydantic import model_validator as validator
from pydantic_core import ErrorDetails, PydanticCustomError

from storage.errors import UserError, did_you_mean

#: Upper bound of counts. A larger number is a typing error that would make a stage run for ever.
MOST = 100_000
Whole = Annotated[int, Field(strict=True)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Count = Annotated[Whole, Field(ge=0)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
AtLeastTwo = Annotated[Whole, Field(ge=2)]
Size = Annotated[Whole, Field(ge=1, le=MOST)]
#: The range of seeds that both torch and NumPy accept.
Seed = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
Share = Annotated[Real, Field(ge=0, le=1)]
ShareAboveZero = Annotated[Real, Field(gt=0, le=1)]
#: For fields that may be None: TOML has no null, so "none" means None.
OrNone = BeforeValidator(lambda value: None if str(value).lower() == "none" else value)
#: Names that are valid in URLs, file names and on the command line.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
#: Key of the pydantic context that collects all errors of a study.
COLLECT = "collect"


class Checked:
    """Base of pydantic dataclasses for settings. An error raises UserError. With the context COLLECT it is collected
    with the study's other errors."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    def check(self) -> None:
        """Raise UserError if fields contradict each other."""

    def __post_init__(self) -> None:
        try:
            self.check()
        except UserError as error:
            raise mistake(str(error)) from None

    @validator(mode="wrap")
    @classmethod
    def _in_a_sentence(cls, given: Any, make: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        try:
            return make(given)
        except ValidationError as error:
            if info.context == COLLECT:
                raise
            raise UserError(sentences(error, cls.__name__)) from None


def refused_by(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that turns the UserError of `check` into a validation error."""

    def checked(value: Any) -> Any:
        try:
            check(value)
        except UserError as error:
            raise mistake(str(error)) from None
        return value

    return AfterValidator(checked)


def check_distinct(values: Sequence[object]) -> None:
    if again := [str(one) for nth, one in enumerate(values) if one in values[:nth]]:
        raise UserError(f"{', '.join(again)} is listed more than once")


def check_name(name: str) -> None:
    """Raise UserError if the text is not a valid name."""
    if not NAME.fullmatch(name) or name.lower() == "none":
        raise UserError(
            f"{name[:80]!r} is not a valid name: use letters, digits, dots, dashes and underscores, but not 'none'"
        )


Distinct = refused_by(check_distinct)
Name = Annotated[str, refused_by(check_name)]


def mistake(sentence: str) -> PydanticCustomError:
    """Return a validation error whose message is this sentence."""
    return PydanticCustomError("mistake", "{sentence}", {"sentence": sentence})


def sentences(error: ValidationError, what: str) -> str:
    """Return all validation errors of a value in one line. what: the value's name in the message."""
    found = error.errors(include_url=False)
    prefix = "" if all(one["type"] == "mistake" for one in found) else f"{what}: "
    return prefix + "; ".join(dict.fromkeys(map(sentence, found)))


def sentence(error: ErrorDetails) -> str:
    """Return the message of one validation error.

    >>> from pydantic import TypeAdapter
    >>> try:
    ...     TypeAdapter(tuple[Share, ...]).validate_python([2.5, "x"])
    ... except ValidationError as error:
    ...     print(sentences(error, "shares"))
    shares: it is 2.5; it must be less than or equal to 1; it is 'x'; it must be a valid number
    """
    name = next((part for part in reversed(error["loc"]) if isinstance(part, str)), "it")
    kind = error["type"]
    if kind == "mistake":
        return error["msg"]
    if kind == "missing":
        return f"{name} {'is missing' if name == error['loc'][-1] else 'has too few values'}"
    if kind == "unexpected_keyword_argument":
        return f"no field '{name}'"
    allowed = re.findall(r"'([^']*)'", error["msg"]) if kind == "literal_error" else []
    hint = did_you_mean(str(error["input"]), allowed)
    words = error["msg"].replace("Input should be", "it must be").replace("a valid tuple", "a list")
    words = re.sub(r"a dictionary or an instance of \w+", "a table of fields", words)
    return f"{name} is {error['input']!r:.80}; {words[0].lower()}{words[1:]}{hint}"
