"""The admin in a real browser: what an operator does first, without a complaint from the security policy."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import uvicorn
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.db import connections
from playwright.async_api import Browser, Page, async_playwright, expect
from pytest_django import Settings

from gateway.models import ApiKey, Group, Pool, Worker
from gateway.protocol.apikeys import prefix_of
from tests.admin_ui.objects import make_pool

PASSWORD = "correct horse battery"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
pytestmark = [pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=path, args=[*FLAGS, "--disable-component-update"])
        yield running
        await running.close()


@pytest_asyncio.fixture(loop_scope="session")
async def live_url(transactional_db: None, settings: Settings) -> AsyncIterator[str]:
    """Django's side of the front door on the server of production, in this loop and on the test database."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # cheap
    server = uvicorn.Server(uvicorn.Config(get_asgi_application(), log_level="warning", lifespan="off", ws="none"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        async with asyncio.timeout(10):
            while not server.started:
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await task
    await sync_to_async(connections.close_all)()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, live_url: str) -> AsyncIterator[Page]:
    """A page on which a superuser has logged in; at its end nothing may stand in its console."""
    await User.objects.acreate_superuser("root", password=PASSWORD)
    complaints: list[str] = []
    context = await browser.new_context(base_url=live_url)
    opened = await context.new_page()
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    await opened.goto("/admin/login/")
    await opened.fill("#id_username", "root")
    await opened.fill("#id_password", PASSWORD)
    await opened.press("#id_password", "Enter")
    await opened.wait_for_url("**/admin/")
    yield opened
    await context.close()
    assert complaints == []


async def save(page: Page) -> None:
    await page.get_by_role("button", name="Save", exact=True).click()


async def test_pool_with_a_worker_is_created_and_edited(page: Page) -> None:
    await page.goto("/admin/gateway/pool/add/")
    await page.fill("#id_model", "deepseek-v3")
    await page.get_by_text("Add another Worker").click()
    await page.fill("#id_workers-0-name", "w1")
    await page.fill("#id_workers-0-url", "http://127.0.0.1:9101")
    await page.fill("#id_workers-0-api_key_0", "canary-secret")
    await save(page)
    await page.wait_for_url("**/admin/gateway/pool/")
    await page.get_by_role("link", name="deepseek-v3").first.click()
    await page.get_by_text("Limits", exact=True).click()
    await page.fill("#id_queue__size", "16")
    await save(page)
    await expect(page.get_by_text("was changed successfully")).to_be_visible()

    pool = await Pool.objects.aget()
    worker = await Worker.objects.aget()
    assert (pool.model, pool.queue, worker.name, worker.secret[:7]) == ("deepseek-v3", {"size": 16}, "w1", "sealed:")


async def test_pool_that_cannot_be_used_shows_why_at_the_field(page: Page) -> None:
    await page.goto("/admin/gateway/pool/add/")
    await page.fill("#id_model", "bad model")
    await save(page)

    await expect(page.get_by_text("'bad model' is not a model name")).to_be_visible()
    assert await Pool.objects.acount() == 0


async def test_group_is_made_of_rows_that_are_added_moved_and_removed(page: Page) -> None:
    await sync_to_async(make_pool)("small")
    await sync_to_async(make_pool)("large")
    await page.goto("/admin/gateway/group/add/")
    await page.fill("#id_name", "fast")
    for number, name in enumerate(("small", "gone", "large")):
        await page.get_by_role("button", name="Add member").click()
        await page.locator("[name=members-ref]").nth(number).fill(name)
    await page.get_by_title("Remove this member").nth(1).click()
    await page.get_by_title("Move down").first.click()
    await page.get_by_role("button", name="Add rule").click()
    await page.locator("[name=rules-member]").fill("large")
    await page.get_by_label("Add a condition").select_option("min_tokens")
    await page.locator("[name=rules-min_tokens]").fill("8000")
    await expect(page.locator("[name=rules-header]")).to_be_hidden()
    await expect(page.locator("[name=members-weight]").first).to_be_hidden()
    await save(page)
    await page.wait_for_url("**/admin/gateway/group/")

    group = await Group.objects.aget()
    assert (group.members, group.rules) == (["large", "small"], [{"member": "large", "min_tokens": 8000}])


async def test_key_is_shown_once_and_copied(page: Page) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto("/admin/gateway/team/add/")
    await page.fill("#id_name", "red")
    await save(page)
    await page.goto("/admin/gateway/apikey/add/")
    await page.locator(".select2-selection").click()
    await page.get_by_role("option", name="red").click()
    await page.fill("#id_name", "app")
    await save(page)
    text = await page.input_value("#new-key")
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = await page.evaluate("navigator.clipboard.readText()")
    await page.get_by_role("link", name="Done").click()

    assert re.fullmatch(r"sk-igw-[0-9a-f]{8}-[A-Za-z0-9_-]{43}", text)
    assert copied == text
    assert text not in await page.content()
    assert (await ApiKey.objects.aget()).prefix == prefix_of(text)


async def test_documentation_of_the_api_is_drawn_under_the_strict_policy(page: Page) -> None:
    await page.goto("/api/docs")

    await expect(page.get_by_text("List the workers of a pool")).to_be_visible()
    await expect(page.get_by_text("Create a key; its text is shown this once")).to_be_visible()


async def test_theme_is_dark_where_the_system_is(browser: Browser, live_url: str) -> None:
    context = await browser.new_context(base_url=live_url, color_scheme="dark")
    page = await context.new_page()
    await page.goto("/admin/login/")

    await expect(page.locator("html")).to_have_class(re.compile("dark"))
    await context.close()
