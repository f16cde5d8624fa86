"""Who may call: teams and their API keys. A key's text is never stored, only its digest."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models as db


def every_model() -> list[str]:
    """The allow-list of a key that may use every model."""
    return ["*"]


class Team(db.Model):
    """Owns keys and the conversations made with them."""

    name = db.SlugField(max_length=100, unique=True, help_text="Letters, digits, - and _; used in files and reports.")
    origin = db.CharField(max_length=200, default="admin", editable=False)
    created_at = db.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ApiKey(db.Model):
    """A bearer key of a team: found by `prefix`, checked by `digest` (HMAC-SHA256, runtime/keys)."""

    class Priority(db.TextChoices):
        INTERACTIVE = "interactive", "interactive"
        BATCH = "batch", "batch"

    team = db.ForeignKey(Team, on_delete=db.CASCADE, related_name="keys")
    name = db.SlugField(max_length=100)
    prefix = db.CharField(max_length=32, editable=False)
    digest = db.CharField(max_length=64, editable=False)
    last4 = db.CharField(max_length=4, editable=False)
    source = db.CharField(max_length=500, blank=True, editable=False)  # env:NAME or file:PATH that the text came from
    models = db.JSONField(
        default=every_model,
        blank=True,
        help_text="Names or aliases of pools, group/id, account/model-id or account/*; "
        '["*"] is every model, [] is none.',
    )
    requests_per_minute = db.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="Empty: no limit."
    )
    priority = db.CharField(
        max_length=20,
        choices=Priority.choices,
        default=Priority.INTERACTIVE,
        help_text="The best that its calls may have; interactive calls go before batch calls where calls wait.",
    )
    is_operator = db.BooleanField("operator", default=False, help_text="May use the control API.")
    expires_at = db.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    is_disabled = db.BooleanField("disabled", default=False)
    origin = db.CharField(max_length=200, default="admin", editable=False)
    created_at = db.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "API key"
        ordering = ["team__name", "name"]
        constraints = [
            db.UniqueConstraint(fields=["team", "name"], name="apikey_team_name"),
            # Checked at the end of the transaction: one edit may hand a key's text from one row to another.
            db.UniqueConstraint(fields=["prefix"], name="apikey_prefix", deferrable=db.Deferrable.DEFERRED),
        ]

    def __str__(self) -> str:
        return f"{self.team.name}/{self.name}"
