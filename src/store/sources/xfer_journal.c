/* xfer_journal.c - which parts of a fetch are there, in a file that survives kill -9. */
#include "store/sources/xfer_impl.h"

#include "base/fs.h"

#define HEAD_CAP 192
#define BOOT_CAP 40
#define RECORD_BYTES 20 /* "p 00000000 00000000\n" */

static void read_boot_id(char out[BOOT_CAP])
{
	AUTO_BUF struct buf b = BUF_INIT(128);
	struct err err = {0};

	/* Without one (no /proc) nothing is known to survive but what was synced. */
	if (fs_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &b, &err) < 0)
		copy_cut(out, BOOT_CAP, "unknown");
	else
		(void)snprintf(out, BOOT_CAP, "%.*s", STR_ARG(str_trim(buf_view(&b))));
}

/* The first line; boot ends in the middle of it so that the rest can be compared without. */
static void format_head(char out[HEAD_CAP], const struct xfer_job *job, uint64_t part_bytes,
                        const char *boot)
{
	const char *identity = job->identity != NULL ? job->identity : "";
	struct digest d = hash_sha256(identity, strlen(identity));
	char hex[HASH_HEX_CAP];

	digest_hex(&d, hex);
	fmt_fixed(out, HEAD_CAP, "stoker-xfer 1 %" PRIu64 " %" PRIu64 " %s %s\n", job->size,
	          part_bytes, boot, hex);
}

static void format_record(char out[RECORD_BYTES + 1], char kind, uint32_t value)
{
	char body[12];

	FMT(body, "%c %08x", kind, value);
	fmt_fixed(out, RECORD_BYTES + 1, "%s %08x\n", body, hash_crc32(0, body, strlen(body)));
}

static bool parse_record(const char *p, char *kind, uint32_t *value)
{
	char want[RECORD_BYTES + 1];
	uint8_t b[4];
	struct err err = {0};

	if ((p[0] != 'p' && p[0] != 'w' && p[0] != 's') ||
	    hex_decode(str_n(p + 2, 8), b, 4, &err) < 0)
		return false;
	*kind = p[0];
	*value = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
	format_record(want, *kind, *value);
	return memcmp(p, want, RECORD_BYTES) == 0;
}

/* Bytes of the head when `text` begins a journal of this job, else 0; *same_boot says whose. */
static size_t match_head(struct str text, const struct xfer_job *job, uint64_t part_bytes,
                         const char *boot, bool *same_boot)
{
	char head[HEAD_CAP], theirs[BOOT_CAP];
	struct str rest = text, line, word;
	int at = 0;

	if (!str_cut(&rest, '\n', &line) || line.n + 1 >= HEAD_CAP || line.n + 1 > text.n)
		return 0;
	theirs[0] = '\0';
	for (struct str l = line; str_cut(&l, ' ', &word); at++) {
		if (at == 4 && word.n < BOOT_CAP)
			(void)snprintf(theirs, sizeof(theirs), "%.*s", STR_ARG(word));
	}
	format_head(head, job, part_bytes, theirs);
	if (text.n < strlen(head) || memcmp(text.p, head, strlen(head)) != 0)
		return 0;
	*same_boot = strcmp(theirs, boot) == 0 && strcmp(boot, "unknown") != 0;
	return strlen(head);
}

/* Reads records into order[], the parts in the order they were noted, and grains[], of those that
 * were not finished. Returns the good bytes. */
static size_t read_records(struct str text, size_t parts, uint32_t *order, uint32_t *noted,
                           uint32_t *synced, uint16_t *grains)
{
	size_t at = 0;
	uint32_t value;
	char kind;

	for (; at + RECORD_BYTES <= text.n; at += RECORD_BYTES) {
		if (!parse_record(text.p + at, &kind, &value))
			break;
		if (kind == 's' && value <= *noted)
			*synced = value;
		else if (kind == 'p' && value < parts && *noted < parts)
			order[(*noted)++] = value;
		else if (kind == 'w' && value / XFER_GRAINS < parts)
			grains[value / XFER_GRAINS] = (uint16_t)(value % XFER_GRAINS);
		else
			break;
	}
	return at;
}

