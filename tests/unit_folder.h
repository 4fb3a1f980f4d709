/*
 * unit_folder.h - a folder for the tests of a file, made before the first and removed behind the
 * last: UNIT_MAIN_IN(tests, set_up, tear_down). UNIT_FOLDER, defined before, is how its path
 * begins.
 */
#ifndef UNIT_FOLDER_H
#define UNIT_FOLDER_H

#include "unit.h"

#include "base/fs.h"

static char folder[64];

static int set_up(void **state UNUSED)
{
	FMT(folder, UNIT_FOLDER "-XXXXXX");
	return mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state UNUSED)
{
	struct err err = {0};

	return fs_remove_tree(AT_FDCWD, folder, &err);
}

#endif
