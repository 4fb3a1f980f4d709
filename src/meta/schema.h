/*
 * schema.h - numbered migrations. The number of the last one applied is the database's
 * user_version; each runs in one transaction with the change of that number. A database that is
 * newer than this program is refused: an older server must not write to it.
 */
#ifndef SCHEMA_H
#define SCHEMA_H

#include "meta/db.h"

#define SCHEMA_VERSION 15

int schema_migrate(struct db *db, struct err *err) MUST_CHECK;

#endif
