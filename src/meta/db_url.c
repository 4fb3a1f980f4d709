/* db_url.c - see db_url.h. The grammar is libpq's: PostgreSQL 15 manual, 34.1.1.2. */
#include "meta/db_url.h"

struct parts {
	struct str scheme, user, hosts, name, options;
	bool has_user;
};

static struct str cut_before(struct str *rest, const char *ends)
{
	struct str head = {rest->p, 0};

	while (head.n < rest->n && strchr(ends, rest->p[head.n]) == NULL)
		head.n++;
	*rest = str_skip(*rest, head.n);
	return head;
}

/* As libpq does it: a user ends at the first @, if no / is before it. */
static bool split(const char *url, struct parts *out)
{
	const char *at = strstr(url, "://");
	struct str rest, user;

	*out = (struct parts){0};
	if (at == NULL)
		return false;
	out->scheme = str_n(url, (size_t)(at - url));
	if (!str_eq(out->scheme, "postgresql") && !str_eq(out->scheme, "postgres"))
		return false;
	rest = str_of(at + strlen("://"));
	user = rest;
	out->user = cut_before(&user, "@/");
	out->has_user = str_starts(user, "@");
	if (out->has_user)
		rest = str_skip(user, 1);
	else
		out->user = (struct str){0};
	out->hosts = cut_before(&rest, "/?");
	if (str_starts(rest, "/")) {
		rest = str_skip(rest, 1);
		out->name = cut_before(&rest, "?");
	}
	out->options = str_skip(rest, 1);
	return true;
}

static bool has(struct str s, char c)
{
	return s.n > 0 && memchr(s.p, c, s.n) != NULL;
}

bool db_url_has_password(const char *url)
{
	struct parts p;

	return split(url, &p) && ((p.has_user && has(p.user, ':')) ||
	                          /* sslpassword, too */
	                          (p.options.n > 0 && strstr(p.options.p, "password=") != NULL));
}

const char *db_url_place(struct arena *a, const char *url)
{
	struct parts p;

	if (!split(url, &p))
		return url;
	return arena_printf(a, "%.*s://%.*s%s%.*s", STR_ARG(p.scheme), STR_ARG(p.hosts),
	                    p.name.n > 0 ? "/" : "", STR_ARG(p.name));
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool escapes_ok(const char *s)
{
	for (; (s = strchr(s, '%')) != NULL; s += 3)
		if (!is_hex(s[1]) || !is_hex(s[2]) || (s[1] == '0' && s[2] == '0'))
			return false;
	return true;
}

/* HOST, HOST:PORT or [ADDRESS]:PORT; either may be missing. */
static bool host_ok(struct str one)
{
	if (str_starts(one, "[")) {
		(void)cut_before(&one, "]");
		if (one.n == 0)
			return false;
		one = str_skip(one, 1);
	} else {
		(void)cut_before(&one, ":");
	}
	if (one.n > 0 && *one.p != ':')
		return false;
	for (size_t i = 1; i < one.n; i++)
		if (one.p[i] < '0' || one.p[i] > '9')
			return false;
	return true;
}

static bool hosts_ok(struct str hosts)
{
	struct str one = {0};

	if (has(hosts, '@'))
		return false;
	while (str_cut(&hosts, ',', &one))
		if (!host_ok(one))
			return false;
	return true;
}

int db_url_check(const char *url, struct err *err)
{
	struct str one = {0};
	struct parts p;

	if (!split(url, &p))
		return 0;
	if (!escapes_ok(url) || !hosts_ok(p.hosts) || has(p.name, '@'))
		return err_set(err, ERR_INVALID,
		               "the URL of the database cannot be read. In its user, password and "
		               "name write %% as %%25, / as %%2F, : as %%3A, ? as %%3F and @ as "
		               "%%40. Better leave the password to PGPASSFILE");
	while (str_cut(&p.options, '&', &one))
		if (one.n > 0 && !has(one, '='))
			return err_set(err, ERR_INVALID,
			               "the URL of the database has an option without a value: "
			               "should be ?OPTION=VALUE&OPTION=VALUE");
	return 0;
}
