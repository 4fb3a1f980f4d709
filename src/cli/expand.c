/* expand.c - `push --expand-env`: ${NAME} in the texts of a job file. */
#include "cli/cli.h"

#define EXPANDED_MAX ((size_t)1 << 20)

static bool is_name_char(char ch, bool first)
{
	return (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || ch == '_' ||
	       (!first && ch >= '0' && ch <= '9');
}

/* One "${NAME}" at the head of *rest. */
static int expand_one(struct cli *c, const struct doc *d, struct str *rest, struct buf *out,
                      struct err *err)
{
	size_t n = 2;
	const char *name, *value;

	while (n < rest->n && is_name_char(rest->p[n], n == 2))
		n++;
	if (n == 2 || n == rest->n || rest->p[n] != '}')
		return err_set(err, ERR_INVALID,
		               "%u:%u: write a variable as ${NAME}, and $${ for the two characters "
		               "themselves",
		               d->line, d->col);
	name = arena_strz(c->arena, str_n(rest->p + 2, n - 2));
	value = getenv(name);
	if (value == NULL)
		return err_set(err, ERR_INVALID, "%u:%u: the variable %s is not set", d->line,
		               d->col, name);
	buf_puts(out, value);
	*rest = str_skip(*rest, n + 1);
	return 0;
}

static int expand_text(struct cli *c, struct doc *d, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(EXPANDED_MAX);
	struct str rest = d->text;

	if (rest.n == 0 || memmem(rest.p, rest.n, "${", 2) == NULL)
		return 0;
	while (rest.n > 0) {
		if (str_starts(rest, "$${")) {
			buf_puts(&out, "${");
			rest = str_skip(rest, 3);
		} else if (str_starts(rest, "${")) {
			if (expand_one(c, d, &rest, &out, err) < 0)
				return -1;
		} else {
			buf_putc(&out, rest.p[0]);
			rest = str_skip(rest, 1);
		}
	}
	if (buf_check(&out, "an expanded text", err) < 0)
		return -1;
	d->text = arena_str(c->arena, buf_view(&out));
	return 0;
}

/* A copy of the tree. It is as deep as the reader of YAML lets it be. */
static struct doc *expanded(struct cli *c, const struct doc *d, struct err *err)
{
	struct doc *copy = ARENA_NEW(c->arena, struct doc), **at = &copy->first;

	*copy = *d;
	copy->first = copy->next = NULL;
	if (d->kind == DOC_TEXT && expand_text(c, copy, err) < 0)
		return NULL;
	DOC_EACH (child, d) {
		*at = expanded(c, child, err);
		if (*at == NULL)
			return NULL;
		at = &(*at)->next;
	}
	return copy;
}

int expand_env(struct cli *c, const struct doc **d, struct err *err)
{
	const struct doc *copy = expanded(c, *d, err);

	if (copy == NULL)
		return -1;
	*d = copy;
	return 0;
}
