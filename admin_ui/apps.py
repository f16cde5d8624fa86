"""The app of the operators' pages; importing its modules registers them with the admin site."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class AdminUiConfig(AppConfig):
    name = "admin_ui"
    verbose_name = "Operators' pages"

    def ready(self) -> None:
        for module in ("pools", "access", "audit", "history"):
            import_module(f"admin_ui.{module}")
