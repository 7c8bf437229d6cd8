"""`python -m tests.compat [SOURCE...]`: compare on all sources, and write docs/compat.md.

With names of sources it compares on those, and writes no page.
"""

import sys

from tests.compat.page import write
from tests.compat.run import SOURCES, perform, problems


def main(names: list[str]) -> int:
    """Return 1 when something differs that is not listed, or does not differ that is."""
    results = []
    wrong = 0
    for source in SOURCES:
        if names and str(source) not in names:
            continue
        result = perform(source)
        found = list(problems(result))
        wrong += len(found)
        sys.stdout.write(f"{source}: {sum(result.compared.values())} entries compared, {len(found)} problems\n")
        sys.stdout.writelines(f"  {line}\n" for line in found)
        sys.stdout.flush()
        results.append(result)
    if not names:
        write(results)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
