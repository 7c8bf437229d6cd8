"""Names the tests that assert nothing themselves: python -m scripts.check_assertions.

Who reads a test has to see in it what it is about; a helper that checks returns what it has found, for the test to
assert. Exits with 1 when there is such a test.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"


def silent(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the test functions with neither an `assert` nor a `with pytest.raises(…)` or `pytest.warns(…)`."""
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test"):
            inside = list(ast.walk(function))
            contexts = [
                item.context_expr for it in inside if isinstance(it, ast.With | ast.AsyncWith) for item in it.items
            ]
            expected = any(ast.unparse(it).startswith(("pytest.raises", "pytest.warns")) for it in contexts)
            if not expected and not any(isinstance(it, ast.Assert) for it in inside):
                yield function


def main() -> None:
    """Check all tests."""
    found = 0
    for path in sorted(TESTS.rglob("test_*.py")):
        for function in silent(ast.parse(path.read_text())):
            found += 1
            print(f"{path.relative_to(TESTS.parent)}:{function.lineno}: {function.name} asserts nothing")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
