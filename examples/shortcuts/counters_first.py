"""Move the counter, insert the event, and move the counter back if the event was there already."""
import common
import pymongo
from sink import Sink, dies_after

WRONG = "the process dies before it has moved the counter back"


def handler(follows, users, event):
    users.update_one({"_id": event["to"]}, {"$inc": {"followers": 1}}, upsert=True)
    yield "counter moved"
    try:
        follows.insert_one(dict(event))
        yield "inserted"
    except pymongo.errors.DuplicateKeyError:
        yield "it was there"
        users.update_one({"_id": event["to"]}, {"$inc": {"followers": -1}})


def shortcut(work):
    db = common.mongo().shortcuts
    follows, users = db.counters_first, db.counters_first_users
    follows.drop(), users.drop()
    follows.create_index("eventId", unique=True)
    event = {"eventId": "e1", "from": "ann", "to": "bob"}
    for _ in handler(follows, users, event):
        pass
    dies_after(handler(follows, users, event), 2)  # the redelivery: killed where it knows that the event was there
    for _ in handler(follows, users, event):  # and once more
        pass
    return {"follows": follows.count_documents({}), "followers": users.find_one({"_id": "bob"})["followers"]}


def ours(work):
    sink = Sink(work, """
[route.dedup]
key = ["eventId"]
[[route.counter]]
collection = "shortcuts.NAME_users"
filter = { _id = "to" }
inc = { followers = 1 }
""")
    event = {"eventId": "e1", "from": "ann", "to": "bob"}
    sink.deliver([(event, 0), (event, 1)])
    sink.delivered_again_after_a_kill(1)
    return {"follows": sink.documents.count_documents({}),
            "followers": sink.db[f"{sink.name}_users"].find_one({"_id": "bob"})["followers"]}


RIGHT, SHOWS = {"follows": 1, "followers": 1}, {"follows": 1, "followers": 2}
