"""A worker whose system notes what users say about their things, in a JSON file."""

import json
import re
from pathlib import Path

from serve import serve


class Notebook:
    def open(self, folder, user, base_url, api_key, settings):
        self.file = Path(folder) / "notes.json"
        self.notes = json.loads(self.file.read_text()) if self.file.exists() else []
        self.last = max((int(note["id"]) for note in self.notes), default=0)

    def load(self, items):
        return {"ids": [self.add(item["text"]) for item in items]}

    def ingest(self, turns, time):
        said = [turn["text"] for turn in turns if turn["role"] == "user"]
        for order, thing, fact in re.findall(r"(forget )?(my \w+)(.*)", "\n".join(said)):
            same = [note for note in self.notes if note["text"].startswith(f"{thing} ")]
            if order:
                self.notes = [note for note in self.notes if note not in same]
            elif same:
                same[0]["text"] = thing + fact
            else:
                self.add(thing + fact)

    def list(self):
        return {"memories": self.notes}

    def search(self, query, k):
        words = set(query.split())
        hits = [{**note, "score": len(words & {*note["text"].split()})} for note in self.notes]
        return {"hits": sorted(hits, key=lambda hit: -hit["score"])[:k]}

    def close(self):
        self.file.write_text(json.dumps(self.notes))

    def add(self, text):
        self.last += 1
        self.notes.append({"id": str(self.last), "text": text})
        return str(self.last)


serve(Notebook(), system="notebook", version="1.0")
