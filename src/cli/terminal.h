/*
 * terminal.h - the terminal of the person: raw while another one behind it does the work, and given
 * back as it was at every end of this process but SIGKILL.
 */
#ifndef TERMINAL_H
#define TERMINAL_H

#include "base/err.h"

struct terminal_size {
	uint32_t rows, columns;
};

/* stdin from now on. Once in a process. */
int terminal_raw(struct err *err) MUST_CHECK;
void terminal_raw_again(void);            /* after somebody else had it: SIGCONT */
void terminal_restore(void);              /* not raw: does nothing */
struct terminal_size terminal_size(void); /* of stdin; 24 x 80 when it does not say */

#endif
