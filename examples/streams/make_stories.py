"""Make the streams of docs/stories: two compiled networks, and three copies with one bug each.

python examples/streams/make_stories.py [FOLDER]

`digits.json` is the network of examples/digits with an image of a 7; `first.json` is a small network whose
first layer needs two banks of CBUF for its picture.  The others differ from these by one field of one word;
each contains the correct output as the expected result.  Needs onnxruntime for `first.json`.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.driver.core_port import Kick
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import register_word
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.capture import Expected, save
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import Region, Stream

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent

BUGS: dict[str, tuple[str, int, str, str, dict[str, int]]] = {
    "bank_split": ("first", 0, "CNA", "CBUF_CON0", {"DATA_BANK": 1, "WEIGHT_BANK": 11}),
    "surface_stride": ("digits", 2, "DPU", "DST_SURF_STRIDE", {"DST_SURF_STRIDE": 240}),
    "no_interrupt": ("digits", 5, "DPU_RDMA", "ERDMA_CFG", {"ERDMA_DISABLE": 1}),
}
"""File -> correct stream, task, block and register, and the wrong values of its fields."""


def first() -> tuple[bytes, np.ndarray]:
    """Return a network of three layers on a 48 x 48 picture: the model (int8, QDQ) and an input."""
    make = runpy.run_path(str(EXAMPLES / "networks" / "make.py"))
    network = make["Network"]("first", (1, 3, 48, 48), 7)
    output = network.classify(network.relu(network.conv("image", 3, 16, 3, 2)), 16, 10)
    model = network.model(output)
    image = network.rng.normal(size=network.shape).astype(np.float32)
    return make["quantise"](model, [image]), image


def digits() -> tuple[bytes, np.ndarray]:
    """Return the network of examples/digits and a held-back image, a 7."""
    archive = np.load(EXAMPLES / "digits" / "held_back.npz")
    image = archive["images"][1].astype(np.float32) * np.float32(archive["scale"])
    return (EXAMPLES / "digits" / "digits_int8.onnx").read_bytes(), image.reshape(1, 1, 16, 16)


def stream_of(data: bytes, values: np.ndarray) -> tuple[Stream, Expected]:
    """Return a network's job with all its memory, and the logits that the golden model computes."""
    compiled = compile_model(data)
    with Driver(GoldenNpu(1)) as driver:
        loaded = LoadedModel(compiled, driver)
        loaded.set_input(0, values)
        tasks = loaded.job().tasks
        begin, end = tasks[0], tasks[-1]
        kick = Kick(begin.regcmd_addr, begin.amount, len(tasks), end.int_mask)
        regions = [Region(name, b.iova, b.view().copy()) for name, b in loaded.buffers.items()]
        stream = Stream(kick, regions)
        place = list(compiled.plan.places.values())[-1]
        address = loaded.bases[place.ref.region] + place.ref.offset
    device = GoldenNpu(1)
    stream.load_into(device.memory)
    if not run_kick(device, stream.kick).done:
        raise SystemExit("the correct stream hangs")
    logits = device.memory.view(address, place.cube[0]).copy()
    return stream, Expected([Region("logits", address, logits)])


def plant(stream: Stream, task: int, block: str, register: str, fields: dict[str, int]) -> Stream:
    """Return the stream with other values in one register of one task."""
    described = registers()[block][register]
    listed = program_of_stream(stream).tasks[task]
    command = [command for command in listed.commands if command.register == described][-1]
    word = register_word(described, described.encode(**(described.decode(command.value) | fields)))
    regions = [Region(r.name, r.address, r.data.copy()) for r in stream.regions]
    for region in regions:
        at = (listed.address or 0) + 8 * command.index - region.address
        if 0 <= at < region.data.size:
            region.data[at : at + 8] = np.frombuffer(word.to_bytes(8, "little"), np.uint8)
    return Stream(stream.kick, regions, stream.core, stream.writes)


def main() -> None:
    """Write all streams into the folder named on the command line, or into the folder of this file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    right = {"digits": stream_of(*digits()), "first": stream_of(*first())}
    for name, (stream, expected) in right.items():
        save(stream, expected, folder / f"{name}.json")
    for name, (source, task, block, register, fields) in BUGS.items():
        stream, expected = right[source]
        save(plant(stream, task, block, register, fields), expected, folder / f"{name}.json")


if __name__ == "__main__":
    main()
