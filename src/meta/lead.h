/* lead.h - who leads, of the servers that reach one database. */
#ifndef LEAD_H
#define LEAD_H

#include "base/base.h"

#define LEAD_NAME_CAP 33
#define LEAD_URL_CAP 300

/* A leader whose `beat` stands still while the database answers is dead or frozen. */
struct lead {
	bool made;                /* a server has led here */
	char name[LEAD_NAME_CAP]; /* empty: it has left in order */
	char url[LEAD_URL_CAP];   /* where it answers; may be empty */
	int64_t beat;
	int64_t version; /* of the schema */
	int64_t session; /* that it writes by; 0: none */
};

#endif
