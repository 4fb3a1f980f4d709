/* units.h - sizes, durations and rates as people write and read them. */
#ifndef UNITS_H
#define UNITS_H

#include "base/buf.h"

#define UNITS_CAP 32

/* "2Gi", "64GiB", "500M", "1.5TB", "4096": Ki/Mi/Gi/Ti by 1024, k/M/G/T by 1000. */
int units_bytes(struct str text, uint64_t *bytes, struct err *err) MUST_CHECK;
/* "90s", "15m", "24h", "7d", "1h30m", "45" (seconds). */
int units_seconds(struct str text, uint64_t *seconds, struct err *err) MUST_CHECK;

char *units_show_bytes(uint64_t bytes, char out[UNITS_CAP]);     /* "1.50 GB", by 1000 */
char *units_show_memory(uint64_t bytes, char out[UNITS_CAP]);    /* "64Gi", "200Mi", by 1024 */
char *units_show_seconds(uint64_t seconds, char out[UNITS_CAP]); /* "1h 51m", "12s" */
char *units_show_count(uint64_t n, char out[UNITS_CAP]);         /* "1,011" */
char *units_show_rate(double bytes_per_s, char out[UNITS_CAP]);  /* "412 MB/s" */

#endif
