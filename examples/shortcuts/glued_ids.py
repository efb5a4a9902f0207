"""Make one identity of two parts by writing one behind the other."""
import common
import pymongo
from sink import Sink

WRONG = 'shop "a", order "b-c", and shop "a-b", order "c"'
EVENTS = [{"shop": "a", "order": "b-c"}, {"shop": "a-b", "order": "c"}]


def shortcut(work):
    orders = common.mongo().shortcuts.glued_ids
    orders.drop()
    for event in EVENTS:
        try:
            orders.insert_one({"_id": f"{event['shop']}-{event['order']}", **event})
        except pymongo.errors.DuplicateKeyError:
            pass  # "it was there already"
    return {"documents": orders.count_documents({})}


def ours(work):
    sink = Sink(work, '[route.dedup]\nkey = ["shop", "order"]')
    sink.deliver([(event, partition) for event in EVENTS for partition in (0, 1)])
    sink.until_end()
    return {"documents": sink.documents.count_documents({})}


RIGHT, SHOWS = {"documents": 2}, {"documents": 1}
