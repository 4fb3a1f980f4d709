"""Repositories that people write to: what is ignored, pull requests, squashed histories, large files that are removed."""
import base64
import hashlib
import http.client
import json
import os
import urllib.parse
import urllib.request

import pytest
from conftest import CALL_S, CLUSTER, new_cluster
from hub_client import Client


@pytest.fixture(scope="module")
def started():
    with new_cluster() as cluster:
        yield cluster.start("--cpus", "4", "--memory", "4Gi")


@pytest.fixture
def server(started, request):
    request.node.stash[CLUSTER] = started
    return started


@pytest.fixture(params=["0.36", "2.4 without xet"])
def client(request, server):
    return Client(server.folder, server.url, request.param, server.token)


def ask(server, method, path, body=None, token=None):
    """Status, headers and JSON of a request; a body that is text is sent as it is."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=CALL_S)
    data = body if body is None or isinstance(body, str) else json.dumps(body)
    connection.request(method, path, body=data, headers={"Authorization": f"Bearer {token or server.token}", "Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, reply.headers, json.loads(text) if text else None


class Repo:
    """A new repository, by the protocol alone."""

    def __init__(self, server):
        self.server = server
        status, _, said = ask(server, "POST", "/api/repos/create", {"name": os.urandom(6).hex()})
        assert status == 200, said
        self.id = said["name"]
        self.api = f"/api/models/{self.id}"

    def ask(self, method, path, body=None, token=None):
        return ask(self.server, method, f"{self.api}/{path}", body, token)

    def commit(self, files, rev="main", query="", header=None):
        """files: content by path, None deletes it. Status and answer."""
        lines = [{"key": "header", "value": {"summary": "test", "description": "", **(header or {})}}]
        for path, content in files.items():
            if content is None:
                lines.append({"key": "deletedFile", "value": {"path": path}})
            elif isinstance(content, dict):  # of large()
                lines.append({"key": "lfsFile", "value": {"path": path, **content}})
            else:
                value = {"path": path, "encoding": "base64", "content": base64.b64encode(content).decode()}
                lines.append({"key": "file", "value": value})
        status, _, said = self.ask("POST", f"commit/{urllib.parse.quote(rev, safe='')}{query}", "\n".join(map(json.dumps, lines)))
        return status, said

    def committed(self, files, rev="main", **kw):
        status, said = self.commit(files, rev, **kw)
        assert status == 200, said
        return said

    def pull(self, n, what="", body=None, method="POST"):
        return self.ask(method if what else "GET", f"discussions/{n}{'/' if what else ''}{what}", body)

    def opened(self, files, **kw):
        """A new pull request that changes these files: its number."""
        url = self.committed(files, query="?create_pr=1", **kw)["pullRequestUrl"]
        assert url.startswith(f"{self.server.url}/{self.id}/discussions/")
        return int(url.rsplit("/", 1)[1])

    def large(self, content, upload=True):
        """The line of a commit for a large file, which is uploaded. Or only: has it to be?"""
        oid = hashlib.sha256(content).hexdigest()
        body = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": len(content)}]}
        status, _, said = ask(self.server, "POST", f"/{self.id}.git/info/lfs/objects/batch", body)
        assert status == 200, said
        actions = said["objects"][0].get("actions")
        if not upload:
            return actions is not None
        if actions:
            request = urllib.request.Request(actions["upload"]["href"], content, method="PUT")
            assert urllib.request.urlopen(request, timeout=CALL_S).status == 200
        return {"algo": "sha256", "oid": oid, "size": len(content)}

    def blocks(self):
        """What it holds, in units beside which the lists of its files are nothing."""
        said = ask(self.server, "GET", f"/api/models?search={self.id.split('/')[1]}")[2]
        return said[0]["usedStorage"] // 100_000

    def files(self, rev="main"):
        """Git's id by path."""
        status, _, said = self.ask("GET", f"tree/{urllib.parse.quote(rev, safe='')}?recursive=1")
        assert status == 200, said
        return {f["path"]: f["oid"] for f in said if f["type"] == "file" and f["path"] != ".gitattributes"}

    def log(self, rev="main"):
        status, _, said = self.ask("GET", f"commits/{urllib.parse.quote(rev, safe='')}")
        assert status == 200, said
        return [c["id"] for c in said]


@pytest.fixture
def repo(server):
    return Repo(server)


# --- what is ignored


def ignored(repo, paths, rev="main", **more):
    status, _, said = repo.ask("POST", f"preupload/{rev}", {"files": [{"path": p, "size": 1, "sample": ""} for p in paths], **more})
    assert status == 200, said
    return {f["path"] for f in said["files"] if f["shouldIgnore"]}


