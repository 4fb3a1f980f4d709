"""The published description against what the server really answers: schemathesis makes requests from /openapi.json, good
ones and bad ones, and compares each answer with what is written there."""
import json
import subprocess

import pytest
from conftest import PARTS

TOOL = PARTS / "clients/bin/schemathesis"
SEED = 20
pytestmark = pytest.mark.timeout(1800)
EXAMPLES = 6  # of each operation, beside those at the limits of each value
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "negative_data_rejection", "unsupported_method"]
# Not positive_data_acceptance: a schema cannot say all that a specification means, and other members may hold anything.


def check(cluster, *flags, ids=None):
    """`ids`: what to put into the paths; made up when it is None."""
    lines = ["[parameters]", *(f'"path.{key}" = "{value}"' for key, value in (ids or {}).items())]
    (cluster.folder / "schemathesis.toml").write_text("\n".join(lines) + "\n")
    done = subprocess.run([TOOL, "--config-file", cluster.folder / "schemathesis.toml", "run", cluster.url + "/openapi.json",
                           "-H", f"Authorization: Bearer {cluster.token}", "--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES),
                           "--seed", str(SEED), "--generation-deterministic", "--suppress-health-check", "all",
                           "--continue-on-failure", "--no-color", "--warnings", "off", "--checks", ",".join(CHECKS), *flags],
                          cwd=cluster.folder, env=cluster.environment(), capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-4000:]
    assert "ested: 0" not in done.stdout and "No test cases" not in done.stdout, done.stdout


def test_every_operation_with_made_up_ids(cluster):
    check(cluster)
    # What was made up may be a good job for a project that was made up before it.
    assert cluster.process.poll() is None and isinstance(cluster.json("ps", "-a"), list)


def test_operations_of_a_job_that_is_there(cluster):
    job = cluster.push(["echo hello; mkdir $BT_CHECKPOINT_DIR/c; echo x > $BT_CHECKPOINT_DIR/c/f; echo y > $BT_PROJECT_CACHE_DIR/y"],
                       runtime={"checkpointing_config": {"enabled": True}, "cache_config": {"enabled": True}})
    job = cluster.wait(job, "TRAINING_JOB_COMPLETED")
    ids = {"project_id": job["training_project"]["id"], "job_id": job["id"], "team_id": job["team"]["id"], "checkpoint": "c"}
    check(cluster, "--include-path-regex", "project_id|job_id|team_id", "--exclude-method", "DELETE",
          "--exclude-path-regex", "/(jobs|recreate)$", ids=ids)  # those would push
    assert cluster.job(job)["current_status"] == "TRAINING_JOB_COMPLETED" and cluster.user_lines(job) == ["hello"]


@pytest.mark.parametrize("body", [b'{"name": "a\\u0000b"}', b'{"a\\u0000b": 1, "name": "a"}', b'{"name": 99999999999999999999}', b'\xff', b'{'])
def test_what_json_may_not_hold_is_refused_by_name(standing, body):
    status, reply = standing.api("POST", "/v1/teams", body)
    assert status == 400 and len(reply["message"]) > 10


def test_the_document_names_what_it_uses(standing):
    status, reply = standing.api("GET", "/openapi.json", token="")
    assert status == 200 and reply["openapi"].startswith("3.1")
    used = set(json.dumps(reply).split("#/components/schemas/")[1:])
    names = {u.split('"')[0] for u in used}
    assert names and names <= set(reply["components"]["schemas"])
    ids = [op["operationId"] for path in reply["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids)) > 50
