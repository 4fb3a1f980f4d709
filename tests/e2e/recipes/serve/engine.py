"""An HTTP server as inference engines are, small enough for a test: it says each word of what it is asked again.

/health is 200 once the file `loaded` is there, or at once with ENGINE_READY; /v1/models and /v1/chat/completions are as OpenAI's, with streams. What comes without the key
is refused. A prompt of `die` ends the process in the middle of its reply, `leave` too, but without an error, `slow` waits for the file `go` before its last word.
"""
import json
import os
import pathlib
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY, NAME = os.environ["STOKER_SERVE_KEY"], os.environ.get("ENGINE_NAME", "echo")
HERE = pathlib.Path(os.environ["BT_SCRATCH_DIR"])


class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, form, *arguments):
        print(self.command, self.path.split("?")[0], flush=True)

    def answer(self, status, what):
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def event(self, data):
        line = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def may(self):
        if self.headers["Authorization"] == f"Bearer {KEY}":
            return True
        self.answer(401, {"error": {"message": "no key"}})
        return False

    def do_GET(self):
        if not self.may():
            return
        if self.path == "/health":
            return self.answer(200 if "ENGINE_READY" in os.environ or (HERE / "loaded").exists() else 503, {})
        if self.path == "/v1/models":
            return self.answer(200, {"object": "list", "data": [{"id": NAME, "object": "model", "created": 0, "owned_by": "test"}]})
        self.answer(404, {"error": {"message": f"no {self.path}", "headers": sorted(self.headers.keys())}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.may():
            return
        words = asked["messages"][-1]["content"].split()
        reply = {"id": "c1", "created": int(time.time()), "model": NAME}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": " ".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": len(words), "completion_tokens": len(words), "total_tokens": 2 * len(words)}
            return self.answer(200, {**reply, "object": "chat.completion", "choices": [choice], "usage": usage})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n, word in enumerate(words):
            if word in ("die", "leave"):
                os._exit(3 if word == "die" else 0)
            while words[0] == "slow" and n == len(words) - 1 and not (HERE / "go").exists():
                time.sleep(0.05)
            choice = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
            self.event(json.dumps({**reply, "object": "chat.completion.chunk", "choices": [choice]}))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


print("key", KEY, flush=True)
ThreadingHTTPServer(("127.0.0.1", int(os.environ["STOKER_SERVE_PORT"])), Engine).serve_forever()
