"""Send an $inc again when its answer was an error or did not come."""
import common
import pymongo
from sink import Sink

WRONG = "the first one was carried out, and its answer lost"


def answer_lost(command, collection=None):
    """The server carries the next such command out, and then answers that it does not know whether it will last."""
    data = {"failCommands": [command], "writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}
    if collection:
        data["namespace"] = collection
    common.mongo().admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data})


def shortcut(work):
    users = common.mongo(retryWrites=False).shortcuts.retried_inc
    users.drop()
    answer_lost("update", "shortcuts.retried_inc")
    for _ in range(5):
        try:
            users.update_one({"_id": "bob"}, {"$inc": {"followers": 1}}, upsert=True)
            break
        except pymongo.errors.PyMongoError:
            pass  # again
    return {"followers": users.find_one({"_id": "bob"})["followers"]}


def ours(work):
    sink = Sink(work, """
[route.dedup]
key = ["eventId"]
[[route.counter]]
collection = "shortcuts.NAME_users"
filter = { _id = "to" }
inc = { followers = 1 }
""")
    answer_lost("commitTransaction")
    sink.deliver([({"eventId": "e1", "to": "bob"}, 0)])
    sink.until_end()
    return {"followers": sink.db[f"{sink.name}_users"].find_one({"_id": "bob"})["followers"]}


RIGHT, SHOWS = {"followers": 1}, {"followers": 2}
