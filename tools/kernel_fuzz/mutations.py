"""The inputs of the fuzzer: plausible calls that are then modified."""

from __future__ import annotations

import mmap
import random
import time
from collections.abc import Callable
from ctypes import Array, sizeof

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.interface import Credentials
from rkcosim.driver.kernel.machine import Kernel
from rkcosim.driver.kernel.rknpu_jobs import record_of
from rkcosim.regcmd import build_task_list
from rkcosim.regcmd.job import Task
from rkcosim.regcmd.word import WORD_BYTES
from tools.kernel_fuzz.programs import (
    BYSTANDER_DOMAIN,
    CUBE,
    FIRST_DATA,
    SIZE,
    START,
    Client,
    Made,
    copy_task,
    opened,
)

EDGES = (0, 1, 2, 3, 7, 8, 39, 40, 41, 255, 4095, 4096, 4097, 1 << 16, 1 << 20, 1 << 31, 1 << 32, 1 << 63, -1)
MAX_BUFFERS = 24

Draw = tuple[int, s.Struct]
Maker = Callable[[Client], Draw]


class Mutator:
    """Draws one input after the other; `name` and `passed` describe the last one.

    Members
    -------
    beside : number of writes of ioctls to unrelated memory of a program.
    """

    def __init__(self, kernel: Kernel, clients: list[Client], rng: random.Random) -> None:
        self.kernel, self.clients, self.rng = kernel, clients, rng
        self.name, self.passed, self.beside = "", False, 0
        self.stale: list[int] = [0]
        self.texts = [text for text in kernel.files().values() if text.writable]

    def one(self) -> tuple[str, bool]:
        """Do one input; return its name, and whether it passed the first check.

        Raises
        ------
        KernelError
            If the kernel refuses the input.
        """
        rng, self.passed = self.rng, False
        client = rng.choice(self.clients)
        kind = rng.random()
        if client.file.closed or kind < 0.005:
            self._reopen(client)
        elif kind < 0.02:
            self._mmap(client)
        elif kind < 0.05:
            self._scribble(client)
        elif kind < 0.06 and self.texts:
            self.name = "write to a text file"
            rng.choice(self.texts).write(rng.choice((b"", b"1", b"on", b"600000000\n", rng.randbytes(9))))
        elif kind < 0.07 and len(client.fds.open) > 1:
            self.name = "close a descriptor"
            client.fds.close(rng.choice([fd for fd in client.fds.open if fd]))
        else:
            self._ioctl(client)
        return self.name, self.passed

    # Kinds of input

    def _reopen(self, client: Client) -> None:
        self.name = "close and open"
        if self.rng.random() < 0.3:
            self.kernel.process_died(client.pid)
        client.file.close()
        client.buffers.clear()
        credentials = Credentials(client.pid, self.rng.choice((0, 1000)))
        client.file = opened(self.kernel, client.path, credentials)

    def _mmap(self, client: Client) -> None:
        self.name = "mmap"
        made = self._buffer(client)
        offset = self.bend(made.offset if made else 1 << 32, 0.3)
        length = self.bend(made.size if made else 4096, 0.3)
        client.file.mmap(offset, length, mmap.PROT_READ, self.rng.choice((1, 1, 1, 2, 0)))

    def _scribble(self, client: Client) -> None:
        """Write random bytes to a program's own buffer."""
        self.name = "scribble"
        made = self._buffer(client)
        if made is not None and client.file.handles.get(made.handle) is not None:
            client.poke(made, self.rng.randrange(made.size), self.rng.randbytes(self.rng.choice((1, 4, 40))))

    def _ioctl(self, client: Client) -> None:
        rng = self.rng
        makers: list[Maker]
        if client.rocket:
            makers = [self._bo, self._rocket_submit, self._rocket_submit, self._prep, self._fini]
        else:
            makers = [self._mem_create, self._submit, self._submit, self._mem_map, self._mem_destroy]
            makers += [self._mem_sync, self._action, self._dumb]
        makers += [self._gem_close, self._prime_out, self._prime_in, self._name, self._capability]
        request, struct = rng.choice(makers)(client)
        self.name = f"ioctl {type(struct).__name__}"
        data = bytearray(bytes(struct))
        if rng.random() < 0.4:
            self._bend_fields(client, struct)
            data = bytearray(bytes(struct))
        if rng.random() < 0.03:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.05:  # another size, direction, number or type
            request ^= 1 << rng.choice((0, 1, 2, 3, 4, 8, 16, 17, 18, 20, 22, 26, 29, 30, 31))
        if rng.random() < 0.01:
            request = rng.getrandbits(32)
        at = START if rng.random() > 0.03 else self.bend(START + SIZE - len(data), 0.5)
        if at == START:
            client.arena.write(START, bytes(data).ljust(256, b"\xa5"))
        client.arena.told.clear()
        try:
            client.file.ioctl(request, at, client.arena, client.fds)
            back = type(struct).of(client.arena.read(START, sizeof(struct)))
            self._learn(client, request, back)
        finally:
            self.passed = client.file.last_passed
            self.beside += self._beside(client, request, at, bytes(data))

    @staticmethod
    def _beside(client: Client, request: int, at: int, given: bytes) -> int:
        """Count writes of an ioctl to memory that is neither its structure nor pointed to by it."""
        size = s.ioc_size(request)
        pointers = {int.from_bytes(given[n : n + 8], "little") for n in range(0, len(given) - 7, 8)}
        wrong = 0
        for address, length in client.arena.told:
            inside = at <= address and address + length <= at + max(size, len(given))
            wrong += not inside and address not in pointers
        return wrong

    def _learn(self, client: Client, request: int, back: s.Struct) -> None:
        """Record the results that a program would record."""
        made = None
        if isinstance(back, s.MemCreate) and request == s.RKNPU_MEM_CREATE:
            made = Made(back.handle, back.size, back.dma_addr, back.obj_addr, 0, back.iommu_domain_id)
            self.stale.append(back.obj_addr)
        elif isinstance(back, s.CreateBo) and request == s.ROCKET_CREATE_BO:
            made = Made(back.handle, -(-back.size // 4096) * 4096, back.dma_address, 0, back.offset)
        elif isinstance(back, s.MemMap):
            for known in client.buffers:
                if known.handle == back.handle:
                    known.offset = back.offset
        if made is not None and not any(known.handle == made.handle for known in client.buffers):
            client.buffers.append(made)

    # Values

    def bend(self, value: int, chance: float) -> int:
        """Return another number with the given probability."""
        rng = self.rng
        if rng.random() >= chance:
            return value
        return rng.choice(
            (
                rng.choice(EDGES),
                value + rng.choice((-1, 1, 8, 4096, -4096)),
                rng.getrandbits(rng.choice((8, 16, 32, 64))),
            )
        )

    def _bend_fields(self, client: Client, struct: s.Struct) -> None:
        rng = self.rng
        for name, *_ in rng.sample(
            list(struct._fields_), min(len(struct._fields_), rng.choice((1, 1, 2, 3)))
        ):
            value = getattr(struct, name)
            if isinstance(value, bytes):
                continue
            if isinstance(value, Array):
                entry = value[rng.randrange(len(value))]
                entry.task_start = self.bend(entry.task_start, 0.5) & 0xFFFFFFFF
                entry.task_number = self.bend(entry.task_number, 0.5) & 0xFFFFFFFF
            elif name == "obj_addr" or name == "task_obj_addr":
                setattr(struct, name, rng.choice(self.stale) + rng.choice((0, 0, 8)))
            elif name == "iommu_domain_id":
                domain = self.bend(value, 1.0)
                setattr(struct, name, domain + (domain == BYSTANDER_DOMAIN))
            elif name == "size" and rng.random() < 0.8:
                setattr(struct, name, rng.randrange(1 << 20))
            else:
                setattr(struct, name, self.bend(value, 1.0))

    def _buffer(self, client: Client) -> Made | None:
        return self.rng.choice(client.buffers) if client.buffers else None

    def _handle(self, client: Client) -> int:
        made = self._buffer(client)
        return made.handle if made and self.rng.random() < 0.95 else self.rng.randrange(40)

    # Plausible calls

    def _mem_create(self, client: Client) -> Draw:
        rng = self.rng
        if len(client.buffers) > MAX_BUFFERS:
            return self._mem_destroy(client)
        flags = rng.choice((0x40B, 0x403, 0x3, 0, 0x10B, rng.getrandbits(11)))
        domain = rng.choice((0, 0, 0, 0, 1, 2))
        return rng.choice((s.RKNPU_MEM_CREATE, s.RKNPU_MEM_CREATE, s.RKNPU_MEM_CREATE_40)), s.MemCreate(
            flags=flags, size=rng.choice((1, 4096, 5000, 1 << 16)), iommu_domain_id=domain
        )

    def _mem_map(self, client: Client) -> Draw:
        return s.RKNPU_MEM_MAP, s.MemMap(handle=self._handle(client))

    def _mem_destroy(self, client: Client) -> Draw:
        return s.RKNPU_MEM_DESTROY, s.MemDestroy(handle=self._gone(client))

    def _gone(self, client: Client) -> int:
        handle = self._handle(client)
        client.buffers = [made for made in client.buffers if made.handle != handle]
        return handle

    def _mem_sync(self, client: Client) -> Draw:
        made = self._buffer(client)
        address = made.address if made else self.rng.choice(self.stale)
        return s.RKNPU_MEM_SYNC, s.MemSync(flags=3, obj_addr=address, size=4096)

    def _action(self, client: Client) -> Draw:
        code = self.rng.choice((*range(28), 256))
        value = self.rng.choice((0, 1, 2, 3, 20, 0xFFFFFFED))
        return s.RKNPU_ACTION, s.Action(code, value)

    def _dumb(self, client: Client) -> Draw:
        if len(client.file.handles) > MAX_BUFFERS:
            return s.DRM_DESTROY_DUMB, s.DestroyDumb(self._gone(client))
        return s.DRM_CREATE_DUMB, s.CreateDumb(
            self.rng.randrange(64), self.rng.randrange(64), self.rng.choice((0, 8, 24, 32))
        )

    def _gem_close(self, client: Client) -> Draw:
        return s.DRM_GEM_CLOSE, s.GemClose(handle=self._gone(client))

    def _prime_out(self, client: Client) -> Draw:
        return s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=self._handle(client), flags=0x80002)

    def _prime_in(self, client: Client) -> Draw:
        other = self.rng.choice(self.clients)
        found = [fd for fd, obj in other.fds.open.items() if obj is not None]
        fd = self.rng.choice(found) if found else 0
        obj = other.fds.open[fd]
        if other is not client and obj is not None and fd not in client.fds.open:
            obj.hold()  # passed over a socket
            client.fds.open[fd] = obj
        return s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd)

    def _name(self, client: Client) -> Draw:
        if self.rng.random() < 0.5:
            return s.DRM_GEM_FLINK, s.GemFlink(handle=self._handle(client))
        return s.DRM_GEM_OPEN, s.GemOpen(name=self.rng.randrange(1, 6))

    def _capability(self, client: Client) -> Draw:
        rng = self.rng
        return rng.choice(
            (
                (s.DRM_GET_CAP, s.GetCap(rng.choice((1, 5, 6, 0x13)))),
                (s.DRM_VERSION, s.Version(name_len=rng.randrange(9), name=rng.choice((0, FIRST_DATA)))),
                (s.DRM_GET_MAGIC, s.Auth()),
                (s.DRM_AUTH_MAGIC, s.Auth(rng.randrange(4))),
                (s.DRM_GET_UNIQUE, s.Unique(unique_len=4, unique=FIRST_DATA)),
            )
        )

    def _bo(self, client: Client) -> Draw:
        if len(client.buffers) > MAX_BUFFERS:
            return self._gem_close(client)
        return s.ROCKET_CREATE_BO, s.CreateBo(size=self.rng.choice((1, 4096, 5000, 1 << 16)))

    def _prep(self, client: Client) -> Draw:
        deadline = self.rng.choice((0, -1, 1, time.monotonic_ns() + 1_000_000, 1 << 62))
        return s.ROCKET_PREP_BO, s.PrepBo(handle=self._handle(client), timeout_ns=deadline)

    def _fini(self, client: Client) -> Draw:
        return s.ROCKET_FINI_BO, s.FiniBo(handle=self._handle(client))

    # Jobs

    def _program(self, client: Client, number: int) -> tuple[list, list[Made]]:
        """Return copy tasks in new buffers, sometimes modified: (entries, [data, commands, records])."""
        rng = self.rng
        made = [client.make(4096) for _ in range(3)]
        client.buffers += made
        builders = [copy_task(made[0].iova, made[0].iova + CUBE) for _ in range(number)]
        placed = build_task_list(builders, made[1].iova)
        data = bytearray(placed.data)
        if rng.random() < 0.4:
            for _ in range(rng.choice((1, 1, 2, 5))):
                self._bend_word(data)
        client.poke(made[1], 0, bytes(data))
        return placed.tasks, made

    def _bend_word(self, data: bytearray) -> None:
        """Change one command without making any size very large."""
        rng = self.rng
        at = rng.randrange(len(data) // WORD_BYTES) * WORD_BYTES
        word = int.from_bytes(data[at : at + WORD_BYTES], "little")
        change = rng.randrange(5)
        if change == 0:
            word = 0
        elif change == 1:
            word ^= 1 << rng.randrange(48, 64)  # the target
        elif change == 2:
            word ^= 1 << rng.randrange(16, 20)  # low bits of the value
        elif change == 3:
            word ^= 1 << rng.randrange(0, 5)  # the register
        else:
            other = rng.randrange(len(data) // WORD_BYTES) * WORD_BYTES
            word = int.from_bytes(data[other : other + WORD_BYTES], "little")
        data[at : at + WORD_BYTES] = word.to_bytes(WORD_BYTES, "little")

    def _submit(self, client: Client) -> Draw:
        rng = self.rng
        number = rng.choice((1, 1, 2, 3))
        if len(client.file.handles) > MAX_BUFFERS:
            return self._mem_destroy(client)
        entries, made = self._program(client, number)
        records = bytearray(b"".join(bytes(record_of(Task.of_entry(entry))) for entry in entries))
        if rng.random() < 0.3:
            records[rng.randrange(len(records))] ^= 1 << rng.randrange(8)
        client.poke(made[2], 0, bytes(records))
        self.stale.append(made[2].address)
        fences = [fd for fd, obj in client.fds.open.items() if obj is not None]
        args = s.RknpuSubmit(
            flags=rng.choice((5, 5, 5, 1, 7, 7, 5 | 16, 7 | 16, 5 | 8, 7 | 8, 7 | 24, 4, rng.getrandbits(6))),
            timeout=rng.choice((0, 1, 10, 100, 6000)),
            task_number=number,
            task_obj_addr=made[2].address,
            core_mask=rng.choice((0, 0, 1, 2, 4, 3, 7, 5, 6)),
            fence_fd=rng.choice((-1, *fences)),
        )
        for index in range(5):
            args.subcore_task[index] = s.SubcoreTask(0, number)
        return s.RKNPU_SUBMIT, args

    def _rocket_submit(self, client: Client) -> Draw:
        rng = self.rng
        if len(client.file.handles) > MAX_BUFFERS:
            return self._gem_close(client)
        if not client.buffers:
            return self._bo(client)
        jobs = rng.choice((1, 1, 2))
        blob, place = bytearray(), FIRST_DATA + 0x400
        for _ in range(jobs):
            entries, made = self._program(client, 1)
            task = s.RocketTask(self.bend(entries[0].address, 0.1) & 0xFFFFFFFF, entries[0].n_words)
            client.arena.write(place, bytes(task))
            handles = [made[0].handle, self._handle(client)]
            client.arena.write(place + 64, b"".join(handle.to_bytes(4, "little") for handle in handles))
            job = s.RocketJob(
                tasks=place,
                in_bo_handles=place + 68,
                out_bo_handles=place + 64,
                task_count=1,
                task_struct_size=8,
                in_bo_handle_count=rng.choice((0, 1)),
                out_bo_handle_count=1,
            )
            if rng.random() < 0.3:
                self._bend_fields(client, job)
            blob += bytes(job)
            place += 256
        client.arena.write(FIRST_DATA, bytes(blob))
        return s.ROCKET_SUBMIT, s.RocketSubmit(
            jobs=FIRST_DATA, job_count=jobs, job_struct_size=sizeof(s.RocketJob)
        )
