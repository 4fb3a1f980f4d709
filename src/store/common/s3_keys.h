/*
 * s3_keys.h - the keys of an S3 store as people write them down: a JSON object, in a secret of a
 * source or in the file of --objects-credentials. The names are those that jobs were written with.
 */
#ifndef S3_KEYS_H
#define S3_KEYS_H

#include "io/sigv4.h"

#define S3_REGION_DEFAULT "us-east-1"

/* aws_access_key_id, aws_secret_access_key, aws_session_token, aws_region: what is absent or empty
 * is NULL. All of it lives in `a`, which is to be wiped. False: `json` is no JSON, and nothing is
 * set; why is not said, for it might quote a key. */
bool s3_keys_read(struct arena *a, struct str json, struct sigv4_key *out);

#endif
