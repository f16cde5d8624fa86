"""Groups: several models behind one name, `group/<id>`.

Members, rules and intents are JSON columns: one row per group is read, shown and compared as a whole. Their shapes are
declared in runtime/records and checked by runtime/builder.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from gateway.routing.snapshot import ErrorClasses, Strategy

MOST_ATTEMPTS = 100  # as many members as one would list by hand


class Group(models.Model):
    """Models that stand in for each other, and in which order they are asked."""

    name = models.SlugField("id", max_length=100, unique=True, help_text="Apps ask for it as group/id.")
    strategy = models.CharField(
        max_length=20, choices=[(one.value, one.value) for one in Strategy], default=Strategy.ORDER.value
    )
    members = models.JSONField(
        default=list, blank=True, help_text="Names of pools, account/model-id or group/id, with a weight if need be."
    )
    rules = models.JSONField(
        default=list, blank=True, help_text="The first rule whose conditions all hold puts its member first."
    )
    picked = models.CharField(max_length=400, blank=True, help_text="The member that the manual strategy asks first.")
    error_classes = models.CharField(
        max_length=20, choices=[(one.value, one.value) for one in ErrorClasses], default=ErrorClasses.DEFAULT.value
    )
    max_attempts = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_ATTEMPTS)],
        help_text="Workers tried for one call, over all members; empty: each member once.",
    )
    keeps_conversations = models.BooleanField(
        "keep conversations",
        default=True,
        help_text="A conversation or routing key stays with the member that answered it.",
    )
    intent_model = models.CharField(
        max_length=400,
        blank=True,
        help_text="The model that is asked which intent a text has; a pool or account/model-id.",
    )
    intents = models.JSONField(default=dict, blank=True, help_text="Intents by name, each with what it means.")
    is_enabled = models.BooleanField("enabled", default=True)
    origin = models.CharField(max_length=200, default="admin", editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
