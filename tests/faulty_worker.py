"""The fake worker with faults, which a user's turn asks for: `fault hang`, `fault exit 1`, ...

A fault that is followed by ` once FILE` happens only if FILE is missing, and makes it.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time as clock
import urllib.request
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import serve

FAULT = re.compile(r"fault ([a-z0-9 ]+?)(?: once (\S+))?$", re.M)


def notebook():
    spec = spec_from_file_location("fake_worker", Path(__file__).with_name("fake_worker.py"))
    module = module_from_spec(spec)
    real, serve.serve = serve.serve, lambda *_, **__: None
    spec.loader.exec_module(module)
    serve.serve = real
    return module.Notebook


class Faulty(notebook()):
    context = ()

    def open(self, folder, user, base_url, api_key, settings):
        self.base_url, self.api_key, self.settings = base_url, api_key, settings
        super().open(folder, user, base_url, api_key, settings)

    def ingest(self, turns, time):
        super().ingest(turns, time)
        for _ in range(self.settings.get("calls", 0)):
            self.ask_model()
        self.close()  # so that a fault leaves its traces in the files
        for fault, once in FAULT.findall("\n".join(turn["text"] for turn in turns)):
            if not once or not Path(once).exists():
                if once:
                    Path(once).touch()
                getattr(self, fault.replace(" ", "_"))()

    def list(self):
        return {**super().list(), "context": list(self.context)}

    def hang(self):
        clock.sleep(10_000)

    def exit_1(self):
        sys.exit(1)

    def kill_itself(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_parent(self):
        os.kill(os.getppid(), signal.SIGKILL)
        self.hang()

    def print_garbage(self):
        print("this is no reply")
        os.write(1, b"nor is this\n")
        subprocess.run(["echo", "nor this"], check=True)

    def write_garbage(self):
        serve.replies.write("this is no reply\n")

    def reply_twice(self):
        serve.replies.write('{"id": 1, "ok": {}}\n')

    def flood(self):
        while True:
            os.write(2, b"x" * 60_000 + b"\n")

    def long_line(self):
        while True:
            serve.replies.write("x" * 60_000)

    def leak_thread(self):
        threading.Thread(target=self.hang).start()

    def leak_child(self):
        child = subprocess.Popen(["sleep", "10000"])
        daemon = subprocess.Popen(["sleep", "10000"], start_new_session=True)
        self.context = (str(child.pid), str(daemon.pid))

    def raise_error(self):
        raise KeyError("no such note")

    def read_input(self):
        self.context = (repr(sys.stdin.read()), repr(os.read(0, 10)))

    def show_environment(self):
        self.context = tuple(f"{name}={value}" for name, value in sorted(os.environ.items()))

    def use_network(self):
        tries = [
            lambda: socket.create_connection(("192.0.2.1", 80)),
            lambda: socket.getaddrinfo("example.org", 80),
            lambda: socket.gethostbyname("example.com"),
            lambda: urllib.request.urlopen("http://telemetry.invalid/"),
            lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("192.0.2.2", 53)),
            lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 80)),
        ]
        self.context = tuple(outcome(one) for one in tries)

    def use_loopback(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(("localhost", server.getsockname()[1])).close()

    def ask_model(self):
        """As real systems do, it stores the text of an error as a memory."""
        message = {"role": "user", "content": json.dumps(self.notes)}
        body = json.dumps({"model": "any", "messages": [message], "max_tokens": 100})
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        url = f"{self.base_url}/chat/completions"
        request = urllib.request.Request(url, body.encode(), headers)
        try:
            reply = json.load(urllib.request.urlopen(request))
            self.add("it said " + reply["choices"][0]["message"]["content"])
        except Exception as error:
            self.add(f"Error: {error}")

    def lose_notes(self):
        self.notes.clear()

    def list_twice(self):
        self.notes *= 2

    def blank(self):
        self.add("  \n")


def outcome(work):
    try:
        work()
        return "reached"
    except OSError as error:
        return str(error)


serve.serve(Faulty(), system="faulty", version="1.0")
