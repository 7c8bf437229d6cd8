"""Long functions: each says why it is one."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 70
"""Lines of a function, its docstring included."""
BEGIN = re.compile(r"( *)(?:async def|def|cdef|cpdef) [^=]*\(")
REASON = "# Long: "


def functions(text: str) -> list[tuple[str, list[str]]]:
    """First line and all lines of each function of a Python or Cython module."""
    lines = text.splitlines()
    found = []
    for first, line in enumerate(lines):
        begin = BEGIN.match(line)
        if not begin or line.startswith(("cdef extern", "cdef class")):
            continue
        end = first + 1
        while end < len(lines) and (
            not lines[end].strip()
            or lines[end].startswith(begin[1] + " ")
            or re.match(rf"{begin[1]}[)]", lines[end])  # the end of arguments over several lines
        ):
            end += 1
        found.append((line.strip(), "\n".join(lines[first:end]).rstrip().splitlines()))
    return found


def test_a_long_function_says_why_it_is_long() -> None:
    listed = subprocess.check_output(["git", "ls-files", "*.py", "*.pyx"], cwd=ROOT, text=True).split()
    silent = [
        f"{file}: {first} has {len(lines)} lines: make it shorter, or say why not in a comment '{REASON}...'"
        for file in listed
        if not file.endswith("_pb2.py") and (ROOT / file).exists()
        for first, lines in functions((ROOT / file).read_text())
        if len(lines) > LONGEST and not any(line.strip().startswith(REASON) for line in lines)
    ]
    assert not silent, "\n".join(silent)
