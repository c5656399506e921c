"""The programs that operators run take what docs/operations has, and what a hive exposes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.integration.hive_service import Service, rows, start_hive
from tests.integration.web_certificate import CERTIFICATE

from arkml.server.monitoring.prometheus import METRICS_PATH

pytestmark = pytest.mark.operations

GRAFANA = os.environ.get("ARKML_GRAFANA", "")
"""A Python with Grafana's models, which `make test-operations` installs apart."""

ROOT = Path(__file__).parents[2]
HERE = ROOT / "docs" / "operations"
PACKAGES = {"promtool": "prometheus", "systemd-analyze": "systemd", "nginx": "nginx-light"}


def run(program, *arguments, **options):
    """Run a program that this machine must have; return what it printed."""
    assert shutil.which(program), f"{program} is missing: install Debian's {PACKAGES[program]}"
    done = subprocess.run([program, *arguments], capture_output=True, check=False, **options)
    assert done.returncode == 0, done.stderr.decode()
    return (done.stdout + done.stderr).decode()


def test_prometheus_takes_the_alerts():
    assert "SUCCESS" in run("promtool", "check", "rules", HERE / "alerts.yml")


def test_prometheus_has_nothing_to_say_against_the_metrics_of_a_hive(tmp_path):
    with start_hive(tmp_path / "data") as hive:
        service = Service(hive)
        assert service.push(service.sid(service.create()), rows(8), 1).status_code == 200
        answer = service.get(service.base.removesuffix("/v1") + METRICS_PATH)
        service.close()

    assert "\narkml_run_rows_total{" in answer.text
    assert run("promtool", "check", "metrics", input=answer.content) == ""


def test_the_models_of_grafana_read_every_field_of_the_dashboard(tmp_path):
    """It is not imported into a Grafana, which neither Debian nor a package index has."""
    written = as_grafana_has_it(HERE / "dashboard.json")
    wrong = json.loads((HERE / "dashboard.json").read_text())
    wrong["panels"][0]["targets"][0]["expression"] = wrong["panels"][0]["targets"][0].pop("expr")
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))

    assert list(lost(json.loads((HERE / "dashboard.json").read_text()), written)) == []
    assert list(lost(wrong, as_grafana_has_it(tmp_path / "wrong.json"))) == [
        "/panels/0/targets/0/expression"
    ]


def as_grafana_has_it(path):
    assert GRAFANA, "ARKML_GRAFANA names no Python: make test-operations sets it"
    program = Path(__file__).with_name("grafana_model.py")
    done = subprocess.run([GRAFANA, program, path], capture_output=True, check=True)
    return json.loads(done.stdout)


def lost(value, written, place=""):
    """Yield the places of what is in `value`, and is not the same in `written`."""
    if isinstance(value, dict | list) and type(value) is type(written):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            is_there = key in written if isinstance(written, dict) else key < len(written)
            inner = f"{place}/{key}"
            yield from lost(item, written[key], inner) if is_there else [inner]
    elif value != written:
        yield place


def test_systemd_takes_the_unit(tmp_path):
    text = (HERE / "arkml-hive.service").read_text().replace("/opt/arkml/bin/arkml", "/bin/true")
    copy = tmp_path / "arkml-hive.service"
    copy.write_text(text)
    said = run("systemd-analyze", "verify", "--man=no", copy)

    assert [line for line in said.splitlines() if "arkml-hive.service:" in line] == []


def test_nginx_takes_its_file(tmp_path):
    certificate, _, key = CERTIFICATE.partition("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "crt").write_text(certificate)
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----" + key)
    text = (HERE / "nginx.conf").read_text()
    for suffix in ("crt", "key"):
        text = text.replace(f"/etc/ssl/hive.example.{suffix}", str(tmp_path / suffix))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\n{text}")

    assert "test is successful" in run("nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf")


def test_the_container_file_builds_where_there_is_a_builder(tmp_path):
    """It fetches a gigabyte."""
    builder = next((name for name in ("podman", "docker") if _works(name)), None)
    if builder is None:
        pytest.skip("there is neither podman nor docker with a daemon")
    subprocess.run(
        [builder, "build", "-f", HERE / "Containerfile", "--iidfile", tmp_path / "id", ROOT],
        check=True, timeout=900,
    )  # fmt: skip


def _works(builder):
    if shutil.which(builder) is None:
        return False
    asked = subprocess.run([builder, "info"], capture_output=True, check=False, timeout=60)
    return asked.returncode == 0 and b"Server Version" in asked.stdout + b"Server Version" * (
        builder == "podman"
    )
