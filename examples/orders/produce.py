"""Orders in twelve categories, half of them in one: produce.py SEED STATE [DIE_AFTER]"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import produce  # noqa: E402

ORDERS, CATEGORIES, CUSTOMERS = 4000, 12, 200


def events(draw):
    made = []
    for number in range(ORDERS):
        category = 0 if draw.random() < 0.5 else draw.randrange(CATEGORIES)
        order = {"orderId": f"o{number}", "category": {"id": f"c{category // 3}", "sub": category % 3},
                 "customer": f"k{draw.randrange(CUSTOMERS)}", "cents": draw.randrange(1, 100000)}
        made.append((order["category"]["id"], order))
    return made


if __name__ == "__main__":
    produce.main("orders", events)
