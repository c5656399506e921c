"""The compilers, each found or installed once in a session."""

import pytest
from tests.compilers.building import regenerate


@pytest.fixture(scope="session")
def compilers(request):
    """Builds guests, and tells the terminal what takes a while."""
    plugins = request.config.pluginmanager
    reporter = plugins.getplugin("terminalreporter")
    capture = plugins.getplugin("capturemanager")

    def say(line):
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)

    with regenerate.Compilers(say) as found:
        yield found
