#!/usr/bin/env python3
"""embed_program.py OUT PROGRAM NAME: a program as bytes between the symbols NAME and NAME_end, in assembly."""
import pathlib
import sys

OUT, PROGRAM, NAME = sys.argv[1:]
pathlib.Path(OUT).write_text(f"""/* made by tools/embed_program.py */
	.section .rodata
	.balign 16
	.globl {NAME}, {NAME}_end
{NAME}:
	.incbin "{pathlib.Path(PROGRAM).resolve()}"
{NAME}_end:
	.byte 0
	.section .note.GNU-stack, "", %progbits
""")
