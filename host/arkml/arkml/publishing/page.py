"""The page of a published guest: an HTML file that loads only files of its own folder."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Mapping
from typing import Any

from arkml.page_scripts import FOLDER
from arkml.page_scripts.bundle import bundled_script

PAGE, SCRIPT = "index.html", "page.js"

_STYLES = ("palette.css", "play.css", "agents.css", "published.css")
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Ccircle cx='5' cy='10' r='4' fill='%232a78c2'/%3E"
    "%3Ccircle cx='11' cy='5' r='3' fill='%23e07a1f'/%3E%3C/svg%3E"
)


def page_files(site: Mapping[str, Any], title: str) -> dict[str, bytes]:
    """
    Return the HTML page and its script, by name; `site` is the document of the site, JSON values.

    Texts of the guest or its author are only in the document and in the title. The
    Content-Security-Policy permits scripts and files of the folder, style and unpacked script by
    their hashes, and nothing else; it permits WebAssembly, and no other text to be run as a script.
    """
    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in _STYLES)
    # Debuggers show the unpacked script under this name.
    script = f"{bundled_script('published_page.js')}//# sourceURL=unpacked/{SCRIPT}\n"
    policy = (
        f"default-src 'none'; script-src 'self' '{_hash(script)}' 'wasm-unsafe-eval'; connect-src"
        f" 'self'; img-src data:; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
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
    return {PAGE: page.encode(), SCRIPT: _packed(script)}


def _hash(text: str) -> str:
    """Return the hash of a text, as a Content-Security-Policy has it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _packed(script: str) -> bytes:
    """Return a script that runs a script, which it has as gzip."""
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    unpack = (FOLDER / "unpack.js").read_text(encoding="utf-8")
    return f'const packed = "{packed}";\n{unpack}'.encode()
