/* db_url.h - the URL of a PostgreSQL, before libpq sees it: may it be shown, and is it one? */
#ifndef DB_URL_H
#define DB_URL_H

#include "base/arena.h"
#include "base/buf.h"

/* A password in it, which belongs into libpq's own files and variables. */
bool db_url_has_password(const char *url);
/* Without user, password and options, for messages: "postgresql://host/name". Another URL as it is.
 */
const char *db_url_place(struct arena *a, const char *url);
/* What libpq would refuse with a message that quotes it, or misread: a password with a character
 * that must be escaped. Nothing of it is in this message. Another URL is none of ours. */
int db_url_check(const char *url, struct err *err) MUST_CHECK;

#endif
