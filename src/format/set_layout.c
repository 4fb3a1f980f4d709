/* set_layout.c - the trainers whose checkpoints are known: by what they are recognised, which file
 * comes last, what says that one is not finished. The first row that fits wins. */
#include "format/set_work.h"

#define SIGNS 4

struct row {
	struct set_layout is;
	const char *name;        /* pattern of the checkpoint's name, NULL = any */
	const char *sign[SIGNS]; /* paths: any of them ... */
	const char *also;        /* ... and this one */
	const char *follow[3];   /* paths that may be written after the last one */
};

/* clang-format off */
static const struct row rows[] = {
	/* id, title, last, published, one file; name; signs; also; may follow the last */
	{{"llamafactory", "LLaMA-Factory v1", "CHECKPOINT_COMPLETE", 0, 0},
	 "checkpoint-#", {"CHECKPOINT_COMPLETE", "dataloader/rank_#.pt"}, NULL, {0}},
	{{"nemo2", "NeMo 2", "weights/metadata.json", 0, 0},
	 NULL, {"weights/*.distcp", "weights/.metadata", "weights/metadata.json"}, "context/*", {"context/*"}},
	{{"automodel", "NeMo Automodel", NULL, 0, 0},
	 "epoch_#_step_#", {".incomplete", "model/*", "optim/*"}, NULL, {0}},
	{{"nemo_rl", "NeMo-RL", NULL, 1, 0},
	 "step_#", {"training_info.json", "policy/*/*"}, NULL, {0}},
	{{"olmo_core", "OLMo-core", ".metadata.json", 1, 0},
	 "step#", {".metadata.json", "train/rank#.pt", "model_and_optim/*"}, NULL, {0}},
	{{"megatron_bridge", "Megatron-Bridge", "run_config.yaml", 0, 0},
	 "iter_#", {"run_config.yaml", "train_state.pt"}, NULL, {"tokenizer/*", "tokenizer*"}},
	{{"megatron", "Megatron-LM", "metadata.json", 0, 0},
	 "iter_#", {"*.distcp", ".metadata", "metadata.json", "common.pt"}, NULL, {"integrity.json", "tokenizer*", "tokenizer/*"}},
	{{"megatron", "Megatron-LM", "metadata.json", 0, 0},
	 "release", {"*.distcp", ".metadata", "metadata.json", "common.pt"}, NULL, {"integrity.json", "tokenizer*", "tokenizer/*"}},
	{{"megatron_torch", "Megatron-LM, format torch", NULL, 0, 0},
	 NULL, {"mp_rank_*/model_optim_rng.pt", "mp_rank_*/distrib_optim.pt"}, NULL, {0}},
	{{"verl", "verl", "data.pt", 0, 0},
	 "global_step_#", {"actor/*_world_size_#_rank_#.pt", "critic/*_world_size_#_rank_#.pt", "actor/huggingface/*"}, NULL, {0}},
	{{"lightning_sharded", "Lightning, sharded", "meta.pt", 0, 0},
	 "*.ckpt", {"meta.pt", "*.distcp", ".metadata"}, NULL, {0}},
	{{"lightning_deepspeed", "Lightning with DeepSpeed", NULL, 0, 0},
	 "*.ckpt", {"checkpoint/*model_states.pt", "checkpoint/*optim_states.pt"}, NULL, {0}},
	{{"hf_trainer", "transformers Trainer", "trainer_state.json", 0, 0},
	 NULL, {"trainer_state.json", "checkpoint-is-incomplete.txt"}, NULL, {"rng_state_#.pth"}},
	{{"hf_trainer", "transformers Trainer", "trainer_state.json", 0, 0},
	 "checkpoint-#", {"training_args.bin", "rng_state*.pth", "optimizer.pt", "scheduler.pt"}, NULL, {"rng_state_#.pth"}},
	{{"hf_trainer", "transformers Trainer", "trainer_state.json", 0, 0},
	 NULL, {"rng_state*.pth", "optimizer.pt", "scheduler.pt"}, "training_args.bin", {"rng_state_#.pth"}},
	{{"torchtune", "torchtune", "recipe_state.pt", 0, 0},
	 NULL, {"recipe_state.pt"}, NULL, {0}},
	{{"sd_scripts", "sd-scripts", NULL, 0, 0},
	 "*-state", {"train_state.json"}, NULL, {0}},
	{{"accelerate", "Accelerate", NULL, 0, 0},
	 NULL, {"random_states_#.pkl"}, NULL, {0}},
	{{"deepspeed", "DeepSpeed", NULL, 0, 0},
	 NULL, {"mp_rank_#_model_states.pt", "*zero_pp_rank_#_mp_rank_#_*_states.pt", "layer_*model_states.pt"}, NULL, {0}},
	{{"orbax", "Orbax", NULL, 1, 0},
	 NULL, {"_CHECKPOINT_METADATA", "*/manifest.ocdbt", "manifest.ocdbt", "commit_success.txt"}, NULL, {0}},
	{{"orbax", "Orbax", NULL, 1, 0},
	 NULL, {"_METADATA", "*/_METADATA"}, NULL, {0}},
	{{"composer", "Composer", ".metadata", 0, 0},
	 "ep#-ba#", {"*.distcp", ".metadata"}, NULL, {0}},
	{{"torchtitan", "torchtitan, as Hugging Face", "model.safetensors.index.json", 0, 0},
	 "step-#", {"sharded/*"}, NULL, {"sharded/*"}},
	{{"torchtitan", "torchtitan", ".metadata", 0, 0},
	 "step-#", {"*.distcp", ".metadata"}, NULL, {0}},
	{{"dcp_ranks", "torch.distributed.checkpoint, each rank by itself", NULL, 0, 0},
	 NULL, {"__#.metadata"}, NULL, {0}},
	{{"dcp", "torch.distributed.checkpoint", ".metadata", 0, 0},
	 NULL, {"*.distcp", ".metadata"}, NULL, {0}},
	{{"diffusers", "diffusers pipeline", NULL, 0, 0},
	 NULL, {"model_index.json"}, NULL, {0}},
	{{"hf_final", "transformers model, saved by its Trainer", "training_args.bin", 0, 0},
	 NULL, {"training_args.bin"}, NULL, {0}},
	{{"peft", "PEFT", NULL, 0, 0},
	 NULL, {"adapter_config.json", "adapter_model.*"}, NULL, {0}},
	{{"keras_backup", "Keras BackupAndRestore", "training_metadata.json", 0, 0},
	 NULL, {"training_metadata.json", "latest.weights.h5"}, NULL, {0}},
	{{"ray", "Ray Train", NULL, 0, 0},
	 "checkpoint_#-#-#_#-#-#*", {"*", "*/*"}, NULL, {0}},
	{{"model", "model folder", NULL, 0, 0},
	 NULL, {"model*.safetensors", "pytorch_model*.bin", "*.safetensors.index.json", "consolidated*"}, NULL, {0}},
};

