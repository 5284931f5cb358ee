"""Register-command streams: words, text and task lists (H 1.4 to 1.6)."""

from sw.regcmd.disassembler import Command, assemble, decode_word, disassemble, format_command, to_text
from sw.regcmd.program import ListedTask, Program, program_of_chain, program_of_words
from sw.regcmd.tasks import (
    TaskBuilder,
    TaskEntry,
    TaskList,
    amount_code,
    build_task_list,
    task_list_bytes,
    walk_tasks,
    words_of_amount,
)
from sw.regcmd.word import (
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

__all__ = [
    "Command",
    "ListedTask",
    "Program",
    "RegcmdError",
    "TaskBuilder",
    "TaskEntry",
    "TaskList",
    "amount_code",
    "assemble",
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
    "to_text",
    "unpack_word",
    "walk_tasks",
    "words_from_bytes",
    "words_of_amount",
    "words_to_bytes",
]
