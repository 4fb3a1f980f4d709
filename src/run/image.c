/* image.c - looks, pulls, and says in the job's words why an image cannot be had; see image.h. */
#include "run/image.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/seal.h"
#include "io/proc.h"
#include "run/registry.h"

/* its working directory, then its variables, a line each */
#define LOOK_FORMAT "{{.Config.WorkingDir}}{{range .Config.Env}}{{println}}{{.}}{{end}}{{println}}"
#define LOOK_MS 120000 /* of commands that only look */
#define OUT_MAX ((size_t)256 << 10)
#define AUTH_MAX ((size_t)8 << 20)
#define WORDS_MAX 300

static int look(struct arena *a, const char *image, bool *there, const char **workdir,
                const char **path, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman", "image", "inspect", "--format", LOOK_FORMAT, image, NULL};
	struct str text, line = {0};
	int code = 0;

	if (proc_run(argv, (struct str){0}, LOOK_MS, &out, &code, err) < 0)
		return err_wrap(err, "image %s", image);
	*there = code == 0;
	text = buf_view(&out);
	if (!*there || !str_cut(&text, '\n', &line))
		return 0;
	line = str_trim(line);
	*workdir = line.n > 0 ? arena_strz(a, line) : "/";
	while (str_cut(&text, '\n', &line)) {
		if (str_starts(line, "PATH="))
			*path = arena_strz(a, str_skip(line, strlen("PATH=")));
	}
	return 0;
}

/* --- the credentials' file --- */

static int write_auth(struct arena *a, const struct image *im, const char *path, struct err *err)
{
	struct buf text = BUF_INIT(AUTH_MAX);
	int rc = registry_auth(im->spec, im->launch->registry_secret, im->launch->registry_secret2,
	                       im->cancel, &text, err);

	if (rc == 0)
		rc = fs_write_atomic(AT_FDCWD, path, buf_view(&text), 0600, err);
	seal_wipe_buf(&text);
	if (rc < 0)
		return err_wrap(err, "image %s: credentials of its registry %s",
		                im->spec->base_image, registry_host(a, im->spec->registry));
	return 0;
}

/* --- why not --- */

enum why { WHY_DENIED, WHY_UNKNOWN, WHY_AWAY, WHY_CERT, WHY_PLAIN, WHY_SHORT, WHY_FULL, WHY_ELSE };

/* What podman 4 says, in parts of its last line; the first that is found counts. */
static const struct {
	const char *words;
	enum why why;
} reasons[] = {
	{"no space left on device", WHY_FULL},
	{"x509:", WHY_CERT},
	{"server gave HTTP response to HTTPS client", WHY_PLAIN},
	{"no such host", WHY_AWAY},
	{"connection refused", WHY_AWAY},
	{"network is unreachable", WHY_AWAY},
	{"no route to host", WHY_AWAY},
	{"i/o timeout", WHY_AWAY},
	{"TLS handshake timeout", WHY_AWAY},
	{"short-name", WHY_SHORT},
	{"unauthorized", WHY_DENIED},
	{"authentication required", WHY_DENIED},
	{"access to the resource is denied", WHY_DENIED},
	{"invalid username/password", WHY_DENIED},
	{"denied:", WHY_DENIED},
	{"403 (Forbidden)", WHY_DENIED},
	{"manifest unknown", WHY_UNKNOWN},
	{"name unknown", WHY_UNKNOWN},
	{"not found", WHY_UNKNOWN},
	{"no image found in manifest list", WHY_UNKNOWN},
};

static enum why why_of(const char *line)
{
	for (size_t i = 0; i < COUNT(reasons); i++) {
		if (strstr(line, reasons[i].words) != NULL)
			return reasons[i].why;
	}
	return WHY_ELSE;
}

static const char *denied_words(struct arena *a, const struct job_spec *s)
{
	const char *host;

	if (s->registry_auth == SPEC_AUTH_NONE)
		return "the registry asks for credentials, or has no such image: name a secret in "
		       "image.docker_auth";
	host = registry_host(a, s->registry);
	if (!registry_has(host, s->base_image))
		return arena_printf(a,
		                    "image.docker_auth holds credentials for %s, but the image is "
		                    "in another registry: correct image.docker_auth.registry",
		                    host);
	return arena_printf(a,
	                    "%s refused the credentials of image.docker_auth, or they do not cover "
	                    "this image: update secret \"%s\" (`stoker secrets set %s`)",
	                    host, s->registry_secret, s->registry_secret);
}

