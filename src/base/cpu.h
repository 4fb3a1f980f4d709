/* cpu.h - what programs that were compiled for this machine's CPU may use, in a word. */
#ifndef CPU_H
#define CPU_H

#include "base/buf.h"

#define CPU_KIND_CAP 48
/* "x86-64-v4-3fa9": code that was made for one is good for all of the same. */
void cpu_kind(char out[CPU_KIND_CAP]);
/* The second part of it, of what /proc/cpuinfo says. */
#define CPU_FLAGS_CAP 5
void cpu_flags(struct str cpuinfo, char out[CPU_FLAGS_CAP]);

#endif
