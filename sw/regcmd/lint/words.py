"""Rules about single words and about the chain that the tasks form."""

from __future__ import annotations

from collections.abc import Iterator

from rkcosim.golden.task.rules import ERROR, NOTE, WARNING
from rkcosim.regcmd.disassembler import Command, disassemble
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.machine import HOST, is_start
from rkcosim.regcmd.program import ListedTask, Program, link_of
from rkcosim.regcmd.tasks import FETCH_BYTES, words_of_amount
from rkcosim.regcmd.word import FETCH_WORDS, WORD_BYTES, target_code, words_from_bytes
from rkcosim.spec.regs import registers
from rkcosim.spec.types import LUT_ENTRIES

_MOST_SKIPPED = 256
"""How many words before the address of a list are examined at most."""


def _each(check: Check) -> list[tuple[int, Command]]:
    """Every word of the program with the number of its task; words are decoded once."""
    if "commands" not in check.cache:
        tasks = check.cache.setdefault("tasks", list(enumerate(check.program.tasks)))
        check.cache["commands"] = [(index, c) for index, task in tasks for c in task.commands]
    found: list[tuple[int, Command]] = check.cache["commands"]
    return found


@rule("word.target", ERROR, "[HW 1.4]", whole=True)
def _target(check: Check) -> None:
    """A word whose target is no block, or several blocks, is dropped: its register keeps the old value."""
    for index, command in _each(check):
        if command.kind == "unknown" and command.block is None:
            register = registers().at(command.offset)
            block, name = (register.block, register.name) if register else ("", "")
            message = (
                f"unknown target 0x{command.target:04X}: the write to offset 0x{command.offset:04X} is lost"
            )
            check.say(message, block, name, task=index, word=command.index, value=command.value)


@rule("word.offset", ERROR, "[HW 1.4], [HW 1.3.1]", whole=True)
def _offset(check: Check) -> None:
    """There is no register at the offset, or it lies outside the window of the word's target: the write is
    lost."""
    for index, command in _each(check):
        if command.kind != "unknown" or command.block is None:
            continue
        register = registers().at(command.offset)
        if register is None:
            message = f"no register at offset 0x{command.offset:04X} of {command.block}"
            check.say(message, command.block, task=index, word=command.index, value=command.value)
        else:
            message = f"the target is {command.block}, but the offset is that of {register.path}"
            check.say(message, register.block, register.name, task=index, word=command.index)


@rule("word.reserved-bits", WARNING, "[HW 2]", whole=True)
def _reserved(check: Check) -> None:
    """Bits that belong to no field are dropped; values that were truncated or shifted wrongly show up
    there. Entries of tables may be sign-extended, and amounts may have the number of cores from bit 16 on,
    as the vendor's compiler writes them."""
    for index, command in _each(check):
        pointer = command.register is not None and command.register.path == "PC.BASE_ADDRESS"
        known = pointer or _extended(command) or _for_cores(command)
        if command.register is not None and command.reserved and not known:
            message = f"bits 0x{command.reserved:X} belong to no field"
            register = command.register
            check.say(
                message, register.block, register.name, task=index, word=command.index, value=command.value
            )


def _for_cores(command: Command) -> bool:
    """Whether the word is the amount of a list as vendor-compiled files have it: with 1 or 2 from bit 16 on
    in lists for two or three cores, and in files of some toolkits (1.6, 2.0, 2.1) with bits 29 and 30."""
    amounts = registers()["PC"]["REGISTER_AMOUNTS"]
    return command.register is amounts and not command.reserved & ~(3 << 16 | 3 << 29)


def _extended(command: Command) -> bool:
    """Whether a word holds an entry of a table, extended with its sign from 16 to 32 bits."""
    data = registers()["DPU"]["LUT_ACCESS_DATA"]
    entry = data.fields["LUT_ACCESS_DATA"]
    sign = command.value >> (entry.width - 1) & 1
    return command.register is data and command.reserved == sign * (0xFFFF_FFFF & ~entry.mask)


@rule("word.read-only", WARNING, "[HW 1.7], [HW 1.8]", whole=True)
def _read_only(check: Check) -> None:
    """The field cannot be written, because the hardware sets it."""
    for index, command in _each(check):
        if command.register is None:
            continue
        for name, item in command.register.fields.items():
            if "w" not in item.sw and command.fields[name]:
                register = command.register
                value = command.fields[name]
                place = (register.block, register.name, name)
                check.say("cannot be written", *place, task=index, word=command.index, value=value)


