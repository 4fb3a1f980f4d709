#!/usr/bin/env python3
"""Hold the layering, and report what is over the house's habits.

tidy.py --layers   includes against the table in src/meson.build, third-party headers against their owner; fails
tidy.py            also sizes, columns and uninitialised cleanups; reports, exit status of --layers
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# Third-party header: the files that may include it.
OWNER = {
    "microhttpd.h": {"io/httpd.c"},
    "gnutls/": {"io/httpd_upgrade.c"},
    "curl/curl.h": {"io/client.c", "io/upgrade.c", "io/relay.c"},
    "jansson.h": {"base/json.c"},
    "yaml.h": {"base/yaml.c"},
    "uthash.h": {"base/map.c"},
    "openssl/": {"base/hash.c", "base/jwt.c"},
    "sodium.h": {"base/seal.c"},
    "archive.h": {"io/tar.c", "io/tar_pack.c"},
    "zlib.h": {"io/gunzip.c", "core/compile_whole.c"},
    "archive_entry.h": {"io/tar.c", "io/tar_pack.c"},
    "lz4frame.h": {"core/xet_xorb.c"},
    "expat.h": {"store/objects/s3xml.c"},
    "sqlite3.h": {"meta/db_sqlite.c"},
    "libpq-fe.h": {"meta/db_pg.c"},
}


SYNC = {"base/sync.h", "base/sync.c"}

# A runner's folder is its own and its engine's: server and faces neither know what is in it nor open it by its row.
STRANGERS = {"server", "face", "meta", "store", "cli"}


def folder_names():
    names = re.findall(r'^#define ATTEMPT_\w+ "([\w.]+)"', (SRC / "core/attempt.h").read_text(), re.M)
    dirs = re.search(r'^#define ENGINE_DIRS "(\w+)"', (SRC / "engine/engine.h").read_text(), re.M).group(1)
    words = "|".join(re.escape(name) for name in names if "." in name)
    return re.compile(rf'"[^"]*(?:{words})|"(?:[^"]*/)?{dirs}[/"]|"core/attempt\.h"|app_path\([^;]*(?:->|\.)dir\b')


def may_use():
    text = (SRC / "meson.build").read_text()
    body = re.search(r"may_use = (\{.*?\n\})", text, re.S).group(1)
    return ast.literal_eval(body)


def layer_faults():
    table = may_use()
    folder = folder_names()
    faults = []
    for path in sorted(SRC.rglob("*.[ch]")):
        rel = path.relative_to(SRC)
        layer = rel.parts[0] if len(rel.parts) > 1 else None
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if re.search(r"\bpthread_(mutex|cond)_", line) and str(rel) not in SYNC:
                faults.append(f"src/{rel}:{number}: locks and conditions are those of base/sync.h")
            if layer in STRANGERS and folder.search(line):
                faults.append(f"src/{rel}:{number}: what is in a runner's folder is its engine's (engine/engine.h)")
            found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if not found:
                continue
            kind, name = found.groups()
            where = f"src/{rel}:{number}"
            if kind == '"':
                target = name.split("/")[0]
                if "/" not in name:
                    faults.append(f'{where}: include "{name}" by its layer, as "layer/{name}"')
                elif target not in table:
                    faults.append(f"{where}: no layer named {target}")
                elif layer and target != layer and target not in table[layer]:
                    faults.append(f"{where}: {layer} may not include {target} (src/meson.build, may_use)")
            else:
                for header, owners in OWNER.items():
                    if (name == header or (header.endswith("/") and name.startswith(header))) and str(rel) not in owners:
                        faults.append(f"{where}: <{name}> belongs to {', '.join(sorted(owners))}")
    return faults


def habits():
    notes = []
    for path in sorted(SRC.rglob("*.[ch]")):
        rel = path.relative_to(ROOT)
        lines = path.read_text(errors="replace").splitlines()
        if len(lines) > 700:
            notes.append(f"{rel}: {len(lines)} lines; is there a seam?")
        if lines and not lines[0].startswith("/*"):
            notes.append(f"{rel}:1: open with a comment that says what the file is for")
        start = None
        for number, line in enumerate(lines, 1):
            if len(line.expandtabs(8)) > 100:
                notes.append(f"{rel}:{number}: {len(line.expandtabs(8))} columns")
            if re.search(r"\bAUTO_[A-Z]+\b[^=;]*;", line) and not line.startswith("#"):
                notes.append(f"{rel}:{number}: AUTO_ variable without an initial value")
            if line == "{":
                start = number
            elif line == "}" and start:
                if number - start > 71:
                    notes.append(f"{rel}:{start}: function of {number - start - 1} lines")
                start = None
    return notes


def main():
    faults = layer_faults()
    for fault in faults:
        print(fault, file=sys.stderr)
    if "--layers" not in sys.argv:
        for note in habits():
            print(note)
    if faults:
        return 1
    print("layers: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
