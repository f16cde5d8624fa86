"""Every setting, read from the environment once. A value that cannot be used stops the start with a sentence.

What operators change while the gateway runs is a model, not a setting. The table of variables is in README.md.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static
from django.urls import reverse_lazy

BASE_DIR = Path(__file__).resolve().parent.parent


def _text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def _whole(name: str, default: int, least: int, most: int) -> int:
    text = _text(name, str(default))
    if not text.isascii() or not text.lstrip("-").isdigit() or not least <= int(text) <= most:
        raise ImproperlyConfigured(f"{name}={text!r}: a whole number from {least} to {most} is expected")
    return int(text)


def _seconds(name: str, default: float, least: float, most: float) -> float:
    text = _text(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ImproperlyConfigured(f"{name}={text!r}: seconds from {least:g} to {most:g} are expected")
    return value


def _flag(name: str, default: bool) -> bool:
    text = _text(name, "1" if default else "0").lower()
    if text not in {"0", "1", "true", "false", "yes", "no"}:
        raise ImproperlyConfigured(f"{name}={text!r}: 1 or 0 is expected")
    return text in {"1", "true", "yes"}


def _names(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in _text(name, default).split(",") if part.strip()]


def _counts(name: str) -> dict[str, int]:
    """`chat=500,speech=20`: counts by name."""
    counts = {}
    for part in _names(name):
        key, _, number = part.partition("=")
        if not key.strip() or not number.strip().isdigit() or int(number) < 1:
            raise ImproperlyConfigured(f"{name}: {part!r} is not of the form name=number")
        counts[key.strip()] = int(number)
    return counts


# ---- the process ----------------------------------------------------------------------------------------------------

HOST = _text("IGW_HOST", "127.0.0.1")
PORT = _whole("IGW_PORT", 8000, 1, 65535)
CONTROL_PORT = _whole("IGW_CONTROL_PORT", 0, 0, 65535) or None  # None: one port serves both planes
PROCESSES = _whole("IGW_PROCESSES", 1, 1, 256)
STATE_DIR = Path(_text("IGW_STATE_DIR", ".igw")).absolute()
IS_DEMO = _flag("IGW_DEMO", True)
GRACE_S = _seconds("IGW_GRACE_S", 120, 0, 3600)  # what running calls get after SIGTERM
DRAIN_DELAY_S = _seconds("IGW_DRAIN_DELAY_S", 0, 0, 60)  # /ready says no for so long before the port closes
LOG_LEVEL = _text("IGW_LOG_LEVEL", "info").lower()
if LOG_LEVEL not in {"debug", "info", "warning", "error"}:
    raise ImproperlyConfigured(f"IGW_LOG_LEVEL={LOG_LEVEL!r}: debug, info, warning or error is expected")

# ---- limits of one process ------------------------------------------------------------------------------------------

BODY_LIMIT_BYTES = _whole("IGW_BODY_LIMIT_MB", 25, 1, 1024) * 2**20
BODY_BUDGET_BYTES = _whole("IGW_BODY_BUDGET_MB", 512, 1, 65536) * 2**20  # all request bodies held at once
BODY_TIMEOUT_S = _seconds("IGW_BODY_TIMEOUT_S", 60, 1, 3600)
HEAD_TIMEOUT_S = _seconds("IGW_HEAD_TIMEOUT_S", 10, 1, 120)
MAX_IN_FLIGHT = _whole("IGW_MAX_IN_FLIGHT", 4096, 1, 1_000_000)
MAX_IN_FLIGHT_OF = _counts("IGW_MAX_IN_FLIGHT_OF")  # by service, within the former
CLIENT_IDLE_S = _seconds(
    "IGW_CLIENT_IDLE_S", 30, 1, 3600
)  # a client that takes no byte of its answer for so long is cut
KEEPALIVE_COMMENT_S = _seconds("IGW_KEEPALIVE_COMMENT_S", 15, 0.1, 3600)  # silence of a stream before a comment is sent
HISTORY_BODY_LIMIT_BYTES = _whole("IGW_HISTORY_BODY_LIMIT_KB", 4096, 1, 1_048_576) * 1024
RECORD_QUEUE_BYTES = _whole("IGW_RECORD_QUEUE_MB", 64, 1, 65536) * 2**20
SHOW_WORKER = _flag("IGW_SHOW_WORKER", False)  # x-igw-worker for every key, not for operators only

# ---- secrets --------------------------------------------------------------------------------------------------------


def _secret_keys() -> list[str]:
    """From the environment, else from the state directory, where `manage.py up` puts a key that it made."""
    keys = _names("IGW_SECRET_KEYS")
    path = STATE_DIR / "secret_keys"
    if not keys and path.is_file():
        keys = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if not keys:
        raise ImproperlyConfigured("set IGW_SECRET_KEYS (32 characters or more, comma-separated, the newest first)")
    if short := [key for key in keys if len(key) < 32]:
        raise ImproperlyConfigured(f"IGW_SECRET_KEYS: {len(short)} of the keys have less than 32 characters")
    return keys


def _derive(key: str, purpose: str) -> bytes:
    return hmac.digest(key.encode(), purpose.encode(), hashlib.sha256)


_KEYS = _secret_keys()
SECRET_KEY, *SECRET_KEY_FALLBACKS = [_derive(key, "django").hex() for key in _KEYS]
SEAL_KEYS = [_derive(key, "seal") for key in _KEYS]  # the first seals, all open
KEY_PEPPERS = [_derive(key, "api-key") for key in _KEYS]  # the first digests new keys, all check
AUDIT_KEYS = [_derive(key, "audit") for key in _KEYS]
VIA = f"1.1 igw-{_derive(_KEYS[-1], 'via').hex()[:12]}".encode()  # our name in `Via`, the same in every process
ADMIN_PASSWORD = _text("IGW_ADMIN_PASSWORD")

# ---- stores ---------------------------------------------------------------------------------------------------------


def _stores() -> tuple[str, str]:
    """The two URLs; without variables those of the engines that `manage.py up` runs in the state directory."""
    path = STATE_DIR / "stores.json"
    running = json.loads(path.read_text()) if path.is_file() else {}
    urls = _text("DATABASE_URL", running.get("database_url", "")), _text("REDIS_URL", running.get("redis_url", ""))
    for name, url in zip(("DATABASE_URL", "REDIS_URL"), urls, strict=True):
        if not url:
            raise ImproperlyConfigured(f"set {name}, or start everything with `make run`")
    return urls


def _database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(f"DATABASE_URL: postgresql:// is expected, got {parts.scheme or 'no scheme'}")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "igw",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,  # under ASGI each request has a thread of its own, and a kept connection is lost with it
        "OPTIONS": {"connect_timeout": 5, **dict(parse_qsl(parts.query))},
    }


DATABASE_URL, REDIS_URL = _stores()
DATABASES = {"default": _database(DATABASE_URL)}
if urlsplit(REDIS_URL).scheme not in {"redis", "rediss", "unix"}:
    raise ImproperlyConfigured("REDIS_URL: redis://, rediss:// or unix:// is expected")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "igw"},
    }
}

# ---- Celery ---------------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_TASK_DEFAULT_QUEUE = "igw"

# ---- Django ---------------------------------------------------------------------------------------------------------

DEBUG = False
if HOST in {"0.0.0.0", "::"} and not _names("IGW_ALLOWED_HOSTS"):
    raise ImproperlyConfigured(f"IGW_HOST={HOST!r}: set IGW_ALLOWED_HOSTS to the names it is reached by, or to *")
ALLOWED_HOSTS = _names("IGW_ALLOWED_HOSTS", "*" if HOST in {"127.0.0.1", "::1", "localhost"} else HOST)
CSRF_TRUSTED_ORIGINS = _names("IGW_TRUSTED_ORIGINS")
IS_HTTPS = _flag("IGW_HTTPS", False)  # served to browsers behind TLS: cookies only over it
INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "gateway",
    "conversations",
    "admin_ui",
]
MIDDLEWARE = [
    "admin_ui.csp.csp",
    "django.middleware.security.SecurityMiddleware",
    "admin_ui.assets.Assets",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "gateway.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "admin_ui" / "overrides"],  # before the theme's, which comes before ours among the apps
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True  # no collectstatic step: files come from the installed packages
WHITENOISE_AUTOREFRESH = False
LOGIN_URL = "/admin/login/"
LOGIN_REDIRECT_URL = "/admin/"
SESSION_COOKIE_AGE = 8 * 3600
SESSION_SAVE_EVERY_REQUEST = True
SESSION_COOKIE_NAME = "__Host-igw-session" if IS_HTTPS else "igw-session"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_HTTPS
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 2**20
DATA_UPLOAD_MAX_NUMBER_FIELDS = 20_000  # the form of a pool has a dozen for each worker
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "gateway.telemetry.log.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL.upper()},
    "loggers": {"django.request": {"level": "ERROR"}, "httpx": {"level": "WARNING"}},
}

# ---- admin theme ----------------------------------------------------------------------------------------------------


def _page(title: str, icon: str, model: str) -> dict[str, object]:
    """A sidebar entry for those who may see the model, `app.model`."""
    app, name = model.split(".")
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{app}_{name}_changelist"),
        "permission": lambda request: request.user.has_perm(f"{app}.view_{name}"),
    }


UNFOLD = {
    "SITE_TITLE": "IGW",
    "SITE_HEADER": "IGW",
    "SITE_SUBHEADER": "Inference gateway",
    "SITE_SYMBOL": "hub",
    "SITE_URL": None,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("admin_ui/favicon.svg")}],
    "STYLES": [lambda request: static("admin_ui/admin.css")],
    "LOGIN": {"form": "admin_ui.login.LoginForm"},
    "COLORS": {
        "primary": {
            "50": "oklch(98.4% .014 180.72)",
            "100": "oklch(95.3% .051 180.801)",
            "200": "oklch(91% .096 180.426)",
            "300": "oklch(85.5% .138 181.071)",
            "400": "oklch(77.7% .152 181.912)",
            "500": "oklch(70.4% .14 182.503)",
            "600": "oklch(51.1% .096 186.391)",
            "700": "oklch(43.7% .078 188.216)",
            "800": "oklch(38.6% .063 188.416)",
            "900": "oklch(33% .052 189)",
            "950": "oklch(27.7% .046 192.524)",
        }
    },
    "SIDEBAR": {
        "show_search": False,
        "navigation": [
            {
                "title": "Serving",
                "items": [
                    _page("Pools", "hub", "gateway.pool"),
                    _page("Groups", "alt_route", "gateway.group"),
                    _page("Workers", "memory", "gateway.worker"),
                    _page("Vendor accounts", "cloud", "gateway.vendoraccount"),
                ],
            },
            {
                "title": "Access",
                "items": [
                    _page("Teams", "groups", "gateway.team"),
                    _page("API keys", "key", "gateway.apikey"),
                    _page("Users", "person", "auth.user"),
                    _page("Roles", "shield_person", "auth.group"),
                ],
            },
            {
                "title": "Records",
                "items": [
                    _page("Exchanges", "forum", "conversations.exchange"),
                    _page("Revisions", "history", "gateway.configrevision"),
                    _page("Audit events", "fact_check", "gateway.auditevent"),
                    {"title": "Control API", "icon": "api", "link": reverse_lazy("api-docs")},
                ],
            },
        ],
    },
}