def test_gitignore_of_the_request_wins_over_that_of_the_repository(repo):
    paths = ["a.log", "keep.log", "build/x", "src/build/x", "a.txt"]
    assert ignored(repo, paths) == set()
    repo.committed({".gitignore": b"*.log\n!keep.log\nbuild/\n"})
    assert ignored(repo, paths) == {"a.log", "build/x", "src/build/x"}
    assert ignored(repo, paths, gitIgnore="/build\n*.txt") == {"build/x", "a.txt"}
    assert ignored(repo, paths, gitIgnore="") == set()
    assert ignored(repo, paths, repo.log()[1]) == set()


def test_gitignore_that_takes_too_long_is_refused(repo):
    body = {"files": [{"path": "a/" * 500 + str(i), "size": 1} for i in range(2000)], "gitIgnore": "**/a/**/a/**/b\n" * 40000}
    status, _, said = repo.ask("POST", "preupload/main", body)
    assert (status, "too long" in said["error"]) == (413, True), said


def test_client_leaves_out_what_is_ignored(client, repo):
    repo.committed({".gitignore": b"*.log\n"})
    got = client.run(f"""
        folder = pathlib.Path(os.environ["HF_HOME"]) / "up"
        folder.mkdir()
        for name in ("a.log", "b.txt"):
            (folder / name).write_text(name)
        api.upload_folder(repo_id={repo.id!r}, folder_path=folder)
        said(sorted(api.list_repo_files({repo.id!r})))
    """)
    assert got == [".gitattributes", ".gitignore", "b.txt"]


# --- pull requests


def test_pull_request_of_a_commit(repo):
    repo.committed({"a.txt": b"1", "b.txt": b"1"})
    head = repo.log()
    assert repo.opened({"a.txt": b"2"}, header={"summary": "title", "description": "why"}) == 1
    assert repo.log() == head
    assert repo.files("refs/pr/1") != repo.files() and repo.log("refs/pr/1")[1:] == head
    repo.committed({"c.txt": b"3"}, "refs/pr/1")
    status, _, said = repo.pull(1)
    assert (status, said["title"], said["status"], said["isPullRequest"]) == (200, "title", "open", True)
    assert [e["type"] for e in said["events"]] == ["comment", "commit", "commit"] and said["events"][0]["data"]["latest"]["raw"] == "why"
    assert said["changes"] == {"base": "refs/heads/main"} and said["filesWithConflicts"] == []
    assert said["diff"].count("diff --git") == 2 and "new file mode" in said["diff"]
    assert repo.ask("GET", "refs")[2].get("pullRequests") is None
    refs = repo.ask("GET", "refs?include_prs=1")[2]["pullRequests"]
    assert refs == [{"name": "1", "ref": "refs/pr/1", "targetCommit": repo.log("refs/pr/1")[0]}]
    assert repo.opened({"a.txt": b"1"}) == 2 and repo.log("refs/pr/2") == head  # nothing changes: it has no commit


def test_merge_moves_a_branch_that_has_not_moved(repo):
    repo.opened({"a.txt": b"1"})
    assert repo.pull(1, "merge", {"comment": "fine"})[0] == 200
    assert repo.log() == repo.log("refs/pr/1")
    said = repo.pull(1)[2]
    assert said["status"] == "merged" and said["changes"]["mergeCommitId"] == repo.log()[0]
    assert [e["data"].get("status") for e in said["events"] if e["type"] == "status-change"] == ["merged"]
    for what, body in (("merge", None), ("status", {"status": "open"})):
        assert repo.pull(1, what, body)[0] == 409
    status, said = repo.commit({"b": b"1"}, "refs/pr/1")
    assert status == 409 and "is merged" in said["error"]
    assert repo.pull(1, "comment", {"comment": "late"})[0] == 200


def test_merge_of_a_branch_that_has_moved_is_by_path(repo):
    repo.committed({"both": b"1", "ours": b"1", "theirs": b"1", "gone": b"1"})
    repo.opened({"both": b"2", "theirs": b"2", "gone": None, "new/b": b"b"})
    repo.committed({"both": b"2", "ours": b"2", "new/a": b"a"})
    head = repo.log()
    assert repo.pull(1, "merge")[0] == 200
    assert repo.log()[1:] == head
    pull, files = repo.files("refs/pr/1"), repo.files()
    assert sorted(files) == ["both", "new/a", "new/b", "ours", "theirs"]
    assert files["theirs"] == pull["theirs"] == files["both"] == files["ours"] != pull["ours"]


