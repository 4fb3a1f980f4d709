"""Every field that the client's definitions have is known here: acted upon, or refused by its name."""
import enum
import json
import typing

import pydantic
import pytest
from conftest import until
from truss_client import truss  # noqa: F401 (a fixture)

definitions = pytest.importorskip("truss_train.definitions")
deployment = pytest.importorskip("truss_train.deployment")


def example(kind, name):
    """Something of the kind that the client's own checks let through."""
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return {key: example(field.annotation, key) for key, field in kind.model_fields.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return arguments[0]
    if origin is typing.Annotated or origin is typing.Union:
        return example(next(a for a in arguments if a is not type(None)), name)
    if origin in (list, dict):
        return [example(arguments[0], name)] if origin is list else {"KEY": example(arguments[1], name)}
    return {int: 1, bool: True, float: 1.0}.get(kind, {"memory": "256Mi", "base_image": "busybox", "source": "hf://a/b"}.get(name, "/" + name))


def push(truss, job):
    c = truss.cluster
    project = c.api("POST", "/v1/training_projects", {"training_project": {"name": "fields"}})[1]["training_project"]["id"]
    return c.api("POST", f"/v1/training_projects/{project}/jobs?dry_run=true", {"training_job": job})


def problems(reply):
    return [f"{p['path']} {p['message']}" for p in reply.get("problems", [])]


def test_no_field_of_the_definitions_is_unknown(truss):
    job = example(deployment.PreparedTrainingJob, "job")
    job["runtime"]["artifacts"] = [{"s3_bucket": "stoker", "s3_key": "uploads/x"}]
    status, reply = push(truss, {key: value for key, value in job.items() if key != "runtime_artifacts"})
    assert status == 400, reply
    assert problems(reply) and not [p for p in problems(reply) if "unknown" in p], reply


def base(**more):
    job = definitions.TrainingJob(image=definitions.Image(base_image="busybox"), compute=definitions.Compute(memory="256Mi"),
                                  runtime=definitions.Runtime(start_commands=["true"]))
    return {**job.model_dump(mode="json"), **more}


OIDC = {"role_arn": "a", "region": "r"}
CLIENTS = "what the client did before it sent the archive, or says of itself: nothing is left to do"


def docker(method, **parts):
    return {"image": {"base_image": "r.example/x", "docker_auth": {"auth_method": method, "registry": "r.example", **parts}}}


def runtime(**parts):
    return {"runtime": {"start_commands": ["true"], **parts}}


def compute(**parts):
    return {"compute": {"memory": "256Mi", **parts}}


def weights(source="hf://a/b", **parts):
    return {"weights": [{"source": source, "mount_location": "/w", **parts}]}


def load(**ref):
    return runtime(load_checkpoint_config={"enabled": True, "checkpoints": [ref], "download_folder": "/tmp/d"})


def session(**parts):
    return {"interactive_session": {"trigger": "on_demand", **parts}}


def identity(method, scheme, **parts):
    return weights(f"{scheme}://b/p", auth={"auth_method": method, **parts})


LATEST, IAM = "baseten_latest_checkpoint", {"access_key_secret_ref": {"name": "s"}, "secret_access_key_secret_ref": {"name": "s"}}
SAYS = "stoker exec"  # in the job's log
# For each field, what is pushed and what comes of it: {path: value} in the job's specification, "says" words in its log, "refused"
# naming something, or CLIENTS.
FIELDS = {
    "image.base_image": (docker("AWS_IAM", aws_iam_docker_auth=IAM), {"image.base_image": "r.example/x"}),
    "image.docker_auth.auth_method": (docker("AWS_IAM", aws_iam_docker_auth=IAM), {"image.docker_auth.auth_method": "AWS_IAM"}),
    "image.docker_auth.registry": (docker("AWS_IAM", aws_iam_docker_auth=IAM), {"image.docker_auth.registry": "r.example"}),
    **{f"image.docker_auth.aws_iam_docker_auth.{key}.name": (docker("AWS_IAM", aws_iam_docker_auth={**IAM, key: {"name": "absent"}}), "refused absent")
       for key in IAM},
    **{f"image.docker_auth.{method.lower()}_docker_auth.{key}": (docker(method, **{f"{method.lower()}_docker_auth": OIDC}), "refused docker_auth")
       for method in ("AWS_OIDC", "AWS_ASSUME_ROLE") for key in OIDC},
    **{f"image.docker_auth.gcp_oidc_docker_auth.{key}": (docker("GCP_OIDC", gcp_oidc_docker_auth={
        "service_account": "s", "workload_identity_provider": "w"}), "refused docker_auth") for key in ("service_account", "workload_identity_provider")},
    "image.docker_auth.gcp_service_account_json_docker_auth.service_account_json_secret_ref.name": (docker(
        "GCP_SERVICE_ACCOUNT_JSON", gcp_service_account_json_docker_auth={"service_account_json_secret_ref": {"name": "absent"}}), "refused absent"),
    "image.docker_auth.registry_secret_docker_auth.secret_ref.name": (docker(
        "REGISTRY_SECRET", registry_secret_docker_auth={"secret_ref": {"name": "absent"}}), "refused absent"),
    "compute.node_count": (compute(node_count=30), "refused node"),
    "compute.cpu_count": (compute(cpu_count=3), {"compute.cpu_count": 3}),
    "compute.memory": (compute(memory="300Mi"), {"compute.memory": "300Mi"}),
    "compute.accelerator.accelerator": (compute(accelerator={"accelerator": "H200", "count": 1}), "refused H200"),
    "compute.accelerator.count": (compute(accelerator={"accelerator": "H200", "count": 8}), "refused 8"),
    "compute.availability_model": (compute(availability_model="spot"), "says availability_model"),
    "runtime.start_commands": (runtime(start_commands=["echo x"]), {"runtime.start_commands": ["echo x"]}),
    "runtime.environment_variables.KEY": (runtime(environment_variables={"KEY": "v"}), {"runtime.environment_variables": {"KEY": "v"}}),
    "runtime.enable_cache": (runtime(enable_cache=True), {"runtime.cache_config.enabled": True}),
    "runtime.checkpointing_config.enabled": (runtime(checkpointing_config={"enabled": True}), {"runtime.checkpointing_config.enabled": True}),
    "runtime.checkpointing_config.checkpoint_path": (runtime(checkpointing_config={"enabled": True, "checkpoint_path": "/c"}), {
        "runtime.checkpointing_config.checkpoint_path": "/c"}),
    "runtime.checkpointing_config.volume_size_gib": (runtime(checkpointing_config={"enabled": True, "volume_size_gib": 3}), {
        "runtime.checkpointing_config.volume_size_gib": 3}),
    "runtime.load_checkpoint_config.enabled": (load(typ=LATEST, project_name="fields"), {"runtime.load_checkpoint_config.enabled": True}),
    "runtime.load_checkpoint_config.checkpoints[].typ": (load(typ="other"), "refused typ"),
    "runtime.load_checkpoint_config.checkpoints[].job_id": (load(typ=LATEST, job_id="HOG"), {"runtime.load_checkpoint_config.checkpoints.0.job_id": "HOG"}),
    "runtime.load_checkpoint_config.checkpoints[].project_name": (load(typ=LATEST, project_name="fields"), {
        "runtime.load_checkpoint_config.checkpoints.0.project_name": "fields"}),
    "runtime.load_checkpoint_config.download_folder": (load(typ=LATEST), {"runtime.load_checkpoint_config.download_folder": "/tmp/d"}),
    **{f"runtime.cache_config.{key}": (runtime(cache_config={"enabled": True, key: value}), {f"runtime.cache_config.{key}": value})
       for key, value in (("enabled", True), ("enable_legacy_hf_mount", True), ("require_cache_affinity", False), ("mount_base_path", "/cc"))},
    "interactive_session.trigger": (session(trigger="on_startup"), "refused interactive_session"),
    "interactive_session.timeout_minutes": (session(timeout_minutes=5), "says stoker exec"),
    "interactive_session.session_provider": (session(session_provider="cursor"), "says " + SAYS),
    "interactive_session.auth_provider": (session(auth_provider="github"), "says " + SAYS),
    "name": ({"name": "n"}, {"name": "n"}),
    "priority": ({"priority": -5}, {"priority": -5}),
    **{f"workspace.{key}": ({"workspace": {key: value}}, CLIENTS) for key, value in (
        ("workspace_root", "/r"), ("external_dirs", ["d"]), ("exclude_dirs", ["d"]))},
    "weights[].source": (weights(), {"weights.0.source": "hf://a/b"}),
    "weights[].mount_location": (weights(), {"weights.0.mount_location": "/w"}),
    **{f"weights[].auth.{key}": (identity(method, scheme, **{k: "x" for k in keys}), "refused auth") for method, scheme, keys in (
        ("AWS_OIDC", "s3", ("aws_oidc_role_arn", "aws_oidc_region")),
        ("AWS_ASSUME_ROLE", "s3", ("aws_assume_role_arn", "aws_assume_role_region")),
        ("GCP_OIDC", "s3", ("gcp_oidc_service_account", "gcp_oidc_workload_id_provider"))) for key in keys},
    "weights[].auth.auth_method": (weights(auth={"auth_method": "OTHER", "auth_secret_name": "s"}), "refused auth"),
    "weights[].auth.auth_secret_name": (weights(auth={"auth_method": "CUSTOM_SECRET", "auth_secret_name": "absent"}), "refused absent"),
    "weights[].auth_secret_name": (weights(auth_secret_name="absent"), "refused absent"),
    "weights[].allow_patterns": (weights(allow_patterns=["*.json"]), {"weights.0.allow_patterns": ["*.json"]}),
    "weights[].ignore_patterns": (weights(ignore_patterns=["x*"]), {"weights.0.ignore_patterns": ["x*"]}),
    "enable_baseten_workdir": ({"enable_baseten_workdir": False}, {"enable_baseten_workdir": False}),
    "runtime_artifacts[].s3_bucket": (runtime(artifacts=[{"s3_bucket": "elsewhere", "s3_key": "uploads/x"}]), "refused elsewhere"),
    "runtime_artifacts[].s3_key": (runtime(artifacts=[{"s3_bucket": "stoker", "s3_key": "uploads/never"}]), "refused uploads/never"),
    **{f"truss_user_env.{key}": ({"truss_user_env": {key: "x"}}, CLIENTS) for key in (
        "truss_client_version", "python_version", "pydantic_version", "mypy_version")},
    **{f"truss_user_env.git_info.{key}": ({"truss_user_env": {"git_info": {key: value}}}, CLIENTS) for key, value in (
        ("latest_commit_sha", "a"), ("latest_tag", "t"), ("commits_since_tag", 1), ("has_uncommitted_changes", True))},
}


def leaves(document, path=""):
    if isinstance(document, dict):
        for key, value in document.items():
            yield from leaves(value, f"{path}.{key}" if path else key)
    elif isinstance(document, list) and isinstance(document[0], dict):
        yield from leaves(document[0], path + "[]")
    else:
        yield path


def test_the_table_has_every_field_that_the_client_has():
    assert set(leaves(example(deployment.PreparedTrainingJob, "job"))) == set(FIELDS)


def at(document, path):
    for key in path.split("."):
        document = document[int(key) if key.isdigit() else key]
    return document


def test_each_field_is_acted_upon_or_refused(truss):
    """What is kept in the specification is what the other tests see acted upon; jobs wait here, for there is no room."""
    c = truss.cluster
    c.cli("secrets", "set", "s", stdin="user:word")
    hog = truss.push(["sleep 600"], compute='cpu_count=4, memory="256Mi"', name="fields")
    jobs = f"/v1/training_projects/{hog['training_project']['id']}/jobs"
    for field, row in FIELDS.items():
        change, comes = json.loads(json.dumps(row).replace('"HOG"', json.dumps(hog["id"])))
        status, reply = c.api("POST", jobs, {"training_job": base(**change)})
        said = " ".join(problems(reply)) + reply.get("message", "")
        if isinstance(comes, str) and comes.startswith("refused "):
            assert status in (400, 403, 404, 409, 422) and comes.removeprefix("refused ") in said, (field, status, reply)
            continue
        assert status == 200, (field, reply)
        job = reply["training_job"]["id"]
        if isinstance(comes, dict):
            spec = c.api("GET", f"{jobs}/{job}")[1]["training_job"]["spec"]
            for path, value in comes.items():
                assert at(spec, path) == value, (field, spec)
        elif comes != CLIENTS:
            lines = c.api("POST", f"{jobs}/{job}/logs", {})[1]["logs"]
            assert any(comes.removeprefix("says ") in line["message"] for line in lines), (field, lines)
        assert c.api("POST", f"{jobs}/{job}/stop", {})[0] == 200, field


def test_what_is_taken(truss):
    truss.cluster.cli("secrets", "set", "s", stdin="user:word")
    ref = {"name": "s"}
    taken = [
        {},
        {"image": {"base_image": "r.example/x", "docker_auth": {"auth_method": "REGISTRY_SECRET", "registry": "r.example", "registry_secret_docker_auth": {"secret_ref": ref}}}},
        {"image": {"base_image": "r.example/x", "docker_auth": {"auth_method": "AWS_IAM", "registry": "r.example", "aws_iam_docker_auth": {
            "access_key_secret_ref": ref, "secret_access_key_secret_ref": ref}}}},
        {"weights": [{"source": "hf://a/b@main", "mount_location": "/m", "auth": {"auth_method": "CUSTOM_SECRET", "auth_secret_name": "s"},
                      "allow_patterns": ["*.json"], "ignore_patterns": ["x*"]}, {"source": "s3://bucket/p", "mount_location": "/n", "auth_secret_name": "s"}]},
        {"weights": [{"source": "s3://bucket/p", "mount_location": "/m", "auth": {"auth_method": "AWS_OIDC", "aws_oidc_role_arn": "arn:aws:iam::123456789012:role/r",
                                                                                  "aws_oidc_region": "eu-west-1"}},
                     {"source": "gs://bucket/p", "mount_location": "/n", "auth": {
                         "auth_method": "GCP_OIDC", "gcp_oidc_service_account": "r@p.iam.gserviceaccount.com",
                         "gcp_oidc_workload_id_provider": "projects/1/locations/global/workloadIdentityPools/a/providers/b"}}]},
        {"interactive_session": {"trigger": "on_demand", "timeout_minutes": -1, "session_provider": "ssh", "auth_provider": "github"}},
        {"priority": -5, "name": "n", "workspace": {"workspace_root": None, "external_dirs": [], "exclude_dirs": ["x"]}, "enable_baseten_workdir": False},
    ]
    for more in taken:
        status, reply = push(truss, base(**more))
        assert status in (200, 201), (more, reply)


def test_what_is_refused_says_so_by_name(truss):
    loads = lambda ref: {"runtime": {"start_commands": ["true"], "load_checkpoint_config": {"enabled": True, "checkpoints": [ref]}}}
    weighs = lambda source, **auth: {"weights": [{"source": source, "mount_location": "/w", **({"auth": auth} if auth else {})}]}
    docker = lambda method, **parts: {"image": {"base_image": "x", "docker_auth": {"auth_method": method, "registry": "r", **parts}}}
    role = {"role_arn": "a", "region": "r"}
    refused = [
        ({"unknown_field": 1}, "unknown_field"),
        ({"compute": {"memory": "256Mi", "cpu_cont": 1}}, "cpu_count"),
        ({"interactive_session": {"trigger": "on_startup"}}, "interactive_session"),
        ({"interactive_session": {"trigger": "on_failure"}}, "interactive_session"),
        (docker("AWS_OIDC", aws_oidc_docker_auth=role), "docker_auth"),
        (docker("AWS_ASSUME_ROLE", aws_assume_role_docker_auth=role), "docker_auth"),
        (docker("GCP_OIDC", gcp_oidc_docker_auth={"service_account": "s", "workload_identity_provider": "w"}), "docker_auth"),
        (weighs("s3://bucket/p", auth_method="AWS_OIDC", aws_oidc_role_arn="a", aws_oidc_region="r"), "auth"),
        (weighs("s3://bucket/p", auth_method="AWS_ASSUME_ROLE", aws_assume_role_arn="a", aws_assume_role_region="r"), "auth"),
        (weighs("gs://bucket/p", auth_method="GCP_OIDC", gcp_oidc_service_account="a", gcp_oidc_workload_id_provider="r"), "auth"),
        *((weighs(f"{scheme}://b/p"), "source") for scheme in ("gs", "azure", "r2", "cw")),
        (loads({"typ": "loops_checkpoint", "run_id": "r", "checkpoint_name": "c", "target": "trainer"}), "checkpoints[0]"),
    ]
    for more, name in refused:
        status, reply = push(truss, base(**more))
        assert status == 400 and name in " ".join(problems(reply)), (more, reply)


def test_the_client_shows_the_reason(truss):
    folder = truss.project(["true"], job='weights=[WeightsSource(source="gs://b/p", mount_location="/w")]')
    out = truss.train("push", "config.py", cwd=folder, code=1)
    assert "Client error" in out and "gs://bucket/path" in out
    until(lambda: truss.cluster.json("ps", "-a") == [])
