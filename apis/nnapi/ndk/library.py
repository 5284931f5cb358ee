"""Build of `libneuralnetworks.so` on first use, and its folder for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path

from rkcosim.apis.link.library import worker_library
from rkcosim.apis.nnapi.device import NAME as DEVICE
from rkcosim.apis.nnapi.device import VERSION
from rkcosim.apis.nnapi.executions import LONGEST_WAIT
from rkcosim.apis.nnapi.model import OperandType
from rkcosim.apis.nnapi.ndk.calls import Kind, NdkRequest
from rkcosim.apis.nnapi.ndk.executions import LONGEST_LOOP
from rkcosim.apis.nnapi.ndk.result_codes import ResultCode
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.prepared import LOOP_TIMEOUT
from rkcosim.base import PACKAGE
from rkcosim.devices.program import library_environment, place_headers, place_library
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress

SOURCES = PACKAGE / "apis" / "nnapi" / "ndk" / "native"
MODULE = "rkcosim.apis.nnapi.ndk.worker"
NAME = "libneuralnetworks.so"

OTHER_NAMES = ("libandroid.so", "libnativewindow.so")
"""Android's libraries with ASharedMemory and AHardwareBuffer, whose stand-ins the library has, too."""

FEATURE_LEVEL = 1000008
"""ANEURALNETWORKS_FEATURE_LEVEL_8, the newest one."""

HEADERS = ("NeuralNetworks.h", "NeuralNetworksTypes.h", "AndroidMemory.h")
NUMBERS_HEADER = "NeuralNetworksNumbers.h"

OPTIONS_VARIABLE, RESULTS_VARIABLE = "RKCOSIM_NNAPI", "RKCOSIM_NNAPI_RESULTS"
"""Environment variables of the library: options as lines name=value, and a folder for JSON documents."""

OTHER_NUMBERS = {
    "FUSED_NONE": 0,
    "FUSED_RELU": 1,
    "FUSED_RELU1": 2,
    "FUSED_RELU6": 3,
    "PADDING_SAME": 1,
    "PADDING_VALID": 2,
    "PREFER_LOW_POWER": 0,
    "PREFER_FAST_SINGLE_ANSWER": 1,
    "PREFER_SUSTAINED_SPEED": 2,
    "PRIORITY_LOW": 90,
    "PRIORITY_MEDIUM": 100,
    "PRIORITY_HIGH": 110,
    "PRIORITY_DEFAULT": 100,
    "DEVICE_UNKNOWN": 0,
    "DEVICE_OTHER": 1,
    "DEVICE_CPU": 2,
    "DEVICE_GPU": 3,
    "DEVICE_ACCELERATOR": 4,
    "DURATION_ON_HARDWARE": 0,
    "DURATION_IN_DRIVER": 1,
    "FENCED_DURATION_ON_HARDWARE": 2,
    "FENCED_DURATION_IN_DRIVER": 3,
    "FEATURE_LEVEL_1": 27,
    "FEATURE_LEVEL_2": 28,
    "FEATURE_LEVEL_3": 29,
    "FEATURE_LEVEL_4": 30,
    "FEATURE_LEVEL_5": 31,
    "FEATURE_LEVEL_6": 1000006,
    "FEATURE_LEVEL_7": 1000007,
    "FEATURE_LEVEL_8": FEATURE_LEVEL,
    "MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES": 128,
    "BYTE_SIZE_OF_CACHE_TOKEN": 32,
}
"""Numbers of NeuralNetworksTypes.h beside those of operands, operations and results."""


def neural_networks_library(*, sanitize: bool = False, progress: Progress = cache.say) -> Path:
    """Return the path of the library; for parameters and errors see `NativeLibrary.path`."""
    constants = {
        "DEVICE_NAME": json.dumps(DEVICE),
        "DEVICE_VERSION": json.dumps(VERSION),
        "FEATURE_LEVEL": FEATURE_LEVEL,
        "LOOP_TIMEOUT": f"{round(LOOP_TIMEOUT * 1e9)}u",
        "LONGEST_LOOP": f"{LONGEST_LOOP}u",
        "FENCE_SECONDS": round(LONGEST_WAIT),
    }
    constants |= {code.name: code.value for code in ResultCode}
    constants |= {f"CALL_{call.name}": call.value for call in NdkRequest}
    constants |= {f"KIND_{kind.name}": kind.value for kind in Kind}
    macros = {f"NN_{name}": value for name, value in constants.items()}
    made = worker_library("nnapi", NAME, SOURCES, MODULE, macros=macros, soname=True)
    return made.path(sanitize=sanitize, progress=progress)


def numbers_header() -> str:
    """Return the text of the header with the numbers of the interface."""
    operands = {f"{'MODEL' if one.name == 'SUBGRAPH' else one.name}": one.value for one in OperandType}
    return "\n".join(
        [
            "/* Numbers of NNAPI's C interface; made by rkcosim.apis.nnapi.ndk.library. */",
            "#ifndef NEURAL_NETWORKS_NUMBERS_H",
            "#define NEURAL_NETWORKS_NUMBERS_H",
            "",
            *_enumeration("OperandCode", operands.items()),
            *_enumeration("OperationCode", _members(OperationType)),
            *_enumeration("ResultCode", _members(ResultCode)),
            *(f"#define ANEURALNETWORKS_{name} {value}" for name, value in OTHER_NUMBERS.items()),
            "",
            "#endif",
            "",
        ]
    )


def _members(numbers: type[IntEnum]) -> Iterable[tuple[str, int]]:
    return [(one.name, one.value) for one in numbers]


def _enumeration(name: str, members: Iterable[tuple[str, int]]) -> list[str]:
    lines = [f"    ANEURALNETWORKS_{member} = {value}," for member, value in members]
    return ["typedef enum {", *lines, f"}} {name};", ""]


def lay_out(folder: Path, library: Path, *, copy: bool = False) -> None:
    """Create a folder with the subfolders `lib` and `include` in which programs find the library.

    Parameters
    ----------
    folder : path of the folder; created if it does not exist.
    library : path of the library, from `neural_networks_library`.
    copy : copy the library instead of linking to it.

    Raises
    ------
    OSError
        if a file cannot be written.
    """
    place_library(folder, NAME, library, OTHER_NAMES, copy=copy)
    place_headers(folder, SOURCES, HEADERS, {NUMBERS_HEADER: numbers_header()})


def environment(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a program finds the library, with options for its process.

    Parameters
    ----------
    folder : a folder made by `lay_out`; results are written to its subfolder `results`.
    options : names and values of `rkcosim.running.settings`.
    """
    return library_environment(folder, OPTIONS_VARIABLE, RESULTS_VARIABLE, options)
