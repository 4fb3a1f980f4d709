/*
 * schema.h - numbered migrations, the same for all drivers. The database keeps the number of the
 * last one applied; each runs in one transaction with the change of that number. A database that is
 * newer than this program is refused: an older server must not write to it.
 */
#ifndef SCHEMA_H
#define SCHEMA_H

#include "meta/db.h"

#define SCHEMA_VERSION 23

/* ERR_DATABASE_NEWER */
int schema_known(int64_t version, struct err *err) MUST_CHECK;
int schema_migrate(struct db *db, struct err *err) MUST_CHECK;

#endif
