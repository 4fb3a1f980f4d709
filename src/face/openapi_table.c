/* openapi_table.c - what each route takes and gives, in the notation of schema.h. */
#include "face/openapi.h"

#include "face/show.h"

#define PROJECT "/v1/training_projects/{project_id}"
#define JOB PROJECT "/jobs/{job_id}"
#define TEAM "/v1/teams/{team_id}"
#define DELETED "id:text! deleted:bool!"
#define DEPLOYMENT "deployment:@Deployment! replicas[@Replica]!"
#define TERMINAL "tty{rows:int(1,65535)! columns:int(1,65535)! term:filled?}?"
#define ONE_JOB "training_job:@TrainingJob!"
#define JOBS "training_jobs[@TrainingJob]! total:int! next_cursor:text!?"
#define RANGE "start_epoch_millis:int(0,9223372036853)? end_epoch_millis:int(0,9223372036853)?"
#define LINES                                                                                      \
	RANGE " limit:int(1,20000)? direction:enum(asc,desc)? "                                    \
	      "min_level:enum(DEBUG,INFO,WARNING,ERROR)?"
#define RANGE_Q "start_epoch_millis:int(0,9223372036853) end_epoch_millis:int(0,9223372036853)"
#define LINES_Q                                                                                    \
	RANGE_Q " limit:int(1,20000) direction:enum(asc,desc) "                                    \
		"min_level:enum(DEBUG,INFO,WARNING,ERROR)"
#define SUMMARY                                                                                    \
	"timestamp:time project_id:text team_id:text total_size_bytes:int total_files:int "        \
	"truncated:bool "                                                                          \
	"file_summaries[{path:text! size_bytes:int! modified:time! "                               \
	"file_type:enum(file,directory,symlink)! permissions:text!}]"
/* Any: the stock client bounds it in no way. */
#define PRIORITY "priority:int(-9223372036854775808,9223372036854775807)"
#define NEW_JOB                                                                                    \
	"training_job{image{base_image:filled?}? compute{node_count:int(1,1024)? cpu_count:num? "  \
	"memory:text? accelerator:any? availability_model:enum(dedicated,spot)?}? "                \
	"runtime{start_commands[text]? environment_variables:any? checkpointing_config:any? "      \
	"load_checkpoint_config:any? cache_config:any? "                                           \
	"artifacts[{s3_bucket:filled! s3_key:filled!}]?}? name:name? " PRIORITY                    \
	"? weights[any]? enable_baseten_workdir:bool? "                                            \
	"limits:any? retry:any? notify:any?}!"
#define STEP "step_seconds:int(1,2592000)"

/* clang-format off */
const struct schema_doc schema_docs[] = {
	{ "Error", "message:text! error{id:text! message:text!}!? problems[{line:int column:int path:text! message:text!}]", NULL, NULL },
	{ "Line", "timestamp:text! message:text! replica:text! level:text!? request_id:text!?", NULL, NULL },
	{ "Point", "value:num! timestamp:time!", NULL, NULL },
	{ "Usage", "usage_bytes[@Point]! utilization[@Point]!", NULL, NULL },
	{ "NodeMetrics", "cpu_usage[@Point]! cpu_memory_usage_bytes[@Point]! gpu_utilization:any! gpu_memory_usage_bytes:any! ephemeral_storage:@Usage!", NULL, NULL },
	{ .record = &instance_record }, { .record = &job_record, .more = &job_inputs_record }, { .record = &project_record },
	{ .record = &event_record }, { .record = &attempt_record }, { .record = &checkpoint_record }, { .record = &file_record },
	{ .record = &mirror_record }, { .record = &repo_record }, { .record = &repo_ref_record }, { .record = &repo_commit_record }, { .record = &artifact_record }, { .record = &serving_record }, { .record = &replica_record }, { .record = &maintenance_record }, { .record = &team_record }, { .record = &token_record },
	{ .record = &new_token_record }, { .record = &secret_record }, { .record = &user_record }, { .record = &capacity_record },
	{ .record = &node_record }, { .record = &status_record },
};