/* Checkpoints of one file, by its name and the format that was found. */
static const struct one {
	struct set_layout is;
	const char *name, *format;
} ones[] = {
	{{"timm", "timm", NULL, 1, 1}, "*.pth.tar", "torch zip"},
	{{"lightning", "Lightning", NULL, 0, 1}, "*.ckpt", "torch zip"},
	{{"composer_file", "Composer", NULL, 0, 1}, "ep#-ba#-rank#.pt", "torch zip"},
	{{"torch_file", "a file of torch.save", NULL, 0, 1}, "*", "torch zip"},
	{{"torch_file", "a file of torch.save", NULL, 0, 1}, "*", "torch legacy"},
	{{"gguf", "GGUF", NULL, 0, 1}, "*", "gguf"},
	{{"safetensors_file", "a safetensors file", NULL, 0, 1}, "*", "safetensors"},
	{{"keras", "Keras", NULL, 0, 1}, "*", "keras"},
	{{"keras", "Keras weights", NULL, 0, 1}, "*.weights.h5", "hdf5"},
	{{"flax", "Flax", NULL, 1, 1}, "checkpoint_*", "msgpack"},
	{{"file", "a file", NULL, 0, 1}, "*", NULL},
};
/* clang-format on */

static const struct set_layout unknown = {"unknown", "a layout that is not known", NULL, 0, 0};

static bool fits(const struct work *w, const struct row *r)
{
	struct str name = name_base(str_of(w->q->name));
	bool any = false;

	if (r->name != NULL && !name_match(r->name, name, NULL))
		return false;
	for (size_t i = 0; i < SIGNS && r->sign[i] != NULL && !any; i++)
		any = work_any(w, r->sign[i]);
	return any && (r->also == NULL || work_any(w, r->also));
}

static const struct set_layout *one_file(const struct work *w)
{
	const struct member *m = &w->m[0];

	for (size_t i = 0; i < COUNT(ones); i++) {
		const struct one *o = &ones[i];

		if (name_match(o->name, m->name, NULL) &&
		    (o->format == NULL || strcmp(o->format, m->check->format) == 0))
			return &o->is;
	}
	return &unknown;
}

const struct set_layout *layout_find(const struct work *w)
{
	bool only = w->n == 1 && w->m[0].folder.n == 0;

	if (only && (strcmp(w->q->name, w->m[0].file->path) == 0 || w->q->name[0] == '\0'))
		return one_file(w);
	for (size_t i = 0; i < COUNT(rows); i++)
		if (fits(w, &rows[i]))
			return &rows[i].is;
	return only ? one_file(w) : &unknown;
}

