"""The pytest plugin: `--guest=PATH`, and the fixtures `guest`, `host` and `proxy_guest`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arkml.testing import short_names

if TYPE_CHECKING:
    from arkml.testing.proxy import Proxy
    from arkml.testing.threaded import ThreadedGuest, ThreadedHost

_FILE = "guest_file"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("arkml", "guests of arkml").addoption(
        "--guest",
        action="append",
        default=[],
        metavar="PATH",
        help="a module for the `guest` fixture, with =; tests run with each one that is given",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    for word, path in zip(config.getoption("--guest"), _guest_files(config), strict=True):
        try:
            path.open("rb").close()
        except OSError as error:
            raise pytest.UsageError(f"--guest={word} cannot be read: {error.strerror}") from None
    plugins = config.pluginmanager.get_plugins()
    if not any(
        hasattr(plugin, "host") for plugin in plugins
    ):  # another plugin's fixture stays as it is
        config.pluginmanager.register(short_names, "arkml-short-names")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    files = _guest_files(metafunc.config)
    marks = metafunc.definition.iter_markers("parametrize")
    if not files or _FILE not in metafunc.fixturenames or any(_FILE in m.args[0] for m in marks):
        return
    metafunc.parametrize(_FILE, files, ids=[file.name for file in files])


def _guest_files(config: pytest.Config) -> list[Path]:
    """Return the paths of `--guest`, relative to the directory where pytest was started."""
    return [config.invocation_params.dir / file for file in config.getoption("--guest")]


@pytest.fixture(scope="session")
def arkml_options() -> dict[str, Any]:
    """Return the options of the session's host; override it to give a policy, limits or WASI."""
    return {}


@pytest.fixture(scope="session")
def arkml_host(arkml_options: dict[str, Any]) -> Iterator[ThreadedHost]:
    """Make the host of the session. Its guests run on a thread, where signal handlers do not."""
    from arkml.testing.threaded import ThreadedHost

    made = ThreadedHost(**arkml_options)
    yield made
    made.close()


@pytest.fixture
def guest_file() -> Path:
    """Return the module that `--guest` names; override it to name one in the test suite."""
    pytest.fail("which guest? Give --guest=PATH, or override the fixture guest_file", pytrace=False)


@pytest.fixture
def guest(arkml_host: ThreadedHost, guest_file: Path) -> Iterator[ThreadedGuest]:
    """Load a new guest of `guest_file`, initialized."""
    with arkml_host.load(guest_file) as loaded:
        yield loaded


@pytest.fixture
def proxy_guest(arkml_host: ThreadedHost) -> Iterator[Proxy]:
    """Load a new proxy guest, through which a test can call imports itself."""
    from arkml.testing.proxy import Proxy, proxy_text

    with arkml_host.load(proxy_text().encode(), name="proxy") as loaded:
        yield Proxy(loaded)
