"""What the tests of the start of effects share: two routes, and what the commands say of them."""
import json


def orders(setup, **more):
    """Orders with a number per category, and counters of users and of days."""
    name = f"tests.{setup.collection.name}"
    setup.routes[0].update({
        "ensure_index": False, "dedup": {"key": ["id"]},
        "sequence": {"field": "no", "group": ["cat"], "template": "{cat}-{seq:06}", "template_field": "ref"},
        "counter": [{"collection": f"{name}_users", "filter": {"_id": "user"}, "inc": {"orders": 1}},
                    {"collection": f"{name}_days", "filter": {"day": "day", "cat": "cat"}, "inc": {"n": 1, "sum": "amount"}}], **more})
    return setup


def follows(setup, **more):
    name = f"tests.{setup.collection.name}"
    setup.routes[0].update({
        "ensure_index": False, "order_by": "source", "dedup": {"key": ["event"]},
        "operation": {"source": "what", "insert": ["follow"], "delete": ["unfollow"], "ledger_expire": "48h"},
        "entity": {"key": ["source", "target"]},
        "counter": [{"collection": f"{name}_users", "filter": {"_id": "target"}, "inc": {"followers": 1}},
                    {"collection": f"{name}_users", "filter": {"_id": "source"}, "inc": {"following": 1}, "upsert": False}], **more})
    return setup


def beside(setup, name):
    return setup.collection.database[f"{setup.collection.name}_{name}"]


def rows(setup):
    """(status, {what without the collection's own name: (verdict, text)}) of check --connect."""
    done = setup.command("check", "--connect", "--json")
    found = {}
    for row in json.loads(done.stdout)["checks"]:
        what = row["what"].replace(f"tests.{setup.collection.name}", "C")
        found[what] = (row["verdict"], row["text"].replace(f"tests.{setup.collection.name}", "C"))
    return done.returncode, found


def init(setup, *options):
    done = setup.command("init", *options)
    return done.returncode, (done.stdout + done.stderr).decode().replace(f"tests.{setup.collection.name}", "C")


def indexes(collection):
    return {i["name"]: {k: dict(v) if k == "key" else v for k, v in i.items() if k not in ("v", "name", "collation", "ns")}
            for i in collection.list_indexes() if i["name"] != "_id_"}
