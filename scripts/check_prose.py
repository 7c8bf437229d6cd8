"""Finds prose that is hard to read: python -m scripts.check_prose.

It reads the pages and the texts in the code: help, errors, logs and advice. ``prose.toml`` lists phrases to avoid, each
with what to write instead. A sentence has at most 35 words, and those of a page have 18 on average at most. Code is no
prose: neither code blocks nor what stands between backquotes, which counts as one word. Exits with 1 at a finding.
"""

import re
import sys
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md")
CODE = ("protocol", "login", "store", "sql", "instance", "server", "client_sdk", "verify")
LONGEST = 35
"""Words that a sentence may have."""
AVERAGE = 18
"""Words that the sentences of a page may have on average."""
LABEL = 4
"""Words up to which a heading or the cell of a table is no sentence: as one it would only lower the average."""
PROSE = re.compile(r"\b(a|an|and|in|is|it|of|or|that|the|to)\b")
"""A word that each long sentence has, and SQL has not."""
QUOTED = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands for code in prose, and for a value in a message."""
LITERAL = re.compile(
    r"#[^\n]*|(?P<prefix>[rbfRBF]{0,2})(?P<quote>\"{3}|'{3}|\"|')(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)",
    re.DOTALL,
)
"""A comment, or a string of Python or Cython; Python's own parser cannot read Cython."""
VALUE = re.compile(r"\{(?:[^{}]|\{[^{}]*\})+\}")
"""The place of a value in an f-string."""
END = re.compile(r"""(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])["')]*\s+(?=[^a-z\s])|\n\s+""")
"""Where one sentence ends and another one begins."""


@dataclass
class Block:
    """A stretch of prose: a paragraph, a heading, an item of a list, the cell of a table, or a text in the code."""

    is_label: bool = False
    text: str = ""
    lines: list[tuple[int, int]] = field(default_factory=list)
    """Where the part from each line of the file begins in the text, and the number of that line."""

    def add(self, text: str, line: int) -> None:
        """Append text from a line of the file."""
        self.lines.append((len(self.text), line))
        self.text += text

    def line(self, offset: int) -> int:
        """Return the line of the file from which the text at an offset comes."""
        return self.lines[bisect_right(self.lines, offset, key=lambda part: part[0]) - 1][1]

    def sentences(self) -> Iterator[tuple[int, int]]:
        """Yield the line and the number of words of each sentence."""
        begin = 0
        for end in [*(match.end() for match in END.finditer(self.text)), len(self.text)]:
            sentence = self.text[begin:end]
            words = len(re.findall(rf"\S*[\w{QUOTED}]\S*", sentence))
            if words > (LABEL if self.is_label else 0) and (words <= LONGEST or PROSE.search(sentence)):
                yield self.line(begin), words
            begin = end


@dataclass(frozen=True)
class Rule:
    """A phrase to avoid."""

    phrase: str
    """A regular expression. A space in it matches any white space."""
    instead: str
    """What to write instead."""
    example: str
    """A text that has the phrase."""
    right: str = ""
    """A text that looks like it, and is right."""

    def find(self, block: Block) -> Iterator[tuple[int, str]]:
        """Yield the line of each occurrence, and how it is written there."""
        for match in re.finditer(self.phrase.replace(" ", r"\s+"), block.text, re.IGNORECASE):
            yield block.line(match.start()), " ".join(match[0].split())


def rules() -> list[Rule]:
    """Read the phrases to avoid."""
    return [Rule(**rule) for rule in tomllib.loads((ROOT / "scripts/prose.toml").read_text())["rules"]]


def of_page(text: str) -> Iterator[Block]:
    """Yield the prose of a page."""
    opened = ""
    for token in MarkdownIt().enable("table").parse(text):
        if token.map and token.type == "inline":
            block, line = Block(is_label=opened in {"heading_open", "td_open", "th_open"}), token.map[0] + 1
            for part in token.children or []:
                match part.type:
                    case "text":
                        block.add(part.content, line)
                    case "code_inline":
                        block.add(QUOTED, line)
                    case "softbreak" | "hardbreak":
                        block.add("\n", line)
                        line += 1
            yield block
        opened = token.type


def of_code(text: str, first: int = 1) -> Iterator[Block]:
    """Yield the texts in code whose first line has a number; strings side by side are one, and a docstring is none."""
    block, end = Block(), 0
    for literal in LITERAL.finditer(text):
        if text[end : literal.start()].strip():
            yield block
            block = Block()
        end = literal.end()
        indent = text[text.rfind("\n", 0, literal.start()) + 1 : literal.start()]
        if not literal["quote"] or (len(literal["quote"]) == 3 and not indent.strip()):
            continue
        line = first + text.count("\n", 0, literal.start())
        for number, part in enumerate(literal["text"].splitlines(keepends=True), line):
            if "f" in literal["prefix"].lower():
                for value in VALUE.finditer(part):
                    yield from of_code(value[0], number)
                shown = VALUE.sub(QUOTED, part)
            else:
                shown = part
            shown = re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], shown)
            block.add(re.sub(r"`[^`]+`", QUOTED, shown), number)
    yield block


def findings(name: str, text: str, avoided: list[Rule]) -> Iterator[str]:
    """Yield what is wrong in a page or a module, and what to write instead."""
    is_page = name.endswith(".md")
    blocks = list((of_page if is_page else of_code)(text))
    for rule in avoided:
        for line, phrase in (found for block in blocks for found in rule.find(block)):
            yield f'{name}:{line}: "{phrase}": write "{rule.instead}"'
    sentences = [sentence for block in blocks for sentence in block.sentences()]
    for line, words in sentences:
        if words > LONGEST:
            yield f"{name}:{line}: a sentence of {words} words: write several, of at most {LONGEST} words"
    average = sum(words for _, words in sentences) / max(len(sentences), 1)
    if is_page and average > AVERAGE:
        yield f"{name}:1: {average:.1f} words a sentence on average: write shorter sentences, at most {AVERAGE}"


def main() -> None:
    """Check all pages and modules."""
    paths = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    written = (path for folder in CODE for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".py", ".pyx"})
    paths += [path for path in written if not path.stem.endswith("_pb2")]  # those are generated
    avoided = rules()
    found = 0
    for path in paths:
        for finding in findings(str(path.relative_to(ROOT)), path.read_text(), avoided):
            found += 1
            print(finding)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
