#!/usr/bin/env python3
"""embed.py OUT FILE...: files of examples/ as a C table. A file is examples/<example>/<path>."""
import pathlib
import sys


def c_bytes(data):
    lines = []
    for at in range(0, len(data), 16):
        lines.append("\t" + "".join(f"0x{b:02x}," for b in data[at:at + 16]))
    return "\n".join(lines)


def main():
    out, files = sys.argv[1], [pathlib.Path(f) for f in sys.argv[2:]]
    text = ['/* made by tools/embed.py */', '#include "cli/examples.h"', ""]
    rows = []
    for number, path in enumerate(files):
        parts = path.parts
        at = len(parts) - 1 - parts[::-1].index("examples")
        data = path.read_bytes()
        text.append(f"static const unsigned char body_{number}[] = {{\n{c_bytes(data)}\n\t0}};")
        mode = "true" if path.stat().st_mode & 0o100 else "false"
        rows.append(f'\t{{"{parts[at + 1]}", "{"/".join(parts[at + 2:])}", '
                    f"{{(const char *)body_{number}, sizeof(body_{number}) - 1}}, {mode}}},")
    text.append("\nconst struct example_file example_files[] = {")
    text += rows
    text.append("};\n\nconst size_t n_example_files = COUNT(example_files);")
    pathlib.Path(out).write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
