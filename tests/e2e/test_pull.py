"""What `checkpoints pull` writes is named by the server: odd names are written as they are, deceptive ones not at all."""
import json
import unicodedata

import pytest
from conftest import proof
from web import Handler, serving

CKPT = {"checkpointing_config": {"enabled": True, "settle": "1s"}}
ODD = ["x", "A", "a", unicodedata.normalize("NFC", "\u00e9"), unicodedata.normalize("NFD", "\u00e9"), "n" * 255, "with space", "sub/.pull",
       "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"]  # Persian: the joiner belongs to the word


def saved(cluster, names):
    folder = "$BT_CHECKPOINT_DIR/checkpoint-1"
    job = cluster.push([f"mkdir -p {folder}/sub", *[f"echo '{name[:20]}' > {folder}/'{name}'" for name in names]], runtime=CKPT)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    return job


@pytest.fixture(scope="module")
def three_files(standing_cluster):
    return saved(standing_cluster, ["a", "b", "c"])


def passing_on(cluster, change):
    """A server that sits in front of the real one and changes its list of a checkpoint's files."""
    class Front(Handler):
        def do_GET(self):
            body = self.body()
            if self.path == "/v1/proof":
                return self.answer(200, proof(json.loads(body), cluster.token, self.server.server_port))
            status, reply = cluster.api(self.command, self.path, body or None, token=self.headers["Authorization"].split()[1])
            if "/checkpoint_files" in self.path:
                change(reply["presigned_urls"])
            return self.answer(status, reply)

        do_POST = do_GET
    return serving(Front)


def written(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_odd_names_are_written_as_they_are(cluster):
    job, out = saved(cluster, ODD), cluster.folder / "out"
    cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", out)
    assert written(out) == sorted(f"rank-0/checkpoint-1/{name}" for name in ODD)
    for name in ODD:
        assert (out / "rank-0/checkpoint-1" / name).read_text() == name[:20] + "\n"


def test_names_that_look_like_others(cluster):
    """Everything else is pulled, and what was left out is named."""
    odd = ["a\u202etxt", "\u2066a", "a\u200f", "a\u2028b"]
    job, out = saved(cluster, ["a", *odd]), cluster.folder / "out"
    said = cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", out).err
    assert written(out) == ["rank-0/checkpoint-1/a"] and "pulled 1 file" in said and "4 files left out" in said, said
    for name in odd:
        seen = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in name)
        assert f'left out: "checkpoint-1/{seen}": its name turns the text around' in said, said
    assert cluster.error("checkpoints", "pull", f"{job['id']}/checkpoint-1", out, "--include", "a?txt") == "file_name_refused"


@pytest.mark.parametrize("name", ["checkpoint-1/a\nb",
                                  "checkpoint-1/\033[2J", "checkpoint-1/\u009b2J", "checkpoint-1/" + "n" * 256, "checkpoint-1" + "/n" * 2000, "../up",
                                  "/etc/x", "", "checkpoint-1/./y", "checkpoint-1/b", "checkpoint-1/b/c"])
def test_a_server_that_names_what_it_must_not(standing, three_files, tmp_path, name):
    """The last one is sound: nothing is written before all names are."""
    cluster, job, out = standing, three_files, tmp_path / "out"

    def rename(files):
        assert len(files) == 3
        [f for f in files if f["relative_file_name"].endswith("/c")][0]["relative_file_name"] = name
    with passing_on(cluster, rename) as port:
        env = {"STOKER_URL": f"http://127.0.0.1:{port}"}
        refused = cluster.refusal("checkpoints", "pull", f"{job['id']}/checkpoint-1", out, code=1, env=env)["error"]
        assert refused["id"] == "file_name_refused", refused
        plain = cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", out, code=1, env=env).err
        assert plain.rstrip("\n").isprintable(), plain
        assert not out.exists()
        # what is sound can be had
        cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", out, "--include", "a", env=env)
        assert written(out) == ["rank-0/checkpoint-1/a"]


def test_a_broken_pull_leaves_no_part(cluster):
    job, out = saved(cluster, ["a", "b"]), cluster.folder / "out"

    def spoil(files):
        files[-1]["sha256"] = "0" * 64
    with passing_on(cluster, spoil) as port:
        cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", out, code=1, env={"STOKER_URL": f"http://127.0.0.1:{port}"})
    assert written(out) == ["rank-0/checkpoint-1/a"]
