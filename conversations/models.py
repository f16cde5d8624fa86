"""The history: one row for each finished call, written by recorder and only read by Django."""

from __future__ import annotations

from django.db import models


class Exchange(models.Model):
    """What happened in one call. It names teams, keys, pools and workers without pointing at them: they may be gone.

    Bodies are bytes as they went over the wire (conversations/text makes them readable); NULL where the pool's history
    mode keeps none. Texts without a length limit: the recorder cuts them, and a limit here could only lose a row.
    """

    id = models.UUIDField(primary_key=True, editable=False)  # version 7, made at the call's arrival
    created_at = models.DateTimeField(help_text="Arrival of the call.")
    team_id = models.BigIntegerField(null=True)
    team = models.CharField()
    key_id = models.BigIntegerField(null=True)
    key = models.CharField()
    request_id = models.CharField()
    service = models.CharField()
    model = models.CharField(help_text="As the app asked for it.")
    pool_id = models.BigIntegerField(null=True)
    pool = models.CharField(help_text="The pool's served model.")
    worker_id = models.CharField()
    worker = models.CharField()
    conversation_id = models.CharField()
    revision = models.BigIntegerField(help_text="Of the configuration that the call ran on.")
    is_streaming = models.BooleanField("streaming")
    attempts = models.JSONField(help_text="Tries at workers, in order; times in seconds since the arrival.")
    route = models.JSONField(null=True, help_text="A group's walk: members in order, with reasons and results.")
    outcome = models.CharField()
    status = models.IntegerField(help_text="HTTP status that the app got; 0: none was sent.")
    error_code = models.CharField()
    queued_s = models.FloatField()
    ttft_s = models.FloatField("time to first byte", null=True)
    duration_s = models.FloatField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    usage_source = models.CharField(help_text="Who counted the tokens.")
    response_bytes = models.BigIntegerField(help_text="Length of the whole answer.")
    is_truncated = models.BooleanField("truncated", help_text="The kept answer lacks its end.")
    request_body = models.BinaryField(null=True)
    response_body = models.BinaryField(null=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["-created_at"], name="exchange_created"),
            models.Index(fields=["team_id", "-created_at"], name="exchange_team_created"),
            models.Index(fields=["pool", "-created_at"], name="exchange_pool_created"),
            models.Index(fields=["request_id"], name="exchange_request"),
        ]

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M:%S} {self.pool or self.model} {self.outcome}"
