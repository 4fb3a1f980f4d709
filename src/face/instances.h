/* instances.h - the sizes of machine that this server's nodes can give, as clients list them. */
#ifndef FACE_INSTANCES_H
#define FACE_INSTANCES_H

#include "face/face.h"
#include "face/show.h"

#define INSTANCES_MAX 256

/* Sizes that some node has: whole fractions of its GPUs with their share of cores and memory, and
 * the usual sizes without GPUs. Each once, the small ones first. */
size_t instances_of(const struct node_row *nodes, size_t n, struct instance out[INSTANCES_MAX]);

#endif
