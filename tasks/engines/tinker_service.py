"""A Tinker service as its clients here see it: the study's model there, and its errors in the project's terms.

The operator sets its address and key (TINKER_BASE_URL, TINKER_API_KEY), never a study.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from concurrent.futures import TimeoutError as Late
from functools import cached_property
from typing import Any

import httpx

from storage.errors import Parked, UserError
from storage.roots import seconds_set

#: In the folder of a remote adapter: its paths on the service.
REMOTE = "tinker.json"


def sdk() -> Any:
    """Return the SDK. Errors: UserError if it is not installed."""
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    try:
        import tinker  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("engine tinker: the Tinker SDK is not installed: install varband[tinker]") from None
    return tinker


def patience() -> float:
    """Return the seconds to wait for one answer."""
    return seconds_set("VARBAND_TINKER_TIMEOUT", 3600.0)


def answered(call: Callable[[], Any]) -> Any:
    """Return the answer to a call of the SDK, which itself repeats what a repetition may solve. Errors: Parked if the
    service is away, late or out of credit; UserError if it refuses the request or the key."""
    tinker = sdk()
    try:
        found = call()
        return found.result(timeout=patience()) if hasattr(found, "result") else found
    except (tinker.AuthenticationError, tinker.PermissionDeniedError) as error:
        raise UserError(f"engine tinker: the service refuses the key ({error}); check TINKER_API_KEY") from None
    except (tinker.BadRequestError, tinker.UnprocessableEntityError) as error:
        raise UserError(f"engine tinker: {error}") from None
    except tinker.RequestFailedError as error:
        raise (UserError if error.category == "user" else Parked)(f"engine tinker: {error}") from None
    except Late:
        raise Parked(f"engine tinker: no answer within {patience():g} s (VARBAND_TINKER_TIMEOUT); {_RESUME}") from None
    except (tinker.TinkerError, httpx.HTTPError, ValueError, RuntimeError) as error:
        if type(error) is tinker.TinkerError:  # no key, or one of another form
            raise UserError(f"engine tinker: {error}") from None
        raise Parked(f"engine tinker: {type(error).__name__}: {error}; {_RESUME}") from None


_RESUME = "what was sampled and saved is kept, and the same command resumes"


class Service:
    """One session on the service. names: possible names of the study's model; served: its exact name, if set."""

    def __init__(self, names: Collection[str], served: str) -> None:
        listed = [str(one.model_name) for one in answered(self.rest.get_server_capabilities).supported_models]
        alike = [one for one in listed if one.rpartition("/")[2].lower() in {name.lower() for name in names}]
        if served not in listed and (served or len(alike) != 1):
            raise UserError(
                f"engine tinker: the service has {', '.join(listed)}, and the study's model is"
                f" {served or ' or '.join(names)}; name it with hardware.served_model"
            )
        self.model = served or alike[0]

    @cached_property
    def client(self) -> Any:
        return sdk().ServiceClient()

    @cached_property
    def rest(self) -> Any:
        return answered(lambda: sdk().RestClient())
