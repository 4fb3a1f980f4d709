/* lead.h - who leads, of the servers that reach one database. */
#ifndef LEAD_H
#define LEAD_H

#include "base/base.h"

#define LEAD_NAME_CAP 33
#define LEAD_URL_CAP 300
#define LEAD_UNHEARD_MS 4000 /* less than the patience of a standby */

/* A leader whose `beat` stands still while the database answers is dead or frozen. */
struct lead {
	bool made;                /* a server has led here */
	char name[LEAD_NAME_CAP]; /* empty: it has left in order */
	char url[LEAD_URL_CAP];   /* where it answers; may be empty */
	int64_t beat;
	int64_t version; /* of the schema */
	int64_t session; /* that it writes by; 0: none */
};

#define LEAD_WAITING_MAX 8 /* that are told of; there is one, as a rule */
#define LEAD_HOST_CAP 64

/* A server that waits to lead. */
struct lead_waiting {
	char host[LEAD_HOST_CAP];
	int64_t seen_ms; /* so long ago, by the database's clock; -1: it does not tell us */
};

#endif
