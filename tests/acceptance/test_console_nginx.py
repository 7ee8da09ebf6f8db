"""The console behind a real nginx, configured as docs/how-to/console.md has it."""

import re
import shutil
import socket
import subprocess
from contextlib import contextmanager, suppress
from time import sleep

import pytest

from anabranch.crawler.console.access import ConsoleRole
from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.passwords import Passwords
from tests.acceptance.browser import ON_ONE_LOOP, expect, running_console
from tests.acceptance.command import REPOSITORY, write_order
from tests.patience import HANG_S
from tests.ports import free_port
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

PAGE = (REPOSITORY / "docs" / "how-to" / "console.md").read_text(encoding="utf-8")
(SNIPPET,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
PASSWORD = "correct horse battery"


def made_certificate(folder):
    """Make a certificate of localhost and its key."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, *files], check=True, capture_output=True, timeout=HANG_S)


@contextmanager
def nginx(folder, port, snippet):
    """One that serves TLS at this port, not as a service."""
    made_certificate(folder)
    temporary = " ".join(f"{kind}_temp_path tmp;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {temporary}\n"
        f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem;\n{snippet}}} }}\n"
    )
    with subprocess.Popen([NGINX, "-p", folder, "-c", "nginx.conf", "-e", "stderr"], stderr=subprocess.PIPE) as process:
        try:
            while True:
                assert process.poll() is None, process.stderr.read().decode()
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                sleep(0.02)
            yield
        finally:
            process.terminate()


@pytest.mark.skipif(NGINX is None, reason="no nginx; install Debian's package nginx-light")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
async def test_pages_sockets_and_logins_pass_the_nginx_of_the_page(tmp_path, browser):
    """Log in by a password, over TLS; live data of a crawl come by WebSocket; an upload passes; guesses wait."""
    port = free_port()
    (tmp_path / "state").mkdir(mode=0o700)
    Passwords(tmp_path / "state").put("ada", PASSWORD, ConsoleRole.OPERATOR)
    host = f"localhost:{port}"
    at, sockets = f"https://{host}/crawls", []
    with running_console(tmp_path, "--base-path", "/crawls", "--allow-host", host) as console:
        snippet = SNIPPET.replace("127.0.0.1:8700", f"127.0.0.1:{console.port}")
        assert snippet != SNIPPET
        async with SmallWeb(delay_s=0.3) as web:
            order = write_order(tmp_path, web.hosts)
            ConsoleJobs(str(console.jobs)).create("news", "http://blog.alpha.test/", order.read_text())
            with nginx(tmp_path, port, snippet):
                window = await (await browser.new_context(ignore_https_errors=True)).new_page()
                window.on("websocket", lambda one: sockets.append(one.url))
                await window.goto(f"{at}/")
                assert window.url == f"{at}/login"
                await window.get_by_label("Name").fill("ada")
                await window.get_by_label("Password").fill(PASSWORD)
                await window.get_by_role("button", name="Log in").click()
                await window.get_by_role("link", name="news").click()
                await window.get_by_role("button", name="Start").click()
                await expect(window.get_by_text("running", exact=True).first).to_be_visible()
                assert any(url.startswith(f"wss://{host}/crawls/_nicegui_ws/") for url in sockets)
                (cookie,) = await window.context.cookies(f"{at}/")
                assert (cookie["secure"], cookie["path"], cookie["sameSite"]) == (True, "/crawls/", "Strict")
                answer = await window.request.post(
                    f"{at}/_nicegui/client/none/upload/1", data=b"x" * (2 << 20), headers={"Origin": f"https://{host}"}
                )
                assert answer.status not in {403, 413}
                await guesses_wait(browser, at, host)
                await window.close()


async def guesses_wait(browser, at, host):
    """After three failures, whatever address the guesser claims to have: nginx adds the one that counts."""
    texts = []
    for number in range(5):
        context = await browser.new_context(ignore_https_errors=True)
        headers = {"Origin": f"https://{host}", "X-Forwarded-For": f"192.0.2.{number}"}
        form = {"name": "ada", "password": f"guess {number}"}
        answer = await context.request.post(f"{at}/login", form=form, headers=headers)
        texts.append(await answer.text())
        await context.close()
    assert any("wait" in text for text in texts)