@pytest.mark.parametrize("theirs, ours", [(b"2", b"3"), (None, b"2"), (b"2", None)])
def test_files_that_both_changed_are_a_conflict(repo, theirs, ours):
    repo.committed({"a": b"1", "b": b"1"})
    repo.opened({"a": theirs, "b": b"2"})
    repo.committed({"a": ours})
    head = repo.log()
    assert repo.pull(1)[2]["filesWithConflicts"] == ["a"]
    status, _, said = repo.pull(1, "merge")
    assert status == 409 and "both changed a" in said["error"]
    assert repo.log() == head and repo.pull(1)[2]["status"] == "open"


def test_a_file_and_a_folder_are_a_conflict(repo):
    repo.opened({"d/x": b"1"})
    repo.committed({"d": b"1"})
    assert repo.pull(1, "merge")[0] == 409 and repo.pull(1)[2]["filesWithConflicts"] == ["d/x"]


def test_what_a_pull_request_may_be_of(repo):
    repo.committed({"a": b"1"})
    repo.committed({"a": b"2"})
    head, first = repo.log()[:2]
    assert repo.ask("POST", "tag/main", {"tag": "v1"})[0] == 200
    repo.opened({"b": b"1"})
    for rev in (head, "v1", "nowhere", "refs/pr/1"):
        quoted = urllib.parse.quote(rev, safe="")
        status, headers, _ = repo.ask("POST", f"preupload/{quoted}?create_pr=1", {"files": []})
        assert (status, headers["X-Error-Code"]) == (404, "RevisionNotFound"), rev
        status, said = repo.commit({"b": b"1"}, rev, "?create_pr=1")
        assert status == 404, (rev, said)
    assert repo.opened({"a": b"3"}, header={"parentCommit": first}) == 2  # of a commit that main has passed
    assert repo.log("refs/pr/2")[1] == first
    assert repo.pull(2, "merge")[0] == 409
    status, said = repo.commit({"a": b"3"}, query="?create_pr=1", header={"parentCommit": "0" * 40})
    assert status == 404, said


def test_numbers_statuses_and_pages(repo):
    for i in range(1, 54):
        status, _, said = repo.ask("POST", "discussions", {"title": f"t{i}", "description": "", "pullRequest": True})
        assert (status, said["num"]) == (200, i)
    assert repo.pull(1, "status", {"status": "closed", "comment": "no"})[2]["newStatus"]["data"] == {"status": "closed"}
    assert repo.pull(1, "merge")[0] == 409 and repo.commit({"a": b"1"}, "refs/pr/1")[0] == 409
    first, second = (repo.ask("GET", f"discussions?p={p}")[2] for p in (0, 1))
    assert (first["count"], first["start"], second["start"]) == (53, 0, 50)
    assert [d["num"] for d in first["discussions"] + second["discussions"]] == list(range(53, 0, -1))
    for query, count in (("status=closed", 1), ("status=open", 52), ("author=nobody", 0), ("type=discussion", 0), ("type=pull_request", 53)):
        assert repo.ask("GET", f"discussions?{query}")[2]["count"] == count, query
    said = repo.pull(2, "title", {"title": "other"})[2]["newTitle"]
    assert said["data"] == {"from": "t2", "to": "other"} and repo.pull(2)[2]["title"] == "other"
    for n, what, body, want in ((2, "status", {"status": "merged"}, 400), (2, "title", {"title": " "}, 400), (99, "title", {"title": "x"}, 404),
                                ("x", "", None, 404), (2, "comment", {"comment": ""}, 400)):
        assert repo.pull(n, what, body)[0] == want, (n, what, body)
    status, _, said = repo.ask("POST", "discussions", {"title": "t", "description": "d", "pullRequest": False})
    assert status == 501 and "no other discussions" in said["error"]


def test_who_may_open_and_read(server, repo):
    repo.opened({"a": b"1"})
    viewer = server.cli("tokens", "create", os.urandom(4).hex(), "--role", "viewer").out.strip()
    assert repo.ask("GET", "discussions/1", token=viewer)[0] == 200
    for what in ("discussions", "discussions/1/merge", "discussions/1/status"):
        assert repo.ask("POST", what, {"title": "t", "pullRequest": True, "status": "closed"}, viewer)[0] == 403
    member = server.cli("tokens", "create", os.urandom(4).hex(), "--role", "member").out.strip()
    assert repo.ask("GET", "discussions/1", token=member)[0] == 200
    assert repo.ask("POST", "discussions", {"title": "t", "pullRequest": True}, member)[0] == 403
    assert ask(server, "GET", "/api/models/no/such/discussions")[0] == 404


