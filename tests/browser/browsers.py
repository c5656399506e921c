"""Debian's Chromium and Firefox, which Playwright drives by CDP and by WebDriver BiDi."""

import contextlib
import shutil

import pytest
from playwright.sync_api import sync_playwright

PROGRAMS = {"chromium": ("chromium", "chromium-browser"), "firefox": ("firefox-esr", "firefox")}
OPTIONS = {"chromium": {"args": ["--no-sandbox"]}, "firefox": {"channel": "moz-firefox"}}
BROWSERS = tuple(PROGRAMS)

NO_TOUCH = "Playwright's taps do nothing in Firefox, and it has no phones"
NO_SCHEME = "Firefox 153 has no command of WebDriver BiDi for the dark scheme"
NO_BODY = "Playwright reads no bodies of requests in Firefox"
NO_FOCUS = "the focus is taken away by CDP"
CHROMIUM_ONLY = {
    "test_a_corridor_is_run_through_by_a_finger_on_the_plane": NO_TOUCH,
    "test_a_phone_shows_all_of_it": NO_TOUCH,
    "test_nothing_is_cut_off_on_a_narrow_screen": NO_TOUCH,
    "test_lost_focus_releases_all_keys": NO_FOCUS,
    "test_titles_tags_and_stars_are_columns": NO_BODY,
}
"""Why tests are not run in Firefox, by their names; those in the dark are not, either."""


def reason_against(name, test, parameters):
    """Return why a test with parameters is not run in the browser of a name, empty if it is."""
    if name == "chromium":
        return ""
    if "dark" in parameters.values():
        return NO_SCHEME
    return CHROMIUM_ONLY.get(test, "")


@contextlib.contextmanager
def launcher(name):
    """A function that returns the running browser of a name, and starts it where it has ended."""
    program = next(filter(None, map(shutil.which, PROGRAMS[name])), None)
    if program is None:
        pytest.fail(f"there is no program {PROGRAMS[name][0]}: install Debian's package of it")
    started = []
    with sync_playwright() as playwright:

        def running():
            if not (started and started[-1].is_connected()):
                kind = getattr(playwright, name)
                started.append(kind.launch(executable_path=program, **OPTIONS[name]))
            return started[-1]

        yield running
        for browser in started:
            browser.close()


@contextlib.contextmanager
def launched(name):
    """A browser of this machine, by its name of `BROWSERS`."""
    with launcher(name) as running:
        yield running()
