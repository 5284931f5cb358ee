"""Register-command streams: words, text and task lists ([HW 1.4] to [HW 1.6])."""

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy
from rkcosim.regcmd.tasks import (
    PlacedTasks,
    TaskBuilder,
    TaskEntry,
    amount_code,
    build_task_list,
    task_list_bytes,
    words_of_amount,
)
from rkcosim.regcmd.word import (
    RegcmdError,
    blocks_of_mask,
    op_enable_mask,
    op_enable_word,
    pack_word,
    register_word,
    target_code,
    unpack_word,
    words_from_bytes,
    words_to_bytes,
)

if TYPE_CHECKING:
    from rkcosim.regcmd.disassembler import Command, decode_word, disassemble, format_command
    from rkcosim.regcmd.program import ListedTask, Program, program_of_chain, program_of_words

_LISTS = ("ListedTask", "Program", "program_of_chain", "program_of_words")
_TEXT = ("Command", "decode_word", "disassemble", "format_command")

__getattr__ = lazy(
    __name__,
    dict.fromkeys(_LISTS, "rkcosim.regcmd.program") | dict.fromkeys(_TEXT, "rkcosim.regcmd.disassembler"),
)

__all__ = [
    "Command",
    "ListedTask",
    "PlacedTasks",
    "Program",
    "RegcmdError",
    "TaskBuilder",
    "TaskEntry",
    "amount_code",
    "blocks_of_mask",
    "build_task_list",
    "decode_word",
    "disassemble",
    "format_command",
    "op_enable_mask",
    "op_enable_word",
    "pack_word",
    "program_of_chain",
    "program_of_words",
    "register_word",
    "target_code",
    "task_list_bytes",
    "unpack_word",
    "words_from_bytes",
    "words_of_amount",
    "words_to_bytes",
]
