"""This process -> the names that identify its user and machine, which no record may keep."""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import suppress
from pathlib import Path

from mlmodelscope.store.redact import Private

__all__ = ["private_names"]


def private_names() -> Private:
    homes, user = set(), None
    with suppress(KeyError):  # a container may run under a number without an account
        account = pwd.getpwuid(os.getuid())
        user = account.pw_name
        homes.add(account.pw_dir)
    with suppress(RuntimeError):  # and neither does every account have a home
        homes.add(str(Path.home()))
    return Private(homes=tuple(sorted(homes)), user=user, host=socket.gethostname())
