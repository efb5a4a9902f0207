"""Compares the orders, their numbers and the customers' sums with what the topic says."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import common  # noqa: E402


def group_of(order):
    return order["category"]["id"], order["category"]["sub"]


def main():
    records = common.read_topic("orders")
    orders = {}
    for record in records:
        orders.setdefault(record["orderId"], record)
    shop = common.mongo().shop
    stored = list(shop.orders.find().sort("number", 1))
    numbers = collections.defaultdict(list)
    for order in stored:
        numbers[group_of(order)].append(order["number"])
    expected = collections.Counter(group_of(order) for order in orders.values())
    in_order = collections.defaultdict(list)  # dicts keep the order of the first deliveries
    for order in orders.values():
        in_order[group_of(order)].append(order["orderId"])
    found_order = collections.defaultdict(list)
    for order in stored:
        found_order[group_of(order)].append(order["orderId"])
    last = {(c["_id"]["category_id"], c["_id"]["category_sub"]): c["n"] for c in shop.order_numbers.find()}
    sums = collections.defaultdict(lambda: [0, 0])
    for order in orders.values():
        sums[order["customer"]][0] += 1
        sums[order["customer"]][1] += order["cents"]
    customers = {c["_id"]: [c["orders"], c["spent"]] for c in shop.customers.find()}
    table = common.Table()
    print(f"   {len(records)} deliveries of {len(orders)} orders")
    table.row("orders", len(stored), len(orders))
    table.row("categories whose numbers are not 1..N", sum(n != list(range(1, expected[g] + 1)) for g, n in numbers.items()), 0)
    table.row("categories whose order is another one", sum(in_order[g] != found_order[g] for g in in_order), 0)
    table.row("categories whose counter is not N", len(last.items() ^ dict(expected).items()), 0)
    references = {o["reference"] for o in stored
                  if o["reference"] == "{}-{}-{:06}".format(*group_of(o), o["number"])}
    table.row("references that name the order", len(references), len(orders))
    table.row("customers with wrong sums", sum(customers.get(c) != s for c, s in sums.items()), 0)
    table.finish("every order once, every category numbered 1..N")


main()
