"""Compilations of NNAPI's C interface (`ANeuralNetworksCompilation`).

The rules are those of AOSP packages/modules/NeuralNetworks (mirror
timocapa/android_packages_modules_NeuralNetworks, commit 19f042d), runtime/CompilationBuilder.cpp.
"""

from __future__ import annotations

from rkcosim.apis.nnapi.device import IDevice, IPreparedModel
from rkcosim.apis.nnapi.model import Operand
from rkcosim.apis.nnapi.ndk.models import ModelBuilder
from rkcosim.apis.nnapi.ndk.result_codes import as_results, bad_data, bad_state
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.runner import known

PREFERENCES = range(3)
PRIORITIES = (90, 100, 110)

ALIGNMENT = 64
"""Preferred alignment of memory, and multiple of its preferred length, in bytes (assumed)."""


class Compilation:
    """A model for the device.

    Parameters
    ----------
    model : the finished model.
    explicit : whether the program has named the device.

    Raises
    ------
    NdkError
        BAD_STATE if the model is not finished.
    """

    def __init__(self, model: ModelBuilder, explicit: bool) -> None:
        if not model.finished:
            raise bad_state("the model is not finished")
        self.model, self.explicit = model, explicit
        self._prepared: IPreparedModel | None = None
        self._finished = False

    def set_preference(self, preference: int) -> None:
        """Accept a preference; it has no effect here."""
        self._change()
        if preference not in PREFERENCES:
            raise bad_data(f"there is no preference {preference}")

    def set_priority(self, priority: int) -> None:
        """Accept a priority; it has no effect here."""
        self._change()
        if priority not in PRIORITIES:
            raise bad_data(f"there is no priority {priority}")

    def set_caching(self) -> None:
        """Accept a folder and a token; compilations are not cached."""
        self._change()

    def set_timeout(self) -> None:
        """Accept a timeout, which only the compilation for one named device may have."""
        self._change()
        self.need_explicit()

    def finish(self, device: IDevice) -> None:
        """Compile the model; a compilation that fails cannot be executed.

        Raises
        ------
        NdkError
            BAD_DATA if the device has not one of the operations (AOSP, runtime/ExecutionPlan.cpp,
            findBestDeviceForEachOperation).
        """
        self._change()
        self._finished = True
        model, pools = self.model.merged()
        for subgraph in (model.main, *model.referenced):
            for operation in subgraph.operations:
                kind = OperationType(operation.type)
                if not known(kind):
                    raise bad_data(f"the device has no operation {kind.name}")
        with as_results():
            self._prepared = device.prepare_model(model, pools)

    @property
    def ready(self) -> bool:
        """Whether it can be executed."""
        return self._prepared is not None

    @property
    def prepared(self) -> IPreparedModel:
        """The model on the device; raises BAD_DATA if the compilation is not finished."""
        if self._prepared is None:
            raise bad_data("the compilation is not finished")
        return self._prepared

    @property
    def inputs(self) -> list[Operand]:
        """Operands of the inputs."""
        return self.model.inputs

    @property
    def outputs(self) -> list[Operand]:
        """Operands of the outputs."""
        return self.model.outputs

    def preferred(self, output: bool, index: int) -> int:
        """Return the preferred alignment and padding of an input or output."""
        self.need_ready()
        count = len(self.outputs if output else self.inputs)
        if not 0 <= index < count:
            raise bad_data(f"there is no {'output' if output else 'input'} {index}, only {count}")
        return ALIGNMENT

    def need_ready(self) -> None:
        """Raise BAD_STATE if it cannot be executed."""
        if not self.ready:
            raise bad_state("the compilation is not finished, or has failed")

    def need_explicit(self) -> None:
        """Raise BAD_DATA if the program has not named the device."""
        if not self.explicit:
            raise bad_data("the compilation was not made for one device")

    def _change(self) -> None:
        if self._finished:
            raise bad_state("the compilation is finished")

    def free(self) -> None:
        """Free the model on the device."""
        if self._prepared is not None:
            self._prepared.close()
