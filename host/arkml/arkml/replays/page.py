"""The web page of a replay: one HTML file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html

from arkml.hive.protocol.replay_messages import ReplayDocument
from arkml.page_scripts import FOLDER
from arkml.page_scripts.bundle import bundled

NO_ICON = '<link rel="icon" href="data:,">'
"""An icon of no bytes, without which browsers ask the server for one."""

_STYLES = ("palette.css", "replay_page.css", "agents.css", "replay.css")


def page_of(document: ReplayDocument) -> bytes:
    """
    Return an HTML page that shows a replay, with script, style and document inside.

    Texts that a guest wrote are only in the packed document, and are shown as text, never as HTML.
    The Content-Security-Policy permits this script and this style by their hashes, the icon, and
    nothing else.
    """
    script = bundled("replay_page.js")
    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in _STYLES)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{html.escape(document.guest)}: replay</title>{NO_ICON}"
        f"<style>{style}</style></head>"
        '<body><header><h1 id="guest">Replay</h1><span id="about" class="quiet"></span></header>'
        '<main id="replay"></main><noscript><p>This page needs JavaScript.</p></noscript>'
        f'<script id="document" type="text/plain">{base64.b64encode(document.pack()).decode()}'
        f'</script><script type="module">{script}</script></body></html>\n'
    )
    return page.encode()


def _hash(text: str) -> str:
    """Return the hash of an inline script or style, as policies name it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
