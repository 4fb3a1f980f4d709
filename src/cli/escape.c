/* escape.c - `~.` and its like, a byte at a time; see escape.h. */
#include "cli/escape.h"

enum escape_want escape_feed(struct escape *e, struct str *typed, struct buf *out)
{
	while (typed->n > 0) {
		char c = typed->p[0];

		*typed = str_skip(*typed, 1);
		if (e->tilde) {
			e->tilde = false;
			if (c == '.')
				return ESCAPE_HANG_UP;
			if (c == '?') /* the next `~` is one again */
				return ESCAPE_HELP;
			if (c != '~')
				buf_putc(out, '~');
		} else if (c == '~' && !e->within) {
			e->tilde = true;
			continue;
		}
		buf_putc(out, c);
		e->within = c != '\r' && c != '\n';
	}
	return ESCAPE_NOTHING;
}
