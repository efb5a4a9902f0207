"""Look whether the event is there; if it is not, insert it."""
import common
from sink import Sink, together

WRONG = "two deliveries of one order at once"


def handler(orders, event):
    there = orders.find_one({"eventId": event["eventId"]})
    yield "between the look and the insert"
    if there is None:
        orders.insert_one(dict(event))


def shortcut(work):
    orders = common.mongo().shortcuts.check_then_insert
    orders.drop()
    event = {"eventId": "e1", "total": 7}
    together(handler(orders, event), handler(orders, event))
    return {"documents": orders.count_documents({})}


def ours(work):
    """Two processes, one delivery for each."""
    sink = Sink(work, '[route.dedup]\nkey = ["eventId"]', commit="100ms")
    event = {"eventId": "e1", "total": 7}
    sink.deliver([(event, 0), (event, 1)])
    group = common.Group(sink.name, sink.name)
    workers = [sink.worker(), sink.worker()]
    group.wait_end(30)
    group.close()
    for worker in workers:
        worker.terminate()
    return {"documents": sink.documents.count_documents({})}


RIGHT, SHOWS = {"documents": 1}, {"documents": 2}