static int begin(struct xfer_journal *j, const struct xfer_job *job, uint64_t part_bytes,
                 const char *boot, const uint32_t *order, uint32_t n, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(HEAD_CAP + (XFER_PARTS_MAX + 1) * RECORD_BYTES);
	char line[HEAD_CAP];

	format_head(line, job, part_bytes, boot);
	buf_puts(&body, line);
	for (uint32_t i = 0; i < n; i++) {
		format_record(line, 'p', order[i]);
		buf_puts(&body, line);
	}
	if (n > 0) {
		format_record(line, 's', n);
		buf_puts(&body, line);
	}
	if (buf_check(&body, "write the journal of a fetch", err) < 0 ||
	    fs_write_atomic(AT_FDCWD, job->journal, buf_view(&body), 0600, err) < 0)
		return -1;
	j->noted = n;
	return 0;
}

int xfer_journal_open(struct xfer_journal *j, const struct xfer_job *job, uint64_t part_bytes,
                      uint16_t *grains, size_t parts, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(HEAD_CAP + 3 * XFER_PARTS_MAX * RECORD_BYTES);
	AUTO_FREE uint32_t *order = xcalloc(parts, sizeof(*order));
	uint32_t synced = 0, keep = 0;
	bool same_boot = false;
	struct err ignored = {0};
	size_t head = 0, good = 0;
	char boot[BOOT_CAP];
	struct stat st;

	assert(parts > 0 && parts <= XFER_PARTS_MAX);
	j->fd = -1;
	j->noted = 0;
	if (job->journal == NULL)
		return 0;
	read_boot_id(boot);
	/* A file that has not its full length was never prepared: the journal is not its own. */
	if (fstat(job->fd, &st) == 0 && (uint64_t)st.st_size == job->size &&
	    fs_read(AT_FDCWD, job->journal, &text, &ignored) == 0)
		head = match_head(buf_view(&text), job, part_bytes, boot, &same_boot);
	if (head > 0) {
		good = read_records(str_skip(buf_view(&text), head), parts, order, &j->noted,
		                    &synced, grains);
		keep = same_boot ? j->noted : synced;
	}
	if (!same_boot)
		memset(grains, 0, parts * sizeof(*grains));
	if (!same_boot && begin(j, job, part_bytes, boot, order, keep, err) < 0)
		return -1;
	j->fd = open(job->journal, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (j->fd < 0)
		return err_errno(err, errno, "%s", job->journal);
	if (same_boot && ftruncate(j->fd, (off_t)(head + good)) < 0) {
		(void)err_errno(err, errno, "%s", job->journal);
		xfer_journal_close(j);
		return -1;
	}
	for (uint32_t i = 0; i < keep; i++)
		grains[order[i]] = XFER_GRAINS;
	return 0;
}

void xfer_journal_close(struct xfer_journal *j)
{
	if (j->fd >= 0)
		(void)close(j->fd);
	j->fd = -1;
}

static int note(struct xfer_journal *j, char kind, uint32_t value, struct err *err)
{
	char line[RECORD_BYTES + 1];

	if (j->fd < 0)
		return 0;
	format_record(line, kind, value);
	if (fs_write_all(j->fd, line, RECORD_BYTES, err) < 0)
		return err_wrap(err, "write the journal of a fetch");
	return 0;
}

int xfer_journal_part(struct xfer_journal *j, size_t part, struct err *err)
{
	if (note(j, 'p', (uint32_t)part, err) < 0)
		return -1;
	j->noted += j->fd >= 0;
	return 0;
}

int xfer_journal_grains(struct xfer_journal *j, size_t part, unsigned grains, struct err *err)
{
	assert(part < XFER_PARTS_MAX && grains > 0 && grains < XFER_GRAINS);
	return note(j, 'w', (uint32_t)part * XFER_GRAINS + grains, err);
}

int xfer_journal_synced(struct xfer_journal *j, uint32_t count, struct err *err)
{
	if (note(j, 's', count, err) < 0)
		return -1;
	if (j->fd < 0)
		return 0;
	if (fdatasync(j->fd) < 0)
		return err_errno(err, errno, "write the journal of a fetch");
	return 0;
}