@rule("word.undefined", WARNING, "[HW 1.4]", whole=True)
def _undefined(check: Check) -> None:
    """The word's target is known, but its other bits differ from the words of all real programs."""
    for index, command in _each(check):
        if command.kind in ("nop", "config_end") and not command.canonical:
            message = f"a {command.kind} word with target 0x{command.target:04X}, value 0x{command.value:X}"
            check.say(message, task=index, word=command.index, value=command.value)
        elif command.kind == "register" and not command.canonical:
            message = f"the target 0x{command.target:04X} lacks the bit that is set in every valid word"
            assert command.register is not None
            check.say(message, command.register.block, command.register.name, task=index, word=command.index)


@rule("word.op-enable", ERROR, "[HW 1.6], [HW 1.4]", whole=True)
def _op_enable(check: Check) -> None:
    """An op-enable word with no block, unknown blocks, or another offset does not start what it should."""
    blocks = registers()["GLOBAL"]["OPERATION_ENABLE"]
    for index, command in _each(check):
        if command.kind != "op_enable":
            continue
        if not is_start(command):
            message = f"op-enable word at offset 0x{command.offset:04X} is dropped"
            check.say(message, "PC", "OPERATION_ENABLE", task=index, word=command.index, value=command.value)
        elif not command.value & blocks.mask:
            check.say("no block is enabled", task=index, word=command.index, value=command.value)
        elif command.value & ~blocks.mask:
            message = f"bits 0x{command.value & ~blocks.mask:X} of the mask name no block"
            check.say(message, task=index, word=command.index, value=command.value, severity=WARNING)


@rule("word.pc", WARNING, "[HW 1.6]", whole=True)
def _pc(check: Check) -> None:
    """A command list only needs the PC's link and amount; other writes disturb the kick that runs the
    list."""
    for index, command in _each(check):
        register = command.register
        if register is not None and register.block == "PC":
            if register.name not in ("BASE_ADDRESS", "REGISTER_AMOUNTS"):
                check.say(
                    "written by a list",
                    "PC",
                    register.name,
                    task=index,
                    word=command.index,
                    value=command.value,
                )


@rule("word.late", WARNING, "[HW 1.6]", whole=True)
def _late(check: Check) -> None:
    """A word after the op-enable is written as well, into the registers of the next task."""
    for index, task in enumerate(check.program.tasks):
        started = False
        for command in task.commands:
            if started and command.kind in ("register", "unknown") and not _is_tail(command):
                block, name = (command.block or "", command.register.name if command.register else "")
                message = "after the op-enable word: the amount of the task is too large"
                check.say(message, block, name, task=index, word=command.index, value=command.value)
                break
            started |= is_start(command)


def _is_tail(command: Command) -> bool:
    return command.register is not None and command.register.block == "PC"


# -- the chain -------------------------------------------------------------------------------------


def _blame_amount(check: Check, index: int) -> tuple[int, int | None]:
    """(task, word) that set the amount of task `index`; the task itself for the first one."""
    register = registers()["PC"]["REGISTER_AMOUNTS"]
    for before in range(index - 1, -1, -1):
        for command in reversed(check.program.tasks[before].commands):
            if command.register is register:
                return before, command.index
    return index, None


@rule("chain.op-enable", ERROR, "[HW 1.6]", whole=True)
def _starts(check: Check) -> None:
    """A list without an op-enable word starts nothing, and the kick never ends."""
    for index, task in enumerate(check.program.tasks):
        if any(is_start(command) for command in task.commands):
            continue
        blamed, word = _blame_amount(check, index)
        short = len(task.words)
        message = f"no op-enable word among the {short} words that are fetched"
        if index and check.program.chained:
            message += f" (task {index}'s amount code {task.amount})"
            where = ("PC", "REGISTER_AMOUNTS", "PC_DATA_AMOUNT")
            check.say(message, *where, task=blamed, word=word, value=task.amount)
        else:
            check.say(message, task=index)


