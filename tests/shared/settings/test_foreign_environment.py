"""No environment variable of another program changes our processes. The test fails if a new Celery
release reads another variable.
"""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

from handoff_queue.shared.settings.foreign_environment import (
    NAME_A_BROKER,
    READ_BY_CELERY,
    forget_celery_variables,
    forget_service_links,
)

IGNORED_BY_OUR_APPS = {
    *NAME_A_BROKER,
    "CELERY_CONFIG_MODULE",
    "CELERY_LOADER",
    "CONFIG_MODULE",
    "DJANGO_PROJECT_DIR",
    "DJANGO_SETTINGS_MODULE",
    "LOADER",
    "SKIP_CHECKS",
}
HARMLESS = {
    "APP",  # the command line has -A
    "C_FORCE_ROOT",  # only for pickle, which our apps refuse
    "ITERM_PROFILE",
    "MULTIPROCESSING_FORKING_DISABLE",  # Celery sets this variable and does not read it
    "NO_COLOR",
    "NUMBER_OF_PROCESSORS",  # Windows only
    "TERM",
}
OTHER_TRANSPORTS_AND_TEST_TOOLS = re.compile(
    r"celery/contrib/(pytest|testing/)|kombu/transport/(?!redis|virtual|__init__)"
)
READS = (
    r"(?:environ\.get|environ\.pop|getenv|_int_env|_float_env)\(\s*['\"](\w+)['\"]",
    r"environ\[['\"](\w+)['\"]\]",
    r"env(?:var)?\s*=\s*['\"]([A-Z_]+)['\"]",
    r"['\"](\w+)['\"] (?:not )?in os\.environ",
)


def test_every_variable_that_the_installed_celery_reads_is_known() -> None:
    read: dict[str, str] = {}
    for package in ("celery", "kombu", "billiard", "vine"):
        site = Path(str(distribution(package).locate_file("")))
        for file in (site / package).rglob("*.py"):
            place = file.relative_to(site).as_posix()
            if not OTHER_TRANSPORTS_AND_TEST_TOOLS.match(place):
                text = file.read_text()
                names = {name for pattern in READS for name in re.findall(pattern, text)}
                read |= dict.fromkeys(names, place)

    known = READ_BY_CELERY | IGNORED_BY_OUR_APPS | HARMLESS
    assert {name: place for name, place in read.items() if name not in known} == {}
    assert set(read) >= READ_BY_CELERY


def test_our_commands_drop_only_celerys_own_variables() -> None:
    users = {"CELERY_BROKER_URL": "for a tool", "PATH": "/bin", "APP": "shop"}
    environment = users | dict.fromkeys(READ_BY_CELERY, "1")

    forget_celery_variables(environment)

    assert environment == users


def test_flower_does_not_see_the_service_links_of_kubernetes() -> None:
    users = {"FLOWER_BASIC_AUTH": "admin:x", "FLOWER_MAX_TASKS": "9", "REDIS_PORT": "tcp://1:2"}
    environment = {
        **users,
        "FLOWER_PORT": "tcp://10.0.0.1:5555",
        "FLOWER_PORT_5555_TCP": "tcp://10.0.0.1:5555",
    }

    forget_service_links(environment)

    assert environment == users
