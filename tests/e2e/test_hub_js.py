"""The Hub's client for JavaScript, unmodified: @huggingface/hub."""
import json
import os
import subprocess

from conftest import CALL_S, PARTS
from hub import hub_server
from test_repos import begin

# A token of ours with "hf_" in front: the client sends no other one.
SCRIPT = """
import * as h from "@huggingface/hub";
import crypto from "node:crypto";
const o = {hubUrl: process.env.URL, accessToken: "hf_" + process.env.TOKEN}, repo = {type: "model", name: "admin/js"}, on = {...o, repo}, seen = {};
const all = async (items, what) => { const r = []; for await (const x of items) r.push(what(x)); return r.sort(); };
const text = async (blob) => Buffer.from(await blob.arrayBuffer());
const raises = (f) => f().then(() => 0, (e) => e.statusCode);
seen.who = (await h.whoAmI(o)).name;
seen.before = await h.repoExists(on);
seen.made = (await h.createRepo({...on, private: true})).repoUrl === `${o.hubUrl}/admin/js`;
seen.twice = await raises(() => h.createRepo(on));
await h.uploadFile({...on, file: {path: "a+b ü.txt", content: new Blob(["hello"])}});
const big = crypto.randomBytes(1 << 20), bigger = crypto.randomBytes(1 << 20);
await h.uploadFile({...on, file: {path: "big.bin", content: new Blob([big])}});
await h.uploadFile({...on, useXet: true, file: {path: "xet.bin", content: new Blob([bigger])}});
seen.files = await all(h.listFiles({...on, recursive: true}), (f) => f.path);
seen.same = [big.equals(await text(await h.downloadFile({...on, path: "big.bin"}))), bigger.equals(await text(await h.downloadFile({...on, path: "xet.bin"}))),
             (await text(await h.downloadFile({...on, path: "a+b ü.txt"}))).toString()];
seen.none = [await h.downloadFile({...on, path: "none"}), await h.fileExists({...on, path: "none"}), await h.fileExists({...on, path: "big.bin"})];
seen.info = (await h.fileDownloadInfo({...on, path: "big.bin"})).size;
seen.raw = (await text(await h.downloadFile({...on, path: "big.bin", raw: true}))).toString().split("\\n")[0];
await h.commit({...on, title: "both", operations: [{operation: "addOrUpdate", path: "x", content: new Blob(["1"])}, {operation: "delete", path: "a+b ü.txt"}]});
await h.deleteFiles({...on, paths: ["xet.bin"]});
await h.createBranch({...on, branch: "dev/x"});
await h.deleteBranch({...on, branch: "dev/x"});
seen.commits = [(await all(h.listCommits({...on, batchSize: 2}), (c) => c.title)).length, await h.countCommits(on)];
seen.paths = (await h.pathsInfo({...on, paths: ["big.bin", "none"]})).map((p) => p.lfs.oid === crypto.createHash("sha256").update(big).digest("hex"));
seen.listed = await all(h.listModels({...o, search: {owner: "admin"}}), (m) => m.name);
seen.model = (await h.modelInfo({...o, name: "admin/js"})).private;
await h.checkRepoAccess(on);
const real = {type: "model", name: "real/model"};
seen.mirrored = (await h.modelInfo({...o, name: "real/model"})).name;
seen.tensors = Object.keys((await h.parseSafetensorsMetadata({...o, repo: real})).header).length;
await h.snapshotDownload({...o, repo: real, cacheDir: process.env.CACHE});
await h.deleteRepo(on);
seen.after = await h.repoExists(on);
console.log("\\n" + JSON.stringify(seen));
"""


def test_it_reads_and_writes(empty_cluster):
    c = empty_cluster
    with hub_server() as hub:
        files = {str(p.relative_to(PARTS / "model")): p.read_bytes() for p in (PARTS / "model").rglob("*") if p.is_file()}
        hub.repo("real/model", files)
        begin(c, upstream=hub.url)
        (c.folder / "node_modules").symlink_to(PARTS / "hubjs/node_modules")
        (c.folder / "main.mjs").write_text(SCRIPT)
        env = {"PATH": os.environ["PATH"], "HOME": str(c.folder), "URL": c.url, "TOKEN": c.token, "CACHE": str(c.folder / "cache")}
        ran = subprocess.run([PARTS / "node/bin/node", "main.mjs"], cwd=c.folder, env=env, capture_output=True, text=True, timeout=CALL_S)
        assert ran.returncode == 0, ran.stderr
        sha = hub.repos["models", "real/model"].refs["main"]
    assert json.loads(ran.stdout.strip().splitlines()[-1]) == {
        "who": "admin", "before": False, "made": True, "twice": 409, "files": [".gitattributes", "a+b ü.txt", "big.bin", "xet.bin"], "same": [True, True, "hello"],
        "none": [None, False, True], "info": 1 << 20, "raw": "version https://git-lfs.github.com/spec/v1", "commits": [6, 6], "paths": [True], "listed": ["admin/js"],
        "model": True, "mirrored": "real/model", "tensors": 105, "after": False}
    assert {path: (c.folder / "cache/models--real--model/snapshots" / sha / path).read_bytes() for path in files} == files