@rule("chain.link", ERROR, "[HW 1.6], [HW 1.4]", whole=True)
def _links(check: Check) -> None:
    """The PC stops after a task without a link, and no interrupt comes, because the last task is
    identified by its number."""
    program = check.program
    pc = registers()["PC"]["BASE_ADDRESS"]
    for index, command in _each(check):
        if command.register is not pc:
            continue
        if command.fields["PC_SEL"]:
            message = "a link cannot change to slave mode and is dropped"
            check.say(message, "PC", "BASE_ADDRESS", "PC_SEL", task=index, word=command.index, value=1)
        elif command.reserved:
            message = f"0x{command.value:X} is not a multiple of {FETCH_BYTES}: the low bits are dropped"
            check.say(message, "PC", "BASE_ADDRESS", task=index, word=command.index, value=command.value)
    if program.number is None or not program.tasks or not program.chained:
        return
    last = len(program.tasks) - 1
    if program.stopped == "no link":
        message = f"no link, but {program.number - last - 1} of {program.number} tasks are left"
        check.say(message, "PC", "BASE_ADDRESS", task=last, word=_tail_word(program.tasks[last]))
    elif program.stopped and program.stopped != "no op-enable word":
        address, _ = link_of(program.tasks[last])
        message = f"the next task cannot be read: {program.stopped}"
        word = _word_of(program.tasks[last], "BASE_ADDRESS")
        check.say(message, "PC", "BASE_ADDRESS", task=last, word=word, value=address)


def skipped(program: Program) -> Iterator[tuple[int, int, list[Command]]]:
    """Yield the links that lead into a list behind its beginning.

    The words before the address would have to be the end of another list, or no command words.

    Returns
    -------
    Number of the task that has the link, number of the word, and the words between the beginning of the list
    and the address, for each such link.
    """
    for index in range(1, len(program.tasks) if program.chained else 0):
        address, word = program.tasks[index].address, _word_of(program.tasks[index - 1], "BASE_ADDRESS")
        if address is not None and word is not None and (lost := _before(program, address)):
            yield index - 1, word, lost


def _before(program: Program, address: int) -> list[Command]:
    """Return the register writes that lie directly before an address in the known memory."""
    for start, data in program.contents:
        if start <= address <= start + len(data):
            end = address - start
            before = data[max(end % WORD_BYTES, end - _MOST_SKIPPED * WORD_BYTES) : end]
            found: list[Command] = []
            for word in reversed(words_from_bytes(bytes(before))):
                (command,) = disassemble([word])
                if command.kind != "register" or not command.canonical:
                    break
                found.append(command)
            return found[::-1]
    return []


@rule("chain.beginning", WARNING, "[HW 1.6]", whole=True)
def _beginning(check: Check) -> None:
    """A link should lead to the beginning of a list: the words before it are not executed, and the registers
    that they write keep their values."""
    for index, word, lost in skipped(check.program):
        address = check.program.tasks[index + 1].address or 0
        begins = address - len(lost) * WORD_BYTES
        message = (
            f"0x{address:X} lies in a list: {len(lost)} register writes from 0x{begins:X} on are skipped"
        )
        check.say(message, "PC", "BASE_ADDRESS", task=index, word=word, value=address)


@rule("chain.first", ERROR, "[HW 10.3], [HW 1.4]", whole=True)
def _first(check: Check) -> None:
    """The kick must name a list at a multiple of 16 and a number of tasks from 1 to 4095."""
    program = check.program
    if program.slave or program.number is None:
        return
    most = (1 << registers()["PC"]["TASK_CON"].fields["TASK_NUMBER"].width) - 1
    if not 1 <= program.number <= most:
        message = f"{program.number} tasks do not fit 1 to {most}"
        check.say(message, "PC", "TASK_CON", "TASK_NUMBER", task=HOST, value=program.number)
    elif not program.tasks:
        check.say(f"no first task: {program.stopped}", "PC", "BASE_ADDRESS", task=HOST)
    elif program.tasks[0].address is not None and program.tasks[0].address % FETCH_BYTES:
        value = program.tasks[0].address
        check.say(
            f"0x{value:X} is not a multiple of {FETCH_BYTES}", "PC", "BASE_ADDRESS", task=HOST, value=value
        )


@rule("chain.number", WARNING, "[HW 1.6]", whole=True)
def _number(check: Check) -> None:
    """TASK_NUMBER ends the kick although the last task links to another one: tasks are not run."""
    program = check.program
    if program.following is None or any(task.address == program.following for task in program.tasks):
        return
    message = f"{program.number} tasks, but the last one links to another at 0x{program.following:X}"
    check.say(message, "PC", "TASK_CON", "TASK_NUMBER", task=HOST, value=program.number)


