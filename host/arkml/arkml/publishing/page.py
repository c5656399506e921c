"""The page of a published guest: an HTML file that loads the files of its folder, and no others."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from typing import Any

from arkml.page_scripts import FOLDER

SCRIPT = "page.js"
"""Name of the script that the page loads."""

_STYLES = ("palette.css", "play.css", "agents.css", "published.css")
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Ccircle cx='5' cy='10' r='4' fill='%232a78c2'/%3E"
    "%3Ccircle cx='11' cy='5' r='3' fill='%23e07a1f'/%3E%3C/svg%3E"
)


def page_of(site: Mapping[str, Any], title: str) -> bytes:
    """
    Return the page that plays a site; `site` is its document, JSON values.

    What a guest or its author wrote is in the document and in the title only. The
    Content-Security-Policy permits scripts and files of the folder, the style by its hash, and
    nothing else; it permits WebAssembly, and no text to be run as a script.
    """
    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in _STYLES)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; img-src"
        f" data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    body = (FOLDER / "published.html").read_text(encoding="utf-8")
    document = json.dumps(site, separators=(",", ":")).replace("<", "\\u003c")
    name = html.escape(title)
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f'<title>{name}</title>\n<link rel="icon" href="{_ICON}">\n<style>{style}</style>\n'
        f"</head>\n<body>\n{body.replace('></h1>', f'>{name}</h1>')}"
        f'<script id="site" type="application/json">{document}</script>\n'
        f'<script src="{SCRIPT}"></script>\n</body>\n</html>\n'
    )
    return page.encode()
