/*
 * parsers.h - one function per format, all alike: it is called when the first bytes (or, where
 * there are none to go by, the name) say that the file is of this format, and gives a verdict.
 * Internal to the layer; the table that calls them is in format.c.
 */
#ifndef PARSERS_H
#define PARSERS_H

#include "format/zip.h"

/* format_json.c */
void check_json(struct look *l);
void check_json_lines(struct look *l);
enum format_role json_role(struct str name); /* of a file with this base name */
/* format_safetensors.c */
void check_safetensors(struct look *l);
/* format_zip.c: finds out which of torch zip, .keras, npz, plain zip it is. */
void check_zip(struct look *l);
void check_empty_zip(struct look *l);
/* format_torch.c: an archive that has a data.pkl, which is `data`; its directory was walked and
 * every entry located. torch_prefix: "x/" of "x/data.pkl", empty when it is another name. */
void torch_archive(struct look *l, const struct zip *z, const struct zip_entry *data);
bool torch_is_data(const struct zip_entry *e);
void check_torch_legacy(struct look *l);
void check_pickle(struct look *l);
/* format_dcp.c */
#define DCP_METADATA ".metadata"
void check_metadata(struct look *l);
void check_distcp(struct look *l);
/* format_gguf.c */
void check_gguf(struct look *l);
/* format_hdf5.c */
void check_hdf5(struct look *l);
/* format_npy.c */
void check_npy(struct look *l);
/* format_jax.c: magic numbers of OCDBT's records */
#define OCDBT_MANIFEST 0x0cdb3a2au
#define OCDBT_NODE 0x0cdb20deu
#define OCDBT_VERSIONS 0x0cdb1234u
void check_ocdbt(struct look *l);
void check_msgpack(struct look *l);
/* format_tar.c */
void check_tar(struct look *l);
/* format_text.c */
void check_sentencepiece(struct look *l);
void check_pointer(struct look *l);
void check_text(struct look *l);

#endif