const struct route_doc route_docs[] = {
	{ HTTP_GET,    "/v1/training_projects", NULL, NULL, "training_projects[@TrainingProject]!", NULL, false },
	{ HTTP_POST,   "/v1/training_projects", NULL, "training_project{name:name! team_name:text?}!", "training_project:@TrainingProject!", NULL, false },
	{ HTTP_POST,   TEAM "/training_projects", NULL, "training_project{name:name! team_name:text?}!", "training_project:@TrainingProject!", NULL, false },
	{ HTTP_GET,    PROJECT, NULL, NULL, "training_project:@TrainingProject!", NULL, false },
	{ HTTP_DELETE, PROJECT, NULL, NULL, DELETED, NULL, false },
	{ HTTP_GET,    PROJECT "/jobs", "limit:int(1,1000) cursor:filled", NULL, JOBS, NULL, false },
	{ HTTP_POST,   PROJECT "/jobs", "dry_run:bool", NEW_JOB, ONE_JOB, NULL, false },
	{ HTTP_POST,   "/v1/training_jobs/check", "forecast:bool", "training_project{name:name! team_name:text?}! " NEW_JOB, ONE_JOB, NULL, false },
	{ HTTP_POST,   "/v1/training_jobs/search", NULL, "statuses[enum(TRAINING_JOB_PENDING,TRAINING_JOB_QUEUED,TRAINING_JOB_CREATED,TRAINING_JOB_DEPLOYING,"
	  "TRAINING_JOB_RUNNING,TRAINING_JOB_COMPLETED,TRAINING_JOB_DEPLOY_FAILED,TRAINING_JOB_FAILED,TRAINING_JOB_STOPPED,TRAINING_JOB_PREEMPTED)]? "
	  "project_id:text? job_id:text? user:text? mine:bool? limit:int(1,1000)? cursor:filled? "
	  "order_by[{field:enum(created_at)? order:enum(asc,desc)?}]?", JOBS, NULL, true },
	{ HTTP_GET,    "/v1/resolve", "what:enum(job,project,team,checkpoint)! word:filled! job:filled several:enum(active,newest)", NULL,
	  "training_job:@TrainingJob taken{jobs:int! as:enum(active,newest)!} training_project:@TrainingProject team:@Team checkpoint:@Checkpoint", NULL, false },
	{ HTTP_GET,    JOB, NULL, NULL, "training_job:@TrainingJob! training_project{id:text! name:text!}!", NULL, false },
	{ HTTP_PATCH,  JOB, NULL, PRIORITY "? availability_model:enum(dedicated,spot)?", ONE_JOB, NULL, false },
	{ HTTP_DELETE, JOB, NULL, NULL, DELETED, NULL, false },
	{ HTTP_POST,   JOB "/stop", NULL, "now:bool?", ONE_JOB, NULL, true },
	{ HTTP_POST,   JOB "/recreate", NULL, "resume:bool?", ONE_JOB, NULL, true },
	{ HTTP_GET,    JOB "/events", "after:int(0,9223372036854775807)", NULL, "events[@Event]!", NULL, false },
	{ HTTP_GET,    JOB "/attempts", NULL, NULL, "attempts[@Attempt]!", NULL, false },
	{ HTTP_POST,   JOB "/logs", NULL, LINES, "logs[@Line]!", NULL, true },
	{ HTTP_GET,    JOB "/logs", LINES_Q, NULL, "logs[@Line]!", NULL, false },
	{ HTTP_GET,    JOB "/logs/raw", "rank:int(0,1023) offset:int(0,9223372036854775807) tail:int(0,2147483647) max:int(1,4194304) wait_ms:int(0,30000)",
	  NULL, NULL, "text/plain", false },
	{ HTTP_POST,   JOB "/metrics", NULL, RANGE " " STEP "?", "training_job:@TrainingJob! cache:@Usage!? per_node_metrics[{node_id:text! metrics:@NodeMetrics!}]!", NULL, true },
	{ HTTP_GET,    JOB "/metrics", RANGE_Q " from:int(0,9223372036853) to:int(0,9223372036853) " STEP, NULL,
	  "training_job:@TrainingJob! cache:@Usage!? per_node_metrics[{node_id:text! metrics:@NodeMetrics!}]!", NULL, false },
	{ HTTP_GET,    JOB "/checkpoints", "all:bool", NULL, "checkpoints[@Checkpoint]!", NULL, false },
	{ HTTP_GET,    JOB "/checkpoint_files", "page_size:int(1,1000) page_token:int(0,9223372036854775807) checkpoint:text by_server:bool", NULL,
	  "presigned_urls[@CheckpointFile]! next_page_token:int!? total_count:int!", NULL, false },
	{ HTTP_PATCH,  JOB "/checkpoints/{checkpoint...}", NULL, "pinned:bool complete:bool", "checkpoint_id:text! pinned:bool complete:bool", NULL, false },
	{ HTTP_DELETE, JOB "/checkpoints/{checkpoint...}", NULL, NULL, "checkpoint_id:text! deleted:bool!", NULL, false },
	{ HTTP_PATCH,  JOB "/checkpoints", "checkpoint:filled!", "pinned:bool complete:bool", "checkpoint_id:text! pinned:bool complete:bool", NULL, false },
	{ HTTP_DELETE, JOB "/checkpoints", "checkpoint:filled!", NULL, "checkpoint_id:text! deleted:bool!", NULL, false },
	{ HTTP_GET,    JOB "/download", NULL, NULL, "artifact_presigned_urls[text]!", NULL, false },
	{ HTTP_GET,    JOB "/auth_codes", NULL, NULL, "auth_codes[any]!", NULL, false },
	{ HTTP_POST,   JOB "/exec", NULL, "command[filled]? node_rank:int(0,1023)? input:bool? " TERMINAL, "exec_id:text!", NULL, false },
	{ HTTP_GET,    JOB "/exec/{exec_id}", NULL, NULL, NULL, "application/octet-stream", false },
	{ HTTP_GET,    PROJECT "/cache/summary", NULL, NULL, SUMMARY, NULL, false },
	{ HTTP_POST,   PROJECT "/cache/summarize", NULL, NULL, SUMMARY, NULL, false },
	{ HTTP_DELETE, PROJECT "/cache/files", "path:filled!", NULL, "bytes_freed:int!", NULL, false },
	{ HTTP_PATCH,  PROJECT "/cache", NULL, "quota_bytes:int(1,1152921504606846976)!", "project_id:text! quota_bytes:int!", NULL, false },
	{ HTTP_GET,    TEAM "/cache/summary", NULL, NULL, SUMMARY, NULL, false },
	{ HTTP_POST,   TEAM "/cache/summarize", NULL, NULL, SUMMARY, NULL, false },
	{ HTTP_DELETE, TEAM "/cache/files", "path:filled!", NULL, "bytes_freed:int!", NULL, false },
	{ HTTP_POST,   "/v1/maintenance", NULL, "kind:enum(gc,verify)! dry_run:bool? min_age_seconds:int(0,315360000)?", "maintenance:@Maintenance!", NULL, false },
	{ HTTP_GET,    "/v1/maintenance", NULL, NULL, "maintenance:@Maintenance!", NULL, false },
	{ HTTP_DELETE, "/v1/maintenance/{maintenance_id}", NULL, NULL, "maintenance:@Maintenance!", NULL, false },
	{ HTTP_GET,    "/v1/weights", NULL, NULL, "weights[@Weights]!", NULL, false },
	{ HTTP_POST,   "/v1/weights", NULL, "source:text! endpoint:text? allow_patterns[text]? ignore_patterns[text]? auth_secret_name:text? team_id:text?", "weights:@Weights!", NULL, false },
	{ HTTP_DELETE, "/v1/weights/{weights_id}", NULL, NULL, DELETED " bytes_freed:int!", NULL, false },
	{ HTTP_GET,    "/v1/deployments", NULL, NULL, "deployments[@Deployment]!", NULL, false },
	{ HTTP_POST,   "/v1/deployments", NULL, "training_job_id:filled! checkpoint:filled? adapters[{training_job_id:filled! checkpoint:filled?}]? name:filled? engine:enum(vllm,sglang,llama.cpp,transformers)? engine_options[text]? command:filled? image:filled? base_model:filled? auth_secret_name:filled? accelerator:filled? memory:filled? cpu_count:int(1,4096)? environment_variables:any? replicas:int(1,64)? scale_to_zero_s:int(0,2592000)? replace:bool?", DEPLOYMENT, NULL, false },
	{ HTTP_GET,    "/v1/deployments/{name}", NULL, NULL, DEPLOYMENT, NULL, false },
	{ HTTP_PATCH,  "/v1/deployments/{name}", NULL, "replicas:int(1,64)? scale_to_zero_s:int(0,2592000)?", DEPLOYMENT, NULL, false },
	{ HTTP_POST,   "/v1/deployments/{name}/stop", NULL, NULL, DEPLOYMENT, NULL, false },
	{ HTTP_POST,   "/v1/deployments/{name}/start", NULL, NULL, DEPLOYMENT, NULL, false },
	{ HTTP_DELETE, "/v1/deployments/{name}", NULL, NULL, NULL, NULL, false },
	{ HTTP_GET,    "/v1/artifacts", "namespace:text by:text job:text limit:int(1,1000) cursor:filled", NULL, "artifacts[@Artifact]! next_cursor:text!?", NULL, false },
	{ HTTP_GET,    "/v1/repositories", "type:enum(models,datasets,spaces) owner:text search:text", NULL, "repositories[@Repository]! bytes:int! quota_bytes:int!", NULL, false },
	{ HTTP_POST,   "/v1/repositories", NULL, "name:text! owner:text? type:enum(models,datasets,spaces)? private:bool?", "repository:@Repository!", NULL, false },
	{ HTTP_GET,    "/v1/repositories/{type}/{owner}/{name}", NULL, NULL, "repository:@Repository! files:int! files_bytes:int! branches[@RepositoryRef]! tags[@RepositoryRef]! commits[@RepositoryCommit]!", NULL, false },
	{ HTTP_DELETE, "/v1/repositories/{type}/{owner}/{name}", NULL, NULL, DELETED, NULL, false },
	{ HTTP_GET,    "/v1/blobs/credentials/train", "sha256:filled team_id:filled direct:filled", NULL, "s3_bucket:text! s3_key:text! exists:bool "
	  "put{url:text! headers[{name:text! value:text!}]!} "
	  "creds{aws_access_key_id:text! aws_secret_access_key:text! aws_session_token:text! endpoint_url:text! region_name:text!}", NULL, false },
	{ HTTP_GET,    "/v1/users/me", NULL, NULL, "@User", NULL, false },
	{ HTTP_GET,    "/v1/teams", NULL, NULL, "teams[@Team]!", NULL, false },
	{ HTTP_POST,   "/v1/teams", NULL, "name:name!", "team:@Team!", NULL, false },
	{ HTTP_DELETE, "/v1/teams/{team_id}", NULL, NULL, DELETED, NULL, false },
	{ HTTP_GET,    "/v1/api_keys", NULL, NULL, "api_keys[@ApiKey]!", NULL, false },
	{ HTTP_POST,   "/v1/api_keys", NULL, "name:name! role:enum(viewer,member,admin)? team_id:text? expires_in_days:int(1,3650)? "
	  "type:enum(PERSONAL,WORKSPACE_MANAGE_ALL,WORKSPACE_INVOKE,WORKSPACE_EXPORT_METRICS)?",
	  "@NewApiKey", NULL, false },
	{ HTTP_DELETE, "/v1/api_keys/{api_key_id}", NULL, NULL, DELETED, NULL, false },
	{ HTTP_GET,    "/v1/secrets", NULL, NULL, "secrets[@Secret]!", NULL, false },
	{ HTTP_POST,   "/v1/secrets", NULL, "name:name! value:filled!", "@Secret", NULL, false },
	{ HTTP_DELETE, "/v1/secrets/{name}", NULL, NULL, "name:text! deleted:bool!", NULL, false },
	{ HTTP_GET,    TEAM "/secrets", NULL, NULL, "secrets[@Secret]!", NULL, false },
	{ HTTP_POST,   TEAM "/secrets", NULL, "name:name! value:filled!", "@Secret", NULL, false },
	{ HTTP_DELETE, TEAM "/secrets/{name}", NULL, NULL, "name:text! deleted:bool!", NULL, false },
	{ HTTP_GET,    "/v1/training/capacity", NULL, NULL, "gpu_capacities[@Capacity]! team_gpu_capacities[@Capacity]!", NULL, false },
	{ HTTP_PATCH,  "/v1/training/capacity", NULL, "team_id:text! gpu_type:filled! max_gpus:int(0,1000000)!", "team_gpu_capacity:@Capacity!", NULL, false },
	{ HTTP_GET,    "/v1/status", NULL, NULL, "@Status", NULL, false },
	{ HTTP_POST,   "/graphql/", NULL, NULL, "data:any errors[{message:text!}]", NULL, false },
	{ HTTP_GET,    "/", NULL, NULL, NULL, "text/html", false },
	{ HTTP_GET,    "/models/{name}/logs/{job_id}", NULL, NULL, NULL, "text/html", false },
	{ HTTP_GET,    "/training/{project_id}/logs/{job_id}", NULL, NULL, NULL, "text/html", false },
	{ HTTP_POST,   "/v1/proof", NULL, "token:text! challenge:text!", "address:text! proof:text!", NULL, false },
	{ HTTP_GET,    "/.well-known/openid-configuration", NULL, NULL, "issuer:text! jwks_uri:text! response_types_supported[text]! subject_types_supported[text]! id_token_signing_alg_values_supported[text]! claims_supported[text]!", NULL, false },
	{ HTTP_GET,    "/.well-known/jwks.json", NULL, NULL, "keys[{kty:text! use:text! alg:text! kid:text! n:text! e:text!}]!", NULL, false },
	{ HTTP_GET,    "/healthz", NULL, NULL, "status:enum(ok)! role:enum(leader,standby)! database:enum(ok,away)! objects:enum(ok,away)", NULL, false },
	{ HTTP_GET,    "/metrics", NULL, NULL, NULL, "text/plain", false },
};
/* clang-format on */

const size_t n_schema_docs = COUNT(schema_docs);
const size_t n_route_docs = COUNT(route_docs);
