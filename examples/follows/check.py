"""Compares what is in MongoDB and Redis with what the topic says."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import common  # noqa: E402


def truth(records):
    """The relations at the end, each event counted the first time it is there."""
    relations, seen = set(), set()
    for record in records:
        if record["eventId"] in seen:
            continue
        seen.add(record["eventId"])
        pair = record["from"], record["to"]
        relations.add(pair) if record["op"] == "follow" else relations.discard(pair)
    return relations, seen


def counts(people, field):
    return {p["_id"]: p[field] for p in people if p.get(field, 0) != 0}


def mirrored(ids):
    client, found = common.caches(), {}
    for person in ids:
        value = client.hget(f"user:{person}:counts", "followers")
        if value is not None and int(value) != 0:
            found[person] = int(value)
    return found


def main():
    records = common.read_topic("follows")
    relations, events = truth(records)
    social = common.mongo().social
    stored = {(d["from"], d["to"]) for d in social.follows.find()}
    people = list(social.users.find())
    following = dict(collections.Counter(source for source, _ in relations))
    followers = dict(collections.Counter(target for _, target in relations))
    ids = {r["to"] for r in records}
    table = common.Table()
    print(f"   {len(records)} deliveries of {len(events)} events")
    table.row("relations", social.follows.count_documents({}), len(relations))
    table.row("relations that are not in the topic", len(stored - relations), 0)
    table.row("events in the ledger", social.follow_events.count_documents({}), len(events))
    table.row("following, summed over all people", sum(counts(people, "following").values()), len(relations))
    table.row("people with a wrong following", len(counts(people, "following").items() ^ following.items()), 0)
    table.row("people with wrong followers", len(counts(people, "followers").items() ^ followers.items()), 0)
    table.row("people with wrong followers in Redis", len(mirrored(ids).items() ^ followers.items()), 0)
    cache = common.caches()
    stale = [person for person in ids if cache.exists(f"user:{person}:profile")]
    table.row("cached profiles that are still there", len(stale), 0)
    table.finish("every event moved its relation and its counters once")


main()
