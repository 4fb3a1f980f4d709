/*
 * ranks.h - how many ranks a job's training has, by the variable that every launcher sets for its
 * processes (torchrun, accelerate, deepspeed, mpirun with WORLD_SIZE): read from their environment.
 */
#ifndef RANKS_H
#define RANKS_H

#include "base/buf.h"

/* WORLD_SIZE of the first process below `init` (this one included) that has it; 0 = none has, or
 * none may be looked at. */
uint32_t ranks_of(pid_t init);

/* Appends the pid_t of all processes below `init`, this one included. */
void ranks_pids(pid_t init, struct buf *out);

#endif
