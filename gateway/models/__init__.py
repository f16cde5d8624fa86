"""Configuration and audit tables. Imported here because Django's app registry loads exactly this module."""

from gateway.models.access import ApiKey, Team
from gateway.models.audit import AuditEvent, ConfigRevision
from gateway.models.groups import Group
from gateway.models.pools import Pool, VendorAccount, Worker

__all__ = ["ApiKey", "AuditEvent", "ConfigRevision", "Group", "Pool", "Team", "VendorAccount", "Worker"]
