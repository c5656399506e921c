"""
Settings of the site, which `make docs` builds.

Its source is the whole repository, so that links between pages are those of the repository.
"""

from __future__ import annotations

import pkgutil
import re
import sys
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

from arkml.hive import protocol

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "arkml"
version = release = installed("arkml")
project_copyright = "the authors of arkml, MIT OR Apache-2.0"

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "examples/arcade/README.md",
    "examples/environments/README.md",
    "examples/evolution/README.md",
    "examples/game/README.md",
    "examples/game_functions/README.md",
    "guest_abi/README.md",
    "host/*/README.md",
    "fixtures/fuzz/README.md",
    "fixtures/guests/README.md",
    "fixtures/trajectories/README.md",
]
exclude_patterns = [".*", "build", "tests", "**/node_modules", "docs/theme"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings", "command_line"]

myst_heading_anchors = 4

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"

smartquotes = False  # they make a dash of the two of an option
html_theme = "furo"
html_title = f"arkml {release}"
html_static_path = ["theme/static"]
html_css_files = ["arkml.css"]
templates_path = ["theme/templates"]
html_additional_pages = {"index": "redirect.html"}
html_show_sourcelink = False
html_copy_source = False

# Pages that list others by hand, because they are read in the repository as well.
LISTS = {"docs/abi/README": "[ae]*", "docs/decisions/README": "0*"}


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_contents)


def _add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        sections = re.split(r"^## ", source[0], flags=re.MULTILINE)
        source[0] += "".join(map(_hidden_contents, sections))
    if page == "docs/api/hive_protocol":
        for module in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}."):
            title = module.name.rpartition(".")[2].replace("_", " ").capitalize()
            source[0] += f"\n## {title}\n\n```{{eval-rst}}\n.. automodule:: {module.name}\n```\n"
    if page in LISTS:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{LISTS[page]}\n```\n"


def _hidden_contents(section: str) -> str:
    """The pages that a section of the first page links to, for the bar at the side."""
    caption = section.partition("\n")[0].removeprefix("# ")
    links = re.findall(r"\[([^]]+)\]\(([^)#]+)\.md\)", section)
    entries = "".join(f"{title} <{path}>\n" for title, path in links)
    return f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{entries}```\n"
