/* tls_fixture.h - a certificate for 127.0.0.1 that nobody vouches for, and its key. */
#ifndef TLS_FIXTURE_H
#define TLS_FIXTURE_H

#include "base/clock.h"
#include "io/proc.h"
#include "unit.h"

struct tls_files {
	char dir[32], cert[64], key[64];
};

static inline void tls_make(struct tls_files *f)
{
	AUTO_BUF struct buf out = BUF_INIT(65536);
	struct err err = {0};
	int code = -1;

	FMT(f->dir, "/tmp/stoker-tls-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	FMT(f->cert, "%s/cert.pem", f->dir);
	FMT(f->key, "%s/key.pem", f->dir);
	{
		const char *const argv[] = {"openssl",
		                            "req",
		                            "-x509",
		                            "-newkey",
		                            "ec",
		                            "-pkeyopt",
		                            "ec_paramgen_curve:prime256v1",
		                            "-nodes",
		                            "-days",
		                            "2",
		                            "-subj",
		                            "/CN=localhost",
		                            "-addext",
		                            "subjectAltName=IP:127.0.0.1",
		                            "-keyout",
		                            f->key,
		                            "-out",
		                            f->cert,
		                            NULL};

		assert_ok(
			proc_run(argv, (struct str){0}, clock_mono_ms() + 60000, &out, &code, &err),
			&err);
	}
	assert_int_equal(code, 0);
}

static inline void tls_remove(const struct tls_files *f)
{
	(void)unlink(f->cert);
	(void)unlink(f->key);
	(void)rmdir(f->dir);
}

#endif
