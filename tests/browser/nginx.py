"""An nginx in front of a hive."""

import contextlib
import shutil
import signal
import subprocess

import pytest
from tests.integration.web_certificate import CERTIFICATE

NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/cert.pem;
    location /lab/hive/ {{
      proxy_pass http://127.0.0.1:{hive}/;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


@contextlib.contextmanager
def behind_nginx(hive, folder, port):
    """An nginx that serves a hive below a prefix, with TLS."""
    program = shutil.which("nginx")
    if program is None:
        pytest.fail("there is no program nginx: install Debian's package nginx-light")
    (folder / "cert.pem").write_text(CERTIFICATE)
    settings = folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, port=port, hive=hive.port))
    process = subprocess.Popen([program, "-c", settings, "-p", folder, "-e", folder / "error.log"])
    try:
        yield f"https://127.0.0.1:{port}/lab/hive/"
    finally:
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
