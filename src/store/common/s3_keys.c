/* s3_keys.c - see s3_keys.h. */
#include "store/common/s3_keys.h"
#include "base/json.h"

static const char *text_of(struct arena *a, const struct doc *d, const char *name)
{
	struct str v = str_trim(doc_text(doc_get(d, name)));

	return v.n > 0 ? arena_strz(a, v) : NULL;
}

bool s3_keys_read(struct arena *a, struct str json, struct sigv4_key *out)
{
	const struct doc *d = NULL;
	struct err ignored = {0};

	*out = (struct sigv4_key){.service = "s3"};
	if (js_parse(a, json, &d, &ignored) < 0)
		return false;
	out->access_key = text_of(a, d, "aws_access_key_id");
	out->secret_key = text_of(a, d, "aws_secret_access_key");
	out->session_token = text_of(a, d, "aws_session_token");
	out->region = text_of(a, d, "aws_region");
	return true;
}
