"""What the Docker SDK raises -> errors of ours; the one place that knows its exception classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlmodelscope.core.errors import EnvironmentMissingError

__all__ = ["explanation", "is_absent", "is_timeout", "translating"]

_NOT_FOUND = 404


@contextmanager
def translating(act: str, **fields: str) -> Iterator[None]:
    """EnvironmentMissingError, caused by what was raised: the engine refuses, or does not answer any more."""
    # the SDK brings requests along: loaded where an engine is really used
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except APIError as error:
        raise EnvironmentMissingError(
            f"the container engine refused to {act}: {explanation(error)}", reason=explanation(error), **fields
        ) from error
    except (DockerException, RequestException, OSError) as error:
        raise EnvironmentMissingError(
            f"the container engine did not answer when asked to {act}: {error}",
            hint="see whether it still runs: `docker info` or `podman info`",
            reason=str(error),
            **fields,
        ) from error


def explanation(error: BaseException) -> str:
    """The engine's own words."""
    return str(getattr(error, "explanation", None) or error).strip()


def is_absent(error: BaseException | None) -> bool:
    """Whether the engine does not know what it was asked about."""
    return getattr(getattr(error, "response", None), "status_code", None) == _NOT_FOUND


def is_timeout(error: BaseException | None) -> bool:
    from requests.exceptions import ConnectionError as Disconnected, Timeout

    # a unix socket that stays silent shows as a lost connection which names the time-out
    return isinstance(error, Timeout) or (isinstance(error, Disconnected) and "timed out" in str(error).lower())