/* Is what a temporary file will be renamed to there? What it is to be is not always told. */
static bool target_there(const struct work *w, struct str path)
{
	static const char *const ends[] = {".tmp", ".part", ".partial", ".incomplete"};
	struct str folder = name_folder(path), name = name_base(path);
	char target[FORMAT_PATH_MAX];

	for (size_t i = 0; i < COUNT(ends); i++) {
		if (!str_ends(name, ends[i]) || name.n == strlen(ends[i]) ||
		    name.n >= sizeof(target))
			continue;
		(void)snprintf(target, sizeof(target), "%.*s", (int)(name.n - strlen(ends[i])),
		               name.p);
		return work_find(w, folder, target) != NULL;
	}
	if (name_match(".tmp??????", name, NULL)) { /* of safetensors */
		for (size_t i = 0; i < w->n; i++)
			if (str_same(w->m[i].folder, folder) &&
			    str_ends(w->m[i].name, ".safetensors"))
				return true;
		return false;
	}
	if (name.n > 8 && name.p[0] == '.' &&
	    name.n < sizeof(target)) { /* rsync's .<name>.AbCdEf */
		(void)snprintf(target, sizeof(target), "%.*s", (int)(name.n - 8), name.p + 1);
		return work_find(w, folder, target) != NULL;
	}
	return true;
}

/* The sign that it is being written, or NULL. */
static const char *unfinished(struct work *w)
{
	const struct set_query *q = w->q;
	char *sign = arena_printf(w->a, "%s-unfinished", q->name);
	const char *first = NULL;

	if (format_name(str_of(q->name)) == FORMAT_NAME_TEMPORARY)
		return q->name;
	for (size_t i = 0; i < q->n_beside; i++)
		if (q->name[0] != '\0' && strcmp(q->beside[i].path, sign) == 0)
			return sign;
	for (size_t i = 0; i < q->n; i++) {
		struct str path = str_of(q->file[i].path);

		if (strcmp(q->file[i].path, "checkpoint-is-incomplete.txt") != 0 &&
		    !str_eq(name_base(path), ".incomplete") &&
		    (format_name(path) != FORMAT_NAME_TEMPORARY || target_there(w, path)))
			continue;
		if (first == NULL || strcmp(q->file[i].path, first) < 0)
			first = q->file[i].path;
	}
	return first;
}

/* ms-swift with flash checkpoints: trainer_state.json comes first, and the pointer beside names
 * the newest whole step. Says whether it is one. */
static bool flash(struct work *w)
{
	static const char pointer[] = "dlrover_latest.txt";
	struct name_number own[NAME_NUMBERS];

	if (strcmp(w->out->layout->id, "hf_trainer") != 0 ||
	    !name_match("*checkpoint-#", str_of(w->q->name), own))
		return false;
	for (size_t i = 0; i < w->q->n_beside; i++) {
		const struct set_file *f = &w->q->beside[i];
		const struct format_facts *facts = f->check == NULL ? NULL : f->check->facts;

		if (strcmp(f->path, pointer) != 0)
			continue;
		w->out->last = arena_printf(w->a, "../%s", pointer);
		w->out->last_there =
			facts != NULL && facts->step >= 0 && (uint64_t)facts->step >= own[0].v;
		return true;
	}
	return false;
}

void layout_last(struct work *w)
{
	struct set_result *out = w->out;
	const char *last = out->layout->last;
	const struct member *m = NULL;

	out->unfinished = unfinished(w);
	if (last == NULL || flash(w))
		return;
	out->last = last;
	m = map_get(w->by_path, str_of(last));
	/* one that has a format must be whole; a text must only be there */
	out->last_there = m != NULL && m->check->verdict != FORMAT_TORN &&
	                  (m->check->verdict == FORMAT_WHOLE || !str_ends(m->name, ".json"));
}

bool set_may_follow(const struct set_layout *layout, const char *path)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (&rows[i].is != layout)
			continue;
		for (size_t k = 0; k < COUNT(rows[i].follow) && rows[i].follow[k] != NULL; k++)
			if (name_match(rows[i].follow[k], str_of(path), NULL))
				return true;
	}
	return false;
}

const struct set_layout *set_layout_row(size_t i)
{
	if (i < COUNT(rows))
		return &rows[i].is;
	i -= COUNT(rows);
	if (i < COUNT(ones))
		return &ones[i].is;
	return i == COUNT(ones) ? &unknown : NULL;
}

const struct set_layout *set_layout_by_id(const char *id)
{
	const struct set_layout *l = NULL;

	for (size_t i = 0; (l = set_layout_row(i)) != NULL; i++)
		if (strcmp(l->id, id) == 0)
			return l;
	return NULL;
}
