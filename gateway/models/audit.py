"""What was changed, by whom: one revision per edit, one event per object that it touched. Rows are only ever added."""

from __future__ import annotations

from django.db import models


class ConfigRevision(models.Model):
    """The configuration after an edit, as the document that `export` writes, secrets as references or sealed."""

    created_at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200)
    origin = models.CharField(max_length=200)  # admin, api, or a file's name
    summary = models.CharField(max_length=500)
    document = models.JSONField()
    fingerprint = models.CharField(max_length=64)

    class Meta:
        verbose_name = "revision"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"r{self.pk} {self.summary}"


class AuditEvent(models.Model):
    """One object's change in a revision. `chain` is an HMAC over the event before and this one (runtime/audit)."""

    class Action(models.TextChoices):
        CREATE = "create", "create"
        UPDATE = "update", "update"
        DELETE = "delete", "delete"

    created_at = models.DateTimeField(db_index=True)
    revision = models.ForeignKey(ConfigRevision, on_delete=models.PROTECT, related_name="events")
    actor = models.CharField(max_length=200)
    origin = models.CharField(max_length=200)
    action = models.CharField(max_length=20, choices=Action.choices)
    kind = models.CharField(max_length=50)  # pool, worker, account, group, team, key
    object = models.CharField(max_length=400)  # deepseek-v3 or deepseek-v3/w1
    changes = models.JSONField()  # field: [before, after]; a secret's change shows as "changed"
    chain = models.CharField(max_length=64)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["kind", "object"], name="audit_object")]

    def __str__(self) -> str:
        return f"{self.action} {self.kind} {self.object}"
