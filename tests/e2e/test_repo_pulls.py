"""Repositories that people write to: what is ignored, pull requests, squashed histories, large files that are removed."""
import base64
import http.client
import json
import os
import urllib.parse

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
            else:
                value = {"path": path, "encoding": "base64", "content": base64.b64encode(content).decode()}
                lines.append({"key": "file", "value": value})
        status, _, said = self.ask("POST", f"commit/{urllib.parse.quote(rev, safe='')}{query}", "\n".join(map(json.dumps, lines)))
        return status, said

    def committed(self, files, rev="main", **kw):
        status, said = self.commit(files, rev, **kw)
        assert status == 200, said
        return said

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
