"""Numbers as people read them."""


def duration(seconds: float, digits: int = 0) -> str:
    """Return a time in its two largest units: ``25 min 49 s``; below a minute with ``digits`` of a fraction."""
    if round(seconds, digits) < 60:
        return f"{seconds:.{digits}f} s"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour} h"
    return f"{hour} h {minute} min" if hours else f"{minute} min {second} s"


def counted(number: int, one: str, more: str = "") -> str:
    """Return how many there are of something: ``1 batch``, ``2 batches``; ``more`` is not just an s at the end."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"