static int refuse(const struct image *im, struct str said, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct job_spec *s = im->spec;
	const struct {
		enum err_code code;
		const char *words;
	} of[] = {
		[WHY_DENIED] = {ERR_IMAGE_DENIED, denied_words(a, s)},
		[WHY_UNKNOWN] = {ERR_IMAGE_NOT_FOUND,
	                         "its registry does not have it, or not for this "
	                         "kind of machine: check the name and tag"},
		[WHY_AWAY] = {ERR_REGISTRY_UNREACHABLE,
	                      "its registry cannot be reached from this machine"},
		[WHY_CERT] =
			{ERR_CERTIFICATE_UNTRUSTED,
	                 "its registry's certificate is not trusted: copy the CA certificate to "
	                 "/etc/containers/certs.d/REGISTRY/ca.crt"},
		[WHY_PLAIN] = {ERR_REGISTRY_UNREACHABLE,
	                       "its registry uses plain HTTP: allow this with "
	                       "`insecure = true` in "
	                       "/etc/containers/registries.conf"},
		[WHY_SHORT] = {ERR_IMAGE_NOT_FOUND,
	                       "its name does not include a registry: write it in full, such as "
	                       "docker.io/library/python:3.12"},
		[WHY_FULL] = {ERR_NO_SPACE, "podman's storage is full: run `podman image prune`"},
		[WHY_ELSE] = {ERR_IMAGE_NOT_FOUND, "it cannot be pulled"},
	};
	struct str line = {0};
	const char *last;
	enum why why;

	said = str_trim(said);
	while (str_cut(&said, '\n', &line))
		;
	last = arena_strz(a, (struct str){line.p, MIN(line.n, (size_t)1000)});
	why = why_of(last);
	return err_set(err, of[why].code,
	               "image %s is not on this machine, and %s. You can also add it with `podman "
	               "load` or "
	               "`podman import`. (podman: %.500s)",
	               s->base_image, of[why].words, last);
}

/* --- the pull --- */

struct pull {
	const struct image *im;
	int64_t begun_ms;
};

/* Without a terminal podman says "Copying blob" at the begin of each layer, and no more. */
static bool pull_goes_on(void *arg, const struct buf *out)
{
	struct pull *p = arg;
	static const char mark[] = "Copying blob ";
	char words[WORDS_MAX];
	int layers = 0;

	for (size_t i = 0; i + sizeof(mark) <= out->n; i++)
		layers += memcmp(out->p + i, mark, sizeof(mark) - 1) == 0 ? 1 : 0;
	(void)snprintf(words, sizeof(words), "pulling image %.200s: %d layer%s, %" PRId64 " s",
	               p->im->spec->base_image, layers, layers == 1 ? "" : "s",
	               (clock_mono_ms() - p->begun_ms) / 1000);
	p->im->note(p->im->arg, words);
	return !atomic_load(p->im->cancel);
}

static int pull(const struct image *im, const char *auth, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	struct pull p = {im, clock_mono_ms()};
	const char *plain[] = {"podman", "pull", im->spec->base_image, NULL};
	const char *with[] = {"podman", "pull", "--authfile", auth, im->spec->base_image, NULL};
	int code = 0;

	if (proc_run_look(auth != NULL ? with : plain, IMAGE_PULL_MS,
	                  &(struct proc_look){pull_goes_on, &p}, &out, &code, err) < 0)
		return err_wrap(err, "image %s", im->spec->base_image);
	return code == 0 ? 0 : refuse(im, buf_view(&out), err);
}

static int pull_as_named(struct arena *a, const struct image *im, struct err *err)
{
	const char *path = arena_printf(a, "%s/" IMAGE_AUTH, im->dir);
	int rc;

	if (im->spec->registry_auth == SPEC_AUTH_NONE)
		return pull(im, NULL, err);
	if (write_auth(a, im, path, err) < 0)
		return -1;
	rc = pull(im, path, err);
	if (unlink(path) < 0 && rc == 0)
		return err_errno(err, errno, "%s holds a password and cannot be removed", path);
	return rc;
}

int image_bring(struct arena *a, const struct image *im, const char **workdir, const char **path,
                struct err *err)
{
	const char *image = im->spec->base_image;
	char found[4096];
	bool there = false;

	if (proc_find("podman", found) == NULL)
		return err_set(
			err, ERR_PODMAN_MISSING,
			"image %s: this machine has no podman (apt install podman); or start "
			"the server with --images host, or leave base_image out",
			image);
	if (look(a, image, &there, workdir, path, err) < 0)
		return -1;
	if (there)
		return 0;
	if (pull_as_named(a, im, err) < 0 || look(a, image, &there, workdir, path, err) < 0)
		return -1;
	if (!there)
		return err_set(err, ERR_IO, "podman pulled image %s but cannot find it", image);
	return 0;
}
