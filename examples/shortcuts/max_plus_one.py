"""The next number is the highest there is, plus one."""
import common
from sink import Sink, together

WRONG = "four processes number four orders at once"


def handler(orders, event):
    highest = orders.find_one(sort=[("number", -1)])
    yield "the highest number was read"
    orders.insert_one({**event, "number": highest["number"] + 1 if highest else 1})


def summary(orders):
    return {"numbers": sorted(order["number"] for order in orders.find())}


def shortcut(work):
    orders = common.mongo().shortcuts.max_plus_one
    orders.drop()
    together(*(handler(orders, {"eventId": f"e{i}"}) for i in range(4)))
    return summary(orders)


def ours(work):
    """Two processes; each order is delivered twice, and everything again after a kill."""
    sink = Sink(work, '[route.dedup]\nkey = ["eventId"]\n[route.sequence]\nfield = "number"')
    sink.deliver([({"eventId": f"e{i}"}, partition) for i in range(4) for partition in (0, 1)])
    sink.delivered_again_after_a_kill(4, workers=2)
    return summary(sink.documents)


RIGHT, SHOWS = {"numbers": [1, 2, 3, 4]}, {"numbers": [1, 1, 1, 1]}