@rule("chain.loop", WARNING, "[HW 1.6]", whole=True)
def _loop(check: Check) -> None:
    """A chain that returns to one of its tasks only ends because of TASK_NUMBER."""
    seen: dict[int, int] = {}
    for index, task in enumerate(check.program.tasks if check.program.chained else []):
        if task.address is None:
            return
        if task.address in seen:
            word = _word_of(check.program.tasks[index - 1], "BASE_ADDRESS")
            message = f"links back to task {seen[task.address]}"
            check.say(message, "PC", "BASE_ADDRESS", task=index - 1, word=word, value=task.address)
            return
        seen[task.address] = index


@rule("chain.amount", WARNING, "[HW 1.6]", whole=True)
def _amount(check: Check) -> None:
    """A task is fetched two words at a time up to its op-enable word; additional fetches cost time, or
    execute the words that follow."""
    for index, task in enumerate(check.program.tasks):
        ends = [command.index for command in task.commands if is_start(command)]
        if task.amount is None or not ends:
            continue
        spare = words_of_amount(task.amount) - (ends[-1] + 1)
        if spare >= FETCH_WORDS:
            blamed, word = _blame_amount(check, index)
            message = f"{spare} more words are fetched than task {index} has"
            place = ("PC", "REGISTER_AMOUNTS", "PC_DATA_AMOUNT")
            if index == 0:
                check.say(message, *place, task=HOST, value=task.amount)
            else:
                check.say(message, *place, task=blamed, word=word, value=task.amount)


@rule("chain.tail", NOTE, "[HW 1.6]", whole=True)
def _tail(check: Check) -> None:
    """Real programs end each list with link, amount, end of configuration and op-enable word."""
    for index, task in enumerate(check.program.tasks):
        commands = task.commands
        ends = [command.index for command in commands if is_start(command)]
        if not ends:
            continue
        if ends[-1] < 1 or commands[ends[-1] - 1].target != target_code("CONFIG_END"):
            check.say("no end of configuration before the op-enable word", task=index, word=ends[-1])
        if len(ends) > 1:
            check.say(f"{len(ends)} op-enable words in one task", task=index, word=ends[0])


# -- tables and the host ---------------------------------------------------------------------------


@rule("host.offset", WARNING, "[HW 1.3.1]", whole=True)
def _host(check: Check) -> None:
    """The host writes to an offset without a register: the write is lost."""
    for number, (offset, value) in enumerate(check.program.writes):
        if registers().at(offset) is None:
            message = f"no register at offset 0x{offset:04X}"
            check.say(message, task=HOST, word=number, value=value)


@rule("lut.access", ERROR, "[HW 7.9]", whole=True)
def _tables(check: Check) -> None:
    """A table has 513 entries, written in the direction that LUT_ACCESS_CFG selects; other writes are
    dropped."""
    dpu = registers()["DPU"]
    access, data = dpu["LUT_ACCESS_CFG"], dpu["LUT_ACCESS_DATA"]
    writes = [(HOST, n, offset, value) for n, (offset, value) in enumerate(check.program.writes)]
    writes += [(i, c.index, c.offset, c.value) for i, c in _each(check) if c.register in (access, data)]
    place = writing = 0
    told: set[tuple[int, str]] = set()
    for task, word, offset, value in writes:
        if offset == access.offset:
            fields = access.decode(value)
            place, writing = fields["LUT_ADDR"], fields["LUT_ACCESS_TYPE"]
        elif offset == data.offset:
            problem = "LUT_ACCESS_TYPE is read" if not writing and data.decode(value)[data.name] else ""
            if writing and place >= LUT_ENTRIES:
                problem = f"entry {place} is beyond the end of the table"
            place = (place + writing) % (1 << access.fields["LUT_ADDR"].width)
            if problem and (task, problem[:5]) not in told:
                told.add((task, problem[:5]))
                check.say(problem, "DPU", data.name, data.name, task=task, word=word, value=value)


def _word_of(task: ListedTask, register: str) -> int | None:
    found = None
    for command in task.commands:
        if command.register is registers()["PC"][register]:
            found = command.index
    return found


def _tail_word(task: ListedTask) -> int | None:
    """The place of a link: three words before the op-enable."""
    ends = [command.index for command in task.commands if is_start(command)]
    return max(0, ends[-1] - 3) if ends else None
