/*
 * id_range.h - whom the last ids of a range are for, of the pool that jobs of a root server have:
 * server and runner have to agree. run/ids.h says what a range is. No job's process and no file of
 * a job has the last one.
 */
#ifndef ID_RANGE_H
#define ID_RANGE_H

#include <stdint.h>

/* Of a job's range: its runner's, once it has given up root. */
static inline uint32_t id_range_runner(uint32_t first, uint32_t span)
{
	return first + span - 1;
}

/* Of the pool's first range, which no job has: whom the store's files belong to that the node cache
 * has a name of. Nothing runs as it. */
static inline uint32_t id_range_store(uint32_t first, uint32_t span)
{
	return first + span - 1;
}

/* Of the first range, too: as whom the keepers of the node cache run (run/node.h). */
static inline uint32_t id_range_keeper(uint32_t first, uint32_t span)
{
	return first + span - 2;
}

#endif
