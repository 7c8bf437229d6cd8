"""What HTTP itself cannot serve. To a program that uses the SDK each is a `SluiceError` with a text."""

from ...protocol.errors import SluiceError


class BadRequestError(SluiceError):
    """What was sent is not HTTP."""

    type = "bad-request"


class RequestTimeoutError(SluiceError):
    """The request did not arrive in time."""

    type = "request-timeout"


class BodyTooLargeError(SluiceError):
    """The body of the request is longer than the server takes."""

    type = "body-too-large"


class UrlTooLongError(SluiceError):
    """The URL is longer than the server takes."""

    type = "url-too-long"


class HeaderTooLargeError(SluiceError):
    """The header of the request is longer than the server takes."""

    type = "header-too-large"


class NotAcceptableError(SluiceError):
    """The answer has none of the formats that the caller accepts."""

    type = "not-acceptable"
