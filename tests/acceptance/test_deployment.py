"""The examples of conf/cluster run as they stand: image, compose file, Kubernetes Job and systemd unit.

There is no Docker here. The steps of the Dockerfile run in an empty folder, and commands, volumes and probes as a container has
them, as the image's user if root runs the tests.
"""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest
import yaml

from scripts.image_steps import in_image, is_ignored, mounted
from tests.acceptance.command import PATIENCE_S, REPOSITORY, environment, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.ports import free_port
from tests.postgres_server import own_server
from tests.site.oracle import expected
from tests.site.server import SmallWeb

WEB = many_hosts()
CLUSTER = REPOSITORY / "conf/cluster"
STORE = "postgresql://crawl@db/crawl"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def built():
    """The folder of an image, made from the clone as a builder gets it; not below pytest's, which no other user may enter."""
    with tempfile.TemporaryDirectory(prefix="anabranch-image-") as folder:
        Path(folder).chmod(0o755)
        steps = [sys.executable, "-m", "scripts.image_steps", f"{folder}/built"]
        subprocess.run(steps, cwd=REPOSITORY, env=environment(), check=True, timeout=4 * PATIENCE_S)
        yield Path(folder) / "built"


@pytest.fixture
def image(built):
    """The image with a new volume for a worker."""
    mounted(built, "job")
    return built


@pytest.fixture
async def web():
    """Many hosts, with every answer late by 20 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(WEB, delay_s=0.02) as served:
        yield served


@pytest.fixture
def server():
    with own_server() as started:
        host = started.url.query["host"]
        Path(host).chmod(0o755)
        yield started, f"postgresql://postgres@/postgres?host={host}"


def local(words, store, port):
    """The words of an example with this machine's database and port."""
    return [word.replace(STORE, store).replace(":9400", f":{port}") for word in words]


async def crawling(command, **variables):
    variables = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **variables}
    return await asyncio.create_subprocess_exec(
        *command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/"
    )


async def over(process):
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode, out.decode()


async def seen(web, count, process):
    while sum(web.ledger.counts().values()) < count:
        assert process.returncode is None, await over(process)
        await asyncio.sleep(0.005)


def order_for(web, folder, delay="50ms", **sections):
    """The text of an order for the small web."""
    politeness = {"min_delay": delay, "max_delay": delay, "max_connections": 1}
    order = write_order(folder, web.hosts, politeness=politeness, crawl={"workers": 8}, **sections)
    return order.read_text()


