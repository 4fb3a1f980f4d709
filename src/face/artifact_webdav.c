/*
 * artifact_webdav.c - the part of WebDAV that sccache and others like it speak. Folders are only
 * the beginnings of paths, so each of them is there already: a client that looks before it stores
 * has nothing to make. A request's XML is never parsed: the answer is the same for all that it
 * could ask.
 */
#include "face/artifact_impl.h"

#include "base/clock.h"
#include "face/s3_impl.h" /* s3_xml_element */

#define XML_MAX ((size_t)64 << 10)

static int file_of(struct request *rq, struct artifact_name *out, struct err *err)
{
	return artifact_file_name(rq->arg[1], out, err);
}

static bool is_folder(const struct request *rq)
{
	return rq->n_arg < 2 || str_ends(rq->path, "/");
}

int webdav_get(struct request *rq, struct err *err)
{
	struct artifact_name name;

	return file_of(rq, &name, err) < 0 ? -1 : artifact_send(rq, &name, err);
}

int webdav_put(struct request *rq, struct err *err)
{
	struct artifact_name name;
	bool fresh;

	if (file_of(rq, &name, err) < 0 || artifact_store_body(rq, &name, &fresh, err) < 0)
		return -1;
	return artifact_done(rq, fresh ? 201 : 204);
}

int webdav_delete(struct request *rq, struct err *err)
{
	struct artifact_name name;

	return file_of(rq, &name, err) < 0 ? -1 : artifact_delete(rq, &name, err);
}

static int check_depth(const struct request *rq, struct err *err)
{
	struct str depth = request_header(rq, "depth");

	if (depth.n == 0 || str_eq(depth, "0"))
		return 0;
	return err_set(err, ERR_DENIED, "Depth: %.*s: folders are not listed here, only looked at",
	               (int)MIN(depth.n, 20), depth.p);
}

int webdav_propfind(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf xml = BUF_INIT(XML_MAX);
	const char *ns = artifact_namespace(rq);
	struct artifact_found f = {0};
	char modified[CLOCK_HTTP_CAP];
	struct artifact_name name;

	if (check_depth(rq, err) < 0)
		return -1;
	if (is_folder(rq)) {
		if (ctx->ops->artifacts->may(face_ask(rq), ns, false, err) < 0)
			return -1;
	} else if (file_of(rq, &name, err) < 0 ||
	           ctx->ops->artifacts->get(face_ask(rq), ns, &name, false, &f, err) < 0) {
		return -1;
	}
	clock_http(f.created_ms, modified);
	buf_puts(&xml, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus "
	               "xmlns:D=\"DAV:\"><D:response>");
	s3_xml_element(&xml, "D:href", rq->path);
	buf_printf(&xml, "<D:propstat><D:prop><D:getlastmodified>%s</D:getlastmodified>", modified);
	if (is_folder(rq))
		buf_puts(&xml, "<D:resourcetype><D:collection/></D:resourcetype>");
	else
		buf_printf(&xml,
		           "<D:getcontentlength>%" PRIu64 "</D:getcontentlength>"
		           "<D:getetag>&quot;%s&quot;</D:getetag><D:resourcetype/>",
		           f.bytes, f.sha256);
	buf_puts(&xml, "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
	               "</D:multistatus>\n");
	if (buf_check(&xml, "the answer", err) < 0)
		return -1;
	return reply_bytes(rq, 207, "application/xml; charset=utf-8", buf_view(&xml));
}

int webdav_mkcol(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	if (ctx->ops->artifacts->may(face_ask(rq), artifact_namespace(rq), true, err) < 0)
		return -1;
	return artifact_done(rq, rq->n_arg < 2 ? 405 : 201);
}

int webdav_options(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	if (ctx->ops->artifacts->may(face_ask(rq), artifact_namespace(rq), false, err) < 0)
		return -1;
	reply_header(rq, "DAV", "1");
	reply_header(rq, "Allow", "OPTIONS, GET, HEAD, PUT, DELETE, PROPFIND, MKCOL");
	return artifact_done(rq, 200);
}
