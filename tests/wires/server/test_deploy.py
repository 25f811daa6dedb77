"""The examples of docs/deploy.md, looked at by the programs that will read them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.protocol.users import add_user
from tests.support import nursery
from tests.support.agent_process import agent_environment, write_models

from .test_proxy import NGINX

EXAMPLES = Path(__file__).parents[3] / "examples" / "deploy"


def test_the_configuration_is_sound(tmp_path: Path) -> None:
    agent, work = tmp_path / "agent", tmp_path / "work"
    work.mkdir()
    write_models(agent, "http://127.0.0.1:9")
    add_user(agent / "tokens.json", "anna", {})
    text = (EXAMPLES / "spindle.toml").read_text()
    assert text.count("/var/lib/spindle") == 2
    (tmp_path / "spindle.toml").write_text(text.replace("/var/lib/spindle", str(tmp_path)))
    command = [sys.executable, "-m", "spindle", "serve", "--config", str(tmp_path / "spindle.toml"), "--check"]
    options = {"cwd": work, "env": agent_environment(agent), "capture_output": True, "text": True, "timeout": 30}
    done = nursery.run([*command, "--model", "mock/m1"], **options)  # type: ignore[call-overload]
    assert (done.returncode, done.stdout) == (0, "Sound: it would listen on 127.0.0.1:3838, for 1 users\n"), done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_the_unit_is_sound(tmp_path: Path) -> None:
    unit = tmp_path / "spindle.service"
    unit.write_text((EXAMPLES / "spindle.service").read_text().replace("/opt/spindle/bin/spindle", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, str(unit) in done.stderr) == (0, False), done.stderr


@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="there is no nginx, or no openssl")
def test_the_proxy_is_sound(tmp_path: Path) -> None:
    key, cert = tmp_path / "spindle.key", tmp_path / "spindle.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    site = (EXAMPLES / "nginx.conf").read_text().replace("/etc/nginx/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{site}\n}}\n")
    command = [str(NGINX), "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
