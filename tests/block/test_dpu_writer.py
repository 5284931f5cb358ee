"""StripeWriter alone: output types, surface order, packets, copies, the PPU's stream ([HW 7], [HW 8])."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from rkcosim.rtl.npu.dpu_writer import StripeWriter
from tests.block.dpu_bench import Bench
from tests.block.test_dpu import configure
from tests.simulation import shared
from tests.twins.packets_model import packets

INT8, INT16, FP16, BF16, INT32, FP32, INT4, NONE = range(8)
BITS = {INT8: 8, INT16: 16, FP16: 16, BF16: 16, INT32: 32, FP32: 32, INT4: 4, NONE: 8}
LIMIT = 60_000
GUARD = 0x400
Settings = dict[str, dict[str, int]]


class Job:
    """One task: settings, elements, and the expected memory and PPU stream.

    `misaligned` packets are not written. With another SIZE_E than `want` only the first stripe is written,
    or, if it is larger, the first pixel.
    """

    copies = 0
    misaligned = False

    def __init__(self, cfg: Settings, seed: int) -> None:
        self.cfg = cfg
        self.width = cfg["DATA_CUBE_WIDTH"]["WIDTH"] + 1
        self.height = cfg["DATA_CUBE_HEIGHT"]["HEIGHT"] + 1
        self.channels = cfg["DATA_CUBE_CHANNEL"]["CHANNEL"] + 1
        self.pixels = self.width * self.height
        mode, form = cfg["FEATURE_MODE_CFG"], cfg["DATA_FORMAT"]
        self.depthwise = mode["CONV_MODE"] == 3
        self.group = 64 if self.depthwise else {INT4: 64, INT8: 32}.get(form["IN_PRECISION"], 16)
        self.packed = bool(cfg["BS_OW_CFG"]["TP_ORG_EN"] or mode.get("TP_EN", 0))
        if self.packed and mode["FLYING_MODE"]:
            self.group = 8  # surface by surface
        self.bits = BITS[form["OUT_PRECISION"]]
        self.flying = bool(mode["FLYING_MODE"])
        self.given = 128 // BITS[form["IN_PRECISION"]]
        """Channels of an input atom of a flying task (7.2.1)."""
        self.per_atom = min(128 // self.bits, self.given) if self.flying else 128 // self.bits
        self.pend = cfg["OFFSET_PEND"]["OFFSET_PEND"]
        rng = random.Random(seed)
        self.values = [[rng.getrandbits(32) for _ in range(self.pixels)] for _ in range(self.channels)]

    def element(self, c: int, pixel: int) -> int:
        """Return the 32 bits that the pipeline outputs."""
        return self.values[c][pixel] if c < self.channels else self.pend % 2**32

    def octets(self) -> Iterator[dict[str, Any]]:
        """Return the pipeline's output in the order of the DPU."""
        for first in range(0, self.channels, self.group):
            end = min(first + self.group, self.channels)
            for pixel in range(self.pixels):
                for base in range(first, end, 8):
                    last = base + 8 >= end
                    group_last = last and pixel == self.pixels - 1
                    yield {
                        "data": [self.element(base + lane, pixel) for lane in range(8)],
                        "tag": {
                            "octet": (base - first) // 8,
                            "slot": pixel % 16,
                            "live": min(8, self.channels - base),
                            "stripe_last": last and (pixel % 16 == 15 or pixel == self.pixels - 1),
                            "group_last": group_last,
                            "task_last": group_last and end == self.channels,
                        },
                    }

    def atom(self, surface: int, pixel: int) -> bytes:
        """Return a surface's atom of a pixel."""
        word = 0
        for lane in range(self.per_atom):
            value = self.element(surface * self.per_atom + lane, pixel)
            word |= (value & (1 << self.bits) - 1) << lane * self.bits
        return word.to_bytes(16, "little")

    @property
    def surfaces(self) -> int:
        """Return the surfaces of the whole cube."""
        return -(-self.channels // self.per_atom)

    @property
    def want(self) -> int:
        """Return the expected surfaces of a kernel group."""
        half = self.depthwise and BITS[self.cfg["DATA_FORMAT"]["IN_PRECISION"]] == 16
        return max(1, (32 if half else self.group) * self.bits // 128)

    @property
    def series(self) -> int:
        """Return Z of 4.10."""
        if self.flying and not self.copies:
            return max(1, self.given * self.bits // 128)
        if not self.cfg["FEATURE_MODE_CFG"]["FLYING_MODE"] and self.want > 8:
            return self.want
        return self.cfg["BS_OW_CFG"]["SIZE_E_1"] + 1

    @property
    def kept(self) -> int:
        """Return the surfaces of a series that are written."""
        named = self.flying and not self.copies and self.series <= 8
        return min(self.series, self.cfg["BS_OW_CFG"]["SIZE_E_1"] + 1) if named else self.series

    def write(self, memory: bytearray) -> None:
        """Apply the task's effect to memory."""
        if not self.cfg["FEATURE_MODE_CFG"]["OUTPUT_MODE"] & 2:
            return
        base = 16 * self.cfg["DST_BASE_ADDR"]["DST_BASE_ADDR"]
        if self.cfg["DATA_FORMAT"]["OUT_PRECISION"] == NONE:
            return  # a result of no type is not written
        stride = self.cfg["DST_SURF_STRIDE"]["DST_SURF_STRIDE"]
        jump = self.cfg["SURFACE_ADD"]["SURF_ADD"]
        notch = self.cfg["DATA_CUBE_NOTCH_ADDR"]["NOTCH_ADDR_0"]
        if self.misaligned:
            return
        if self.packed:
            atoms = [[self.atom(s, p) for p in range(self.pixels)] for s in range(self.surfaces)]
            wdma, turned = self.cfg["WDMA_SIZE_1"], self.cfg["BS_OW_CFG"]["TP_ORG_EN"]
            width = wdma["WIDTH_WDMA"] + 1
            for place, atom in packets(
                atoms,
                together=0 if self.flying else self.bits // 8,
                size=1 + self.cfg["WDMA_SIZE_0"]["TP_PRECISION"] if turned else 0,
                sizes=(wdma["HEIGHT_WDMA"] + 1, width),
                pitches=(jump, width + notch, stride),
            ):
                memory[base + 16 * place : base + 16 * place + 16] = atom
            return
        pitch, copies = self.width + notch, max(self.copies, 1)
        surfaces, pixels, said = self.surfaces, self.pixels, self.cfg["BS_OW_CFG"]["SIZE_E_1"] + 1
        if not self.flying and said != min(self.want, 8):
            surfaces, pixels = min(surfaces, said, self.want), min(pixels, 1 if said > self.want else 16)
        for number in range(surfaces * copies):
            if number % self.series >= self.kept:
                continue
            for pixel in range(pixels):
                y, x = divmod(pixel, self.width)
                place = number // self.series * jump + number % self.series * stride + y * pitch + x
                at = base + 16 * place
                memory[at : at + 16] = self.atom(number // copies, pixel)

    def ppu(self) -> Iterator[int]:
        """Return the atoms for the PPU by group, stripe, surface of the group, pixel."""
        if not self.cfg["FEATURE_MODE_CFG"]["OUTPUT_MODE"] & 1 or self.packed:
            return
        per_group = self.group // self.per_atom
        for first in range(0, self.surfaces, per_group):
            for start in range(0, self.pixels, 16):
                for surface in range(first, min(first + per_group, self.surfaces)):
                    for pixel in range(start, min(start + 16, self.pixels)):
                        yield int.from_bytes(self.atom(surface, pixel), "little")


def random_job(rng: random.Random, **changes: dict[str, int]) -> Job:
    """Draw a small task; `changes` sets fields of registers."""
    channels = rng.choice([rng.randint(1, 40), rng.randint(1, 150), 8 * rng.randint(1, 16)])
    height, width = rng.randint(1, 5), rng.choice([1, rng.randint(1, 9), rng.randint(10, 20)])
    while channels * height * width > 1200:
        channels, height = max(1, channels // 2), max(1, height - 1)
    in_kind, out_kind = rng.choice(list(range(7))), rng.choice(list(range(8)))
    flying = int(rng.random() < 0.4)
    cfg: Settings = {
        "FEATURE_MODE_CFG": {
            "CONV_MODE": rng.choice([0, 0, 3]),
            "OUTPUT_MODE": 2,
            "FLYING_MODE": flying,
        },
        "DATA_FORMAT": {"IN_PRECISION": in_kind, "OUT_PRECISION": out_kind},
        "OFFSET_PEND": {"OFFSET_PEND": rng.randint(-0x8000, 0x7FFF)},
        "DATA_CUBE_WIDTH": {"WIDTH": width - 1},
        "DATA_CUBE_HEIGHT": {"HEIGHT": height - 1},
        "DATA_CUBE_CHANNEL": {"CHANNEL": channels - 1, "ORIG_CHANNEL": channels - 1},
        "BS_OW_CFG": {"OD_BYPASS": 1, "SIZE_E_1": rng.randint(0, 7), "TP_ORG_EN": 0},
        "WDMA_SIZE_0": {"TP_PRECISION": 0},
        "EW_CFG": {"EW_BYPASS": 1},
        "DST_BASE_ADDR": {"DST_BASE_ADDR": GUARD // 16 + rng.randint(0, 3)},
    }
    for register, fields in changes.items():
        cfg[register] = {**cfg.get(register, {}), **fields}
    job = Job(cfg, rng.getrandbits(32))
    cfg["WDMA_SIZE_0"]["CHANNEL_WDMA"] = job.channels - 1
    if not cfg["FEATURE_MODE_CFG"]["FLYING_MODE"]:
        cfg["BS_OW_CFG"]["SIZE_E_1"] = min(job.want, 8) - 1
    elif not job.copies and "SIZE_E_1" not in changes.get("BS_OW_CFG", {}):
        most = min(job.series, 8) - 1
        cfg["BS_OW_CFG"]["SIZE_E_1"] = rng.choice([most, most, rng.randint(0, most)])
    if job.width == 1 and rng.random() < 0.6:  # surfaces side by side
        stride, notch, jump = 1, job.surfaces - 1 + rng.choice([0, 2]), job.series
    else:
        notch = rng.choice([0, 0, rng.randint(1, 5)])
        stride = (job.width + notch) * job.height + rng.choice([0, 0, rng.randint(1, 5)])
        jump = job.series * stride + rng.choice([0, 0, rng.randint(1, 5)])
    cfg["DST_SURF_STRIDE"] = {"DST_SURF_STRIDE": stride}
    cfg["SURFACE_ADD"] = {"SURF_ADD": jump}
    cfg["DATA_CUBE_NOTCH_ADDR"] = {"NOTCH_ADDR_0": notch, "NOTCH_ADDR_1": notch}
    return job


def run(jobs: list[Job], seed: int, stall: float) -> list[int]:
    """Run `jobs` one after the other on one instance; return the cycles of each."""
    memory = bytearray(random.Random(seed).randbytes(1 << 18))
    wanted = bytearray(memory)
    dut = shared(StripeWriter)
    bench = Bench(dut, seed, stall)
    model = bench.write_memory(dut.write, memory)
    pool: list[int] = []
    bench.sink(dut.ppu, lambda atom: pool.append(atom.data))
    cycles: list[int] = []

    async def main(ctx: Any) -> None:
        for job in jobs:
            job.write(wanted)
            configure(ctx, dut.cfg, "DPU", job.cfg)
            ctx.set(dut.octets, job.group // 8)
            ctx.set(dut.copies, job.copies)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            begin = bench.cycle
            for octet in job.octets():
                while not bench.flows():
                    await ctx.tick()
                ctx.set(dut.source.payload, octet)
                ctx.set(dut.source.valid, 1)
                taken = False
                while not taken:
                    _, _, taken, early = await ctx.tick().sample(dut.source.ready, dut.finished)
                    assert not early, f"finished before the last octet of {job.cfg}"
                    assert bench.cycle - begin < LIMIT, f"the writer took no octet of {job.cfg}"
                ctx.set(dut.source.valid, 0)
            for _ in range(LIMIT):
                _, _, finished = await ctx.tick().sample(dut.finished)
                if finished:
                    break
            assert finished, f"not finished after {LIMIT} cycles: {job.cfg}"
            assert model.quiet, "finished before the last write response"
            cycles.append(bench.cycle - begin)
            assert pool == list(job.ppu()), f"atoms for the PPU of {job.cfg}"
            pool.clear()
            await ctx.tick().repeat(5)  # the end of a task lasts, which the RTL asserts
            equal = memory == wanted
            wrong = [] if equal else [at for at in range(len(memory)) if memory[at] != wanted[at]]
            assert not wrong, (
                f"{len(wrong)} bytes differ, first at {wrong[0]:#x}: {memory[wrong[0]]:#x}, "
                f"expected {wanted[wrong[0]]:#x}; {job.cfg}"
            )

    bench.run(main)
    return cycles


@pytest.mark.parametrize("kind", range(8))
def test_output_types(kind: int) -> None:
    """Every output type for every group size: direct, flying and depthwise."""
    rng = random.Random(kind)
    jobs = []
    for source, conv_mode in ((INT8, 0), (INT4, 0), (FP16, 0), (FP16, 3), (INT8, 3)):
        jobs.append(
            random_job(
                rng,
                DATA_FORMAT={"IN_PRECISION": source, "OUT_PRECISION": kind},
                FEATURE_MODE_CFG={"CONV_MODE": conv_mode},
            )
        )
    run(jobs, kind, rng.choice([0.0, 0.2, 0.5]))


@pytest.mark.parametrize("channels", [(1, 15, 16, 17), (31, 32, 33), (48, 49, 80)])
def test_int4_surfaces_of_two_groups(channels: tuple[int, ...]) -> None:
    """int4 from groups of 16 channels: halves of atoms, and the remainder of the last one."""
    rng = random.Random(channels[0])
    jobs = []
    for count in channels:
        jobs.append(
            random_job(
                rng,
                DATA_FORMAT={"IN_PRECISION": INT16, "OUT_PRECISION": INT4},
                FEATURE_MODE_CFG={"CONV_MODE": 0},
                DATA_CUBE_CHANNEL={"CHANNEL": count - 1},
                DATA_CUBE_WIDTH={"WIDTH": rng.randint(0, 6)},
                DATA_CUBE_HEIGHT={"HEIGHT": rng.randint(0, 4)},
            )
        )
    run(jobs, channels[0], 0.2)


KEPT, WIDE, NARROW, HALVES = range(4)


def packet_job(
    rng: random.Random,
    form: int,
    flying: bool,
    joined: bool,
    rest: int = 0,
    size: tuple[int, int] | None = None,
) -> Job:
    """Draw a task with plain packets, of 16-bit elements or of bytes, with a random number of lines.

    `rest` is a number of further pixels: a cube of one surface then does not make whole blocks. `size` are
    the pixels and channels; without it, they are drawn.
    """
    block = 16 if form == NARROW else 8
    pixels = block * rng.randint(1, 5) // (1 if flying else 2 if form == HALVES else 4)
    channels = rng.randint(1, 8 if rest else 30) if flying else rng.choice([16, 32, 48])
    pixels, channels = size or (pixels, channels)
    count = (-(-channels // 8) if flying else channels // (8 if form == HALVES else 4)) * pixels // 8
    width = 1 if joined else rng.choice([n for n in range(1, count + 1) if count % n == 0])
    height = rng.choice([n for n in range(1, count // width + 1) if count // width % n == 0])
    apart = 1 if joined else width + rng.randint(0, 2)
    line = 8 * apart + rng.randint(0, 3)
    job = random_job(
        rng,
        FEATURE_MODE_CFG={"CONV_MODE": 0, "FLYING_MODE": int(flying), "TP_EN": int(form == KEPT)},
        DATA_FORMAT=dict.fromkeys(("IN_PRECISION", "PROC_PRECISION", "OUT_PRECISION"), FP16)
        if form == HALVES
        else {"IN_PRECISION": INT16, "OUT_PRECISION": INT16 if flying else INT32},
        BS_OW_CFG={"TP_ORG_EN": int(form != KEPT)},
        DATA_CUBE_CHANNEL={"CHANNEL": channels - 1},
        DATA_CUBE_WIDTH={"WIDTH": pixels + rest - 1},
        DATA_CUBE_HEIGHT={"HEIGHT": 0},
        WDMA_SIZE_0={
            "TP_PRECISION": int(form != NARROW),
            "SIZE_C_WDMA": count // width // height - 1,
        },
        WDMA_SIZE_1={"HEIGHT_WDMA": height - 1, "WIDTH_WDMA": width - 1},
    )
    job.misaligned = rest > 0
    job.cfg["BS_OW_CFG"]["SIZE_E_1"] = 7
    job.cfg["DATA_CUBE_NOTCH_ADDR"] = {"NOTCH_ADDR_0": line - width, "NOTCH_ADDR_1": line - width}
    job.cfg["DST_SURF_STRIDE"] = {"DST_SURF_STRIDE": apart}
    job.cfg["SURFACE_ADD"] = {"SURF_ADD": line * height + rng.randint(0, 5)}
    return job


@pytest.mark.parametrize(
    ("form", "flying"),
    [(KEPT, True), (WIDE, True), (NARROW, True), (WIDE, False), (NARROW, False), (HALVES, False)],
)
def test_packets(form: int, flying: bool) -> None:
    """Blocks of atoms of a surface, or of two or four surfaces of a pixel, as packets of eight."""
    rng = random.Random(10 * form + flying)
    run(
        [packet_job(rng, form, flying, joined) for joined in (False, True, False)],
        form,
        rng.choice([0.0, 0.3]),
    )


@pytest.mark.parametrize("copies", [1, 2, 8])
def test_copies(copies: int) -> None:
    """Each surface of an unpooling task is written SIZE_E + 1 times."""
    rng, jobs = random.Random(copies), []
    for _ in range(3):
        job = random_job(
            rng,
            FEATURE_MODE_CFG={"CONV_MODE": 0, "FLYING_MODE": 1},
            DATA_FORMAT={"IN_PRECISION": INT16, "OUT_PRECISION": INT16},
            BS_OW_CFG={"SIZE_E_1": copies - 1},
            DATA_CUBE_CHANNEL={"CHANNEL": rng.randint(0, 20)},
        )
        job.copies = copies
        jobs.append(job)
    run(jobs, copies, 0.2)


@pytest.mark.parametrize("mode", [1, 3])
@pytest.mark.parametrize("kind", [INT8, INT16, FP16])
def test_ppu(mode: int, kind: int) -> None:
    """The PPU receives every atom in its order, with and without a write to memory."""
    rng = random.Random(10 * kind + mode)
    jobs = [
        random_job(
            rng,
            DATA_FORMAT={"OUT_PRECISION": kind},
            FEATURE_MODE_CFG={"OUTPUT_MODE": mode},
        )
        for _ in range(3)
    ]
    run(jobs, kind, rng.choice([0.0, 0.2, 0.5]))


def test_ppu_beside_a_row_major_matrix() -> None:
    """A row-major matrix in memory does not change the PPU's order."""
    job = random_job(
        random.Random(9),
        DATA_FORMAT={"IN_PRECISION": INT8, "OUT_PRECISION": INT16},
        FEATURE_MODE_CFG={"CONV_MODE": 0, "OUTPUT_MODE": 3, "FLYING_MODE": 0},
        DATA_CUBE_CHANNEL={"CHANNEL": 49},
        DATA_CUBE_WIDTH={"WIDTH": 0},
        DATA_CUBE_HEIGHT={"HEIGHT": 19},
    )
    job.cfg["DATA_CUBE_NOTCH_ADDR"] = {"NOTCH_ADDR_0": job.surfaces - 1, "NOTCH_ADDR_1": job.surfaces - 1}
    job.cfg["DST_SURF_STRIDE"] = {"DST_SURF_STRIDE": 1}
    job.cfg["SURFACE_ADD"] = {"SURF_ADD": job.series}
    run([job], 9, 0.1)


def test_output_modes_in_a_row() -> None:
    """Memory, PPU, both, none and packets follow each other without any influence of the previous mode."""
    rng = random.Random(77)
    jobs = []
    for mode, turned in ((2, 0), (1, 0), (0, 0), (3, 0), (3, 1), (1, 1), (0, 1), (2, 0)):
        if turned:
            job = packet_job(rng, WIDE, True, False)
            job.cfg["FEATURE_MODE_CFG"]["OUTPUT_MODE"] = mode
        else:
            job = random_job(
                rng,
                FEATURE_MODE_CFG={"OUTPUT_MODE": mode},
                DATA_FORMAT={"OUT_PRECISION": rng.choice([INT8, INT16])},
                DATA_CUBE_CHANNEL={"CHANNEL": rng.randint(0, 31)},
                DATA_CUBE_WIDTH={"WIDTH": rng.randint(0, 5)},
                DATA_CUBE_HEIGHT={"HEIGHT": rng.randint(0, 4)},
            )
        jobs.append(job)
    run(jobs, 77, 0.1)


def small_job(number: int, channels: int, width: int, **changes: dict[str, int]) -> Job:
    """Draw a task of one line whose settings are always the same."""
    return random_job(
        random.Random(number),
        DATA_CUBE_CHANNEL={"CHANNEL": channels - 1},
        DATA_CUBE_WIDTH={"WIDTH": width - 1},
        DATA_CUBE_HEIGHT={"HEIGHT": 0},
        **changes,
    )


def test_tasks_of_one_atom() -> None:
    """The end of a task whose only atom is the first and the last one, to memory and to the PPU.

    Every task has other settings than the one before it.
    """
    jobs: list[Job] = []
    for number in range(10):
        job = small_job(
            number,
            8 if number % 2 else 24,
            1,
            FEATURE_MODE_CFG={"CONV_MODE": 0, "FLYING_MODE": number % 2, "OUTPUT_MODE": 2 - number % 2},
            DATA_FORMAT={"IN_PRECISION": INT16, "OUT_PRECISION": INT4}
            if number == 8
            else {"IN_PRECISION": INT8, "OUT_PRECISION": INT8},
        )
        if not number % 2:
            job.cfg["DATA_CUBE_NOTCH_ADDR"] = {"NOTCH_ADDR_0": 3, "NOTCH_ADDR_1": 3}
        jobs.append(job)
    run(jobs, 5, 0.0)


def test_last_stripes_of_one_atom() -> None:
    """The last stripe of each group is one atom, which is read in the first cycle after the stripe before."""
    job = small_job(
        3,
        80,
        17,
        FEATURE_MODE_CFG={"CONV_MODE": 0, "FLYING_MODE": 0},
        DATA_FORMAT={"IN_PRECISION": INT16, "OUT_PRECISION": INT8},
    )
    run([job], 6, 0.0)


def test_octets_wait_for_a_free_stripe() -> None:
    """The PPU takes longer than the octets, which wait for each stripe from the third one on."""
    job = small_job(
        4,
        16,
        96,
        FEATURE_MODE_CFG={"CONV_MODE": 0, "FLYING_MODE": 0, "OUTPUT_MODE": 1},
        DATA_FORMAT={"IN_PRECISION": INT16, "OUT_PRECISION": INT32},
    )
    run([job], 10, 0.0)


def test_tasks_that_stall() -> None:
    """With a wrong SIZE_E only the first stripe is written, or its first pixel."""
    jobs: list[Job] = []
    for number in range(9):
        jobs.append(
            small_job(
                number,
                16,
                17,
                FEATURE_MODE_CFG={"CONV_MODE": 0, "FLYING_MODE": 0},
                DATA_FORMAT={"IN_PRECISION": INT16, "OUT_PRECISION": INT16},
            )
        )
        jobs[-1].cfg["BS_OW_CFG"]["SIZE_E_1"] = (1, 0, 1, 3)[number % 4]
    run(jobs, 7, 0.0)


def test_misaligned_packets() -> None:
    """Atoms that do not make whole blocks are dropped, and the writer goes on."""
    jobs = [packet_job(random.Random(number), WIDE, True, False, rest=number % 2) for number in range(4)]
    run(jobs, 8, 0.0)


def test_blocks_of_two_stripes() -> None:
    """The last atom of a block is the first one of a stripe, which comes later than the others."""
    run([packet_job(random.Random(3), WIDE, True, False, size=(7, 64))], 11, 0.75)


def test_the_same_task_takes_the_same_time() -> None:
    """Tasks for the PPU, which takes every atom at once."""
    change = {"FEATURE_MODE_CFG": {"CONV_MODE": 0, "FLYING_MODE": 0, "OUTPUT_MODE": 1}}
    form = {"IN_PRECISION": INT8, "OUT_PRECISION": INT8}
    cycles = run([small_job(1, 32, 6, DATA_FORMAT=form, **change) for _ in range(9)], 9, 0.0)
    assert len(set(cycles)) == 1, cycles


@pytest.mark.parametrize(
    ("kind", "source", "mode"), [(INT8, INT8, 2), (INT32, INT8, 2), (INT4, INT4, 2), (FP16, FP16, 3)]
)
def test_rate(kind: int, source: int, mode: int) -> None:
    """One octet per cycle, written in runs of 16 pixels."""
    job = random_job(
        random.Random(1),
        DATA_FORMAT={"IN_PRECISION": source, "OUT_PRECISION": kind},
        FEATURE_MODE_CFG={"CONV_MODE": 0, "OUTPUT_MODE": mode},
        DATA_CUBE_CHANNEL={"CHANNEL": 63},
        DATA_CUBE_WIDTH={"WIDTH": 7},
        DATA_CUBE_HEIGHT={"HEIGHT": 5},
    )
    for register, fields in (
        ("DATA_CUBE_NOTCH_ADDR", {"NOTCH_ADDR_0": 0, "NOTCH_ADDR_1": 0}),
        ("DST_SURF_STRIDE", {"DST_SURF_STRIDE": 48}),
        ("SURFACE_ADD", {"SURF_ADD": 48 * job.series}),
    ):
        job.cfg[register] = fields
    cycles = run([job], 1, 0.0)[0]
    print(f"{48 * 8} octets in {cycles} cycles")
    assert cycles <= 48 * 8 + 130  # the last stripe leaves after the last octet
