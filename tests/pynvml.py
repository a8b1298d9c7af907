"""NVML of an invented machine: `GPUS` of the environment lists name, free and total MiB, and whether it is divided."""

import json
import os
from types import SimpleNamespace
from typing import Any

NVML_DEVICE_MIG_ENABLE = 1


class NVMLError(Exception): ...


class NVMLError_LibraryNotFound(NVMLError): ...


class NVMLError_DriverNotLoaded(NVMLError): ...


def _gpus() -> list[Any]:
    return json.loads(os.environ["GPUS"])


def nvmlInit() -> None:
    pass


nvmlShutdown = nvmlInit


def nvmlSystemGetDriverVersion() -> str:
    return "580.1"


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> list[Any]:
    return _gpus()[index]


def nvmlDeviceGetName(gpu: list[Any]) -> str:
    return gpu[0]


def nvmlDeviceGetMemoryInfo(gpu: list[Any]) -> SimpleNamespace:
    if gpu[2] is None:
        raise NVMLError("Not Supported")
    return SimpleNamespace(free=gpu[1] << 20, total=gpu[2] << 20)


def nvmlDeviceGetMigMode(gpu: list[Any]) -> tuple[int, int]:
    return gpu[3], gpu[3]
