"""An operator works in the admin of the running gateway, and the next call follows."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable

import openai
from playwright.async_api import Page, async_playwright

from tests.fakes.scripts import chat
from tests.fakes.worker import FakeWorker
from tests.journeys.stack import Stack, ask, until
from tests.journeys.test_calls import pool, serve_model

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def in_the_admin(gateway: Stack, work: Callable[[Page], Awaitable[None]]) -> None:
    """Do the work as a superuser in a browser, without a word of complaint from it."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)

    async def browse() -> None:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=path, args=_FLAGS)
            page = await browser.new_page()
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.goto(f"{gateway.url}/admin/")
            await page.fill("[name=username]", "operator")
            await page.fill("[name=password]", "a-long-passphrase")
            await page.press("[name=password]", "Enter")
            await page.wait_for_selector("text=Pools")
            await work(page)
            await browser.close()
            assert complaints == []

    variables = {"DJANGO_SUPERUSER_PASSWORD": "a-long-passphrase"}
    names = ("--username", "operator", "--email", "operator@example.org")
    if not gateway.rows("SELECT 1 FROM auth_user WHERE username = 'operator'"):
        gateway.manage("createsuperuser", "--noinput", *names, **variables)
    asyncio.run(browse())


def test_worker_edited_in_the_admin_gets_the_next_call(gateway: Stack, key: str, worker: FakeWorker) -> None:
    with FakeWorker.in_thread(chat("the other")) as other:
        serve_model(gateway, key, pool("edited", worker.url))

        async def edit(page: Page) -> None:
            await page.goto(f"{gateway.url}/admin/gateway/pool/?q=edited")
            await page.click("#result_list a:text-is('edited')")
            await page.fill("[name='workers-0-url']", other.url)
            await page.click("[name=_save]")
            await page.wait_for_selector("text=changed successfully")

        in_the_admin(gateway, edit)

        def said() -> set[str]:
            answers = [gateway.chat(key, ask("edited")).json() for _ in range(6)]
            return {answer["choices"][0]["message"]["content"] for answer in answers}

        assert until(lambda: said() == {"the other"}) < 1.0


def test_key_made_in_the_admin_is_shown_once_and_works(gateway: Stack, key: str, worker: FakeWorker) -> None:
    serve_model(gateway, key, pool("keyed", worker.url))
    shown: list[str] = []

    async def make(page: Page) -> None:
        await page.goto(f"{gateway.url}/admin/gateway/apikey/add/")
        await page.fill("[name=name]", "from-the-admin")
        await page.locator(".select2-selection").click()
        await page.locator(".select2-results__option", has_text="journeys").click()
        await page.click("[name=_save]")
        shown.append(await page.input_value("#new-key"))
        await page.reload()
        assert shown[0] not in await page.content()

    in_the_admin(gateway, make)
    until(lambda: all(gateway.status("/v1/models/keyed", shown[0]) == 200 for _ in range(8)), 3)

    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=shown[0], max_retries=0) as client:
        answer = client.chat.completions.create(model="keyed", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content == "hello"
