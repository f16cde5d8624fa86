"""Who serves: pools (one per model), their workers, and accounts at vendors.

Groups of options are JSON columns; their names, bounds, defaults and help texts are declared in routing/options and in
the policies, and checked by runtime/builder. An empty object means every default. Addresses are plain text for the same
reason, and because Django's URL field refuses one-word host names (http://worker-1:8000).
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models


class VendorAccount(models.Model):
    """Access to a vendor's API. `secret` is `env:NAME`, `file:PATH` or a sealed literal (runtime/secrets)."""

    name = models.SlugField(max_length=100, unique=True)
    backend = models.CharField(max_length=50, default="openai")
    base_url = models.CharField("base URL", max_length=500, help_text="For example https://api.openai.com/v1")
    secret = models.TextField(blank=True, editable=False)
    origin = models.CharField(max_length=200, default="admin", editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Pool(models.Model):
    """One served model: who serves it and under which rules."""

    class History(models.TextChoices):
        FULL = "full", "full"
        METADATA = "metadata", "metadata only"
        OFF = "off", "off"

    model = models.CharField(max_length=200, unique=True, help_text="The name that apps ask for.")
    aliases = models.JSONField(default=list, blank=True, help_text="Further names for the same pool.")
    backend = models.CharField(
        max_length=50, default="openai", help_text="The dialect that the workers or the vendor speak."
    )
    account = models.ForeignKey(VendorAccount, null=True, blank=True, on_delete=models.PROTECT, related_name="pools")
    upstream_model = models.CharField(
        max_length=200, blank=True, help_text="Name that workers know the model by; empty: the served name."
    )
    policy = models.CharField(max_length=50, default="predict")
    policy_options = models.JSONField(default=dict, blank=True)
    requests_per_minute = models.PositiveIntegerField(
        "rate limit",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Calls a minute over all processes; empty: no limit.",
    )
    max_in_flight = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Calls at once from all gateway processes of a host; empty: no limit.",
    )
    queue = models.JSONField(default=dict, blank=True)
    circuit_breaker = models.JSONField(default=dict, blank=True)
    retry = models.JSONField(default=dict, blank=True)
    timeouts = models.JSONField(default=dict, blank=True)
    health = models.JSONField(default=dict, blank=True)
    stream_usage = models.BooleanField(
        "ask for usage",
        default=True,
        help_text="Ask workers for token counts in streams; off for vendors that refuse stream_options.",
    )
    history = models.CharField(max_length=20, choices=History.choices, default=History.FULL)
    is_enabled = models.BooleanField("enabled", default=True)
    origin = models.CharField(max_length=200, default="admin", editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["model"]

    def __str__(self) -> str:
        return self.model


class Worker(models.Model):
    """One upstream server of a pool. `health`, `health_reason` and `health_at` are what the probes last changed."""

    class State(models.TextChoices):
        ACTIVE = "active", "active"
        DRAINING = "draining", "draining"
        DISABLED = "disabled", "disabled"

    class Health(models.TextChoices):
        UNKNOWN = "unknown", "unknown"
        HEALTHY = "healthy", "healthy"
        UNHEALTHY = "unhealthy", "unhealthy"

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="workers")
    name = models.SlugField(max_length=100)
    url = models.CharField("URL", max_length=500, help_text="Base address, for example http://10.0.0.5:30000")
    weight = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1), MaxValueValidator(10_000)])
    max_in_flight = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Calls at once from all gateway processes of a host; empty: no limit.",
    )
    upstream_model = models.CharField(max_length=200, blank=True, help_text="Empty: as the pool says.")
    profiles = models.JSONField(
        default=list,
        blank=True,
        help_text='What it can do; empty: everything. One row must fit all of a call: {"services": ["chat"]}',
    )
    labels = models.JSONField(default=dict, blank=True)
    secret = models.TextField(blank=True, editable=False)
    state = models.CharField(max_length=20, choices=State.choices, default=State.ACTIVE)
    health = models.CharField(max_length=20, choices=Health.choices, default=Health.UNKNOWN, editable=False)
    health_reason = models.CharField(max_length=200, blank=True, editable=False)
    health_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["pool__model", "name"]
        constraints = [models.UniqueConstraint(fields=["pool", "name"], name="worker_pool_name")]

    def __str__(self) -> str:
        return f"{self.pool.model}/{self.name}"