def test_clients_pull_requests(client, repo):
    got = client.run(f"""
        id = {repo.id!r}
        up = api.upload_file(path_or_fileobj=b"1", path_in_repo="a.txt", repo_id=id, create_pr=True, commit_message="add", commit_description="d")
        api.upload_file(path_or_fileobj=b"2", path_in_repo="b.txt", repo_id=id, revision=up.pr_revision)
        own = api.create_pull_request(repo_id=id, title="by hand", description="x")
        api.comment_discussion(repo_id=id, discussion_num=own.num, comment="hm")
        api.rename_discussion(repo_id=id, discussion_num=own.num, new_title="renamed")
        api.change_discussion_status(repo_id=id, discussion_num=own.num, new_status="closed", comment="no")
        api.merge_pull_request(repo_id=id, discussion_num=up.pr_num)
        one = api.get_discussion_details(repo_id=id, discussion_num=up.pr_num)
        other = api.get_discussion_details(repo_id=id, discussion_num=own.num)
        said([up.pr_num, up.pr_revision, sorted(api.list_repo_files(id)), own.status, own.git_reference,
              one.status, one.target_branch, one.merge_commit_oid == api.repo_info(id).sha, type(one.diff).__name__, [e.type for e in one.events],
              [e.type for e in other.events], other.title, [d.num for d in api.get_repo_discussions(repo_id=id)],
              sorted(r.name for r in api.list_repo_refs(id, include_pull_requests=True).pull_requests),
              names(api.create_discussion, repo_id=id, title="talk")[0]])
    """)
    assert got[:9] == [1, "refs/pr/1", [".gitattributes", "a.txt", "b.txt"], "draft", "refs/pr/2", "merged", "refs/heads/main", True, "str"]
    assert got[9] == ["comment", "commit", "commit", "status-change"]
    assert got[10:14] == [["comment", "comment", "title-change", "comment", "status-change"], "renamed", [2, 1], ["1", "2"]]
    assert got[14] in ("HfHubHTTPError", "HTTPError")


def test_client_uploads_a_folder_to_a_pull_request(client, repo):
    got = client.run(f"""
        folder = pathlib.Path(os.environ["HF_HOME"]) / "up"
        folder.mkdir()
        for i in range(3):
            (folder / str(i)).write_text(str(i))
        done = api.upload_folder(repo_id={repo.id!r}, folder_path=folder, create_pr=True)
        said([done.pr_revision, sorted(api.list_repo_files({repo.id!r}, revision=done.pr_revision)), api.list_repo_files({repo.id!r})])
    """)
    assert got == ["refs/pr/1", [".gitattributes", "0", "1", "2"], [".gitattributes"]]


# --- histories that are written anew


def kept(server, *contents):
    """Which of these bytes the server still has on its disk, once what nothing names is gone."""
    server.cli("cache", "gc", "--yes", "--older-than", "0s")
    names = {p.name for p in server.data.rglob("*")}
    digests = [hashlib.sha256(c).hexdigest() for c in contents]
    return [any(d.endswith(n) and len(n) > 50 for n in names) for d in digests]


def status_of(repo, rev):
    return repo.ask("GET", f"revision/{urllib.parse.quote(rev, safe='')}")[0]


def test_squash_makes_one_commit_and_forgets_the_others(repo):
    first, large = os.urandom(200_000), os.urandom(300_000)
    assert repo.blocks() == 0
    repo.committed({"a": first, "w": repo.large(large)})
    start = repo.log()[0]
    assert repo.ask("POST", "tag/main", {"tag": "kept"})[0] == 200
    middle = os.urandom(400_000)
    repo.committed({"a": middle, "w": None})
    gone = repo.log()[0]
    repo.committed({"a": b"last", "b": b"b"})
    files = repo.files()
    assert repo.blocks() == 2 + 3 + 4
    assert repo.ask("POST", "super-squash/main", {"message": "one\nand why"})[0] == 200
    (log,) = repo.ask("GET", "commits/main")[2]
    assert (log["title"], log["message"]) == ("one", "and why")
    assert repo.files() == files and status_of(repo, gone) == 404
    assert repo.log("kept")[0] == start and status_of(repo, start) == 200
    assert repo.blocks() == 2 + 3
    assert kept(repo.server, first, middle, large) == [True, False, True]
    assert repo.ask("DELETE", "tag/kept")[0] == 200
    repo.committed({"c": b"c"})
    assert repo.ask("POST", "super-squash/main")[0] == 200
    assert repo.blocks() == 0 and repo.large(large, upload=False)
    assert kept(repo.server, first, large) == [False, False]
    assert len(repo.log()) == 1 and sorted(repo.files()) == ["a", "b", "c"]