def answered(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read()


async def test_the_compose_file_crawls_to_its_end_and_stays_finished(image, web, server, tmp_path):
    """Seeds from the file that is named, files in the archive's volume, health checks that pass; then 0, and one line."""
    started, store = server
    services = yaml.safe_load((CLUSTER / "compose.yaml").read_text())["services"]
    worker, database = services["worker"], services["db"]
    assert worker["restart"].startswith("on-failure")
    (seeds,) = [volume for volume in worker["volumes"] if isinstance(volume, dict)]
    assert (seeds["source"], seeds["target"]) == ("./seeds.txt", "/seeds.txt")
    (image / "seeds.txt").write_text("".join(f"{seed}\n" for seed in SEEDS))
    for volume in worker["volumes"]:
        if isinstance(volume, str):
            mounted(image, volume.partition(":")[2].removeprefix("/"))
    port = free_port()
    words = [re.sub(r"\$\{CONTACT:[^}]*\}", "https://example.org/", word) for word in worker["command"]]
    (image / "order").mkdir(exist_ok=True)
    (image / "order/order.toml").write_text(order_for(web, tmp_path))
    command = in_image(image, local(["anabranch", *words, "-c", "/order/order.toml"], store, port))
    process = await crawling(command)
    await seen(web, 10, process)
    _, *probe = worker["healthcheck"]["test"]
    assert await over(await crawling(in_image(image, local(probe, store, port)))) == (0, "")
    _, program, *arguments = database["healthcheck"]["test"]
    ready = [started.programs / program, *arguments, "-h", started.url.query["host"]]
    assert (await over(await crawling(ready)))[0] == 0
    code, out = await over(process)
    assert code == 0, out
    assert {url for url in web.ledger.counts() if "robots.txt" not in url} == expected(SEEDS, table=WEB).keys()
    assert [*(image / "archive").rglob("*.warc.gz")]
    code, out = await over(await crawling(command))
    assert (code, len(out.splitlines()), "the job is finished" in out) == (0, 1, True), out
    assert (await over(await crawling(in_image(image, local(probe, store, port)))))[0] != 0


async def test_the_kubernetes_job_ends_with_its_crawl(image, web, server, tmp_path):
    """Its workers run by the order of the config map, its probes are answered; a stop lets every pod end with 0."""
    _, store = server
    job = yaml.safe_load((CLUSTER / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    assert (job["kind"], pod["restartPolicy"]) == ("Job", "OnFailure")
    container = pod["containers"][0]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/job", "/order"}
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 10001
    (image / "order").mkdir(exist_ok=True)
    more = {"frontier": {"store": store}, "job": {"seeds": SEEDS}}
    (image / "order/order.toml").write_text(order_for(web, tmp_path, "3s", **more))
    port = free_port()
    words = [word.replace("$(INDEX)", "0").replace("0.0.0.0:", "127.0.0.1:") for word in container["args"]]
    command = in_image(image, local(["anabranch", *words], store, port))
    process = await crawling(command)
    await seen(web, 10, process)
    for probe in ("startupProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert b"anabranch_up" in await asyncio.to_thread(answered, f"http://127.0.0.1:{port}{path}")
    stopped = await over(await crawling(in_image(image, ["anabranch", "stop", store])))
    assert stopped[0] == 0, stopped
    assert (await over(process))[0] == 11
    code, out = await over(await crawling(command))
    assert (code, "the job is stopped" in out) == (0, True), out
    code, out = await over(await crawling(in_image(image, ["anabranch", "resume", store])))
    assert (code, "start worker-0" in out) == (0, True), out
    (image / "order/order.toml").write_text(order_for(web, tmp_path, **more))
    code, out = await over(await crawling(command))
    assert code == 0, out
    assert {url for url in web.ledger.counts() if "robots.txt" not in url} == expected(SEEDS, table=WEB).keys()


def test_the_unit_is_sound_and_restarts_as_the_manual_says(tmp_path):
    """The codes that no restart mends are the same in both; systemd finds nothing wrong."""
    unit = (CLUSTER / "anabranch-worker@.service").read_text()
    manual = (REPOSITORY / "docs/how-to/operate.md").read_text()
    found = [re.findall(r"^\s*RestartPreventExitStatus=(.*)$", text, re.MULTILINE) for text in (unit, manual)]
    assert found == [["2 4 5 6 13"], ["2 4 5 6 13"]]
    assert re.findall(r"^\s*SuccessExitStatus=(.*)$", unit + manual, re.MULTILINE) == ["11", "11"]
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    program, *arguments = shlex.split(command.replace("%i", "portals"))
    assert (program, arguments[0]) == ("/opt/anabranch/bin/anabranch", "crawl")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    file = tmp_path / "anabranch-worker@.service"
    file.write_text(unit.replace(program, shutil.which("true")).replace("User=anabranch", "User=root"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "anabranch-worker@portals.service"],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (verified.returncode, verified.stderr) == (0, "")


def test_what_docker_ignores_is_named():
    """Anywhere, or from the clone's root only."""
    assert is_ignored("a/b/__pycache__", "**/__pycache__")
    assert is_ignored(".mypy_cache", "**/.*_cache")
    assert is_ignored("jobs", "jobs")
    assert not is_ignored("tests/jobs", "jobs")
    assert not is_ignored("crawler/job", "jobs")
