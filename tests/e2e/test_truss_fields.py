"""Every field that the client's definitions have is known here: acted upon, or refused by its name."""
import enum
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


def test_what_is_taken(truss):
    truss.cluster.cli("secrets", "set", "s", stdin="user:word")
    ref = {"name": "s"}
    taken = [
        {},
        {"image": {"base_image": "r.example/x", "docker_auth": {"auth_method": "REGISTRY_SECRET", "registry": "r.example", "registry_secret_docker_auth": {"secret_ref": ref}}}},
        {"image": {"base_image": "r.example/x", "docker_auth": {"auth_method": "AWS_IAM", "registry": "r.example", "aws_iam_docker_auth": {
            "access_key_secret_ref": ref, "secret_access_key_secret_ref": ref}}}},
        {"weights": [{"source": "hf://a/b@main", "mount_location": "/m", "auth": {"auth_method": "CUSTOM_SECRET", "auth_secret_name": "s"},
                      "allow_patterns": ["*.json"], "ignore_patterns": ["x*"]}, {"source": "s3://b/p", "mount_location": "/n", "auth_secret_name": "s"}]},
        {"interactive_session": {"trigger": "on_demand", "timeout_minutes": -1, "session_provider": "ssh", "auth_provider": "github"}},
        {"priority": -5, "name": "n", "workspace": {"workspace_root": None, "external_dirs": [], "exclude_dirs": ["x"]}, "enable_baseten_workdir": False},
    ]
    for more in taken:
        status, reply = push(truss, base(**more))
        assert status in (200, 201), (more, reply)


def test_what_is_refused_says_so_by_name(truss):
    load = lambda ref: {"runtime": {"start_commands": ["true"], "load_checkpoint_config": {"enabled": True, "checkpoints": [ref]}}}
    weights = lambda source, **auth: {"weights": [{"source": source, "mount_location": "/w", **({"auth": auth} if auth else {})}]}
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
        (weights("s3://b/p", auth_method="AWS_OIDC", aws_oidc_role_arn="a", aws_oidc_region="r"), "auth"),
        (weights("s3://b/p", auth_method="AWS_ASSUME_ROLE", aws_assume_role_arn="a", aws_assume_role_region="r"), "auth"),
        (weights("gs://b/p", auth_method="GCP_OIDC", gcp_oidc_service_account="a", gcp_oidc_workload_id_provider="r"), "auth"),
        *((weights(f"{scheme}://b/p"), "source") for scheme in ("gs", "azure", "r2", "cw")),
        (load({"typ": "loops_checkpoint", "run_id": "r", "checkpoint_name": "c", "target": "trainer"}), "checkpoints[0]"),
    ]
    for more, name in refused:
        status, reply = push(truss, base(**more))
        assert status == 400 and name in " ".join(problems(reply)), (more, reply)


def test_the_client_shows_the_reason(truss):
    folder = truss.project(["true"], job='weights=[WeightsSource(source="gs://b/p", mount_location="/w")]')
    out = truss.train("push", "config.py", cwd=folder, code=1)
    assert "Client error" in out and "gs://" in out and "s3://" in out
    until(lambda: truss.cluster.json("ps", "-a") == [])