def test_squash_leaves_pull_requests(repo):
    repo.committed({"a": b"1"})
    repo.opened({"b": b"1"})
    repo.committed({"c": b"1"})
    assert repo.ask("POST", "super-squash/main", {"message": "one"})[0] == 200
    assert len(repo.log("refs/pr/1")) == 3 and len(repo.log()) == 1
    assert repo.pull(1)[2]["filesWithConflicts"] == []
    assert repo.pull(1, "merge")[0] == 200 and sorted(repo.files()) == ["a", "b", "c"]
    for rev in ("nowhere", "refs/pr/1", repo.log()[0]):
        status, headers, _ = repo.ask("POST", f"super-squash/{urllib.parse.quote(rev, safe='')}", {"message": "x"})
        assert (status, headers["X-Error-Code"]) == (404, "RevisionNotFound"), rev


def test_upload_that_waits_for_its_commit_outlives_a_squash(repo):
    line = repo.large(os.urandom(1000))
    repo.committed({"a": b"1"})
    assert repo.ask("POST", "super-squash/main", {"message": "one"})[0] == 200
    repo.committed({"w": line})


def test_large_files_are_deleted_from_all_commits(repo):
    one, two = os.urandom(200_000), os.urandom(300_000)
    repo.committed({"a": b"1", "old/w": repo.large(one)}, header={"summary": "first"})
    assert repo.ask("POST", "tag/main", {"tag": "t"})[0] == 200
    repo.committed({"x": repo.large(two)})
    repo.opened({"p": b"p"})
    repo.committed({"old/w": None})
    loose = repo.large(b"loose" * 100)
    status, _, said = repo.ask("GET", "lfs-files")
    assert status == 200
    got = {f["fileOid"]: (f["filename"], f.get("ref"), f["size"]) for f in said}
    assert got == {hashlib.sha256(one).hexdigest(): ("old/w", "refs/pr/1", 200_000), hashlib.sha256(two).hexdigest(): ("x", "main", 300_000),
                   loose["oid"]: ("", None, 500)}
    before = [repo.log(rev) for rev in ("main", "t", "refs/pr/1")]
    gone = [hashlib.sha256(one).hexdigest(), loose["oid"]]
    status, _, said = repo.ask("POST", "lfs-files/batch", {"deletions": {"sha": gone, "rewriteHistory": False}})
    assert status == 409 and "old/w" in said["error"] and repo.large(one, upload=False) is False
    for _ in range(2):  # again is fine
        assert repo.ask("POST", "lfs-files/batch", {"deletions": {"sha": gone, "rewriteHistory": True}})[0] == 200
    after = [repo.log(rev) for rev in ("main", "t", "refs/pr/1")]
    assert [len(log) for log in after] == [len(log) for log in before] and all(a[-1] == b[-1] and a[0] != b[0] for a, b in zip(after, before))
    assert repo.ask("GET", "commits/main")[2][2]["title"] == "first"
    assert sorted(repo.files("t")) == ["a"] and sorted(repo.files()) == ["a", "x"] and sorted(repo.files("refs/pr/1")) == ["a", "p", "x"]
    assert all(status_of(repo, log[0]) == 404 for log in before)
    assert repo.blocks() == 3 and repo.large(one, upload=False)
    assert kept(repo.server, one, two) == [False, True]
    assert [e["type"] for e in repo.pull(1)[2]["events"]] == ["commit"] and repo.pull(1, "merge")[0] == 200
    for sha in (["zz"], "x", [1]):
        assert repo.ask("POST", "lfs-files/batch", {"deletions": {"sha": sha}})[0] == 400


def test_clients_squash_and_delete_large_files(server):
    client, repo = Client(server.folder, server.url, "2.4 without xet", server.token), Repo(server)
    got = client.run(f"""
        id = {repo.id!r}
        for i in range(3):
            api.upload_file(path_or_fileobj=os.urandom(1000), path_in_repo=f"{{i}}.parquet", repo_id=id)
        files = list(api.list_lfs_files(id))
        api.permanently_delete_lfs_files(id, [f for f in files if f.filename == "1.parquet"])
        left = sorted(f.filename for f in api.list_lfs_files(id))
        names_ = sorted(api.list_repo_files(id))
        api.super_squash_history(repo_id=id, commit_message="one")
        said([sorted(f.filename for f in files), left, names_, [c.title for c in api.list_repo_commits(id)], sorted(api.list_repo_files(id)) == names_])
    """)
    assert got == [["0.parquet", "1.parquet", "2.parquet"], ["0.parquet", "2.parquet"], [".gitattributes", "0.parquet", "2.parquet"], ["one"], True]
