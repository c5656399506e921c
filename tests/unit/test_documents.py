"""The documents: their links, and the figures that the README takes from the benchmarks."""

import re
from pathlib import Path

import pytest
from tools.houses import SOURCE_ROOTS

ROOT = Path(__file__).parents[2]
FOLDERS = ("", "docs", "docs/abi", "docs/api", "docs/decisions", "docs/operations")
PAGES = [
    page
    for pattern in (
        *(f"{folder}/*.md".lstrip("/") for folder in FOLDERS),
        "fixtures/*/README.md",
        "guest_abi/*.md",
    )
    for page in sorted(ROOT.glob(pattern))
]
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        number = sum(1 for one in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", one))
        found.add(f"{slug}-{number}" if number else slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_document_lead_to_files_and_headings(page):
    missing = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            missing.append(link)

    assert missing == []


def test_the_first_page_of_the_manual_names_each_page_once():
    manual = ROOT / "docs"
    links = LINK.findall((manual / "index.md").read_text())
    named = [(manual / link).resolve() for link in links]
    pages = {page for room in (manual, manual / "operations") for page in room.glob("*.md")}

    assert len(named) == len(set(named))
    assert pages - {manual / "index.md"} <= set(named)


def test_a_heading_that_comes_twice_has_two_anchors():
    assert anchors("# The `arkml run` way\n## More\n```\n# not one\n```\n### More") == {
        "the-arkml-run-way",
        "more",
        "more-1",
    }


def test_files_that_the_architecture_names_exist():
    """By their path in the repository or the package, or in the room that a README is about."""
    pages = [ROOT / "ARCHITECTURE.md", *(root / "README.md" for root in SOURCE_ROOTS)]
    text = "\n".join(page.read_text() for page in pages)
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|md))?)`", text))
    tops = [ROOT, *(root / "arkml" for root in SOURCE_ROOTS)]
    tops += [room for top in tops[1:] for room in top.iterdir() if room.is_dir()]
    missing = {name for name in named if not any((top / name).exists() for top in tops)}

    assert len(named) > 10
    assert missing == set()


def test_figures_of_the_readme_stand_in_the_benchmarks():
    readme = (ROOT / "README.md").read_text()
    section = readme.split("## How fast\n")[1].split("\n## ")[0]
    rows = [row(line) for line in section.splitlines() if line.startswith("| ")][2:]
    measured = [
        row(line)
        for line in (ROOT / "docs/benchmarks.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    unmeasured = [
        (what, ours, theirs, ratio)
        for what, ours, theirs, ratio in rows
        if not any(
            ours == cells[1]
            and cells[2].endswith(" " + theirs.split(":")[0])
            and cells[3] == ratio.split()[0]
            for cells in measured
        )
    ]
    prose = section.split("arkml is slower")[1]
    figures = re.findall(r"\d[\d.]* (?:µs|million/s)", prose)

    assert len(rows) >= 4
    assert unmeasured == []
    assert len(figures) >= 4
    assert all(any(figure in cell for cells in measured for cell in cells) for figure in figures)


def row(line: str) -> list[str]:
    """Return the cells of a row of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]
